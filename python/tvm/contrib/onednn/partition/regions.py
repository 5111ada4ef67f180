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
"""Grouping what oneDNN can run into regions, each of which can be one call."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..ir.node import FIELD, Node
from .data_flow import DataFlow


def in_order(nodes: Iterable[Node]) -> list[Node]:
    """Return nodes of a graph in its order."""
    return sorted(nodes, key=lambda node: node.number)


class Regions:
    """The largest regions of a function that a greedy merge along its data flow finds.

    A region is a set of nodes that can be computed by one call: none of its inputs depends
    on one of its outputs, and all are in one scope, so that no branch is computed early and no
    variable leaves its binding.

    Parameters
    ----------
    flow : DataFlow
        The function.
    supported : Callable[[Node], bool]
        Whether oneDNN can compute a node; asked operands first.

    Attributes
    ----------
    members : list[list[Node]]
        The regions.
    """

    def __init__(self, flow: DataFlow, supported: Callable[[Node], bool]):
        self.flow = flow
        # Every node starts as a group of its own; `_group` is a forest of merged groups.
        self._group = list(range(len(flow.nodes)))
        # The numbers that a group lies between, and for each number the largest one up to it that
        # no group has members on both sides of.
        self._first, self._last = list(self._group), list(self._group)
        self._cut = list(self._group)
        # The operands of a group; leaves depend on nothing and so are on no path.
        operands = flow.operands
        self._sources = [{o.number for o in operands[node] if operands[o]} for node in flow.nodes]
        chosen: set[Node] = set()
        for node in flow.nodes:
            if supported(node):
                chosen.add(node)
                for operand in operands[node]:
                    if operand in chosen and operand.scope == node.scope:
                        self._merge(self._find(operand.number), self._find(node.number))
        members: dict[int, list[Node]] = {}
        for node in in_order(chosen):
            group = self._find(node.number)
            # A field of a tuple from elsewhere is read there, so that inputs are tensors.
            if node.kind != FIELD or self._find(node.operands[0].number) == group:
                members.setdefault(group, []).append(node)
        self.members = list(members.values())

    def _find(self, i: int) -> int:
        """Return the group that node `i` is in now."""
        while self._group[i] != i:
            self._group[i] = self._group[self._group[i]]
            i = self._group[i]
        return i

    def _merge(self, a: int, b: int) -> None:
        """Make groups `a` and `b` one, unless a path between them leaves them."""
        if a == b:
            return
        both = {a, b}
        first, last = min(self._first[a], self._first[b]), max(self._last[a], self._last[b])
        # Whatever is below the cut is computed from what is below it, too, and not from the groups.
        cut = self._cut_below(first)
        outside = {self._find(i) for i in self._sources[a] | self._sources[b]} - both
        stack, seen = [i for i in outside if i >= cut], set(outside)
        while stack:
            for i in self._sources[stack.pop()]:
                if i < cut:
                    continue
                group = self._find(i)
                if group in both:
                    return
                if group not in seen:
                    seen.add(group)
                    stack.append(group)
        self._group[a] = b
        self._sources[b] = outside
        self._first[b], self._last[b] = first, last
        while (number := self._cut_below(last)) > first:
            self._cut[number] = number - 1

    def _cut_below(self, number: int) -> int:
        """Return the largest number up to this one that no group has members on both sides of."""
        while self._cut[number] != number:
            self._cut[number] = self._cut[self._cut[number]]
            number = self._cut[number]
        return number

    def inputs(self, members: list[Node]) -> list[Node]:
        """Return what a region reads from outside, constants left out, in their order."""
        outside = {operand for node in members for operand in self.flow.operands[node]}
        return [node for node in in_order(outside.difference(members)) if not node.is_fixed]

    def outputs(self, members: list[Node]) -> list[Node]:
        """Return those of a region's nodes that something outside uses, in their order."""
        inside = set(members)
        return [node for node in members if not inside.issuperset(self.flow.users[node])]
