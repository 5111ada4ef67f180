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
"""Moves elementwise ops before views where they are fused there.

A reshape or a transpose between a convolution and its activation, as between images and the tokens
of a transformer, hides the activation from fusion. Ops of single elements give the same before it.
"""

from __future__ import annotations

from ..ir.dim import is_same, product
from ..ir.graph import Graph
from ..ir.match import only_user
from ..ir.node import CALL, Node
from ..ir.op_view import Tensor, tensor_of
from ..ops.rules import Rules
from .fuse import MAX_POST_OPS, find_roots


def move_elementwise_first(graph: Graph, rules: Rules) -> None:
    """Write an elementwise op of a view as a view of that op, where it is then a post-op."""
    for fused in list(find_roots(graph, rules)):
        views, user = _views_after(fused.chain[-1], rules)
        while views and user is not None and len(fused.chain) <= MAX_POST_OPS:
            moved = _moved(graph, rules, user, views[-1], fused.chain[-1])
            if moved is None or not fused.append(moved):
                break
            for view in views:
                type_ = Tensor(view.tensor.dims, moved.tensor.dtype)
                moved = graph.with_operands(view, [moved], type_)
            graph.replace(user, moved)
            views, user = _views_after(fused.chain[-1], rules)


def _views_after(node: Node, rules: Rules) -> tuple[list[Node], Node | None]:
    """Return the views that follow each other after a node, and what alone reads the last one."""
    views: list[Node] = []
    user = only_user(node)
    while user is not None and _keeps_elements(user, rules) and user.scope == node.scope:
        views.append(user)
        user = only_user(user)
    return views, user


def _keeps_elements(node: Node, rules: Rules) -> bool:
    """Whether a node gives all elements of one operand another shape or order, each once."""
    is_view = node.is_call and rules.moves(node.name) == "view" and len(node.operands) == 1
    if not is_view or node.returns_tuple or rules.refusal(node) is not None:
        return False
    sizes = [product(each.tensor.dims) for each in (node.operands[0], node)]
    return None not in sizes and is_same(*sizes)


def _moved(graph: Graph, rules: Rules, node: Node, view: Node, data: Node) -> Node | None:
    """Return an elementwise op of a view as one of the view's data.

    Returns
    -------
    moved : Node | None
        None if the op also reads a tensor that has another order before the view.
    """
    post = rules.ops[node.name].post if node.is_call and node.name in rules.ops else None
    if post not in ("eltwise", "binary") or node.name == "nn.bias_add":
        return None
    if data.returns_tuple or node.operands.count(view) != 1:
        return None
    return _copied(graph, node, {view: data}, (view.tensor.dims, data.tensor.dims))


def _copied(graph: Graph, node: Node, known: dict[Node, Node], dims: tuple) -> Node | None:
    """Return a copy of an elementwise op, and of the ops that it stands for, of other data.

    Parameters
    ----------
    graph : Graph
        The graph.
    node : Node
        The op.
    known : dict[Node, Node]
        By node: its copy, at first those of the data. Copies are added.
    dims : tuple
        The dimensions of the data before and now.

    Returns
    -------
    copy : Node | None
        None if an operand has more than one element.
    """
    if node.kind != CALL:
        return None
    old, new = dims
    operands = []
    for each in node.operands:
        operand: Node | None = known.get(each, known.get(each.current))
        if operand is None and (each.is_constant or each.is_live):
            shape = tensor_of(each.type).shape
            operand = each if len(shape) <= len(new) and set(shape) <= {1} else None
        elif operand is None:
            operand = _copied(graph, each, known, dims)
        if operand is None:
            return None
        operands.append(operand)
    type_ = tensor_of(node.type)
    copy = graph.with_operands(
        node, operands, Tensor(new if type_.dims == old else type_.dims, type_.dtype)
    )
    if node.expansion is not None:
        copy.expansion = _copied(graph, node.expansion, known, dims)
        if copy.expansion is None:
            return None
    known[node] = copy
    return copy
