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
"""Matches patterns of nodes: helpers of the rewrites and of fusion."""

from __future__ import annotations

import math
from collections.abc import Collection

from .node import CALL, CONSTANT, FIELD, TUPLE, Node


def is_op(node: Node, *names: str) -> bool:
    """Whether a node is a call of one of some ops, read as the table has it."""
    return node.name in names and node.is_call


def has_name(node: Node, *names: str) -> bool:
    """Whether a node has the name of one of some ops, also if its reader has no row for it.

    Such an op cannot run on oneDNN alone, but may be part of a formula that can.
    """
    return node.name in names


def is_named(node: Node, *names: str) -> bool:
    """Whether a node is a call of one of some ops, also if it was not read as the table has it."""
    return node.kind == CALL and str(node.name).removeprefix("relax.") in names


def is_field(node: Node, index: int) -> bool:
    """Whether a node is a certain field of a tuple."""
    return node.kind == FIELD and node.attrs.index == index


def untupled(node: Node) -> Node:
    """Return the node that a field of a tuple node stands for."""
    while node.kind == FIELD and node.operands[0].kind == TUPLE:
        node = node.operands[0].operands[node.attrs.index]
    return node


def uncast(node: Node) -> Node:
    """Return what casts are of."""
    node = untupled(node)
    while is_named(node, "cast"):
        node = untupled(node.operands[0])
    return node


def orders(node: Node, *names: str) -> list[tuple[Node, Node]]:
    """Return the two operands of a call of one of some binary ops, in both orders.

    Nothing for another op, or where the operands are one node.
    """
    if not is_op(node, *names):
        return []
    left, right = node.operands
    return [(left, right), (right, left)] if left is not right else []


def only_user(node: Node) -> Node | None:
    """Return the node that reads another, if it is the only one and reads it once."""
    return node.users[0] if len(node.users) == 1 else None


def scalar_of(node: Node) -> float | None:
    """Return the value of a constant of one finite floating-point number, else None."""
    if node.kind != CONSTANT or any(dim != 1 for dim in node.tensor.shape):
        return None
    if node.tensor.dtype not in ("float32", "float64", "float16", "bfloat16"):
        return None
    value = float(node.value.reshape(()))
    return value if math.isfinite(value) else None


def closed_group(
    root: Node, operands: Collection[Node], most: int | None = None
) -> set[Node] | None:
    """Return the nodes that are computed from `operands` and end in `root`.

    Nodes that a rewrite has made but not put in place yet do not count as users.

    Returns
    -------
    group : set[Node] | None
        None if there are more than `most`, if something else reads one of them, which would then
        be computed twice, or if they are not evaluated together.
    """
    inside, stack = {root}, [root]
    while stack:
        for node in stack.pop().operands:
            # Constants and variables have no operands.
            if node.operands and node not in operands and node not in inside:
                inside.add(node)
                stack.append(node)
        if most is not None and len(inside) > most:
            return None
    for node in inside:
        if node.scope != root.scope:
            return None
        if node is not root and any(user.is_live and user not in inside for user in node.users):
            return None
    return inside
