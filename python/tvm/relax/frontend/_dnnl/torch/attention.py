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
from tvm import relax

from ..attention_parts import Emitter, attend, position_mask
from ..backend import is_constant, value_of
from .graphs import argument


def _attention(node, importer):
    """Convert scaled_dot_product_attention of 2 or more dimensions."""
    emit = importer.block_builder.emit
    query, key, value = (importer.env[each] for each in node.args[:3])
    mask = argument(node, "attn_mask")
    bias = None if mask is None else importer.env[mask]
    if argument(node, "dropout_p"):
        raise ValueError(f"{node.name}: dropout_p={argument(node, 'dropout_p')}; export in eval()")
    attention = Emitter(str(node.name), importer.block_builder)
    result = [*attention.shape(query)[:-1], attention.shape(value)[-1]]
    if bias is not None:
        bias = _with_four_dims(attention, bias, len(result), result[:-3])
    query, key, value = (_with_four_dims(attention, x, len(result)) for x in (query, key, value))
    scale = argument(node, "scale")
    scale = 1.0 / math.sqrt(int(query.ty.shape[3])) if scale is None else float(scale)
    causal = bool(argument(node, "is_causal"))
    is_guarded = bias is not None and _may_hide_rows(bias)
    if is_guarded or argument(node, "enable_gqa"):
        lengths = [attention.shape(each)[2] for each in (query, key)]
        dtype = query.ty.dtype.dtype
        later = position_mask(attention, *lengths, 0, dtype) if causal else None
        # PyTorch has compared the sizes when it exported the program.
        operands, options = (query, key, value), dict(is_checked=False, is_guarded=is_guarded)
        out = attend(attention, *operands, (bias, later), scale, **options)
    else:
        rows = [emit(relax.op.permute_dims(x, [0, 2, 1, 3])) for x in (query, key, value)]
        mask = "TopLeft" if causal else None
        out = emit(relax.op.nn.attention(*rows, bias=bias, scale=scale, causal_mask=mask))
        out = emit(relax.op.permute_dims(out, [0, 2, 1, 3]))
    return attention.reshape(out, result)


def _with_four_dims(attention: Emitter, x, rank: int, batches=None):
    """Return (batch, heads, length, size) for an operand of an attention of a rank.

    Dimensions that are not there are batches and heads of one; several batches are one dimension.

    Parameters
    ----------
    batches : list[int | PrimExpr] | None
        The batches of the data, to which those of a mask are broadcast.
    """
    shape = attention.shape(x)
    if rank <= 3:
        # Of three dimensions, the first are batches.
        front = [1] * (rank - len(shape)) + shape[:-2]
        return attention.reshape(x, [*([1] * (1 - len(front))), *front, 1, *shape[-2:]])
    shape = [1] * (max(rank, 4) - len(shape)) + shape
    own = shape[:-3]
    if batches is not None and any(size != 1 for size in own) and len(own) > 1:
        shape = [*batches, *shape[-3:]]
        x = attention.emit(relax.op.broadcast_to(x, shape))
        own = batches
    return attention.reshape(x, [math.prod(own), *shape[-3:]])


def _may_hide_rows(bias) -> bool:
    """Whether a mask may be -inf for all keys of a query."""
    return not is_constant(bias) or bool(np.isneginf(value_of(bias)).all(-1).any())


CONVERTERS = {"scaled_dot_product_attention.default": _attention}
