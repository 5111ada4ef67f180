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

from collections.abc import Callable, Iterator
from functools import partial

from tvm import relay
from tvm.contrib.onednn.policy.op_spec import Rules
from tvm.contrib.onednn.policy.operands import BIAS_OPS

from ..ir.dataflow_graph import DataflowGraph, Rewritten, TypedFunction
from .driver import Match, rewrite


def move_bias_first(function: TypedFunction, rules: Rules) -> Rewritten:
    """Turn (root + residual) + bias into (root + bias) + residual."""
    return rewrite(function, rules, _find)


def _find(graph: DataflowGraph, rules: Rules, calls_of: Callable) -> Iterator[Match]:
    for outer in calls_of(*BIAS_OPS):
        operands = _root_residual_bias(graph, outer, rules)
        if operands is not None:
            yield Match(
                graph.closed_group(outer, operands), operands, partial(_add, graph.nodes[outer])
            )


def _add(outer: relay.Call, root: relay.Expr, residual: relay.Expr, bias: relay.Expr) -> relay.Call:
    """Add the bias as `outer` does, but before the residual."""
    return relay.add(relay.Call(outer.op, [root, bias], outer.attrs, span=outer.span), residual)


def _root_residual_bias(graph: DataflowGraph, outer: int, rules: Rules) -> list[int] | None:
    """Read a call as (root + residual) + bias; return these three by number."""
    inner, bias = graph.operands[outer]
    if graph.ops[inner] != "add" and graph.ops[outer] == "add":
        inner, bias = bias, inner
    if graph.ops[inner] != "add" or graph.users[inner] != [outer]:
        return None
    if not isinstance(graph.nodes[bias], (relay.Constant, relay.Var)):
        return None
    for root, residual in (graph.operands[inner], reversed(graph.operands[inner])):
        if not rules.is_heavy(graph.ops[root]) or graph.users[root] != [inner]:
            continue
        is_full = graph.result(residual).shape == graph.result(root).shape
        if not is_full or graph.scope[root] != graph.scope[outer]:
            continue
        if rules.is_per_channel(graph.views[root], graph.views[outer], graph.result(bias).shape):
            return [root, residual, bias]
    return None
