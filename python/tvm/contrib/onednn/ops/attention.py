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
"""Attention."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from ..ir.op_view import OpView, Tensor
from . import softmax
from .attrs import Bool, Float, Text
from .draw import Call, Draw
from .schema import OpSchema
from .tensors import known_product, tensor_reason, text_of_shape

# The kernel computes in float32.
_DTYPES = ("float32", "bfloat16")


def attention_reason(call: OpView) -> str | None:
    """Accept queries, keys and values of rank 3 or 4; a group of heads may share keys and values.

    The sizes of the batch and the lengths may be open; the numbers of heads and the widths of keys
    and values are fixed.
    """
    query, key, value = call.args[:3]
    for name, tensor in zip(("query", "key", "value"), (query, key, value)):
        reason = tensor_reason(name, tensor, 3, _DTYPES)
        if reason:
            return reason
        if len(tensor.shape) != len(query.shape) or len(tensor.shape) > 4:
            return f"{name} has shape {text_of_shape(tensor.shape)}; rank 3 or 4 is required"
        if tensor.dtype != query.dtype:
            return f"{name} is {tensor.dtype}, but query is {query.dtype}"
        if tensor.shape[-1] is None:
            return f"{name} of shape {text_of_shape(tensor.shape)} has an open width"
    heads, groups = query.shape[-3], key.shape[-3]
    if heads != groups and (None in (heads, groups) or heads % groups):
        return f"{heads} heads are no multiple of {groups} heads of keys"
    if query.shape[-1] != key.shape[-1] or value.shape[-3] != groups:
        shapes = [text_of_shape(each.shape) for each in (query, key, value)]
        return f"query, key and value have shapes {shapes[0]}, {shapes[1]} and {shapes[2]}"
    if len(call.args) > 5:
        return f"{len(call.args) - 3} masks; at most 2 are added"
    reasons = (tensor_reason("mask", each, 0, ("float32", query.dtype)) for each in call.args[3:])
    return next(filter(None, reasons), None)


def attention_flops(call: OpView) -> int:
    """Count two operations for each element of a query and of a value, with each key."""
    query, key, value = (arg.shape for arg in call.args[:3])
    return 2 * known_product((*query[:-1], key[-2])) * known_product((query[-1] + value[-1],))


def _attention_type(args, attrs):
    query, _, value = args[:3]
    return Tensor((*query.dims[:-1], value.dims[-1]), query.dtype)


def _attention(attrs, result_type, query, key, value, *mask):
    """Compute softmax(scale * query * key^T + mask) * value.

    Parameters
    ----------
    attrs : SimpleNamespace
        scale, causal and softmax, the op that the scores go through.
    query : np.ndarray
        (..., heads, queries, width).
    key, value : np.ndarray
        (..., groups, keys, width or value width), where groups divide the heads.
    mask : np.ndarray
        At most two, which are broadcast to (..., heads, queries, keys).
    """
    count = query.shape[-3] // key.shape[-3]
    key, value = (np.repeat(each, count, -3) for each in (key, value))
    scores = query @ np.swapaxes(key, -1, -2) * attrs.scale
    for each in mask:
        scores = scores + each
    if attrs.causal:
        rows, columns = scores.shape[-2:]
        seen = np.tri(rows, columns, columns - rows, dtype=bool)
        scores = np.where(seen, scores, -np.inf)
    return _SOFTMAX[attrs.softmax](SimpleNamespace(axis=-1), None, scores) @ value


# The ops that scores go through.
_SOFTMAX = {row.name: row.numpy for row in softmax.ROWS}


def _draw_attention(d: Draw) -> Call:
    batch, groups, queries, width = (d.choice((1, 2, 3)) for _ in range(4))
    # With fewer keys, a causal mask leaves none to the first queries.
    keys = queries + d.choice((0, 1, 2))
    heads = groups * d.choice((1, 2))
    shapes = [(heads, queries, width), (groups, keys, width), (groups, keys, d.choice((1, 4)))]
    masks = ((keys,), (queries, keys), (heads, 1, keys))
    shapes += [d.choice(masks), d.choice(masks)]
    if d.integer(0, 1):
        shapes = [(batch, *shape) if len(shape) == 3 else shape for shape in shapes]
    softmax = d.choice(("nn.softmax", "dnnl.masked_softmax", "dnnl.nan_safe_softmax"))
    attrs = dict(scale=0.5, causal=bool(d.integer(0, 1)), softmax=softmax)
    return Call([d.values(shape) for shape in shapes[: d.choice((3, 4, 5))]], attrs)


ROWS = [
    OpSchema(
        "dnnl.attention",
        attention_reason,
        attrs=(
            *(Float("scale"), Bool("causal", False), Text("softmax", "nn.softmax")),
            Text("fpmath", "float32"),
        ),
        infer=_attention_type,
        numpy=_attention,
        draw=_draw_attention,
        heavy=True,
        flops=attention_flops,
        typed_operands=3,
        relax="",
    )
]
