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
"""ONNX's Attention, of onnxruntime and of the standard, and onnxruntime's MultiHeadAttention."""

from __future__ import annotations

import math

from tvm import relax, te, tirx
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter

from ..attention_parts import (
    attend,
    is_equal,
    is_less,
    merge_heads,
    position_mask,
    split_heads,
    with_past,
)
from .node import Node


def _padding_mask(node: Node, mask, batch, queries, keys, value: float, dtype: str):
    """Return what a mask of com.microsoft's ops adds to the scores.

    Parameters
    ----------
    mask : relax.Expr
        Integers: (batch, keys) or (batch, queries, keys), where positive numbers keep a position;
        (batch) or (3 * batch + 2), which begin with the positions where the padding begins; or
        for Attention (2 * batch), ends and then beginnings of what is not padding.
    value : float
        What is added to the score of a position that is hidden.

    Returns
    -------
    bias : relax.Expr
        (batch, 1, queries or 1, keys).
    """
    shape = node.shape(mask)
    if len(shape) in (2, 3):
        wanted = [batch, keys] if len(shape) == 2 else [batch, queries, keys]
        mask = node.checked(mask, wanted, "a mask")
        kept = node.emit(relax.op.greater(mask, relax.const(0, mask.ty.dtype)))
        values = (relax.const(each, dtype) for each in (0.0, value))
        bias = node.emit(relax.op.where(kept, *values))
        return node.emit(relax.op.expand_dims(bias, [1, 2] if len(shape) == 2 else [1]))
    if len(shape) != 1:
        node.refuse(f"a mask of rank {len(shape)}")
    has_start = node.op == "Attention" and is_equal(shape[0], 2 * batch)
    if not has_start and not any(is_equal(shape[0], size) for size in (batch, 3 * batch + 2)):
        node.refuse(f"a mask of the shape {shape} for a batch of {batch}")

    def hide(bounds):
        def element(item, _, __, key):
            is_hidden = key >= bounds[item]
            if has_start:
                is_hidden = tirx.any(is_hidden, key < bounds[item + batch])
            return tirx.Select(is_hidden, tirx.const(value, dtype), tirx.const(0.0, dtype))

        return te.compute((batch, 1, 1, keys), element, name="padding_mask")

    return node.compute(hide, mask)


def _masks(node: Node, query, keys, past_length, mask, bias):
    """Return what the attributes and masks of com.microsoft's ops add to the scores."""
    batch, heads, queries, _ = node.shape(query)
    value, dtype = node.attr.get("mask_filter_value", -10000.0), query.ty.dtype.dtype
    if bias is not None:
        bias = node.broadcast(bias, [batch, heads, queries, keys], "attention_bias")
    if mask is not None:
        mask = _padding_mask(node, mask, batch, queries, keys, value, dtype)
    causal = None
    if node.attr.get("unidirectional", 0):
        if not is_equal(keys, past_length + queries):
            # onnxruntime then hides later positions from all queries but the last.
            node.refuse(f"unidirectional=1 with {queries} queries and {keys} keys")
        causal = position_mask(node, queries, keys, past_length, dtype)
    return bias, mask, causal


def _half(past, index: int):
    """Return the keys or the values of a past. It may be empty, which ops of oneDNN may not be."""
    return te.compute(past.shape[1:], lambda *at: past[(index, *at)], name="past")


class Attention(OnnxOpConverter):
    """Converts Attention of com.microsoft, and of ai.onnx since opset 23.

    Only the former has the attribute num_heads.
    """

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        node = Node("Attention", bb, attr)
        if "num_heads" not in attr:
            return _standard_attention(node, inputs)
        node.refuse_attrs(do_rotary=0, past_present_share_buffer=0)
        node.refuse_inputs(inputs, past_sequence_length=6)
        x, weight, bias, mask, past, attention_bias = inputs[:6]
        heads, hidden = attr["num_heads"], node.static(node.shape(weight)[1], "a hidden size")
        sizes = attr.get("qkv_hidden_sizes", [hidden // 3] * 3)
        if sum(sizes) != hidden or sizes[0] != sizes[1]:
            node.refuse(f"qkv_hidden_sizes={list(sizes)} with weights for {hidden}")
        x = node.emit(relax.op.matmul(x, weight))
        if bias is not None:
            x = node.emit(relax.op.add(x, bias))
        parts = node.split(x, [sizes[0], 2 * sizes[0]], 2)
        query, key, value = (split_heads(node, part, heads) for part in parts)
        past_length = 0
        if past is not None:
            batch, _, _, size = node.shape(key)
            past_length = node.shape(past)[3]
            past = node.checked(past, [2, batch, heads, past_length, size], "past")
            past_key, past_value = (node.compute(_half, past, index) for index in (0, 1))
            key = with_past(node, past_key, key, past_length, "past")
            value = with_past(node, past_value, value, past_length, "past")
        masks = _masks(node, query, node.shape(key)[2], past_length, mask, attention_bias)
        out = merge_heads(node, attend(node, query, key, value, masks, attr.get("scale")))
        if node.num_outputs == 1:
            return out
        if sizes[0] != sizes[2]:
            node.refuse(f"the output present with qkv_hidden_sizes={list(sizes)}")
        return node.outputs(out, node.emit(relax.op.stack([key, value], 0)))


def _standard_attention(node: Node, inputs):
    """Convert Attention of ai.onnx."""
    attr, (query, key, value, mask, past_key, past_value) = node.attr, inputs[:6]
    node.refuse_inputs(inputs, nonpad_kv_seqlen=6)
    dtype = query.ty.dtype.dtype
    if attr.get("softmax_precision", 1) != 1 or dtype != "float32":
        node.refuse(f"softmax_precision={attr.get('softmax_precision')} of {dtype}")
    if node.num_outputs > 3:
        node.refuse("the output qk_matmul_output")
    softcap, is_merged = attr.get("softcap", 0.0), len(node.shape(query)) == 3
    if softcap and (mask is not None or _window(node) != (None, None)):
        # The standard adds the mask before the bound, which then shows hidden positions.
        node.refuse(f"softcap={softcap} with a mask")
    if is_merged:
        query = split_heads(node, query, attr["q_num_heads"])
        key, value = (split_heads(node, each, attr["kv_num_heads"]) for each in (key, value))
    past_length = 0 if past_key is None else node.shape(past_key)[2]
    key = with_past(node, past_key, key, past_length, "past_key")
    value = with_past(node, past_value, value, past_length, "past_value")
    batch, heads, queries, _ = node.shape(query)
    keys = node.shape(key)[2]
    if mask is not None:
        mask = node.broadcast(mask, [batch, heads, queries, keys], "attn_mask")
        if mask.ty.dtype.dtype == "bool":
            values = (relax.const(each, dtype) for each in (0.0, -math.inf))
            mask = node.emit(relax.op.where(mask, *values))
    before, after = _window(node)
    near = position_mask(node, queries, keys, past_length, dtype, before, after, -math.inf)
    # A query that sees no key gives 0. It always sees its own, unless a mask hides it.
    is_guarded = mask is not None or (
        before is not None and not is_less(past_length + queries, keys + before + 1)
    )
    scale = attr.get("scale")
    out = attend(node, query, key, value, (mask, near), scale, softcap, is_guarded=is_guarded)
    return node.outputs(merge_heads(node, out) if is_merged else out, key, value)


def _window(node: Node) -> tuple[int | None, int | None]:
    """Return how many keys before and after its own a query sees, as `position_mask` takes it."""
    sizes = (node.attr.get(f"{side}_window_size", -1) for side in ("left", "right"))
    before, after = (None if size < 0 else size for size in sizes)
    return before, 0 if node.attr.get("is_causal", 0) else after


class MultiHeadAttention(OnnxOpConverter):
    """Converts MultiHeadAttention of com.microsoft."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        node = Node("MultiHeadAttention", bb, attr)
        node.refuse_inputs(inputs, past_sequence_length=8, cache_indirection=9)
        if node.num_outputs > 3:
            node.refuse("the output qk")
        mask, bias, past_key, past_value = inputs[4:8]
        query, key, value = cls._heads(node, *inputs[:4])
        past_length = 0 if past_key is None else node.shape(past_key)[2]
        key = with_past(node, past_key, key, past_length, "past_key")
        value = with_past(node, past_value, value, past_length, "past_value")
        masks = _masks(node, query, node.shape(key)[2], past_length, mask, bias)
        out = attend(node, query, key, value, masks, attr.get("scale"))
        return node.outputs(merge_heads(node, out), key, value)

    @staticmethod
    def _heads(node: Node, query, key, value, bias):
        """Return queries, keys and values of any layout with the heads first."""
        heads = node.attr["num_heads"]
        if key is None:
            if len(node.shape(query)) != 5:
                node.refuse(f"a query of rank {len(node.shape(query))} without a key")
            tensors = _packed(node, query, 3)
        elif len(node.shape(key)) == 5:
            tensors = [query, *_packed(node, key, 2)]
        else:
            tensors = [query, key, value]
        if bias is not None:
            tensors = _with_bias(node, tensors, bias)
        # Of rank 4, they are keys and values with the heads first, as past ones.
        return [x if len(node.shape(x)) == 4 else split_heads(node, x, heads) for x in tensors]


def _packed(node: Node, x, count: int) -> list:
    """Return the parts of (batch, length, heads, count, size), each of rank 3."""
    batch, length, heads, _, size = node.shape(x)
    parts = node.split(x, count, 3)
    return [node.reshape(part, [batch, length, heads * size]) for part in parts]


def _with_bias(node: Node, tensors: list, bias) -> list:
    """Add the biases of queries, keys and values, which are one vector."""
    sizes = [node.static(node.shape(x)[-1], "a hidden size") for x in tensors]
    if any(len(node.shape(x)) != 3 for x in tensors) or node.shape(bias) != [sum(sizes)]:
        node.refuse(f"a bias of the shape {node.shape(bias)}")
    parts = node.split(bias, [sizes[0], sum(sizes[:2])], 0)
    return [node.emit(relax.op.add(x, part)) for x, part in zip(tensors, parts)]


CONVERTERS = {"MultiHeadAttention": MultiHeadAttention}

REPLACEMENTS = {"Attention": Attention}
