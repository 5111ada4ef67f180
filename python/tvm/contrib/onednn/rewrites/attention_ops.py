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
"""Decomposes attention into two matmuls, a softmax and the mask."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import ml_dtypes
import numpy as np

from ..ir.dim import Dim, is_same, number
from ..ir.graph import Graph
from ..ir.node import INPUT, Node
from ..ir.op_view import Tensor
from .maker import Maker, UnsupportedOp, check_floats

ATTENTION = "dnnl.attention"

# From (batch, length, heads, size) to (batch, heads, length, size), and back.
_HEADS_FIRST = [0, 2, 1, 3]


def attention(make: Maker, node: Node) -> Node:
    """Decompose Relax's attention ops."""
    query, key, value, *bias = node.operands
    attrs, mask = node.attrs, node.attrs.causal_mask
    sizes = [operand.tensor.dims for operand in (query, key, value)]
    lengths = [dims[1] for dims in sizes[:2]]
    if not all(is_same(dims[2], sizes[0][2]) for dims in sizes[1:]):
        heads = [dims[2] for dims in sizes]
        raise UnsupportedOp("{} query heads, {} key heads and {} value heads".format(*heads))
    if attrs.window_size is not None:
        raise UnsupportedOp(f"window_size={attrs.window_size}: oneDNN has no sliding window")
    check_floats(node, "query")
    if attrs.scale is None and number(sizes[0][3]) is None:
        raise UnsupportedOp("the head size is open")
    if mask not in (None, "TopLeft", "BottomRight"):
        raise UnsupportedOp(f"causal_mask={mask}")
    if mask == "BottomRight" and None in map(number, lengths) and not is_same(*lengths):
        raise UnsupportedOp("causal_mask=BottomRight with open lengths")
    scale = 1.0 / math.sqrt(sizes[0][3]) if attrs.scale is None else attrs.scale
    key = make.transpose(key, [0, 2, 3, 1])
    query, value = (make.transpose(each, _HEADS_FIRST) for each in (query, value))
    scores = _scores(make, query, key, scale, bias)
    if mask is not None:
        scores = _causal(make, scores, mask == "BottomRight")
    weights = _softmax(make, scores)
    return make.transpose(_matmul(make, weights, value), _HEADS_FIRST)


def attention_ops(node: Node) -> tuple[list[Node], Node]:
    """Return an attention op as ops of TVM.

    Parameters
    ----------
    node : Node
        A call of `dnnl.attention`.

    Returns
    -------
    inputs, result : tuple[list[Node], Node]
        What stands for the operands, and the result of them. None of these is in a graph.
    """
    inputs = [Node(INPUT, None, [], operand.type) for operand in node.operands]
    make, attrs = Maker(Graph(), node), node.attrs
    # So does the kernel.
    query, key, value, *masks = (_cast(make, each, "float32") for each in inputs)
    heads, rank = query.tensor.dims[-3], len(query.tensor.dims)
    key, value = (_with_heads(make, each, heads) for each in (key, value))
    key = make.transpose(key, [*range(rank - 2), rank - 1, rank - 2])
    scores = _scores(make, query, key, attrs.scale, masks)
    if attrs.causal:
        scores = _hide_later(make, scores)
    weights = _SOFTMAX[attrs.softmax](make, scores)
    return inputs, _cast(make, _matmul(make, weights, value), node.tensor.dtype)


def _cast(make: Maker, data: Node, dtype: str) -> Node:
    return data if data.tensor.dtype == dtype else make("cast", data, dtype=dtype)


def _with_heads(make: Maker, data: Node, heads: int) -> Node:
    """Repeat each head of keys or values, so that there are as many as of queries."""
    axis = len(data.tensor.dims) - 3
    groups = data.tensor.dims[axis]
    if groups == heads:
        return data
    indices = make.graph.constant(np.repeat(np.arange(groups, dtype="int32"), heads // groups))
    return make("take", data, indices, axis=axis, mode="clip", batch_dims=0)


def _matmul(make: Maker, left: Node, right: Node) -> Node:
    return make("nn.batch_matmul", left, right, transpose_a=False, transpose_b=False)


def _scores(make: Maker, query: Node, key: Node, scale: float, masks: Sequence[Node]) -> Node:
    """Return the scaled and masked scores of transposed keys."""
    dtype = query.tensor.dtype
    scores = make("multiply", _matmul(make, query, key), make.scalar(scale, dtype))
    for mask in masks:
        scores = make("add", scores, mask)
    return scores


def _causal(make: Maker, scores: Node, is_at_end: bool) -> Node:
    """Hide later keys from each query; the last ones are of one position if `is_at_end`."""
    lengths, dtype = scores.tensor.dims[-2:], scores.tensor.dtype
    # Half of it: a sum with a score must not be infinite.
    lowest = float(ml_dtypes.finfo(dtype).min) / 2
    if not any(isinstance(length, Dim) for length in lengths):
        first = 1 + (abs(lengths[0] - lengths[1]) if is_at_end else 0)
        mask = make.graph.constant(np.triu(np.full(lengths, lowest), first), dtype)
        return make("add", scores, mask)
    type_ = Tensor(tuple(lengths), dtype)
    filled = make.graph.call("full", [make.scalar(lowest, dtype)], make.node, type_)
    mask = make.graph.call("triu", [filled], make.node, type_, k=1)
    filled.unsupported = mask.unsupported = "no rule for this op"
    return make("add", scores, mask)


def _hide_later(make: Maker, scores: Node) -> Node:
    """Hide later keys as `_causal` does, without a constant as large as the scores."""
    queries, keys = scores.tensor.dims[-2:]
    if isinstance(queries, Dim) or isinstance(keys, Dim):
        # Of open lengths, only equal ones are read as causal.
        return _causal(make, scores, is_at_end=False)
    rows = make.graph.constant(np.arange(keys - queries, keys, dtype="int32")[:, None])
    columns = make.graph.constant(np.arange(keys, dtype="int32"))
    hidden = make.scalar(-math.inf, scores.tensor.dtype)
    return make("where", make("greater", columns, rows), hidden, scores)


def _softmax(make: Maker, scores: Node) -> Node:
    return make("nn.softmax", scores, axis=-1)


def _nan_safe_softmax(make: Maker, scores: Node) -> Node:
    softmax = _softmax(make, scores)
    type_ = Tensor(softmax.tensor.dims, "bool")
    is_nan = make.graph.call("isnan", [softmax], make.node, type_)
    return make("where", is_nan, make.scalar(0.0, softmax.tensor.dtype), softmax)


def _masked_softmax(make: Maker, scores: Node) -> Node:
    zero, lowest = (make.scalar(value, scores.tensor.dtype) for value in (0.0, -math.inf))
    highest = make("max", scores, axis=[-1], keepdims=True, exclude=False)
    return make("where", make("equal", highest, lowest), zero, _softmax(make, scores))


_SOFTMAX: dict[str, Callable[[Maker, Node], Node]] = {
    "nn.softmax": _softmax,
    "dnnl.masked_softmax": _masked_softmax,
    "dnnl.nan_safe_softmax": _nan_safe_softmax,
}
