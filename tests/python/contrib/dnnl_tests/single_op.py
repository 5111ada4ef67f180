# SPDX-License-Identifier: Apache-2.0
"""Running a few ops, or one composite, on oneDNN alone, and looking at what ran."""

import tvm
from tvm import relay
from tvm.contrib.onednn.ops.rules import Rules
from tvm.contrib.onednn.ops.table import TABLE
from tvm.relay.op.contrib import dnnl
from tvm.relay.op.contrib._dnnl.ir.relay_view import view_of
from tvm.testing import dnnl as testing

from dnnl_tests import direct
from dnnl_tests.reference import RTOL


def var(name, shape, dtype="float32"):
    """Return a variable of static shape."""
    return relay.var(name, shape=shape, dtype=dtype)


def run_alone(expr, inputs, params, reference, *, kinds, rtol, **expected):
    """Offload all of `expr` as one partition, run it, and compare it with `reference`.

    Parameters
    ----------
    expr : relay.Expr
        An expression with nothing but ops that oneDNN can run.
    inputs, params : dict
        Values of its variables; those in `params` become constants.
    reference : numpy.ndarray or list of them
        What it must compute.
    kinds : list of str
        The kinds of the primitives that must run, reorders left out.
    rtol : float
        Largest difference, relative to the largest output.
    op : str, optional
        A Relay op of which there must be one.
    composites : dict, optional
        By name, the composites and virtual ops that must be there; any if absent.
    reorders : bool
        Whether reorders are checked and returned too. Default: they are not.
    allow_reference : bool
        Whether oneDNN may run its plain reference implementation. Default: it may not.
    opt_level : int
        Relay's optimisation level. Default: 1, which compiles fastest.

    Returns
    -------
    list of dict
        The primitives of the plan.
    """
    mod = tvm.IRModule.from_expr(expr)
    partitioned = dnnl.partition_for_dnnl(mod, params, prune=False)
    offload = testing.offload(partitioned)
    assert offload.partitions == 1 and not offload.host_ops, f"{offload}\n{partitioned}"
    if "op" in expected:
        assert offload.ops[expected["op"]] == 1, f"{offload}\n{partitioned}"
    if "composites" in expected:
        assert offload.composites == expected["composites"]
    opt_level = expected.get("opt_level", 1)
    steps = run_planned(partitioned, inputs, reference, rtol, opt_level)
    without = [step for step in steps if step["kind"] != "reorder"]
    assert [step["kind"] for step in without] == kinds, steps
    steps = steps if expected.get("reorders") else without
    for step in steps:
        assert expected.get("allow_reference") or not step["reference"], step
    return steps


def run_single(expr, inputs, params, reference, op, kind=None, rtol=RTOL, **expected):
    """Run one call of `op`, as `run_alone` does; `kind` is None for an op without a primitive."""
    expected.update(kinds=[kind] if kind else [], op=op, reorders=True, opt_level=3)
    return run_alone(expr, inputs, params, reference, rtol=rtol, **expected)


def run_planned(mod, inputs, reference, rtol=RTOL, opt_level=3):
    """Run a module of one partition, compare it, and return the primitives of its plan."""
    runner = direct.Runner(mod, opt_level=opt_level)
    outputs = runner(inputs)
    testing.assert_close(outputs, reference if isinstance(reference, list) else [reference], rtol)
    (plan,) = testing.plans(runner)
    return plan["primitives"]


def run_fused(body, inputs, reference, rtol=RTOL):
    """Run an expression as one composite, whether or not a pattern would make it one.

    Parameters
    ----------
    body : relay.Expr
        A chain of calls: the root op, then what is fused to it.
    inputs : dict[str, numpy.ndarray]
        The values of its variables.
    reference : numpy.ndarray
        The expected result.
    rtol : float
        Largest difference allowed, relative to the largest output.

    Returns
    -------
    list[dict]
        The primitives of the plan.
    """
    body = relay.transform.InferType()(tvm.IRModule.from_expr(body))["main"].body
    variables = relay.analysis.free_vars(body)
    composite = relay.Function(variables, body).with_attr("Composite", "dnnl.test")
    params = [var(f"p{i}", v.type_annotation.shape) for i, v in enumerate(variables)]
    func = relay.Function(params, composite(*params), body.checked_type)
    for key, value in (
        ("Compiler", "dnnl"),
        ("global_symbol", "tvmgen_default_dnnl_fused"),
        ("Primitive", 1),
        ("Inline", 1),
    ):
        func = func.with_attr(key, tvm.tir.IntImm("int32", 1) if value == 1 else value)
    args = [var(v.name_hint, v.type_annotation.shape) for v in variables]
    callee = relay.GlobalVar("tvmgen_default_dnnl_fused")
    main = relay.Function(args, callee(*args))
    mod = relay.transform.InferType()(tvm.IRModule({callee: func, relay.GlobalVar("main"): main}))
    return run_planned(mod, inputs, reference, rtol)


def refusal(expr):
    """Return why the call that ends an expression stays on TVM; None if it does not."""
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(expr))
    call = mod["main"].body
    while isinstance(call, relay.TupleGetItem):
        call = call.tuple_value
    return Rules(TABLE).refusal(view_of(call))


def reasons(expr, params=None):
    """Return the texts of the reasons why the calls of `expr` stay on TVM, none offloaded."""
    mod = dnnl.partition_for_dnnl(tvm.IRModule.from_expr(expr), params, prune=False)
    report = dnnl.offload_report(mod)
    assert report.offloaded == 0, str(report)
    return [text for counts in report.reasons.values() for text in counts]
