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
"""Fuses attention, softmax(scale * query * key^T + mask) * value, into one op.

At runtime it is one kernel that accepts any length, so that a step of a decoder, whose past is
longer each time, compiles nothing and has no scores in memory. Heads of queries that share a head
of keys and values read it as it is: what repeats it is dropped.

The matmuls may have rank 3, batch and heads in one axis, between reshapes: Relay has no others.
"""

from __future__ import annotations

from typing import NamedTuple

from .. import cpu
from ..ir.dim import Size, divided, is_same, product
from ..ir.graph import Graph
from ..ir.match import is_op
from ..ir.node import Node
from ..ops.rules import Rules
from ..options import Options
from .attention_ops import ATTENTION
from .attention_scores import (
    MATMUL,
    factor_of,
    is_inside,
    is_same_shape,
    mask_of,
    scores_of,
)
from .maker import Maker, UnsupportedOp

_SOFTMAX = ("nn.softmax", "dnnl.masked_softmax", "dnnl.nan_safe_softmax")

# With fewer keys of known lengths, and keys of their own for each head, matmuls and softmax of
# oneDNN are about as fast. Relative to them the kernel takes, on two cores:
#   12 heads of 64, 128 keys: float32 1.02 (AVX2 0.96), bfloat16 with AMX 0.97
#   197 keys: 0.94 (0.98), 0.83; 384 keys with a mask: 0.94 (0.97), 0.85
#   6 heads of 64, 1500 keys: 0.56 (0.74), 0.58
#   one query of 12 heads, 64 to 2048 keys: 0.6 to 0.8
#   one query of 8 heads that share 2, 64 to 2048 keys: 0.1 to 0.2; 16 of 80 keys: 0.8
# With an open length it always is the kernel: for each new one oneDNN would compile primitives,
# which takes longer than to run them.
_FEW_KEYS = 192
_MOST_QUERIES = 16


def fuse_attention(graph: Graph, rules: Rules) -> None:
    """Replace each attention with `dnnl.attention`."""
    # Layers share a mask.
    masks: dict[tuple, tuple[list[Node], bool]] = {}
    for node in list(graph.nodes):
        if not is_op(node, MATMUL) or rules.excludes(MATMUL, *_SOFTMAX):
            continue
        try:
            old, new = _attention_of(graph, node, masks, rules.options)
        except UnsupportedOp:
            continue
        if rules.refusal(new) is None:
            graph.replace(old, new)


class _View(NamedTuple):
    """A tensor that is `scale` times another one, the axes of which are in the order of `axes`."""

    node: Node
    axes: list[int]
    scale: float

    @property
    def is_plain(self) -> bool:
        return self.axes == sorted(self.axes)


def _attention_of(graph: Graph, node: Node, masks: dict, options: Options) -> tuple[Node, Node]:
    """Match an attention whose last op is a matmul; return the node to replace, and the attention.

    Raises
    ------
    UnsupportedOp
        There is none.
    """
    softmax, value = node.operands
    old, user = node, node
    if is_inside(softmax, node, "reshape"):
        old, user, softmax = _only_reader(node), softmax, softmax.operands[0]
    _require(is_inside(softmax, user, *_SOFTMAX) and not node.attrs.transpose_a)
    rank = len(softmax.tensor.dims)
    _require(rank in (3, 4) and softmax.attrs.axis in (-1, rank - 1))
    scores = scores_of(softmax)
    _require(scores is not None and (scores.reshape is None) == (old is node))
    matmul, dims = scores.matmul, scores.dims
    # A mask with more rows, or more of a batch, would make the scores larger.
    _require(len(dims) == rank and is_same_shape(dims[:-1], softmax.tensor.dims[:-1]))
    make, heads = Maker(graph, node), _merged_heads(matmul, node.operands[0], dims)
    left, right, value = (_split(make, each, heads) for each in (*matmul.operands, value))
    query = _views(left, matmul.attrs.transpose_a, rank)[0]
    views = [
        _views(right, not matmul.attrs.transpose_b, rank),
        _views(value, node.attrs.transpose_b, rank, is_scaled=False),
    ]
    key, value = (each[-1] for each in views)
    if _heads(key) != _heads(value):
        key, value = (each[0] for each in views)
    operands = [_tensor_of(make, each) for each in (query, key, value)]
    if old is not node:
        operands[0] = _with_all_heads(make, operands[0], dims)
    _require(_fits(operands, dims, old.tensor.dims))
    # One with more columns would not have as many values.
    lengths = (each.tensor.dims[-2] for each in operands[1:])
    _require(is_same(dims[-1], softmax.tensor.dims[-1]) or is_same(*lengths))
    shared = (node.scope, *dims[-2:], *scores.masks)
    if shared not in masks:
        masks[shared] = mask_of(make, scores, options.exact_nan)
    mask, is_causal = masks[shared]
    _require(not _is_slower(operands, is_causal, options.precision))
    attrs = {
        "scale": scores.scale * query.scale * key.scale,
        "causal": is_causal,
        "softmax": softmax.name,
        "fpmath": options.precision,
    }
    return old, graph.call(ATTENTION, [*operands, *mask], node, old.type, **attrs)


def _require(condition: bool) -> None:
    if not condition:
        raise UnsupportedOp("no attention")


def _only_reader(node: Node) -> Node:
    """Return the reshape that is the only user of a matmul."""
    _require(len(node.users) == 1 and is_inside(node, node.users[0], MATMUL))
    (user,) = node.users
    _require(is_op(user, "reshape"))
    return user


def _merged_heads(matmul: Node, weights: Node, scores) -> tuple[Size, ...]:
    """Return the batch and the heads that matmuls of rank 3 have as one axis; () for rank 4."""
    ranks = [len(each.tensor.dims) for each in (matmul, weights)]
    if ranks == [len(scores)] * 2:
        return ()
    _require(ranks == [3, 3] and len(scores) == 4)
    heads = divided(matmul.tensor.dims[0], scores[0])
    _require(isinstance(heads, int) and is_same(matmul.tensor.dims[0], weights.tensor.dims[0]))
    return scores[0], heads


def _split(make: Maker, node: Node, heads: tuple[Size, ...]) -> Node:
    """Return an operand of a matmul with an axis for the batch and one for the heads."""
    if not heads:
        return node
    first, *rest = node.tensor.dims
    _require(len(rest) == 2 and is_same(first, product(heads)))
    if is_op(node, "transpose") and list(node.attrs.axes or ()) == [0, 2, 1]:
        return make.transpose(_split(make, node.operands[0], heads), [0, 1, 3, 2])
    if is_op(node, "reshape"):
        if is_same_shape(node.operands[0].tensor.dims, (*heads, *rest)):
            return node.operands[0]
    return make.reshape(node, (*heads, *rest))


def _with_all_heads(make: Maker, query: Node, scores) -> Node:
    """Return queries with one axis for all heads; grouped heads are rows of one matmul."""
    _require(len(scores) == 4)
    (batch, heads, queries, _), (_, groups, rows, width) = scores, query.tensor.dims
    if is_same(heads, groups):
        return query
    _require(isinstance(heads, int) and isinstance(groups, int) and heads % groups == 0)
    _require(is_same(rows, heads // groups * queries))
    dims = (batch, heads, queries, width)
    while is_op(query, "reshape"):
        query = query.operands[0]
        if is_same_shape(query.tensor.dims, dims):
            return query
    return make.reshape(query, dims)


def _views(node: Node, is_transposed: bool, rank: int, is_scaled: bool = True) -> list[_View]:
    """Return what an operand of a matmul is a view of: with all its heads, and with each once.

    Raises
    ------
    UnsupportedOp
        It has another rank.
    """
    if len(node.tensor.dims) != rank:
        raise UnsupportedOp("the ranks differ")
    axes = list(range(rank))
    if is_transposed:
        axes[-2:] = axes[:-3:-1]
    views, seen = [], [_View(node, axes, 1.0)]
    while True:
        view = seen[-1]
        node = view.node
        factor = factor_of(node) if is_scaled else None
        once = _repeated(node, view.axes[-3])
        if is_op(node, "transpose"):
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
    """Return the first view that is a node of the graph, or else the last one."""
    return next((view for view in seen if view.is_plain), seen[-1])


def _heads(view: _View):
    return view.node.tensor.dims[view.axes[-3]]


def _tensor_of(make: Maker, view: _View) -> Node:
    return view.node if view.is_plain else make.transpose(view.node, view.axes)


def _repeated(node: Node, axis: int) -> Node | None:
    """Return the tensor of which a node repeats each item of an axis; None if it repeats none."""
    if not is_op(node, "reshape"):
        return None
    many, one = node.operands[0], None
    if is_op(many, "broadcast_to", "dyn.broadcast_to"):
        data = many.operands[0]
        if len(data.tensor.dims) != len(many.tensor.dims):
            # The new dimension is the first: all items are repeated in turn.
            return None
    elif is_op(many, "concatenate", "stack"):
        parts = many.operands[0].operands
        is_along = many.attrs.axis % len(many.tensor.dims) == axis + 1
        if not is_along or any(part is not parts[0] for part in parts):
            return None
        data = parts[0]
    else:
        return None
    if len(data.tensor.dims) == len(many.tensor.dims):
        if not is_op(data, "reshape", "expand_dims"):
            return None
        one, data = data.tensor.dims, data.operands[0]
    dims, wide = data.tensor.dims, many.tensor.dims
    if len(dims) != len(node.tensor.dims) or len(wide) != len(dims) + 1:
        return None
    count = wide[axis + 1]
    if not isinstance(count, int) or not isinstance(dims[axis], int):
        return None
    # With as many items as repeats, the wide shape does not tell which of them comes first.
    if one is not None and not is_same_shape(one, (*dims[: axis + 1], 1, *dims[axis + 1 :])):
        return None
    repeated = (*dims[: axis + 1], count, *dims[axis + 1 :])
    joined = (*dims[:axis], dims[axis] * count, *dims[axis + 1 :])
    is_repeat = is_same_shape(repeated, wide) and is_same_shape(joined, node.tensor.dims)
    return data if is_repeat else None


def _is_slower(operands: list[Node], is_causal: bool, precision: str) -> bool:
    (heads, queries), (groups, keys) = (each.tensor.shape[-3:-1] for each in operands[:2])
    if None in (queries, keys) or queries <= _MOST_QUERIES:
        return False
    if precision == "float32":
        return heads == groups and not is_causal and keys < _FEW_KEYS
    # Without the tiles of AMX, the kernel is no match for oneDNN.
    return not (precision == "bfloat16" and cpu.has_amx()) or keys < _FEW_KEYS


def _fits(operands: list[Node], scores, result) -> bool:
    """Whether batches and lengths are those of the scores and of the result in every run.

    There are as many values as keys wherever the matmul has a result: the op checks it.
    """
    query, key, value = (operand.tensor.dims for operand in operands)
    batches = [each[:-3] for each in (query, key, value, scores)]
    return (
        all(is_same_shape(batches[0], each) for each in batches[1:])
        and is_same(query[-3], scores[-3])
        and is_same(query[-2], scores[-2])
        and is_same(key[-2], scores[-1])
        and is_same_shape(result, (*query[:-1], value[-1]))
    )
