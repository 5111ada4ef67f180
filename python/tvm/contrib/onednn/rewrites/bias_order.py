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
"""Moves a bias before a residual, where the option `keep_bias_order` permits it.

oneDNN adds a bias in its accumulators, at no cost; after a residual it is one more post-op.
"""

from __future__ import annotations

from ..ir.graph import Graph
from ..ir.match import is_op
from ..ir.node import INPUT, Node
from ..ops.operands import BIAS_OPS
from ..ops.rules import Rules


def move_bias_first(graph: Graph, rules: Rules) -> None:
    """Turn (root + residual) + bias into (root + bias) + residual."""
    for outer in reversed(graph.nodes):
        if not is_op(outer, *BIAS_OPS) or rules.excludes(*BIAS_OPS):
            continue
        operands = _root_residual_bias(outer, rules)
        if operands is None:
            continue
        root, residual, bias = operands
        biased = graph.call(outer.name, [root, bias], outer, root.type, **vars(outer.attrs))
        new = graph.call("add", [biased, residual], outer, outer.type)
        if rules.refusal(biased) is None and rules.refusal(new) is None:
            graph.replace(outer, new)


def _root_residual_bias(outer: Node, rules: Rules) -> tuple[Node, Node, Node] | None:
    """Read a call as (root + residual) + bias; return these three."""
    inner, bias = outer.operands
    if inner.name != "add" and outer.name == "add":
        inner, bias = bias, inner
    if not is_op(inner, "add") or inner.users != [outer]:
        return None
    if not bias.is_constant and bias.kind != INPUT:
        return None
    for root, residual in (inner.operands, inner.operands[::-1]):
        if not root.is_call or not rules.is_heavy(root.name) or root.users != [inner]:
            continue
        if residual.tensor.shape != root.tensor.shape or root.scope != outer.scope:
            continue
        if rules.is_per_channel(root, outer, bias.tensor.shape):
            return root, residual, bias
    return None
