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
"""Makes real numbers bfloat16 where the option `bf16` asks for it.

TVM's ToMixedPrecision gives the ops that compute much to bfloat16 and leaves others, such as a
softmax, in float32 between two casts. oneDNN computes those in float32 inside whatever the type of
its operands is, so that they may take and return bfloat16.
"""

from __future__ import annotations

import tvm
from tvm import relay
from tvm.relay import transform
from tvm.relay.function import FunctionWithFields

from ..ir.constants import to_constant, to_double
from ..ir.dataflow_graph import DataflowGraph, Rewritten, TypedFunction
from ..policy.op_spec import Rules
from .simplify import without_constant_ops

BFLOAT16 = "bfloat16"
_KEEP_OUTPUTS = "relay.ToMixedPrecision.keep_orig_output_dtype"


def to_mixed_precision(function: TypedFunction, rules: Rules) -> Rewritten:
    """Run TVM's ToMixedPrecision, and fold the casts of constants; the type is as before."""
    context = tvm.transform.PassContext.current()
    config = {**dict(context.config.items()), _KEEP_OUTPUTS: True}
    with tvm.transform.PassContext(opt_level=context.opt_level, config=config):
        mod = transform.ToMixedPrecision(BFLOAT16)(function.mod)
    return Rewritten(without_constant_ops(mod[function.name], mod))


def compute_in_bfloat16(function: TypedFunction, rules: Rules) -> Rewritten:
    """Let ops between casts from and to bfloat16 compute with bfloat16."""
    graph = function.graph
    inside = _between_casts(graph, rules)
    if not inside:
        return Rewritten(function.func)

    def build(i, done):
        expr = graph.nodes[i]
        if i in inside:
            args = [_reduced(graph, operand, inside, done) for operand in graph.operands[i]]
            callee = _reduced_function(expr.op) if _is_virtual(expr) else expr.op
            return relay.Call(callee, args, expr.attrs, span=expr.span)
        if _is_cast(graph, i, BFLOAT16) and graph.operands[i][0] in inside:
            return done[graph.operands[i][0]]
        return graph.remake(i, done)

    return Rewritten(graph.rebuild(lambda i: graph.operands[i], build))


def _is_virtual(call: relay.Call) -> bool:
    return isinstance(call.op, relay.Function)


def _is_cast(graph: DataflowGraph, i: int, dtype: str) -> bool:
    """Whether an expression is a cast between bfloat16 and float32, to `dtype`."""
    expr = graph.nodes[i]
    if graph.ops[i] != "cast" or expr.checked_type.dtype != dtype:
        return False
    return {dtype, expr.args[0].checked_type.dtype} == {BFLOAT16, "float32"}


def _is_candidate(graph: DataflowGraph, i: int, rules: Rules) -> bool:
    """Whether oneDNN runs a call in float32 that says nowhere that it is float32."""
    if graph.ops[i] not in rules.ops or graph.ops[i] == "cast":
        return False
    expr = graph.nodes[i]
    type_ = expr.checked_type
    if not isinstance(type_, relay.TensorType) or type_.dtype != "float32":
        return False
    if expr.attrs is not None and "out_dtype" in expr.attrs.keys():
        return False
    return rules.refusal(expr) is None


def _between_casts(graph: DataflowGraph, rules: Rules) -> set[int]:
    """Return the calls all of whose operands come from bfloat16 and whose results go there."""
    inside = {i for i in range(len(graph.nodes)) if _is_candidate(graph, i, rules)}

    def stays(i):
        reduced = {
            operand
            for operand in graph.operands[i]
            if operand in inside or _is_cast(graph, operand, "float32")
        }
        return (
            reduced
            and all(
                operand in reduced or isinstance(graph.nodes[operand], relay.Constant)
                for operand in graph.operands[i]
            )
            and all(user in inside or _is_cast(graph, user, BFLOAT16) for user in graph.users[i])
        )

    while dropped := {i for i in inside if not stays(i)}:
        inside -= dropped
    return inside


def _reduced(
    graph: DataflowGraph, i: int, inside: set[int], done: dict[int, relay.Expr]
) -> relay.Expr:
    """Return an operand in bfloat16."""
    if i in inside:
        return done[i]
    if isinstance(graph.nodes[i], relay.Constant):
        return to_constant(to_double(graph.nodes[i]), BFLOAT16)
    return done[graph.operands[i][0]]


def _reduced_function(func: relay.Function) -> relay.Function:
    """Return a virtual op of bfloat16 whose body computes as before.

    ToMixedPrecision leaves functions alone, so a virtual op has to be one before it.
    """
    params = [
        relay.var(param.name_hint, relay.TensorType(param.checked_type.shape, BFLOAT16))
        for param in func.params
    ]
    in_float32 = {old: relay.cast(new, "float32") for old, new in zip(func.params, params)}
    body = relay.cast(relay.bind(func.body, in_float32), BFLOAT16)
    return FunctionWithFields(func, params, body, relay.TensorType(func.ret_type.shape, BFLOAT16))
