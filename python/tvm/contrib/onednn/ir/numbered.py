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
"""A function as fusion, regions and pruning see it: a graph of numbers, whichever IR it is in."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence

from .op_view import OpView, Value


class Graph:
    """Expressions by number, operands first. A reader derives from it for its IR.

    Attributes
    ----------
    nodes : Sequence
        The expressions, which only the reader looks into.
    operands : list[list[int]]
        What each is computed from. Those of a call of an op are its arguments in Relay's order; a
        tuple of arguments is an expression of its own.
    users : list[list[int]]
        What is computed from each, see `users_of`.
    scope : list[int]
        When each is evaluated: two of the same scope are evaluated together or not at all, and
        see the same variables. What several scopes share is in the innermost that holds them all.
    ops : Sequence[str | None]
        What each calls: an op, or a function of oneDNN that stands for one; None for what is no
        such call.
    views : Sequence[OpView | None]
        Each call in `ops` as rules see it.
    """

    nodes: Sequence
    operands: list[list[int]]
    users: list[list[int]]
    scope: list[int]
    ops: Sequence[str | None]
    views: Sequence[OpView | None]

    def result(self, i: int) -> Value:
        """Return what an expression of any kind computes."""
        raise NotImplementedError

    def is_same_size(self, i: int, other: int, axis: int) -> bool:
        """Whether two tensors of one rank are of the same size along an axis, in every call."""
        sizes = [self.result(k).shape[axis] for k in (i, other)]
        return None not in sizes and sizes[0] == sizes[1]

    def is_fixed(self, i: int) -> bool:
        """Whether an expression is a constant or a function: no input of a partition."""
        raise NotImplementedError

    def is_tuple(self, i: int) -> bool:
        """Whether an expression makes a tuple of its operands."""
        raise NotImplementedError

    def field(self, i: int) -> int | None:
        """Return which field of a tuple an expression is; None if it is none."""
        raise NotImplementedError

    def calls(self, i: int) -> list[OpView]:
        """Return the call that an expression is, if it is one; of a composite, the calls in it."""
        view = self.views[i]
        return [] if view is None else [view]

    def scalar(self, i: int) -> float | None:
        """Return the value of a constant of one finite floating-point value, else None."""
        raise NotImplementedError

    def closed_group(
        self, root: int, operands: Sequence[int], most: int | None = None
    ) -> list[int] | None:
        """Return what is computed between `operands` and `root`, the root last.

        Returns None where these are more than `most`, where something else uses a part of it,
        which would then be computed twice, or where not all of it is evaluated together.
        """
        inside, stack = {root}, [root]
        while stack:
            for i in self.operands[stack.pop()]:
                # Constants and variables have no operands.
                if self.operands[i] and i not in operands and i not in inside:
                    inside.add(i)
                    stack.append(i)
            if most is not None and len(inside) > most:
                return None
        for i in inside:
            if self.scope[i] != self.scope[root]:
                return None
            if i != root and not inside.issuperset(self.users[i]):
                return None
        return sorted(inside)

    def contracted(self, groups: Iterable[list[int]]) -> Graph:
        """Return this graph with each group as one expression, which has the number of its last.

        The others of a group have neither operands nor users there, but for those that something
        outside uses: a group has a copy of them.
        """
        graph = copy.copy(self)
        graph.operands = list(self.operands)
        groups_of: dict[int, set[int]] = {}
        for number, group in enumerate(groups):
            for i in group:
                groups_of.setdefault(i, set()).add(number)
            below = (operand for i in group for operand in self.operands[i])
            graph.operands[group[-1]] = [i for i in dict.fromkeys(below) if i not in set(group)]
            for i in group[:-1]:
                graph.operands[i] = []
        for i, own in groups_of.items():
            if any(own.isdisjoint(groups_of.get(user, ())) for user in self.users[i]):
                graph.operands[i] = graph.operands[i] or self.operands[i]
        graph.users = users_of(graph.operands)
        return graph


def users_of(operands: list[list[int]]) -> list[list[int]]:
    """Return what is computed from each expression, in their order, once for each time."""
    users: list[list[int]] = [[] for _ in operands]
    for i, below in enumerate(operands):
        for operand in below:
            users[operand].append(i)
    return users
