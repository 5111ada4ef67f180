# SPDX-License-Identifier: Apache-2.0
"""Each op with each kind of op that is fused to it, on special values: the schema draws both."""

import pytest
import tvm
from tvm import relay
from tvm.contrib.onednn.ops.table import TABLE
from tvm.relay.op.contrib import dnnl

from dnnl_tests.graphs.calls import alone, drawn, function, relay_call
from dnnl_tests.graphs.draw import Unfit
from dnnl_tests.graphs.rows.drawn import OfTensor
from dnnl_tests.graphs.test_infer import wrong_special_numbers
from dnnl_tests.net import TRIES

ROOTS = [n for n, row in TABLE.items() if row.fuses and not n.startswith(("dnnl.", "qnn."))]
# Of each kind of op that is fused.
COUNT = 2
KINDS = "eltwise", "binary", "prelu"


def post_op(kind, number, body):
    """Return a call of an op of a kind, of the result of another op."""
    ops = [name for name, row in TABLE.items() if row.post == kind and "dnnl." not in name]
    name, shape = ops[number % len(ops)], tuple(map(int, body.checked_type.shape))
    call = TABLE[name].draw(OfTensor(number, shape))
    if call.values[0].shape != shape:
        raise Unfit(f"{name} of {shape}")
    operands = [relay.const(tvm.nd.array(value + 1.5)) for value in call.values[1:]]
    return relay_call(name, call, [body, *operands], "float32")


def fused(name, kind, seed):
    """Return a module of an op with another one after it; None where one of them is refused."""
    try:
        func = function(*alone(drawn(name, seed, "float32"), False))
        if func.body.checked_type.dtype != "float32":
            return None
        mod = tvm.IRModule.from_expr(relay.Function(func.params, post_op(kind, seed, func.body)))
        return relay.transform.InferType()(mod)
    except (AttributeError, Unfit, tvm.TVMError, TypeError, ValueError):
        return None


@pytest.mark.nightly
@pytest.mark.parametrize("name", ROOTS)
def test_special_values(name):
    """Ops that are fused compute what they do alone."""
    problems, composites = [], 0
    for number, kind in enumerate(k for k in KINDS if k in TABLE[name].fuses):
        checked = 0
        for seed in range(number, number + 2 * TRIES):
            mod = fused(name, kind, seed)
            if mod is None:
                continue
            partitioned = dnnl.partition_for_dnnl(mod, prune=False, strict=True)
            report = dnnl.offload_report(partitioned)
            # One kernel computes both.
            if report.offloaded != 2 or sum(report.composites.values()) != 1:
                continue
            composites += 1
            # A subnormal number in the middle may be zero, of which a reciprocal is infinite.
            problems += wrong_special_numbers(mod, partitioned, seed, ("largest", "subnormal"))
            checked += 1
            if checked == COUNT:
                break
    assert composites or not TABLE[name].heavy
    assert not problems, f"{len(problems)}:\n" + "\n".join(problems[:2])
