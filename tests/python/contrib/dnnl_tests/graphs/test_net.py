# SPDX-License-Identifier: Apache-2.0
"""Each op of the table x data type x fixed or open sizes: accepted, written and inferred alike.

The calls are those of `test_infer`, which runs them where the CPU has the type. Here they go
through `partition_for_dnnl`, without any failure (`strict`), and through the code generator; the
runtime must infer the types that Relay does. A combination of which nothing is accepted must have a
reason for each draw. On a CPU without bfloat16 or float16, their partitions are made as for one
that has them.
"""

import pytest
import tvm
from tvm import relay
from tvm.contrib.onednn.ops.rules import Rules
from tvm.contrib.onednn.ops.table import TABLE
from tvm.relay.op.contrib import dnnl
from tvm.relay.op.contrib._dnnl.ir.dataflow_graph import is_partition
from tvm.relay.op.contrib._dnnl.ir.relay_view import view_of

from dnnl_tests import graphs as random_graphs
from dnnl_tests.graphs import draw
from dnnl_tests.graphs.calls import alone, drawn, function
from dnnl_tests.graphs.test_infer import (
    DIRECT,
    FOUND,
    ROWS,
    opened,
    problems_of,
)
from dnnl_tests.net import COUNTS, DTYPES, TRIES, check_op
from dnnl_tests.pretended_cpu import every_dtype, only_float32
from dnnl_tests.relay import const

# Ops of the table that Relay writes as others, or that rewrites make of several: in `rewrites`,
# `ops` and `integration`.
MADE = {name for name in TABLE if name.startswith(("dnnl.", "qnn."))} - set(FOUND)


def quantized(func):
    """Return a function whose float32 parameters are dequantized, and its result quantized."""
    scale, zero = relay.const(0.05), relay.const(3)
    params, values = [], {}
    for param in func.params:
        type_ = param.checked_type
        is_real = type_.dtype == "float32"
        type_ = relay.TensorType(type_.shape, "int8" if is_real else type_.dtype)
        params.append(relay.var(param.name_hint, type_annotation=type_))
        values[param] = params[-1]
        if is_real:
            values[param] = relay.qnn.op.dequantize(params[-1], scale, zero)
    body = relay.bind(func.body, values)
    type_ = func.checked_type.ret_type
    if getattr(type_, "dtype", None) == "float32":
        body = relay.qnn.op.quantize(body, relay.const(0.1), zero, out_dtype="int8")
    mod = tvm.IRModule.from_expr(relay.Function(params, body))
    return relay.transform.InferType()(mod)["main"]


def fits(func, static):
    """Whether a partition has the parameters of a function with fixed sizes."""
    if len(func.params) != len(static.params):
        return False
    return all(
        own.checked_type.dtype == other.checked_type.dtype
        and len(own.checked_type.shape) == len(other.checked_type.shape)
        and all(
            not isinstance(a, tvm.tir.IntImm) or int(a) == int(b)
            for a, b in zip(own.checked_type.shape, other.checked_type.shape)
        )
        for own, other in zip(func.params, static.params)
    )


def check(func, static, is_accepted):
    """Partition a function, of which the rules accept the op or not; return what is wrong."""
    try:
        mod = tvm.IRModule.from_expr(func)
        partitioned = dnnl.partition_for_dnnl(mod, prune=False, strict=True)
        parts = [each for each in partitioned.functions.values() if is_partition(each)]
        report = dnnl.offload_report(partitioned)
        # A no-op is gone; the partitioner also knows the values of constants, such as indices.
        is_explained = not is_accepted or not report.total or any(report.reasons.values())
        problems = [] if parts or is_explained else ["nothing is offloaded"]
        for part in parts:
            if static is func:
                problems += problems_of(part, part)
            elif len(parts) == 1 and fits(part, static):
                problems += problems_of(part, static)
    # Whatever is raised is a problem.
    except Exception as error:  # pylint: disable=broad-except
        return [f"{type(error).__name__}: {str(error).strip().splitlines()[-1]}"]
    return problems


def made(name, dtype, seed, is_open):
    """Return a function of one call, and the same with fixed sizes; None where Relay refuses it."""
    try:
        # Every second of 8 bits is between dequantize and quantize.
        is_quantized = dtype == "int8" and seed % 2 == 0
        expr = drawn(name, seed, "float32" if is_quantized else dtype)
        # Weights of open sizes are refused, so some are constants.
        with_constants = seed % 4 < 2 if is_open else not is_quantized
        static = function(*alone(expr, with_constants))
        func = opened(static, seed) if is_open else static
        return tuple(map(quantized, (func, static))) if is_quantized else (func, static)
    except (tvm.TVMError, TypeError, ValueError):
        return None


def judged(func, name, reasons):
    """Whether the rule accepts the calls of an op; append why not."""
    rules, known = Rules(TABLE), []

    def visit(expr):
        view = view_of(expr)
        if view is not None and view.name == name:
            known.append(rules.refusal(view))

    relay.analysis.post_order_visit(func.body, visit)
    reasons += filter(None, known)
    return None in known


def combination(name, dtype, is_open, count, problems):
    """Check draws of one combination; return how many are accepted, and why others are not."""
    accepted, reasons = 0, []
    for seed in range(TRIES):
        with every_dtype():
            case = made(name, dtype, seed, is_open)
            if case is None:
                reasons.append("Relay refuses it")
                continue
            func, static = case
            is_accepted = judged(func, name, reasons)
            if is_open and not judged(static, name, reasons):
                continue
            # The first is partitioned in any case.
            if is_accepted or seed == 0:
                func, static = (static, static) if not is_open else (func, static)
                is_real = func.params and is_accepted
                wrong = check(func, static, is_real)
                problems += [f"{dtype}, seed {seed}, {func}\n{each}" for each in wrong]
                accepted += is_accepted
            if accepted == count:
                break
    return accepted, reasons


def test_each_op_of_the_table_is_drawn():
    assert {*DIRECT, *FOUND, *MADE} >= set(TABLE)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("name", DIRECT)
def test_net(name, count):
    check_op(name, DIRECT.index(name), count, combination)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", [name for name in DIRECT if not TABLE[name].moves])
def test_on_a_cpu_without_the_type(name, dtype):
    """What oneDNN runs in float32 it runs in float32 if the model has it in another type."""
    for seed in range(TRIES):
        case, wide = (made(name, each, seed, False) for each in (dtype, "float32"))
        if case is None or wide is None or not judged(wide[0], name, []):
            continue
        func, _ = case
        # A conversion of data that nothing computes with stays as it is.
        is_offloaded = name != "cast" and bool(func.params)
        with only_float32():
            assert not check(func, func, is_offloaded), func
        return
    pytest.skip("Relay has no such call, or oneDNN does not run it in float32")


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("name", FOUND)
def test_net_of_formulas(name, count):
    problems = []
    for dtype in DTYPES[:3]:
        accepted = 0
        for seed in range(TRIES):
            try:
                graph = random_graphs.single(seed, ROWS[name], ROWS, edges=True)
                func = relay.transform.InferType()(graph.module(ROWS, dtype))["main"]
            except (draw.Unfit, tvm.TVMError, ValueError):
                continue
            with every_dtype():
                wrong = check(func, func, False)
            problems += [f"{dtype}, seed {seed}, {func}\n{each}" for each in wrong]
            accepted += 1
            if accepted == count:
                break
    assert not problems, f"{len(problems)}:\n" + "\n".join(problems[:4])


# What a root fuses as a post-op that reads a constant.
BINARY = [name for name, row in TABLE.items() if row.post == "binary" and hasattr(relay, name)]
HEAVY = [name for name in DIRECT if TABLE[name].heavy and "binary" in TABLE[name].fuses]


def constants_of_composites(mod):
    """Return (data type of the constant, that of the result) for what composites read."""
    types = []

    def visit(expr):
        if isinstance(expr, relay.Call) and isinstance(expr.op, relay.Function):
            constants = (arg for arg in expr.args[2:] if isinstance(arg, relay.Constant))
            result = expr.op.ret_type.dtype
            types.extend((str(each.checked_type.dtype), str(result)) for each in constants)

    for func in filter(is_partition, mod.functions.values()):
        relay.analysis.post_order_visit(func.body, visit)
    return types


@pytest.mark.parametrize("name", HEAVY)
def test_net_of_constants_in_bfloat16(name):
    """Each heavy op with each binary op of a constant: oneDNN reads that in float32."""
    accepted, types = 0, []
    for seed in range(TRIES):
        try:
            root = drawn(name, seed, "float32")
            func = function(*alone(root, True))
        except (tvm.TVMError, TypeError, ValueError):
            continue
        if not judged(func, name, []):
            continue
        accepted += 1
        for op in BINARY:
            expr = relay.tanh(getattr(relay, op)(relay.tanh(func.body), relay.const(1.0038)))
            # Between two heavy ops it computes in bfloat16.
            last = int(func.checked_type.ret_type.shape[-1])
            expr = relay.nn.dense(relay.reshape(expr, (-1, last)), const(4, last))
            mod = tvm.IRModule.from_expr(relay.Function(func.params, expr))
            with every_dtype():
                options = {"prune": False, "strict": True, "precision": "bfloat16"}
                mod = dnnl.partition_for_dnnl(relay.transform.InferType()(mod), **options)
            parts = [each for each in mod.functions.values() if is_partition(each)]
            assert not [wrong for part in parts for wrong in problems_of(part, part)]
            types += constants_of_composites(mod)
        if accepted == 1:
            break
    assert ("float32", "bfloat16") in types and ("bfloat16", "bfloat16") not in types
