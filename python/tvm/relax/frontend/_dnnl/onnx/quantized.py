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
"""Converters of ONNX's quantized ops.

An op with scales for its result becomes dequantize, float op, quantize, which partitioning fuses
into a kernel that computes in int8. An op whose result is int32 is computed in int32.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tvm import relax
from tvm.contrib.onednn.frontend.pads import same_pads
from tvm.relax.frontend.onnx import onnx_frontend
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter

from ..backend import is_constant, sizes, value_of
from .quantized_node import QuantizedNode


def convert_as(op: str, bb, inputs: list, attr: dict, params, opset: int = 13) -> relax.Expr:
    """Return the result of TVM's converter for an ONNX op, with the node's attributes."""
    converter = onnx_frontend._get_convert_map()[op].get_converter(opset)
    result = converter(bb, onnx_frontend.onnx_input(inputs), dict(attr), params)
    return bb.normalize(result)


def with_explicit_pads(node: QuantizedNode, x: relax.Expr, kernel: Sequence[int | None]) -> dict:
    """Return a node's attributes with `pads` for an `auto_pad` that depends on sizes.

    A padding that is a part of a convolution does not separate it from the dequantize of its data.

    Parameters
    ----------
    node : QuantizedNode
        The convolution or pool.
    x : relax.Expr
        Its data, (batch, channels, ...).
    kernel : Sequence[int | None]
        The size of its kernel, None for an open one.
    """
    attr, count = node.attr, len(kernel)
    mode = attr.get("auto_pad", b"NOTSET").decode("utf-8")
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        return attr
    shape = sizes(x.ty)
    pads = same_pads(mode, attr, kernel, (None,) * count if shape is None else shape[2:])
    known = pads is not None
    node.require(known, f"auto_pad={mode} with an open size; fix the shape of the input")
    others = {name: value for name, value in attr.items() if name != "auto_pad"}
    return {**others, "pads": tuple(pads)}


def kernel_of(node: QuantizedNode, weight: relax.Expr) -> tuple:
    """Return the size of the kernel of a convolution, None for an open one."""
    return (sizes(weight.ty) or (None,) * node.rank("w", weight))[2:]


class QLinearConv(OnnxOpConverter):
    """Convert QLinearConv: dequantize, Conv, quantize.

    Padding is zero in float32, which is the zero point of the quantized input. The bias in int32
    has the scale `x_scale * w_scale`.
    """

    @classmethod
    def _impl_v10(cls, bb, inputs, attr, params):
        node = QuantizedNode("QLinearConv", bb, attr)
        x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = inputs[:8]
        # An attribute of com.microsoft's op of the same name.
        node.require(not attr.get("channels_last", 0), "channels_last=1 is not supported")
        rank = node.rank("x", x)
        bias = inputs[8]
        if bias is not None:
            bias = dequantized_bias(node, bias, x_scale, w_scale)
        real = node.dequantize("x", x, x_scale, x_zero)
        weight = node.dequantize("w", w, w_scale, w_zero, axis=0)
        node.require(rank in (3, 4, 5), f"x of rank {rank}; 3, 4 and 5 are supported")
        attr = with_explicit_pads(node, x, kernel_of(node, w))
        result = convert_as("Conv", bb, [real, weight, bias], attr, params)
        return node.quantize(result, y_scale, y_zero, str(y_zero.ty.dtype))


def dequantized_bias(
    node: QuantizedNode, bias: relax.Expr, scale: relax.Expr, weight_scale: relax.Expr, alpha=1.0
) -> relax.Expr:
    """Return a bias in int32, whose scale is the product of two, in float32."""
    dtype = str(bias.ty.dtype)
    node.require(dtype == "int32", f"a bias of type {dtype}; int32 is supported")
    if all(map(is_constant, (bias, scale, weight_scale))):
        # A per-column scale is along the last axis of the bias.
        scales = value_of(scale).astype("float32").reshape(()) * value_of(weight_scale)
        scales = scales.reshape(()) if scales.size == 1 else scales
        return relax.const((value_of(bias) * (scales * np.float64(alpha))).astype("float32"))
    scale = node.scalar("the scale of the input", scale, "float32")
    if all(size == 1 for size in sizes(weight_scale.ty) or (0,)):
        weight_scale = node.scalar("the scale of the weight", weight_scale, "float32")
    product = relax.op.multiply(scale, node.cast(weight_scale, "float32"))
    if alpha != 1.0:
        product = relax.op.multiply(product, relax.const(alpha, "float32"))
    return node.bb.normalize(relax.op.multiply(node.cast(bias, "float32"), product))


class QLinearMatMul(OnnxOpConverter):
    """Convert QLinearMatMul: dequantize, matmul, quantize.

    Scales in float16 are converted to float32, and the product is computed in float32.
    """

    @classmethod
    def _impl_v10(cls, bb, inputs, attr, params):
        node = QuantizedNode("QLinearMatMul", bb, attr)
        a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = inputs[:8]
        # One scale per row of the first matrix and of the result, one per column of the second.
        row, column = matmul_axes(node, a, b)
        real = node.dequantize("a", a, a_scale, a_zero, axis=row)
        weight = node.dequantize("b", b, b_scale, b_zero, axis=column)
        result = bb.normalize(relax.op.matmul(real, weight))
        # The row axis of the result is the last one if b is a vector.
        axis = row if row is None or column is not None else -1
        return node.quantize(result, y_scale, y_zero, str(y_zero.ty.dtype), axis=axis)


def matmul_axes(node: QuantizedNode, a: relax.Expr, b: relax.Expr) -> tuple:
    """Return the axes of rows of a matrix and of columns of another; None for a vector."""
    return -2 if node.rank("a", a) > 1 else None, -1 if node.rank("b", b) > 1 else None


class MatMulInteger(OnnxOpConverter):
    """Convert MatMulInteger: the matmul of both operands minus their zero points, in int32."""

    @classmethod
    def _impl_v10(cls, bb, inputs, attr, params):
        node = QuantizedNode("MatMulInteger", bb, attr)
        row, column = matmul_axes(node, inputs[0], inputs[1])
        a = node.subtract_zero_point("A", inputs[0], inputs[2], axis=row)
        b = node.subtract_zero_point("B", inputs[1], inputs[3], axis=column)
        return bb.normalize(relax.op.matmul(a, b, out_dtype="int32"))


class ConvInteger(OnnxOpConverter):
    """Convert ConvInteger: the convolution of both operands minus their zero points, in int32."""

    @classmethod
    def _impl_v10(cls, bb, inputs, attr, params):
        node = QuantizedNode("ConvInteger", bb, attr)
        x = node.subtract_zero_point("x", inputs[0], inputs[2])
        w = node.subtract_zero_point("w", inputs[1], inputs[3], axis=0)
        attr = with_explicit_pads(node, inputs[0], kernel_of(node, inputs[1]))
        return convert_as("Conv", bb, [x, w, None], attr, params)


class DynamicQuantizeLinear(OnnxOpConverter):
    """Convert DynamicQuantizeLinear, with a scale of 1 for a tensor of zeros as in onnxruntime."""

    @classmethod
    def _impl_v11(cls, bb, inputs, attr, params):
        node = QuantizedNode("DynamicQuantizeLinear", bb, attr)
        quantized, scale, zero_point = dynamic_quantize(node, inputs[0])
        return relax.Tuple([quantized, scale, node.cast(zero_point, "uint8")])


def dynamic_quantize(node: QuantizedNode, x: relax.Expr) -> tuple:
    """Quantize a float32 tensor to uint8 by its smallest and largest value.

    Returns
    -------
    quantized, scale, zero_point : tuple[relax.Expr, relax.Expr, relax.Expr]
        The tensor in uint8, and its scale in float32 and zero point in int32 of rank 0.
    """
    dtype = str(x.ty.dtype)
    node.require(dtype == "float32", f"an input of type {dtype}; float32 is supported")
    emit, op = node.bb.emit, relax.op
    zero, one, largest = (relax.const(value, "float32") for value in (0.0, 1.0, 255.0))
    # The last axis is reduced first, because oneDNN reduces to tensors and not to one value.
    rows = (x, x) if x.ty.ndim < 2 else (emit(op.min(x, axis=[-1])), emit(op.max(x, axis=[-1])))
    low = emit(op.minimum(emit(op.min(rows[0])), zero))
    high = emit(op.maximum(emit(op.max(rows[1])), zero))
    scale = emit(op.divide(emit(op.subtract(high, low)), largest))
    scale = emit(op.where(emit(op.equal(scale, zero)), one, scale))
    shift = emit(op.subtract(zero, emit(op.divide(low, scale))))
    zero_point = emit(op.astype(emit(op.round(emit(op.clip(shift, 0.0, 255.0)))), "int32"))
    return emit(op.quantize(x, scale, zero_point, 0, "uint8")), scale, zero_point


CONVERTERS = {
    "QLinearConv": QLinearConv,
    "QLinearMatMul": QLinearMatMul,
    "ConvInteger": ConvInteger,
}

#: Used in place of TVM's converters, which reshape the zero point of a vector to a matrix
#: (MatMulInteger), and divide by a scale of zero (DynamicQuantizeLinear of zeros).
REPLACEMENTS = {
    "MatMulInteger": MatMulInteger,
    "DynamicQuantizeLinear": DynamicQuantizeLinear,
}
