# SPDX-License-Identifier: Apache-2.0
"""Each op with each kind of op that is fused to it, on special values: the schema draws both."""

import numpy as np
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
NORMS = [n for n in TABLE if ("norm" in n or "softmax" in n) and not n.startswith("dnnl.")]
# Of each kind of op that is fused.
COUNT = 2
KINDS = "eltwise", "binary", "prelu", "quantize"


def fuses(name, kind):
    """Whether an op that reads float32 has ops of a kind fused to it."""
    row = TABLE[name]
    return kind in row.fuses and (kind != "quantize" or row.post == "binary")


def post_op(kind, number, body):
    """Return a call of an op of a kind, of the result of another op."""
    ops = [name for name, row in TABLE.items() if row.post == kind and "dnnl." not in name]
    name, shape = ops[number % len(ops)], tuple(map(int, body.checked_type.shape))
    call = TABLE[name].draw(OfTensor(number, shape))
    if call.values[0].shape != shape:
        raise Unfit(f"{name} of {shape}")
    shifts = {"float32": 1.5}
    operands = [
        relay.const(tvm.nd.array(np.asarray(value + shifts.get(str(value.dtype), 0), value.dtype)))
        for value in call.values[1:]
    ]
    return relay_call(name, call, [body, *operands], call.attrs.get("out_dtype", "float32"))


def drawn_module(name, seed, before=None, after=None):
    """Return a module of an op; None where an op is refused.

    With `before`, a binary op, of its data and another tensor; with an op of the kind `after`.
    """
    try:
        func = function(*alone(drawn(name, seed, "float32"), False))
        params, body = list(func.params), func.body
        if body.checked_type.dtype != "float32":
            return None
        if after is not None:
            body = post_op(after, seed, body)
        if before is not None:
            params.append(relay.var("other", params[0].checked_type))
            body = relay.bind(body, {params[0]: before(params[0], params[-1])})
        mod = tvm.IRModule.from_expr(relay.Function(params, body))
        return relay.transform.InferType()(mod)
    except (AttributeError, Unfit, tvm.TVMError, TypeError, ValueError):
        return None


@pytest.mark.nightly
@pytest.mark.parametrize("name", ROOTS)
def test_special_values(name):
    """Ops that are fused compute what they do alone."""
    problems, composites = [], 0
    for number, kind in enumerate(k for k in KINDS if fuses(name, k)):
        checked = 0
        for seed in range(number, number + 2 * TRIES):
            mod = drawn_module(name, seed, after=kind)
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


@pytest.mark.nightly
@pytest.mark.parametrize("name", NORMS)
def test_special_values_around_norms(name):
    """A sum before a norm, a quantize after it, and both."""
    problems, checked = [], 0
    for seed in range(2 * TRIES):
        before, after = (relay.add if seed % 3 else None), ("quantize" if seed % 3 < 2 else None)
        mod = drawn_module(name, seed, before, after)
        if mod is None:
            continue
        partitioned = dnnl.partition_for_dnnl(mod, prune=False, strict=True)
        report = dnnl.offload_report(partitioned)
        if report.offloaded == report.total and report.partitions == 1:
            # A sum of huge numbers rounds the differences that the norm is of.
            left_out = ("largest", "subnormal", "huge mean")
            problems += wrong_special_numbers(mod, partitioned, seed, left_out)
            checked += 1
    assert checked
    assert not problems, f"{len(problems)} of {checked}:\n" + "\n".join(problems[:2])
