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
"""Converters of com.microsoft's matmuls with quantized weights, and float32 results."""

from __future__ import annotations

import numpy as np
from tvm import relax
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter, get_constant

from ..reading import is_constant, value_of
from .quantized import dynamic_quantize, matmul_axes
from .quantized_node import QuantizedNode


class MatMulIntegerToFloat(OnnxOpConverter):
    """Convert MatMulIntegerToFloat: dequantize, matmul, bias."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        node = QuantizedNode("MatMulIntegerToFloat", bb, attr)
        a, b, a_scale, b_scale, a_zero, b_zero, bias = (inputs[i] for i in range(7))
        dtype = str(a_scale.ty.dtype)
        node.require(dtype == "float32", f"scales of type {dtype}; float32 is supported")
        real = node.dequantize("A", a, a_scale, a_zero)
        return _product(node, real, b, b_scale, b_zero, bias)


class DynamicQuantizeMatMul(OnnxOpConverter):
    """Convert DynamicQuantizeMatMul: A is quantized to uint8 by its smallest and largest value."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        node = QuantizedNode("DynamicQuantizeMatMul", bb, attr)
        a, b, b_scale, b_zero, bias = (inputs[i] for i in range(5))
        real = node.dequantize("A", *dynamic_quantize(node, a))
        return _product(node, real, b, b_scale, b_zero, bias)


def _product(node: QuantizedNode, a: relax.Expr, b, b_scale, b_zero, bias) -> relax.Expr:
    """Return the product of a float32 tensor and a quantized one, plus a bias if there is one."""
    weight = node.dequantize("B", b, b_scale, b_zero, axis=matmul_axes(node, a, b)[1])
    result = node.bb.normalize(relax.op.matmul(a, weight))
    return result if bias is None else node.bb.normalize(relax.op.add(result, bias))


class MatMulNBits(OnnxOpConverter):
    """Convert MatMulNBits with weights of 2, 4 or 8 bits to a matmul by a floating-point constant.

    The weight is unpacked at import, in the data type of A: the imported model has 8 times the size
    of 4-bit weights in float32, and 4 times in float16. Relax's dequantize has no blocks, and
    partitioning would fold the dequantize of a weight that is read in floating point.

    The attribute `accuracy_level` permits onnxruntime to quantize A to 8 bits, which is not done
    here.
    """

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        node = QuantizedNode("MatMulNBits", bb, attr)
        a, packed, scales, zero_points, g_idx, bias = (inputs[i] for i in range(6))
        node.require(g_idx is None, "g_idx is not supported")
        bits = attr.get("bits", 4)
        node.require(bits in (2, 4, 8), f"bits={bits}; 2, 4 and 8 are supported")
        names = ("B", "scales", "zero_points")
        packed, scales, zero_points = (
            _constant_value(node, name, value, params)
            for name, value in zip(names, (packed, scales, zero_points))
        )
        weight = unpack_weight(
            packed, scales, zero_points, bits, attr["block_size"], attr["N"], attr["K"]
        )
        dtype = str(a.ty.dtype)
        weight = relax.const(np.ascontiguousarray(weight.T.astype(dtype)))
        result = bb.normalize(relax.op.matmul(a, weight))
        return result if bias is None else bb.normalize(relax.op.add(result, bias))


def _constant_value(node: QuantizedNode, name: str, value, params) -> np.ndarray | None:
    """Return the value of an input that must be constant, None if there is none."""
    if value is None:
        return None
    value = get_constant(value, params)
    node.require(is_constant(value), f"{name} is not constant")
    return value_of(value)


def unpack_weight(
    packed: np.ndarray,
    scales: np.ndarray,
    zero_points: np.ndarray | None,
    bits: int,
    block_size: int,
    rows: int,
    columns: int,
) -> np.ndarray:
    """Dequantize the weight of a MatMulNBits.

    Parameters
    ----------
    packed : numpy.ndarray
        The values of uint8, (rows, blocks, block_size * bits / 8), the first one of each byte in
        its lowest bits.
    scales : numpy.ndarray
        One per block, (rows, blocks), or the same in one dimension.
    zero_points : numpy.ndarray | None
        One per block, in uint8 packed as the values, each row padded to bytes, or unpacked in
        floating point. Default: the middle of the range, `2 ** (bits - 1)`.
    bits, block_size : int
        The size of a value, and the number of values along a row that share a scale.
    rows, columns : int
        The shape of the result, N and K of the op.

    Returns
    -------
    weight : numpy.ndarray
        In float32, (rows, columns).
    """
    blocks = -(-columns // block_size)
    values = _unpack(packed.reshape(rows, blocks, -1), bits).astype("float32")
    scales = scales.astype("float32").reshape(rows, blocks, 1)
    if zero_points is None:
        zero = np.float32(2 ** (bits - 1))
    elif zero_points.dtype == np.uint8:
        zero = _unpack(zero_points.reshape(rows, -1), bits)[:, :blocks, None].astype("float32")
    else:
        zero = zero_points.astype("float32").reshape(rows, blocks, 1)
    return ((values - zero) * scales).reshape(rows, -1)[:, :columns]


def _unpack(packed: np.ndarray, bits: int) -> np.ndarray:
    """Return values of uint8 of which each byte of the last axis has several."""
    shifts = np.arange(0, 8, bits, dtype="uint8")
    values = (packed[..., None] >> shifts) & np.uint8(2**bits - 1)
    return values.reshape(*packed.shape[:-1], -1)


CONVERTERS = {
    "DynamicQuantizeMatMul": DynamicQuantizeMatMul,
    "MatMulIntegerToFloat": MatMulIntegerToFloat,
    "MatMulNBits": MatMulNBits,
}
