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
"""ONNX's RotaryEmbedding, of onnxruntime and of the standard."""

from __future__ import annotations

from tvm import relax, te
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter

from ..attention_parts import HEADS_FIRST
from .node import Node


def factors_of(node: Node, cos, sin, is_interleaved: bool):
    """Return angles as factors of the data and of the data with its pairs swapped.

    The rotation is x * cos + swapped(x) * sin, with each angle for both elements of its pair and
    the sign in sin, so that nothing but the swap reads parts of the data.

    Parameters
    ----------
    cos, sin : relax.Expr
        One angle for each pair in the last axis.
    is_interleaved : bool
        Whether a pair is adjacent; otherwise it is an element of each half.
    """
    negative = node.emit(relax.op.negative(sin))
    combine = _alternating if is_interleaved else _joined
    return combine(node, cos, cos), combine(node, negative, sin)


def _joined(node: Node, first, second):
    return node.emit(relax.op.concat([first, second], -1))


def _alternating(node: Node, first, second):
    *outer, size = node.shape(first)
    stacked = node.emit(relax.op.stack([first, second], len(outer) + 1))
    return node.reshape(stacked, [*outer, 2 * size])


def rotate(node: Node, x, factors, is_interleaved: bool):
    """Rotate pairs of the first elements of the last axis; elements after these stay.

    Parameters
    ----------
    x : relax.Expr
        The data, of rank 4.
    factors : tuple[relax.Expr, relax.Expr]
        The angles as `factors_of` returns them; they broadcast to the data.
    """
    *outer, size = node.shape(x)
    rotated = node.static(node.shape(factors[0])[-1], "a rotary dimension")
    size = node.static(size, "a head size")
    if rotated > size:
        node.refuse(f"{rotated} rotated of {size} elements")
    rest = None
    if rotated < size:
        x, rest = node.split(x, [rotated], -1)
    if is_interleaved:
        pairs = node.split(node.reshape(x, [*outer, rotated // 2, 2]), 2, -1)
        swapped = node.reshape(_joined(node, *pairs[::-1]), [*outer, rotated])
    else:
        swapped = _joined(node, *node.split(x, 2, -1)[::-1])
    products = [node.emit(relax.op.multiply(*pair)) for pair in zip((x, swapped), factors)]
    x = node.emit(relax.op.add(*products))
    return x if rest is None else _joined(node, x, rest)


def rows_of(node: Node, cache, positions):
    """Return the rows of a cache at positions (batch, length), the same for all heads.

    A position beyond the cache, which onnxruntime refuses at run time, reads its last row.
    """
    rows = node.emit(relax.op.take(cache, positions, axis=0, mode="clip"))
    return node.emit(relax.op.expand_dims(rows, 1))


def counted(node: Node, first, length):
    """Return the positions from one, which is a size or a tensor of one element, on."""

    def count(start, size):
        value = start(*[0] * len(start.shape)) if isinstance(start, te.Tensor) else start
        return te.compute((1, size), lambda _, k: (value + k).astype("int64"), name="positions")

    return node.compute(count, first, length)


class RotaryEmbedding(OnnxOpConverter):
    """Converts RotaryEmbedding of com.microsoft, and of ai.onnx since opset 23.

    The former has integers as its second input, the latter angles.
    """

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        node = Node("RotaryEmbedding", bb, attr)
        node.refuse_attrs(is_packed_batching=0, scale=1.0)
        x, positions, cos, sin = inputs[0], inputs[1], inputs[2], inputs[3]
        if not positions.ty.dtype.dtype.startswith("int"):
            positions, cos, sin = inputs[3], inputs[1], inputs[2]
        shape, heads = node.shape(x), attr.get("num_heads", 0)
        rotated = attr.get("rotary_embedding_dim", 0)
        half = node.static(node.shape(cos)[-1], "a rotary dimension")
        if len(shape) == 3:
            hidden = node.static(shape[2], "a hidden size")
            heads = heads or hidden // (2 * half)
            data = node.reshape(x, [*shape[:2], heads, hidden // heads])
            data = node.transpose(data, HEADS_FIRST)
        elif len(shape) == 4:
            data = x
        else:
            node.refuse(f"data of rank {len(shape)}")
        batch, _, length, size = node.shape(data)
        if 2 * half != (rotated or size):
            node.refuse(f"{rotated or size} rotated elements and angles for {2 * half}")
        if positions is not None:
            places = node.shape(positions)
            if len(places) == 2:
                positions = node.checked(positions, [batch, length], "position_ids")
            else:
                if places not in ([], [1]):
                    node.refuse(f"position_ids of the shape {places}")
                positions = counted(node, positions, length)
            cos, sin = (rows_of(node, cache, positions) for cache in (cos, sin))
        else:
            cos, sin = (
                node.emit(relax.op.expand_dims(node.checked(each, [batch, length, half], name), 1))
                for each, name in ((cos, "cos_cache"), (sin, "sin_cache"))
            )
        is_interleaved = bool(attr.get("interleaved", 0))
        factors = factors_of(node, cos, sin, is_interleaved)
        out = rotate(node, data, factors, is_interleaved)
        if len(shape) == 3:
            out = node.reshape(node.transpose(out, HEADS_FIRST), shape)
        return out


CONVERTERS = {"RotaryEmbedding": RotaryEmbedding}
