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
"""Reads the ops of an attention as one: softmax(scale * query * key^T + mask) * value.

At runtime it is one kernel that accepts any length, so that a step of a decoder, whose past is
longer each time, compiles nothing and has no scores in memory. Heads of queries that share a head
of keys and values read it as it is: what repeats it is dropped.
"""

from __future__ import annotations

from typing import NamedTuple

from ..graph.dim import is_same
from ..graph.graph import Graph
from ..graph.node import Node, scalar_of
from ..policy.op_spec import Rules
from .maker import Maker, UnsupportedOp

ATTENTION = "dnnl.attention"

_SOFTMAX = ("nn.softmax", "dnnl.masked_softmax", "dnnl.nan_safe_softmax")
_MATMUL = "nn.batch_matmul"

# With more queries of known lengths, and keys of their own for each head, matmuls and softmax of
# oneDNN are as fast or faster. Relative to them the kernel takes, with AVX-512 and 64 columns:
#   one query of 12 heads, 64 to 2048 keys: 0.6 to 0.8; 128 of 128 keys: 1.3; 384 of 384: 1.05
#   one query of 8 heads that share 2, 64 to 2048 keys: 0.1 to 0.2; 16 of 80 keys: 0.8;
#   64 of 128: 1.1; 512 of 512: 0.9
# With an open length it always is the kernel: for each new one oneDNN would compile primitives,
# which takes longer than to run them.
_MOST_QUERIES = 16


def fuse_attention(graph: Graph, rules: Rules) -> None:
    """Let one op take the place of an attention."""
    for node in list(graph.nodes):
        if node.name != _MATMUL or not node.is_call or rules.excludes(_MATMUL, *_SOFTMAX):
            continue
        try:
            new = _attention_of(graph, node)
        except UnsupportedOp:
            continue
        if new is not None and rules.refusal(new) is None:
            graph.replace(node, new)


class _View(NamedTuple):
    """A tensor that is `scale` times another one, the axes of which are in the order of `axes`."""

    node: Node
    axes: list[int]
    scale: float

    @property
    def is_plain(self) -> bool:
        return self.axes == sorted(self.axes)


def _attention_of(graph: Graph, node: Node) -> Node | None:
    """Return the attention that ends in a matmul; None if there is none."""
    probabilities, value = node.operands
    if node.attrs.transpose_a or not _is_inside(probabilities, node, *_SOFTMAX):
        return None
    rank = len(node.type.dims)
    if rank not in (3, 4) or int(getattr(probabilities.attrs, "axis", -1)) not in (-1, rank - 1):
        return None
    scores = _scores_of(graph, probabilities)
    if scores is None:
        return None
    matmul, scale, masks = scores
    dims = matmul.type.dims
    # A mask with more rows, or more of a batch, would make the scores larger.
    if len(dims) != rank or not _is_same_shape(dims, probabilities.type.dims):
        return None
    make = Maker(graph, node)
    query = _views(matmul.operands[0], matmul.attrs.transpose_a, rank)[0]
    views = [
        _views(matmul.operands[1], not matmul.attrs.transpose_b, rank),
        _views(value, node.attrs.transpose_b, rank, is_scaled=False),
    ]
    key, value = (each[-1] for each in views)
    if _heads(key) != _heads(value):
        key, value = (each[0] for each in views)
    operands = [_tensor_of(make, each) for each in (query, key, value)]
    if not _fits(operands, dims, node.type.dims) or _is_slower(*operands[:2]):
        return None
    operands += masks
    attrs = {"scale": scale * query.scale * key.scale, "causal": False}
    return graph.call(ATTENTION, operands, node, node.type, **attrs, softmax=probabilities.name)


def _is_inside(node: Node, user: Node, *names: str) -> bool:
    """Whether a node is one of some ops, and nothing but `user` reads it."""
    return (
        node.name in names
        and node.is_call
        and node.users == [user]
        and node.scope == user.scope
        and not node.is_pinned
    )


def _scores_of(graph: Graph, softmax: Node) -> tuple[Node, float, list[Node]] | None:
    """Return the matmul of query and key that a softmax reads, its factor, and the mask if any."""
    scale, masks = 1.0, []
    user, node = softmax, softmax.operands[0]
    while not _is_inside(node, user, _MATMUL):
        if not _is_inside(node, user, "add", "multiply", "divide"):
            return None
        factor = _factor(node)
        if factor is not None:
            scale, user, node = scale * factor[1], node, factor[0]
            continue
        # One mask is added, last. The sum of two would be another op for oneDNN, and a partition of
        # its own where TVM computes them.
        if node.name != "add" or scale != 1.0 or masks:
            return None
        inner = [k for k in (0, 1) if _leads_to_matmul(node.operands[k], node)]
        if len(inner) != 1:
            return None
        masks.append(node.operands[1 - inner[0]])
        user, node = node, node.operands[inner[0]]
    return node, scale, masks


def _leads_to_matmul(node: Node, user: Node) -> bool:
    while _is_inside(node, user, "add", "multiply", "divide"):
        for operand in node.operands:
            if _is_inside(operand, node, _MATMUL, "add", "multiply", "divide"):
                user, node = node, operand
                break
        else:
            return False
    return _is_inside(node, user, _MATMUL)


def _factor(node: Node) -> tuple[Node, float] | None:
    """Read a node as a tensor times a number."""
    if node.name not in ("multiply", "divide") or not node.is_call:
        return None
    left, right = node.operands
    number = scalar_of(right)
    if number is None and node.name == "multiply":
        left, number = right, scalar_of(left)
    if number is None or not _is_same_shape(left.type.dims, node.type.dims):
        return None
    if node.name == "divide":
        return (left, 1.0 / number) if number else None
    return left, number


def _views(node: Node, is_transposed: bool, rank: int, is_scaled: bool = True) -> list[_View]:
    """Return what an operand of a matmul is a view of: with all its heads, and with each once.

    Raises
    ------
    UnsupportedOp
        It has another rank.
    """
    if len(node.type.dims) != rank:
        raise UnsupportedOp("the ranks differ")
    axes = list(range(rank))
    if is_transposed:
        axes[-2:] = axes[:-3:-1]
    views, seen = [], [_View(node, axes, 1.0)]
    while True:
        view = seen[-1]
        node = view.node
        factor = _factor(node) if is_scaled else None
        once = _repeated(node, view.axes[-3])
        if node.name == "transpose" and node.is_call:
            order = list(node.attrs.axes or range(rank)[::-1])
            seen.append(_View(node.operands[0], [order[a] for a in view.axes], view.scale))
        elif factor is not None:
            seen = [_View(factor[0], view.axes, view.scale * factor[1])]
        elif once is not None:
            views.append(_best(seen))
            seen = [_View(once, view.axes, view.scale)]
        else:
            return [*views, _best(seen)]


def _best(seen: list[_View]) -> _View:
    """Return the view that is a node of the graph, if there is one."""
    return next((view for view in seen if view.is_plain), seen[-1])


def _heads(view: _View):
    return view.node.type.dims[view.axes[-3]]


def _tensor_of(make: Maker, view: _View) -> Node:
    return view.node if view.is_plain else make.transpose(view.node, view.axes)


def _repeated(node: Node, axis: int) -> Node | None:
    """Return the tensor of which a node repeats each item of an axis; None if it repeats none."""
    if node.name != "reshape" or not node.is_call:
        return None
    many = node.operands[0]
    if many.name == "broadcast_to" and many.is_call:
        data = many.operands[0]
    elif many.name in ("concatenate", "stack") and many.is_call:
        parts = many.operands[0].operands
        is_along = int(many.attrs.axis) % len(many.type.dims) == axis + 1
        if not is_along or any(part is not parts[0] for part in parts):
            return None
        data = parts[0]
    else:
        return None
    if len(data.type.dims) == len(many.type.dims):
        if data.name not in ("reshape", "expand_dims") or not data.is_call:
            return None
        data = data.operands[0]
    dims, wide = data.type.dims, many.type.dims
    if len(dims) != len(node.type.dims) or len(wide) != len(dims) + 1:
        return None
    count = wide[axis + 1]
    if not isinstance(count, int) or not isinstance(dims[axis], int):
        return None
    repeated = (*dims[: axis + 1], count, *dims[axis + 1 :])
    joined = (*dims[:axis], dims[axis] * count, *dims[axis + 1 :])
    is_repeat = _is_same_shape(repeated, wide) and _is_same_shape(joined, node.type.dims)
    return data if is_repeat else None


def _is_slower(query: Node, key: Node) -> bool:
    (heads, queries), (groups, keys) = (each.type.shape[-3:-1] for each in (query, key))
    return None not in (queries, keys) and heads == groups and queries > _MOST_QUERIES


def _is_same_shape(one, other) -> bool:
    return len(one) == len(other) and all(map(is_same, one, other))


def _fits(operands: list[Node], scores, result) -> bool:
    """Whether batches and lengths are those of the scores and of the result in every run."""
    query, key, value = (operand.type.dims for operand in operands)
    batches = [each[:-3] for each in (query, key, value, scores)]
    return (
        all(_is_same_shape(batches[0], each) for each in batches[1:])
        and is_same(query[-3], scores[-3])
        and is_same(query[-2], scores[-2])
        and is_same(key[-2], scores[-1])
        and is_same(value[-2], key[-2])
        and _is_same_shape(result, (*query[:-1], value[-1]))
    )
