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

from ..backend import is_constant, value_of
from .block_quantized import block_quantized_dense, is_kept_packed, unpack_weight
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
    """Convert MatMulNBits with weights of 2, 4 or 8 bits.

    A weight of 4 or 8 bits in blocks of a multiple of 32, with data in float32, stays packed: the
    matmul is one op, `dnnl.block_quantized_dense`. Other weights are unpacked at import, in the
    data type of A: the imported model has 8 times the size of 4-bit weights in float32, and 4 times
    in float16. Relax's dequantize has no blocks, and partitioning would fold the dequantize of a
    weight that is read in floating point.

    With 4, the attribute `accuracy_level` permits to quantize A to int8, with a scale for each
    block; `dnnl.block_quantized_dense` has the same attribute. The other values, and weights that
    are unpacked, are computed in floating point.
    """

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        node = QuantizedNode("MatMulNBits", bb, attr)
        a, packed, scales, zero_points, g_idx, bias = (inputs[i] for i in range(6))
        node.require(g_idx is None, "g_idx is not supported")
        bits = attr.get("bits", 4)
        node.require(bits in (2, 4, 8), f"bits={bits}; 2, 4 and 8 are supported")
        names = ("B", "scales", "zero_points")
        weight = tuple(
            _constant_value(node, name, value, params)
            for name, value in zip(names, (packed, scales, zero_points))
        )
        level = attr.get("accuracy_level", 0)
        node.require(0 <= level <= 4, f"accuracy_level={level}; 0 to 4 are supported")
        sizes = bits, attr["block_size"], attr["N"], attr["K"]
        if is_kept_packed(str(a.ty.dtype), *weight[1:], *sizes[:2]):
            result = block_quantized_dense(bb, a, *weight, *sizes, level)
        else:
            real = unpack_weight(*weight, *sizes).T.astype(str(a.ty.dtype))
            matrix = relax.const(np.ascontiguousarray(real))
            result = bb.normalize(relax.op.matmul(a, matrix))
        return result if bias is None else bb.normalize(relax.op.add(result, bias))


def _constant_value(node: QuantizedNode, name: str, value, params) -> np.ndarray | None:
    """Return the value of an input that must be constant, None if there is none."""
    if value is None:
        return None
    value = get_constant(value, params)
    node.require(is_constant(value), f"{name} is not constant")
    return value_of(value)


CONVERTERS = {
    "DynamicQuantizeMatMul": DynamicQuantizeMatMul,
    "MatMulIntegerToFloat": MatMulIntegerToFloat,
    "MatMulNBits": MatMulNBits,
}
