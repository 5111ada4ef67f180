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
"""Converter of attention: TVM's ignores the scale and shared heads."""

from __future__ import annotations

import math

import numpy as np
from tvm import relax, tirx

from .graphs import argument


def _attention(node, importer):
    """Convert scaled_dot_product_attention of 2 to 4 dimensions."""
    emit = importer.block_builder.emit
    query, key, value = (importer.env[each] for each in node.args[:3])
    mask = argument(node, "attn_mask")
    bias = None if mask is None else importer.env[mask]
    if argument(node, "dropout_p"):
        raise ValueError(f"{node.name}: dropout_p={argument(node, 'dropout_p')}; export in eval()")
    rank = len(query.ty.shape)
    if not 2 <= rank <= 4:
        raise ValueError(f"{node.name}: a query of {rank} dimensions is not supported")
    # Dimensions that are not there are batches and heads of one.
    front = list(range(4 - rank)) if rank == 2 else [1]
    if rank < 4:
        query, key, value = (emit(relax.op.expand_dims(x, front)) for x in (query, key, value))
    if bias is not None:
        if rank == 3 and len(bias.ty.shape) == 3:
            bias = emit(relax.op.expand_dims(bias, [1]))
        missing = 4 - len(bias.ty.shape)
        bias = emit(relax.op.expand_dims(bias, list(range(missing)))) if missing else bias
    scale = argument(node, "scale")
    scale = 1.0 / math.sqrt(int(query.ty.shape[3])) if scale is None else float(scale)
    causal = bool(argument(node, "is_causal"))
    if argument(node, "enable_gqa"):
        out = _shared_heads(emit, (query, key, value), bias, causal, scale)
    else:
        rows = [emit(relax.op.permute_dims(x, [0, 2, 1, 3])) for x in (query, key, value)]
        mask = "TopLeft" if causal else None
        out = emit(relax.op.nn.attention(*rows, bias=bias, scale=scale, causal_mask=mask))
        out = emit(relax.op.permute_dims(out, [0, 2, 1, 3]))
    return emit(relax.op.squeeze(out, front)) if rank < 4 else out


def _shared_heads(emit, operands, bias, causal, scale):
    """Emit an attention whose queries share heads: the keys are broadcast, and not repeated."""
    query, key, value = operands
    batch, heads, length, size = query.ty.shape
    shared, keys = key.ty.shape[1], key.ty.shape[2]
    groups = int(heads) // int(shared)
    query = emit(relax.op.reshape(query, (batch, shared, groups, length, size)))
    key, value = (emit(relax.op.expand_dims(each, [2])) for each in (key, value))
    query = emit(relax.op.multiply(query, relax.const(scale, str(query.ty.dtype))))
    scores = emit(relax.op.matmul(query, emit(relax.op.permute_dims(key, [0, 1, 2, 4, 3]))))
    if bias is not None:
        b, h, *rest = bias.ty.shape
        split = (b, 1, 1, *rest) if int(h) == 1 else (b, shared, groups, *rest)
        scores = emit(relax.op.add(scores, emit(relax.op.reshape(bias, split))))
    if causal:
        scores = emit(relax.op.add(scores, _causal_bias(emit, length, keys, scores.ty.dtype)))
    out = emit(relax.op.matmul(emit(relax.op.nn.softmax(scores, -1)), value))
    return emit(relax.op.reshape(out, (batch, heads, length, value.ty.shape[4])))


def _causal_bias(emit, length, keys, dtype):
    """Return what masks the keys after each query; a constant unless a length is open."""
    if all(isinstance(size, tirx.IntImm) for size in (length, keys)):
        bias = np.triu(np.full((int(length), int(keys)), -1e30), 1)
        return relax.const(bias, str(dtype))
    bias = emit(relax.op.full((length, keys), relax.const(-1e30, str(dtype))))
    return emit(relax.op.triu(bias, 1))


CONVERTERS = {"scaled_dot_product_attention.default": _attention}
