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
"""Moves a bias in front of a residual, where the option `keep_bias_order` permits it.

oneDNN adds a bias in its accumulators, at no cost; behind a residual it is one more post-op.
"""

from __future__ import annotations

from functools import partial

from tvm import relay

from ..ir.dataflow_graph import Graph
from ..policy.op_spec import Rules
from ..policy.operands import BIAS_OPS, is_per_channel
from ..policy.tensors import op_name, shape_of


def bias_first(func: relay.Function, rules: Rules) -> relay.Function:
    """Turn (root + residual) + bias into (root + bias) + residual.

    Parameters
    ----------
    func : relay.Function
        A typed function.
    rules : Rules
        The policy, which tells the roots.

    Returns
    -------
    func : relay.Function
        The same where no bias is moved.
    """
    graph = Graph(func)
    found = {}
    taken: set[int] = set()
    for outer in range(len(graph.nodes)):
        parts = _read(graph, outer, rules)
        if parts is not None and parts[0] not in taken:
            found[outer] = list(parts), partial(_ordered, graph.nodes[outer])
            taken.add(parts[0])
    return graph.replace(found)


def _ordered(
    outer: relay.Call, root: relay.Expr, residual: relay.Expr, bias: relay.Expr
) -> relay.Call:
    """Add the bias as `outer` does, but before the residual."""
    return relay.add(relay.Call(outer.op, [root, bias], outer.attrs, span=outer.span), residual)


def _read(graph: Graph, outer: int, rules: Rules) -> tuple[int, int, int] | None:
    """Read a call as (root + residual) + bias; return these three by number."""
    if op_name(graph.nodes[outer]) not in BIAS_OPS:
        return None
    inner, bias = graph.children[outer]
    if op_name(graph.nodes[inner]) != "add" and op_name(graph.nodes[outer]) == "add":
        inner, bias = bias, inner
    if op_name(graph.nodes[inner]) != "add" or graph.users[inner] != [outer]:
        return None
    if not isinstance(graph.nodes[bias], (relay.Constant, relay.Var)):
        return None
    for root, residual in (graph.children[inner], reversed(graph.children[inner])):
        call = graph.nodes[root]
        if not rules.is_heavy(op_name(call)) or graph.users[root] != [inner]:
            continue
        out = shape_of(call)
        if (
            shape_of(graph.nodes[residual]) != out
            or len({graph.scope[i] for i in (root, inner, outer)}) != 1
        ):
            continue
        axis = rules.ops[op_name(call)].channel_axis(call)
        if is_per_channel(graph.nodes[outer], shape_of(graph.nodes[bias]), out, axis):
            return root, residual, bias
    return None
