# SPDX-License-Identifier: Apache-2.0
"""Tensors of which the rank is known only, or not even that: the ops stay, and nothing fails."""

import numpy as np
import pytest
import tvm
import tvm_dnnl
from tvm import relax
from tvm.contrib.onednn.ops.recurrent import GATES
from tvm.relax import op
from tvm_dnnl._dnnl.ops import ROWS

from dnnl_relax.modules import compiled, composites, const, module, rand, run, var
from dnnl_relax.ops import test_composites, test_decompose, test_norms
from dnnl_relax.ops.draws import DRAWS
from dnnl_relax.ops.test_net import draw
from dnnl_relax.partition import test_rewrites

IMAGES = var("x", 1, 6, 12, 16, dtype="int8")


def unknown(func, has_rank):
    """Return a module of the same calls for parameters of which the rank is known, or nothing."""
    builder, inside = relax.BlockBuilder(), {}
    for old in func.params:
        rank = len(old.ty.shape) if has_rank else -1
        inside[old] = relax.Var(old.name, relax.TensorType(dtype=old.ty.dtype, ndim=rank))

    def again(expr):
        if isinstance(expr, relax.Tuple):
            return relax.Tuple([again(field) for field in expr.fields])
        if isinstance(expr, relax.TupleGetItem):
            return relax.TupleGetItem(again(expr.tuple_value), expr.index)
        if isinstance(expr, relax.Call):
            return relax.Call(expr.op, [again(arg) for arg in expr.args], expr.attrs, expr.ty_args)
        return inside.get(expr, expr)

    with builder.function("main", list(inside.values())):
        with builder.dataflow():
            for block in func.body.blocks:
                for binding in block.bindings:
                    inside[binding.var] = builder.emit(again(binding.value))
            result = builder.emit_output(again(func.body.body))
        builder.emit_func_output(result)
    return builder.get()


def _cases():
    """Yield a drawn call of each op, and the functions that other tests have, by name."""
    # Recurrent layers are functions of TIR.
    for name in sorted(DRAWS.keys() - GATES.keys()):
        mods = (draw(name, "float32", seed, False) for seed in range(20))
        yield name, next(filter(None, mods))
    for tests in (test_composites, test_decompose, test_norms):
        for name, (build, params, _) in tests.CASES.items():
            yield f"{tests.__name__}-{name}", module(build, *params)
    for name, (build, _) in test_rewrites.IN_8_BITS.items():
        yield f"bits-{name}", module(build, IMAGES)


# TVM 0.27 itself crashes where the sizes of an attention are not known.
CASES = {name: case for name, case in _cases() if "attention" not in name}


@pytest.mark.parametrize("has_rank", [True, False], ids=["unknown-sizes", "unknown-rank"])
@pytest.mark.parametrize("name", CASES)
def test_nothing_fails(name, has_rank):
    try:
        mod = unknown(CASES[name]["main"], has_rank)
    except (RuntimeError, ValueError) as error:
        pytest.skip(f"TVM cannot type it: {error}")
    tvm_dnnl.offload_report(mod)
    partitioned = tvm_dnnl.partition_for_dnnl(mod, prune=False)
    relax.analysis.well_formed(partitioned)
    reasons = tvm_dnnl.offload_report(partitioned).reasons
    assert "no rule for this op" not in [
        text for op in reasons if f"relax.{op}" in ROWS for text in reasons[op]
    ]


def test_what_is_known_by_a_match_cast():
    """It is offloaded, and runs."""
    builder, n = relax.BlockBuilder(), tvm.tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType(dtype="float32", ndim=2))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.match_cast(x, relax.TensorType((n, 8), "float32"))
            y = builder.emit(op.nn.relu(builder.emit(op.matmul(y, const(8, 3)))))
            result = builder.emit_output(y)
        builder.emit_func_output(result)
    partitioned = tvm_dnnl.partition_for_dnnl(builder.get(), prune=False)
    assert composites(partitioned) == {"dnnl.dense_relu": 1}
    x = rand(5, 8)
    want = np.maximum(x @ rand(8, 3, seed=1), 0)
    np.testing.assert_allclose(run(compiled(partitioned), x)[0], want, rtol=1e-5, atol=1e-5)
