# SPDX-License-Identifier: Apache-2.0
"""Which ops compute in bfloat16 or float16 where the option `precision` asks for it.

The CPU need not have these types: TVM computes what the partitions say, which is not run on oneDNN.
Which ops are reduced, the tests of Relay show: `rewrites/test_reduced_precision.py`.
"""

from collections import Counter

import numpy as np
import pytest
import tvm_dnnl
from dnnl_tests.models import onnx_networks
from tvm import relax
from tvm.contrib.onednn import cpu
from tvm.relax import op
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.relax.frontend.onnx import from_onnx
from tvm_dnnl._dnnl import registration

from dnnl_relax.modules import X3, compiled, const, module, partitions, rand, run, var

REDUCED = ("bfloat16", "float16")


@pytest.fixture
def any_cpu(monkeypatch):
    """Pretend that the CPU has all types."""
    registration.register()  # asks the CPU
    monkeypatch.setattr(cpu, "computes", lambda dtype: True)


def dense(builder, x, seed=1):
    return builder.emit(op.matmul(x, const(8, 8, seed=seed)))


def kinds(mod):
    """Count (composite or op outside of one, type of its first result) of a partitioned module."""
    counts = Counter()
    for func in mod.functions.values():
        if not isinstance(func, relax.Function):
            continue
        names = {}
        for binding in (binding for block in func.body.blocks for binding in block.bindings):
            value = binding.value
            if isinstance(value, relax.Function):
                names[binding.var] = str(value.attrs["Composite"])
            elif isinstance(value, relax.Call):
                name = names.get(value.op) or getattr(value.op, "name", None)
                is_tuple = isinstance(value.ty, relax.TupleType)
                type_ = value.ty.fields[0] if is_tuple else value.ty
                if name is not None:
                    counts[name.removeprefix("dnnl.").removeprefix("relax."), str(type_.dtype)] += 1
    return counts


@mutator
class _Unmarked(PyExprMutator):
    def visit_function_(self, op):  # pylint: disable=arguments-differ
        func = self.visit_expr_post_order(op)
        for key in ("Composite", "Codegen"):
            func = func.without_attr(key) if key in func.attrs else func
        return func


def on_tvm(mod):
    """Return a partitioned module that TVM computes."""
    builder = relax.BlockBuilder(mod)
    for name, func in mod.functions_items():
        if isinstance(func, relax.Function):
            builder.update_func(name, _Unmarked(mod).visit_expr(func))
    return relax.transform.LambdaLift()(builder.finalize())


def check(mod, precision, tolerance=3e-2):
    """Partition, compare the numbers with those of float32, and return what is in the module."""
    before = mod.script()
    partitioned = tvm_dnnl.partition_for_dnnl(mod, precision=precision, prune=False)
    assert mod.script() == before, "the caller's module was changed"
    relax.analysis.well_formed(partitioned)
    inputs = [rand(*map(int, p.ty.shape.values), dtype=str(p.ty.dtype)) for p in mod["main"].params]
    got, want = (run(each, *inputs) for each in (on_tvm(partitioned), mod))
    for one, other in zip(got, want):
        assert one.dtype == other.dtype
        difference = np.linalg.norm(one - other) / np.linalg.norm(other)
        assert 1e-6 < difference < tolerance
    return kinds(partitioned)


def network(name, **sizes):
    """Return a small transformer as TVM imports it from ONNX."""
    return from_onnx(getattr(onnx_networks, name)(**sizes), keep_params_in_input=False)


@pytest.mark.parametrize("precision", REDUCED)
def test_transformer(precision, any_cpu):
    """All is fused as in float32; the norms at both ends stay, and two casts come."""
    # A shorter one has `dnnl.attention`.
    mod = network("bert", layers=2, length=32, size=32, heads=4)
    wide = kinds(tvm_dnnl.partition_for_dnnl(mod, prune=False))
    counts = check(mod, precision)
    for name, _ in wide:
        assert counts[name, precision] + counts[name, "float32"] == wide[name, "float32"]
    if precision == "bfloat16":
        # The sums of residual connections stay in float32, as do the norms that read them.
        assert counts["layer_norm", "float32"] == 5
        assert counts["cast", precision] == 4 and not counts["cast", "float32"]
    else:
        assert counts["layer_norm", "float32"] == 2
        assert counts["cast", precision] == counts["cast", "float32"] == 1
    assert counts["dense_bias_gelu_erf", precision] == 2


def test_attention(any_cpu):
    """With a mask that the type can hold."""

    def build(builder, x):
        weights = (relax.const(rand(1, 1, 1, 4, seed=seed)) for seed in range(3))
        query, key, value = (builder.emit(op.multiply(x, weight)) for weight in weights)
        return op.nn.attention(query, key, value, causal_mask="TopLeft")

    counts = check(module(build, var("x", 2, 5, 2, 4)), "bfloat16")
    assert counts["attention", "bfloat16"] == 1


def test_model_of_reduced_precision(any_cpu):
    """It is taken as it is, formulas in float32 between casts included."""

    def build(builder, x):
        y = builder.emit(op.matmul(x, relax.const(rand(8, 8).astype("float16"))))
        wide = builder.emit(op.astype(y, "float32"))
        gate = builder.emit(op.sigmoid(wide))
        return op.astype(builder.emit(op.multiply(wide, gate)), "float16")

    mod = module(build, var("x", 4, 8, dtype="float16"))
    for precision in ("float32", "bfloat16"):
        partitioned = tvm_dnnl.partition_for_dnnl(mod, precision=precision, prune=False)
        assert (
            kinds(partitioned) == {("dense_swish", "float16"): 1} and partitions(partitioned) == 1
        )


@pytest.mark.parametrize("precision", REDUCED)
def test_this_cpu(precision):
    """A type that oneDNN cannot compute with is an error that names it; one that it can runs."""
    mod = module(lambda b, x: dense(b, b.emit(op.nn.gelu(dense(b, x)))), X3)
    if not cpu.computes(precision):
        with pytest.raises(ValueError, match=f"does not support {precision} on this CPU"):
            tvm_dnnl.partition_for_dnnl(mod, precision=precision)
        return
    x = rand(2, 5, 8)
    partitioned = tvm_dnnl.partition_for_dnnl(mod, precision=precision, prune=False)
    (got,), (want,) = run(compiled(partitioned), x), run(mod, x)
    assert np.linalg.norm(got - want) < 3e-2 * np.linalg.norm(want)


def test_auto():
    mod = module(lambda b, x: dense(b, b.emit(op.nn.gelu(dense(b, x)))), X3)
    wanted = "bfloat16" if cpu.prefers("bfloat16") else "float32"
    modules = [
        kinds(tvm_dnnl.partition_for_dnnl(mod, precision=precision, prune=False))
        for precision in ("auto", wanted)
    ]
    assert modules[0] == modules[1]


def test_wrong_values():
    mod = module(lambda b, x: dense(b, x), X3)
    with pytest.raises(ValueError, match="precision must be auto, float32, bfloat16 or float16"):
        tvm_dnnl.partition_for_dnnl(mod, precision="half")
    with pytest.raises(TypeError, match="precision must be a string"):
        tvm_dnnl.partition_for_dnnl(mod, precision=16)
