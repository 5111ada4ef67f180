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
"""Chooses the ops of a function that oneDNN runs, fuses them, and divides them into regions."""

from __future__ import annotations

from ..ir.graph import Graph
from ..ir.node import FIELD, TUPLE, Node
from ..ir.op_view import OpView
from ..ops.rules import Rules
from ..ops.tensors import COMPILER
from .data_flow import DataFlow
from .edge_views import trimmed
from .fuse import Fused, find_fused
from .prune import why_prune
from .regions import Regions, in_order

_AT_THE_EDGE = "left out: a view at the edge of a partition"


class Units:
    """The kernels of a function: each op with what is fused to it.

    Parameters
    ----------
    graph : Graph
        The function.
    rules : Rules
        The rules.

    Attributes
    ----------
    graph : Graph
        The function.
    fused : dict[Node, Fused]
        What is fused, by its last node, which stands for it.
    flow : DataFlow
        The data flow between kernels.
    """

    def __init__(self, graph: Graph, rules: Rules):
        self.graph, self.rules = graph, rules
        self.fused: dict[Node, Fused] = {each.chain[-1]: each for each in find_fused(graph, rules)}
        kernels = [[*each.dequantized, *each.chain] for each in self.fused.values()]
        self.flow = DataFlow(graph, kernels)
        # A node that others use as well stays on its own.
        inside = {node for kernel in kernels for node in kernel[:-1]}
        self._inside = {node for node in inside if not self.flow.operands[node]}
        self._is_supported: dict[Node, bool] = {}

    def is_supported(self, node: Node) -> bool:
        """Whether oneDNN computes a node; asked operands first."""
        known, users = self._is_supported, self.flow.users[node]
        if node in self._inside:
            known[node] = False
        elif node.kind == FIELD:
            known[node] = known[node.operands[0]]
        elif node.kind == TUPLE:
            # An operand goes where its call goes, or both stay.
            known[node] = bool(users) and all(
                self._is_accepted(user) and user.scope == node.scope for user in users
            )
        else:
            fields = [each for each in self.flow.operands[node] if each.kind == TUPLE]
            known[node] = self._is_accepted(node) and all(known[field] for field in fields)
        return known[node]

    def _is_accepted(self, node: Node) -> bool:
        if node in self.fused:
            return True
        if node.name in self.rules.ops:
            return node.is_call and self.rules.refusal(node) is None
        # Someone has made a composite of what oneDNN runs.
        return (node.name or "").startswith(f"{COMPILER}.")

    def chain(self, node: Node) -> list[Node]:
        """Return the op that a node is, or the root op and its post-ops."""
        return self.fused[node].chain if node in self.fused else [node]

    def members(self, node: Node) -> list[Node]:
        """Return all that is computed by the kernel of a node, in order."""
        if node not in self.fused:
            return [node]
        return in_order({*self.fused[node].dequantized, *self.fused[node].chain})

    def float32_operands(self, node: Node) -> dict[Node, Node]:
        """See `Fused.float32_operands`."""
        return self.fused[node].float32_operands() if node in self.fused else {}

    def hidden(self, members: list[Node]) -> list[Node]:
        """Return what is computed by the kernels of some nodes and read by nothing else."""
        inside = {each for node in members for each in self.members(node)}
        return in_order(inside.intersection(self._inside.union(members)))

    def calls(self, node: Node) -> list[OpView]:
        """Return the calls of ops that a node stands for."""
        return [call for each in self.chain(node) for call in each.calls]


class OffloadDecision:
    """The ops that go into partitions, and why other ops that oneDNN could run do not.

    Parameters
    ----------
    units : Units
        The function.

    Attributes
    ----------
    regions : Regions
        The regions that oneDNN can run.
    partitions : list[list[Node]]
        What is in each partition, in order.
    reasons : dict[Node, str]
        By node that oneDNN can run: why it stays on TVM.
    """

    def __init__(self, units: Units):
        rules = units.rules
        self.regions = Regions(units.flow, units.is_supported)
        self.partitions: list[list[Node]] = []
        self.reasons: dict[Node, str] = {}
        for members in self.regions.members:
            reason = why_prune([call for node in members for call in units.calls(node)], rules)
            if reason is not None:
                self.reasons.update(dict.fromkeys(members, reason))
                continue
            if rules.options.prune:
                kept = trimmed(units.flow, members, rules)
                self.reasons.update(dict.fromkeys(set(members).difference(kept), _AT_THE_EDGE))
                members = kept
            self.partitions.append(members)
