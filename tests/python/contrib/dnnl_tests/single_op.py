# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.  See the NOTICE file
# distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file
# to you under the Apache License, Version 2.0 (the
# "License"); you may not use this file except in compliance
# with the License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing,
# software distributed under the License is distributed on an
# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
# KIND, either express or implied.  See the License for the
# specific language governing permissions and limitations
# under the License.
"""Running one op, or one composite, on the DNNL backend and looking at what oneDNN made of it."""

import tvm
from tvm import relay
from tvm.relay.op.contrib import dnnl
from tvm.relay.op.contrib._dnnl.policy.op_spec import Rules
from tvm.testing import dnnl as testing

from dnnl_tests.reference import RTOL


def var(name, shape, dtype="float32"):
    """Return a variable of static shape."""
    return relay.var(name, shape=shape, dtype=dtype)


def run_single(expr, inputs, params, reference, op, kind=None, rtol=RTOL, allow_reference=False):
    """Offload an expression of one op, run it and compare it.

    Parameters
    ----------
    expr : relay.Expr
        With `op` as its only call.
    inputs, params : dict[str, numpy.ndarray]
        The values of its variables; `params` become constants.
    reference : numpy.ndarray | list[numpy.ndarray]
        The expected result or results.
    op : str
        The Relay op that must be offloaded.
    kind : str | None
        The kind of the one primitive besides reorders; None for an op without one.
    rtol : float
        Largest difference allowed, relative to the largest output.
    allow_reference : bool
        Whether oneDNN may run its plain reference implementation.

    Returns
    -------
    list[dict]
        The primitives of the plan.
    """
    reference = reference if isinstance(reference, list) else [reference]
    mod = tvm.IRModule.from_expr(expr)
    partitioned = dnnl.partition_for_dnnl(mod, params, prune=False)
    found = testing.offload(partitioned)
    assert found.partitions == 1 and not found.host_ops and found.ops[op] == 1, partitioned
    runner = testing.Runner(testing.build(partitioned))
    testing.assert_close(runner(inputs), reference, rtol)
    (plan,) = testing.plans(runner)
    kinds = [step["kind"] for step in plan["primitives"] if step["kind"] != "reorder"]
    assert kinds == ([kind] if kind else []), plan["primitives"]
    if not allow_reference:
        slow = [step for step in plan["primitives"] if step["impl"].startswith("ref")]
        assert not slow, slow
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
    runner = testing.Runner(testing.build(mod))
    testing.assert_close(runner(inputs), [reference], rtol)
    (plan,) = testing.plans(runner)
    return plan["primitives"]


def refusal(expr):
    """Return why the call that ends an expression stays on TVM; None if it does not."""
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(expr))
    call = mod["main"].body
    while isinstance(call, relay.TupleGetItem):
        call = call.tuple_value
    return Rules(dnnl._TABLE).refusal(call)
