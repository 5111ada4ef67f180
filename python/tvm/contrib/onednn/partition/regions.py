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

from collections.abc import Callable

from ..ir.numbered import Graph


class Regions:
    """The largest regions of a function that a greedy merge along its data flow finds.

    A region is a set of expressions that can be computed by one call: none of its inputs depends
    on one of its outputs, and all are in one scope, so that no branch is computed early and no
    variable leaves its binding.

    Parameters
    ----------
    graph : Graph
        The typed function.
    supported : Callable[[int], bool]
        Whether oneDNN can compute an expression; asked operands first.

    Attributes
    ----------
    members : list[list[int]]
        The regions.
    """

    def __init__(self, graph: Graph, supported: Callable[[int], bool]):
        self.graph = graph
        # Every expression starts as a group of its own; `_group` is a forest of merged groups.
        self._group = list(range(len(graph.nodes)))
        # The numbers that a group lies between, and for each number the largest one up to it that
        # no group has members on both sides of.
        self._first, self._last = list(self._group), list(self._group)
        self._cut = list(self._group)
        # The operands of a group; leaves depend on nothing and so are on no path.
        self._sources = [{i for i in operands if graph.operands[i]} for operands in graph.operands]
        chosen = [False] * len(graph.nodes)
        for i, operands in enumerate(graph.operands):
            chosen[i] = supported(i)
            if chosen[i]:
                for operand in operands:
                    if chosen[operand] and graph.scope[operand] == graph.scope[i]:
                        self._merge(self._find(operand), self._find(i))
        members: dict[int, list[int]] = {}
        for i in (i for i, is_chosen in enumerate(chosen) if is_chosen):
            # A field of a tuple from elsewhere is read there, so that inputs are tensors.
            if graph.field(i) is not None:
                if self._find(graph.operands[i][0]) != self._find(i):
                    continue
            members.setdefault(self._find(i), []).append(i)
        self.members = list(members.values())

    def _find(self, i: int) -> int:
        """Return the group that expression `i` is in now."""
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

    def inputs(self, members: list[int]) -> list[int]:
        """Return what a region reads from outside, constants left out, in their order."""
        inside = set(members)
        outside = {operand for i in members for operand in self.graph.operands[i]} - inside
        return [i for i in sorted(outside) if not self.graph.is_fixed(i)]

    def outputs(self, members: list[int]) -> list[int]:
        """Return those of a region's expressions that something outside uses, in their order."""
        inside = set(members)
        return [i for i in members if any(user not in inside for user in self.graph.users[i])]
