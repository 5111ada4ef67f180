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
"""Leaves views at the edges of a region to TVM where they would cost a copy.

A partition writes its results into memory of the caller. A view of an input as a result is a copy
then, and so is a result of which a view is another one. TVM shares the memory of most views.
"""

from __future__ import annotations

from ..ir.numbered import Graph
from ..ops.rules import Rules


def trimmed(graph: Graph, members: list[int], rules: Rules) -> list[int]:
    """Return a region without those of its views that are better left outside.

    What is left out is either computed from nothing inside or used by nothing inside, so no path
    leaves the region and comes back.

    Parameters
    ----------
    graph : Graph
        The function.
    members : list[int]
        The region, in order.
    rules : Rules
        The rules, which tell the views.
    """
    inside = set(members)
    views: set[int] = set()
    for i in members:
        is_field = graph.field(i) is not None and graph.operands[i][0] in views
        if is_field or rules.moves(graph.ops[i]) == "view":
            views.add(i)
    while True:
        dropped = _worse_inside(graph, sorted(inside), inside, views)
        if not dropped:
            return sorted(inside)
        inside -= dropped


def _worse_inside(graph: Graph, members: list[int], inside: set[int], views: set[int]) -> set[int]:
    """Find views that are better left outside, as far as that can be seen now."""
    dropped: set[int] = set()
    of_inputs: set[int] = set()
    for i in members:
        sources = inside.intersection(graph.operands[i])
        users = [user in inside for user in graph.users[i]]
        # A tuple crosses the edge as its fields.
        if graph.field(i) is not None and not sources:
            dropped.add(i)
        if i not in views:
            continue
        if sources <= of_inputs:
            of_inputs.add(i)
            if not all(users):
                dropped.add(i)
        elif not any(users):
            others = {user for source in sources for user in graph.users[source]} - inside
            if others:
                dropped.add(i)
    return dropped
