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

from ..ir.node import FIELD, Node
from ..ops.rules import Rules
from .data_flow import DataFlow


def trimmed(flow: DataFlow, members: list[Node], rules: Rules) -> list[Node]:
    """Return a region without those of its views that are better left outside.

    What is left out is either computed from nothing inside or used by nothing inside, so no path
    leaves the region and comes back.

    Parameters
    ----------
    flow : DataFlow
        The function.
    members : list[Node]
        The region, in order.
    rules : Rules
        The rules, which tell the views.
    """
    inside = set(members)
    views: set[Node] = set()
    for node in members:
        is_field = node.kind == FIELD and node.operands[0] in views
        if is_field or rules.moves(node.name) == "view":
            views.add(node)
    while dropped := _worse_inside(flow, members, inside, views):
        inside -= dropped
        members = [node for node in members if node in inside]
    return members


def _worse_inside(
    flow: DataFlow, members: list[Node], inside: set[Node], views: set[Node]
) -> set[Node]:
    """Find views that are better left outside, as far as that can be seen now."""
    dropped: set[Node] = set()
    of_inputs: set[Node] = set()
    for node in members:
        sources = inside.intersection(flow.operands[node])
        users = [user in inside for user in flow.users[node]]
        # A tuple crosses the edge as its fields.
        if node.kind == FIELD and not sources:
            dropped.add(node)
        if node not in views:
            continue
        if sources <= of_inputs:
            of_inputs.add(node)
            if not all(users):
                dropped.add(node)
        elif not any(users):
            others = {user for source in sources for user in flow.users[source]} - inside
            if others:
                dropped.add(node)
    return dropped
