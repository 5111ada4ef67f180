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
"""Dense layers whose weight is quantized: dynamically quantized data, or a weight in blocks."""

from __future__ import annotations

import math

import numpy as np

from ..ir.numpy_types import Array, UndefinedResult
from ..ir.op_view import OpView, Tensor, tensor_of
from .attrs import Float, Int
from .draw import SIZES, Call, Draw
from .eltwise import float32_reason
from .quantize import quantized
from .schema import OpSchema, no_flops
from .tensors import EIGHT_BITS, known_product, last_axis, open_reason, tensor_reason, text_of_shape


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


def row_flops(call: OpView) -> int:
    """Count two operations for each element of the row that an element of the result needs."""
    return 2 * known_product((*tensor_of(call.result).shape, tensor_of(call.args[0]).shape[-1]))


def _quantized_dense_type(args, attrs):
    return Tensor((*args[0].dims[:-1], args[1].dims[0]), "float32")


def _scale_type(args, attrs):
    return Tensor((1,), "float32")


def _dynamically_quantized(x: Array, epsilon: float = 0.0) -> tuple:
    """Quantize as ONNX's DynamicQuantizeLinear, with a scale of 1 for zeros as in onnxruntime.

    With an `epsilon`, the scale is at least that, as PyTorch's choose_qparams has it.

    Returns
    -------
    steps, scale : tuple[Array, numpy.float32]
        The integers less their zero point, and the scale.
    """
    data = x.astype("float32")
    low, high = min(data.min(), np.float32(0)), max(data.max(), np.float32(0))
    step = (high - low) / np.float32(255) if high > low or epsilon else np.float32(1)
    step = max(step, np.float32(epsilon))
    shift = np.rint(np.clip(np.float32(0) - low / step, 0, 255)).astype("int32")
    integers = quantized(data, step, shift, 0, "uint8")
    if integers is None:
        raise UndefinedResult("not a number")
    return integers.astype("float64") - shift, np.float32(step)


def _dynamic_fake_quantize(attrs, result_type, x):
    steps, scale = _dynamically_quantized(x)
    return steps * scale


def _dynamic_quantize_scale(attrs, result_type, x):
    return _dynamically_quantized(x)[1].reshape(1)


def _dynamic_quantized_dense(attrs, result_type, x, weight, scale, zero_point):
    steps, step = _dynamically_quantized(x, attrs.epsilon)
    sums = steps @ (weight.astype("float64") - zero_point).T
    return sums * (step * scale.reshape(-1).astype("float32"))


def _quantized_in_blocks(x: Array, block: int, most: int) -> Array:
    """Round each block of a row to integers up to `most` times a scale, as int8 does with 127.

    A block that has an element which is not finite becomes NaN, and zero if all are below 1e-36.
    """
    columns = x.shape[-1]
    padding = [(0, 0)] * (x.ndim - 1) + [(0, -columns % block)]
    data = np.pad(x.astype("float32"), padding).reshape(*x.shape[:-1], -1, block)
    largest = np.abs(data).max(-1, keepdims=True)
    largest = np.where(largest < np.inf, largest, np.float32(np.nan))
    is_zero = largest < np.float32(1e-36)
    factor = np.float32(most) / np.where(is_zero, np.float32(1), largest)
    steps = np.where(is_zero, np.float32(0), np.rint(data * factor))
    values = steps * (largest / np.float32(most)).astype("float64")
    return values.reshape(*x.shape[:-1], -1)[..., :columns]


def _block_quantized_dense(attrs, result_type, x, weight, scales, zero_points=None):
    bits, (units, blocks) = attrs.bits, scales.shape
    # Runtimes may compute in float32 nevertheless: on CPUs without dot products of 8 bits.
    if attrs.accuracy_level == 4:
        # One row has 16 bits, less what rounding errors of the scale need.
        steps = 32638 if math.prod(x.shape[:-1]) == 1 else 127
        x = _quantized_in_blocks(x, attrs.block_size, steps)
    shifts = np.arange(0, 8, bits)
    values = (weight[..., None].astype("int32") >> shifts) & (2**bits - 1)
    zeros = 2 ** (bits - 1) if zero_points is None else zero_points[..., None].astype("int32")
    dequantized = (values.reshape(units, blocks, -1) - zeros) * scales[..., None]
    return x @ dequantized.reshape(units, -1)[:, : x.shape[-1]].T


def _draw_block_dense(d: Draw) -> Call:
    bits, block, units = d.choice((4, 8)), d.choice((32, 64)), d.choice(SIZES)
    data = d.values([*d.shape(1, 2), d.integer(1, 100)])
    blocks = -(-data.shape[-1] // block)
    weight = d.numbers.integers(0, 256, [units, blocks * block * bits // 8]).astype("uint8")
    zeros = d.numbers.integers(0, 2**bits, [units, blocks]).astype("uint8")
    operands = [data, weight, d.values([units, blocks]), zeros]
    attrs = {"bits": bits, "block_size": block, "accuracy_level": d.choice((0, 4))}
    return Call(operands[: d.integer(3, 4)], attrs)


def _draw_dynamic_data(d: Draw) -> Call:
    return Call([d.values(d.shape(1, 2, 3, 4)) - np.float32(d.choice((0.0, 1.0)))], {})


def _draw_dynamic_dense(d: Draw) -> Call:
    units, inner = d.choice(SIZES), d.choice(SIZES)
    data = d.values([*d.shape(1, 2, 3), inner]) - np.float32(d.choice((0.0, 1.0)))
    weight = d.numbers.integers(0, 100, [units, inner]).astype(d.choice(("int8", "uint8")))
    scale = np.asarray(d.values(d.choice(((), (units,)))))
    operands = [data, weight, scale, np.asarray(d.integer(-3, 3), "int32")]
    return Call(operands, {"epsilon": d.choice((0.0, 0.0078125, 1.0))})


ROWS = [
    OpSchema(
        "dnnl.block_quantized_dense",
        block_dense_reason,
        attrs=(Int("bits"), Int("block_size"), Int("accuracy_level", 0)),
        infer=_quantized_dense_type,
        numpy=_block_quantized_dense,
        draw=_draw_block_dense,
        heavy=True,
        flops=row_flops,
        relax="",
    ),
    OpSchema(
        "dnnl.dynamic_fake_quantize",
        float32_reason,
        numpy=_dynamic_fake_quantize,
        draw=_draw_dynamic_data,
        relax="",
    ),
    OpSchema(
        "dnnl.dynamic_quantize_scale",
        float32_reason,
        infer=_scale_type,
        draw=_draw_dynamic_data,
        numpy=_dynamic_quantize_scale,
        flops=no_flops,
        relax="",
    ),
    OpSchema(
        "dnnl.dynamic_quantized_dense",
        dynamic_dense_reason,
        last_axis,
        attrs=(Float("epsilon", 0.0),),
        infer=_quantized_dense_type,
        numpy=_dynamic_quantized_dense,
        draw=_draw_dynamic_dense,
        heavy=True,
        fuses=("eltwise", "binary"),
        kept_dims=1,
        flops=row_flops,
        relax="",
    ),
]
