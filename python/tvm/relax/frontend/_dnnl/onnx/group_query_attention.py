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
"""onnxruntime's GroupQueryAttention."""

from __future__ import annotations

import numpy as np
from tvm import relax, te, tirx
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter

from ..attention_parts import (
    attend,
    hidden,
    lowest,
    merge_heads,
    position_mask,
    split_heads,
    with_past,
)
from ..backend import number
from .node import Node
from .rotary import counted, factors_of, rotate, rows_of


class GroupQueryAttention(OnnxOpConverter):
    """Converts GroupQueryAttention of com.microsoft.

    The keys and values of the new positions follow those of the past: total_sequence_length is the
    sum of both lengths, which is checked at run time, so past and present cannot share a buffer.
    Sequences of a batch may have pasts of unequal lengths; only then are the keys moved to where
    the past of their sequence ends.
    """

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        node = Node("GroupQueryAttention", bb, attr)
        node.refuse_attrs(qk_output=0, k_quant_type=b"NONE", v_quant_type=b"NONE")
        node.refuse_inputs(inputs, position_ids=9, k_scale=12, v_scale=13, query_seqlens=16)
        query, key, value, past_key, past_value, lengths, total, cos, sin, _, bias = inputs[:11]
        query, key, value = cls._heads(node, query, key, value)
        query, key = (
            cls._normalized(node, each, inputs[number], f"{name}_norm_epsilon")
            for name, each, number in (("q", query, 14), ("k", key, 15))
        )
        batch, heads, queries, _ = node.shape(query)
        past_length = 0 if past_key is None else node.shape(past_key)[2]
        keys = past_length + queries
        node.check_scalar(total, keys, "total_sequence_length")
        # One sequence has no padding in its past.
        pasts = None
        if number(batch) != 1 and number(past_length) != 0:
            pasts = _past_lengths(node, node.checked(lengths, [batch], "seqlens_k"), queries)
        if attr.get("do_rotary", 0):
            if cos is None or sin is None:
                node.refuse("do_rotary=1 without cos_cache and sin_cache")
            if pasts is None:
                positions = counted(node, past_length, queries)
            else:
                positions = _positions(node, pasts, queries)
            rows = (rows_of(node, cache, positions) for cache in (cos, sin))
            is_interleaved = bool(attr.get("rotary_interleaved", 0))
            factors = factors_of(node, *rows, is_interleaved)
            query, key = (rotate(node, x, factors, is_interleaved) for x in (query, key))
        append = with_past if pasts is None else lambda *args: _insert(*args, pasts)
        key = append(node, past_key, key, past_length, "past_key")
        value = append(node, past_value, value, past_length, "past_value")
        dtype, (before, is_causal) = query.ty.dtype.dtype, cls._window(node)
        if not is_causal:
            lengths = node.checked(lengths, [batch], "seqlens_k")
            mask = None if number(batch) == 1 else _padding(node, lengths, keys, dtype)
        elif pasts is None:
            mask = position_mask(node, queries, keys, past_length, dtype, before)
        else:
            mask = _mask(node, pasts, queries, keys, dtype, before)
        if bias is not None:
            bias = node.broadcast(bias, [batch, heads, queries, keys], "attention_bias")
        sink = inputs[11]
        if sink is None and attr.get("smooth_softmax", 0) > 0:
            sink = relax.const(np.zeros(heads, dtype))
        scale, softcap = attr.get("scale"), attr.get("softcap", 0.0)
        out = attend(node, query, key, value, (bias, mask), scale, softcap, sink=sink)
        return node.outputs(merge_heads(node, out), key, value)

    @staticmethod
    def _normalized(node: Node, x, factor, name: str):
        """Return queries or keys divided by the root of the mean square of each, if so asked."""
        epsilon = node.attr.get(name, node.attr.get("qk_norm_epsilon", 1e-6))
        return x if factor is None else node.emit(relax.op.nn.rms_norm(x, factor, -1, epsilon))

    @staticmethod
    def _window(node: Node) -> tuple[int | None, bool]:
        """Return how many keys before its own a query sees, None for all, and if it sees no later.

        The attribute local_window_size counts its own key, too.
        """
        size, is_causal = node.attr.get("local_window_size", -1), bool(node.attr.get("causal", 1))
        if size == 0 or (size > 0 and not is_causal):
            node.refuse(f"local_window_size={size} with causal={int(is_causal)}")
        return size - 1 if size > 0 else None, is_causal

    @staticmethod
    def _heads(node: Node, query, key, value):
        """Return queries, keys and values with the heads first."""
        heads, groups = node.attr["num_heads"], node.attr["kv_num_heads"]
        if key is not None:
            rows = node.shape(query)[:2]
            key, value = (
                node.checked(x, [*rows, node.shape(x)[2]], name)
                for x, name in ((key, "a key"), (value, "a value"))
            )
            each = (query, heads), (key, groups), (value, groups)
            return [split_heads(node, x, count) for x, count in each]
        packed = split_heads(node, query, heads + 2 * groups)
        return node.split(packed, [heads, heads + groups], 1)


def _past_lengths(node: Node, lengths, queries):
    """Return where the past of each sequence ends: (batch), from its last position."""
    lengths = node.emit(relax.op.astype(lengths, "int64"))

    def subtract(last, count):
        def element(item):
            return tirx.max(last[item] + 1 - count, tirx.const(0, "int64"))

        return te.compute(last.shape, element, name="past_lengths")

    return node.compute(subtract, lengths, queries)


def _positions(node: Node, pasts, queries):
    """Return the positions of the queries: (batch, queries)."""

    def count(past):
        return te.compute(
            (past.shape[0], queries), lambda item, query: past[item] + query, name="positions"
        )

    return node.compute(count, pasts)


def _mask(node: Node, pasts, queries, keys, dtype: str, before: int | None):
    """Return what hides later positions: (batch, 1, queries, keys)."""

    def mask(past):
        def element(item, _, query, key):
            return hidden(query + past[item] - key, dtype, before, 0, lowest(dtype))

        return te.compute((past.shape[0], 1, queries, keys), element, name="causal_mask")

    return node.compute(mask, pasts)


def _padding(node: Node, lengths, keys, dtype: str):
    """Return what hides keys after the last position of each sequence: (batch, 1, 1, keys)."""

    def mask(last):
        def element(item, _, __, key):
            is_hidden = key > last[item]
            return tirx.Select(is_hidden, tirx.const(lowest(dtype), dtype), tirx.const(0.0, dtype))

        return te.compute((last.shape[0], 1, 1, keys), element, name="padding_mask")

    return node.compute(mask, lengths)


def _insert(node: Node, past, x, old, what: str, pasts):
    """Put keys or values of new positions where the past of each sequence ends; zeros follow."""
    batch, heads, new, size = node.shape(x)
    past = node.checked(past, [batch, heads, old, size], what)

    def insert(before, after, ends):
        def element(item, head, position, k):
            offset = position - ends[item]
            return tirx.if_then_else(
                offset < 0,
                before[item, head, position, k],
                tirx.if_then_else(
                    offset < new, after[item, head, offset, k], tirx.const(0, before.dtype)
                ),
            )

        return te.compute((batch, heads, old + new, size), element, name="insert")

    return node.compute(insert, past, x, pasts)


CONVERTERS = {"GroupQueryAttention": GroupQueryAttention}
