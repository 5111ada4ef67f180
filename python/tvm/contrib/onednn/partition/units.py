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

from ..ir.numbered import Graph
from ..ir.op_view import OpView
from ..ops.rules import Rules
from ..ops.tensors import COMPILER
from .edge_views import trimmed
from .fuse import Fused, find_fused
from .prune import why_prune
from .regions import Regions

_AT_THE_EDGE = "left out: a view at the edge of a partition"


class Units:
    """The graph of a function in which each op with what is fused to it is one expression.

    Parameters
    ----------
    graph : Graph
        The function.
    rules : Rules
        The rules.

    Attributes
    ----------
    ops : Graph
        The function as it was given.
    fused : dict[int, Fused]
        What is fused, by the number of its last op.
    graph : Graph
        The function; what is fused is there under the number of its last op.
    """

    def __init__(self, graph: Graph, rules: Rules):
        self.ops, self.rules = graph, rules
        self.fused: dict[int, Fused] = {each.chain[-1]: each for each in find_fused(graph, rules)}
        groups = [[*each.dequantized, *each.chain] for each in self.fused.values()]
        self.graph = graph.contracted(groups)
        # An expression that others use as well stays on its own.
        inside = {i for group in groups for i in group[:-1]}
        self._inside = {i for i in inside if not self.graph.operands[i]}
        self._is_supported = [False] * len(graph.nodes)

    def is_supported(self, i: int) -> bool:
        """Whether oneDNN computes an expression; asked operands first."""
        graph, known = self.graph, self._is_supported
        if i in self._inside:
            return False
        if graph.field(i) is not None:
            known[i] = known[graph.operands[i][0]]
        elif graph.is_tuple(i):
            # An operand goes where its call goes, or both stay.
            known[i] = bool(graph.users[i]) and all(
                self._is_accepted(user) and graph.scope[user] == graph.scope[i]
                for user in graph.users[i]
            )
        else:
            fields = [k for k in graph.operands[i] if graph.is_tuple(k)]
            known[i] = self._is_accepted(i) and all(known[field] for field in fields)
        return known[i]

    def _is_accepted(self, i: int) -> bool:
        name = self.graph.ops[i]
        if i in self.fused:
            return True
        if name in self.rules.ops:
            return self.rules.refusal(self.graph.views[i]) is None
        # Someone has made a composite of what oneDNN runs.
        return (name or "").startswith(f"{COMPILER}.")

    def chain(self, i: int) -> list[int]:
        """Return the op that an expression is, or the root op and its post-ops."""
        return self.fused[i].chain if i in self.fused else [i]

    def members(self, i: int) -> list[int]:
        """Return all that is computed by the kernel of an expression, in order."""
        if i not in self.fused:
            return [i]
        return sorted({*self.fused[i].dequantized, *self.fused[i].chain})

    def hidden(self, members: list[int]) -> list[int]:
        """Return what is computed by the kernels of some expressions and read by nothing else."""
        operands = self.graph.operands
        return sorted({k for i in members for k in self.members(i) if k == i or not operands[k]})

    def calls(self, i: int) -> list[OpView]:
        """Return the calls of ops that an expression stands for."""
        return [call for k in self.chain(i) for call in self.ops.calls(k)]


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
    partitions : list[list[int]]
        What is in each partition, in order.
    reasons : dict[int, str]
        By number of an expression that oneDNN can run: why it stays on TVM.
    """

    def __init__(self, units: Units):
        rules = units.rules
        self.regions = Regions(units.graph, units.is_supported)
        self.partitions: list[list[int]] = []
        self.reasons: dict[int, str] = {}
        for members in self.regions.members:
            reason = why_prune([call for i in members for call in units.calls(i)], rules)
            if reason is not None:
                self.reasons.update(dict.fromkeys(members, reason))
                continue
            if rules.options.prune:
                kept = trimmed(units.graph, members, rules)
                self.reasons.update(dict.fromkeys(set(members).difference(kept), _AT_THE_EDGE))
                members = kept
            self.partitions.append(members)
