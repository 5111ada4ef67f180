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

from ..ir.constants import to_constant, to_double
from ..ir.dataflow_graph import Graph
from ..policy.op_spec import Rules
from ..policy.tensors import VIRTUAL_OP, op_name

SHORT = "bfloat16"
_KEEP_OUTPUTS = "relay.ToMixedPrecision.keep_orig_output_dtype"


def to_mixed(mod: tvm.IRModule, name: str) -> relay.Function:
    """Return the function `name` as ToMixedPrecision makes it, of the same type as before."""
    context = tvm.transform.PassContext.current()
    config = {**dict(context.config.items()), _KEEP_OUTPUTS: True}
    with tvm.transform.PassContext(opt_level=context.opt_level, config=config):
        return transform.ToMixedPrecision(SHORT)(mod)[name]


def narrow(func: relay.Function, rules: Rules) -> relay.Function:
    """Let ops between casts from and to bfloat16 compute with bfloat16.

    Parameters
    ----------
    func : relay.Function
        A typed function.
    rules : Rules
        The policy, which tells what oneDNN runs.

    Returns
    -------
    func : relay.Function
        The same where there is nothing between casts.
    """
    graph = Graph(func)
    inside = _between_casts(graph, rules)
    if not inside:
        return func

    def build(i, done):
        expr = graph.nodes[i]
        if i in inside:
            args = [_short(graph, child, inside, done) for child in _operands(graph, i)]
            callee = expr.op if op_name(expr) else _short_function(expr.op)
            return relay.Call(callee, args, expr.attrs, span=expr.span)
        if _is_cast(graph, i, SHORT) and graph.children[i][0] in inside:
            return done[graph.children[i][0]]
        return graph.remake(i, done)

    return graph.rebuild(lambda i: graph.children[i], build)


def _operands(graph: Graph, i: int) -> list[int]:
    """Return the operands of a call by number."""
    return graph.children[i][-len(graph.nodes[i].args) :]


def _is_cast(graph: Graph, i: int, dtype: str) -> bool:
    """Whether an expression is a cast between bfloat16 and float32, to `dtype`."""
    expr = graph.nodes[i]
    if op_name(expr) != "cast" or expr.checked_type.dtype != dtype:
        return False
    return {dtype, expr.args[0].checked_type.dtype} == {SHORT, "float32"}


def _is_candidate(graph: Graph, i: int, rules: Rules) -> bool:
    """Whether oneDNN runs a call in float32 that says nowhere that it is float32."""
    expr = graph.nodes[i]
    type_ = getattr(expr, "checked_type", None)
    if not isinstance(expr, relay.Call) or not isinstance(type_, relay.TensorType):
        return False
    if type_.dtype != "float32" or op_name(expr) == "cast":
        return False
    if isinstance(expr.op, relay.Function):
        return expr.op.attrs is not None and VIRTUAL_OP in expr.op.attrs
    if op_name(expr) is None or (expr.attrs is not None and "out_dtype" in expr.attrs.keys()):
        return False
    return rules.refusal(expr) is None


def _between_casts(graph: Graph, rules: Rules) -> set[int]:
    """Return the calls all of whose operands come from bfloat16 and whose results go there."""
    inside = {i for i in range(len(graph.nodes)) if _is_candidate(graph, i, rules)}

    def stays(i):
        from_short = any(
            child in inside or _is_cast(graph, child, "float32") for child in _operands(graph, i)
        )
        return (
            from_short
            and all(
                child in inside
                or _is_cast(graph, child, "float32")
                or isinstance(graph.nodes[child], relay.Constant)
                for child in _operands(graph, i)
            )
            and all(user in inside or _is_cast(graph, user, SHORT) for user in graph.users[i])
        )

    while dropped := {i for i in inside if not stays(i)}:
        inside -= dropped
    return inside


def _short(graph: Graph, i: int, inside: set[int], done: dict[int, relay.Expr]) -> relay.Expr:
    """Return an operand in bfloat16."""
    if i in inside:
        return done[i]
    if isinstance(graph.nodes[i], relay.Constant):
        return to_constant(to_double(graph.nodes[i]), SHORT)
    return done[graph.children[i][0]]


def _short_function(func: relay.Function) -> relay.Function:
    """Return a virtual op that takes and returns bfloat16."""
    params = [
        relay.var(param.name_hint, relay.TensorType(param.checked_type.shape, SHORT))
        for param in func.params
    ]
    wide = {old: relay.cast(new, "float32") for old, new in zip(func.params, params)}
    body = relay.cast(relay.bind(func.body, wide), SHORT)
    made = relay.Function(params, body, relay.TensorType(func.ret_type.shape, SHORT))
    for key in func.attrs.keys():
        made = made.with_attr(key, func.attrs[key])
    return made
