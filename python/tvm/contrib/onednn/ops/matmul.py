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
"""When oneDNN can multiply matrices."""

from __future__ import annotations

import math

import numpy as np

from ..ir.op_view import OpView
from .attrs import Bool, DType, Int
from .tensors import (
    EIGHT_BITS,
    known_product,
    open_reason,
    tensor_reason,
    tensors_reason,
    text_of_shape,
)

_DENSE_ATTRS = (DType("out_dtype"),)
_MATMUL_ATTRS = (Bool("transpose_a", False), Bool("transpose_b", False), *_DENSE_ATTRS)


def last_axis(call: OpView) -> int:
    """Return the last axis of a call's result."""
    return len(call.result.shape) - 1


def _rewritten_reason(attrs) -> str | None:
    """Refuse weights that one of TVM's tuners has put into a layout of its own."""
    if getattr(attrs, "auto_scheduler_rewritten_layout", ""):
        return "TVM's auto scheduler has rewritten the weight's layout"
    if len(getattr(attrs, "meta_schedule_original_shape", None) or ()):
        return "TVM's meta schedule has rewritten the weight's layout"
    return None


def _product_reason(call: OpView, transpose_a: bool, transpose_b: bool) -> str | None:
    """Accept data of rank 2 or more, with rows open, and a matrix that fits to it."""
    reason = _rewritten_reason(call.attrs) or tensors_reason(call, min_rank=2)
    if reason:
        return reason
    data, weight = call.args[0].shape, call.args[1].shape
    inner = data[-2] if transpose_a else data[-1]
    reason = open_reason("data", "columns", inner, data)
    for size in weight:
        reason = reason or open_reason("weight", "dimensions", size, weight)
    if reason:
        return reason
    if len(weight) != 2 or weight[1 if transpose_b else 0] != inner:
        wanted = f"(units, {inner})" if transpose_b else f"({inner}, units)"
        return (
            f"weight has shape {text_of_shape(weight)}, "
            f"but data of shape {text_of_shape(data)} requires {wanted}"
        )
    return None


def dense_reason(call: OpView) -> str | None:
    """Accept data of rank 2 or more and a 2-D weight."""
    return _product_reason(call, False, True)


def matmul_reason(call: OpView) -> str | None:
    """Accept data of rank 2 or more and a 2-D weight, either transposed or not."""
    return _product_reason(call, call.attrs.transpose_a, call.attrs.transpose_b)


def dynamic_dense_reason(call: OpView) -> str | None:
    """Accept float32 data with rows open, and an 8-bit (units, columns) weight with its scale."""
    data, weight, scale, zero = call.args
    reason = (
        tensor_reason("data", data, 1, ("float32",))
        or tensor_reason("weight", weight, 2, EIGHT_BITS)
        or tensor_reason("scale", scale, dtypes=("float32",))
        or tensor_reason("zero_point", zero, dtypes=("int32",))
        or open_reason("data", "columns", data.shape[-1], data.shape)
    )
    if reason:
        return reason
    if not all(arg.is_constant for arg in (weight, scale, zero)):
        return "the weight, its scale or its zero point is not constant"
    if len(weight.shape) != 2 or weight.shape[1] != data.shape[-1]:
        return (
            f"weight has shape {text_of_shape(weight.shape)}, but data of shape "
            f"{text_of_shape(data.shape)} requires (units, {data.shape[-1]})"
        )
    if math.prod(zero.shape) != 1 or math.prod(scale.shape) not in (1, weight.shape[0]):
        return "the weight has other scales or zero points than one, or a scale for each unit"
    return None


def block_dense_reason(call: OpView) -> str | None:
    """Accept float32 data with rows open, and a constant weight of 4 or 8 bits in blocks."""
    data, *weight = call.args
    dtypes, names = ("uint8", "float32", "uint8"), ("weight", "scales", "zero_points")
    reason = tensor_reason("data", data, 1, ("float32",))
    for name, arg, dtype in zip(names, weight, dtypes):
        reason = reason or tensor_reason(name, arg, 2, (dtype,))
    reason = reason or open_reason("data", "columns", data.shape[-1], data.shape)
    if reason:
        return reason
    if not all(arg.is_constant for arg in weight):
        return "the weight, its scales or its zero points are not constant"
    bits, block, level = call.attrs.bits, call.attrs.block_size, call.attrs.accuracy_level
    if bits not in (4, 8) or block % 32:
        return f"bits={bits} in blocks of {block}; supported are 4 and 8 in blocks of 32, 64, ..."
    if not 0 <= level <= 4:
        return f"accuracy_level={level}; supported are 0 to 4"
    units, blocks = weight[0].shape[0], -(-data.shape[-1] // block)
    if weight[0].shape[1] != blocks * block * bits // 8:
        return (
            f"weight has shape {text_of_shape(weight[0].shape)}, but data of shape "
            f"{text_of_shape(data.shape)} requires (units, {blocks * block * bits // 8})"
        )
    if any(arg.shape != (units, blocks) for arg in weight[1:]):
        return f"the scales or zero points have another shape than ({units}, {blocks})"
    return None


def batch_matmul_reason(call: OpView) -> str | None:
    """Accept matrices and batches of them, which broadcast as numpy's do; all may be open."""
    return _rewritten_reason(call.attrs) or tensors_reason(call, min_rank=2)


def matmul_flops(call: OpView) -> int:
    """Count two operations for each element of the row that an element of the result needs."""
    is_transposed = call.name != "nn.dense" and call.attrs.transpose_a
    inner = call.args[0].shape[-2 if is_transposed else -1]
    return 2 * known_product((*call.result.shape, inner))


def row_flops(call: OpView) -> int:
    """Count two operations for each element of the row that an element of the result needs."""
    return 2 * known_product((*call.result.shape, call.args[0].shape[-1]))


def scaled_matmul_weight(call: OpView, weight: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Multiply the output channels of a matrix by factors."""
    is_transposed = call.name == "nn.dense" or call.attrs.transpose_b
    return weight * (scale[:, None] if is_transposed else scale)


def matmul_weight_axis(call: OpView) -> int:
    """Return the axis of a matrix that has an item for each column of the result."""
    is_transposed = call.name == "nn.dense" or call.attrs.transpose_b
    return len(call.args[1].shape) - (2 if is_transposed else 1)


# The fields of the rows; a reshape must keep the columns, or the matrices.
_FIELDS = dict(
    channel_axis=last_axis,
    weight_axis=matmul_weight_axis,
    reads_int8="weight",
    flops=matmul_flops,
)
_OF_A_MATRIX = dict(_FIELDS, kept_dims=1, scaled_weight=scaled_matmul_weight)
DENSE = dict(_OF_A_MATRIX, reason=dense_reason, attrs=_DENSE_ATTRS)
MATMUL = dict(_OF_A_MATRIX, reason=matmul_reason, attrs=_MATMUL_ATTRS)
BATCH_MATMUL = dict(_FIELDS, reason=batch_matmul_reason, attrs=_MATMUL_ATTRS, kept_dims=2)
DYNAMIC_DENSE = dict(
    reason=dynamic_dense_reason,
    channel_axis=last_axis,
    fuses=("eltwise", "binary"),
    kept_dims=1,
    flops=row_flops,
)
BLOCK_DENSE = dict(
    reason=block_dense_reason,
    attrs=(Int("bits"), Int("block_size"), Int("accuracy_level", 0)),
    flops=row_flops,
)
