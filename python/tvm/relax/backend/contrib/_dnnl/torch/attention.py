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

from tvm import relax

from ..onnx.attention_parts import Node, attend, causal_mask
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
        attention = Node(str(node.name), importer.block_builder, {})
        lengths = [attention.shape(each)[2] for each in (query, key)]
        dtype = query.ty.dtype.dtype
        later = causal_mask(attention, *lengths, 0, dtype) if causal else None
        # PyTorch has compared the sizes when it exported the program.
        operands = query, key, value
        out = attend(attention, *operands, (bias, later), scale, is_checked=False)
    else:
        rows = [emit(relax.op.permute_dims(x, [0, 2, 1, 3])) for x in (query, key, value)]
        mask = "TopLeft" if causal else None
        out = emit(relax.op.nn.attention(*rows, bias=bias, scale=scale, causal_mask=mask))
        out = emit(relax.op.permute_dims(out, [0, 2, 1, 3]))
    return emit(relax.op.squeeze(out, front)) if rank < 4 else out


CONVERTERS = {"scaled_dot_product_attention.default": _attention}
