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
"""Converters of com.microsoft's quantized ops, as onnxruntime's static quantizer writes them.

Each becomes dequantize, float op, quantize.
"""

from __future__ import annotations

import numpy as np
from tvm import relax
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter

from ..backend import is_constant, value_of
from .quantized import convert_as, dequantized_bias, with_explicit_pads
from .quantized_node import QuantizedNode


class _Unary(OnnxOpConverter):
    """Convert an op of one tensor: X, its scale and zero point, those of the result.

    Attributes
    ----------
    op : str
        The ONNX op that computes the same in float32.
    """

    op: str

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        node = QuantizedNode(cls.__name__, bb, attr)
        x, x_scale, x_zero, y_scale, y_zero = (inputs[i] for i in range(5))
        real = node.dequantize("X", x, x_scale, x_zero)
        return node.quantize(
            cls.convert(node, real, params), y_scale, y_zero, node.check_eight_bits("X", x)
        )

    @classmethod
    def convert(cls, node: QuantizedNode, x: relax.Expr, params) -> relax.Expr:
        """Return the result in float32."""
        return convert_as(cls.op, node.bb, [x], node.attr, params)


class QLinearSigmoid(_Unary):
    """Convert QLinearSigmoid."""

    op = "Sigmoid"


class QLinearLeakyRelu(_Unary):
    """Convert QLinearLeakyRelu."""

    op = "LeakyRelu"


class QLinearSoftmax(_Unary):
    """Convert QLinearSoftmax, whose attribute `opset` is that of the Softmax it stands for."""

    @classmethod
    def convert(cls, node, x, params):
        opset = node.attr["opset"]
        return convert_as("Softmax", node.bb, [x], node.attr, params, opset)


class QLinearAveragePool(_Unary):
    """Convert QLinearAveragePool; padding that is counted is zero in float32."""

    @classmethod
    def convert(cls, node, x, params):
        node.require(not node.attr.get("channels_last", 0), "channels_last=1 is not supported")
        attr = with_explicit_pads(node, x, node.attr["kernel_shape"])
        return convert_as("AveragePool", node.bb, [x], attr, params)


class QLinearGlobalAveragePool(_Unary):
    """Convert QLinearGlobalAveragePool."""

    @classmethod
    def convert(cls, node, x, params):
        rank = node.rank("X", x)
        axes = range(1, rank - 1) if node.attr.get("channels_last", 0) else range(2, rank)
        return node.bb.normalize(relax.op.mean(x, axis=list(axes), keepdims=True))


class _Binary(OnnxOpConverter):
    """Convert an elementwise op of A and B, each with scale and zero point, as C."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        node = QuantizedNode(cls.__name__, bb, attr)
        a, a_scale, a_zero, b, b_scale, b_zero, scale, zero = (inputs[i] for i in range(8))
        real = [node.dequantize("A", a, a_scale, a_zero), node.dequantize("B", b, b_scale, b_zero)]
        result = bb.normalize(cls.combine(*real))
        return node.quantize(result, scale, zero, node.check_eight_bits("A", a))


class QLinearAdd(_Binary):
    """Convert QLinearAdd."""

    combine = staticmethod(relax.op.add)


class QLinearMul(_Binary):
    """Convert QLinearMul."""

    combine = staticmethod(relax.op.multiply)


class QLinearConcat(OnnxOpConverter):
    """Convert QLinearConcat: the scale and zero point of Y, then each tensor with its own."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        node = QuantizedNode("QLinearConcat", bb, attr)
        scale, zero_point, *operands = list(inputs)
        node.require("axis" in attr, "the attribute axis is missing")
        node.require(len(operands) % 3 == 0, f"{len(inputs)} inputs; 2 and 3 per tensor expected")
        parts = [
            node.dequantize(f"tensor {i // 3}", *operands[i : i + 3])
            for i in range(0, len(operands), 3)
        ]
        dtype = node.check_eight_bits("tensor 0", operands[0])
        joined = bb.normalize(relax.op.concat(parts, axis=attr["axis"]))
        return node.quantize(joined, scale, zero_point, dtype)


class QGemm(OnnxOpConverter):
    """Convert QGemm, `alpha * A * B + C`, whose bias C has the scale `alpha * a_scale * b_scale`.

    Without a scale for the result it is in float32.
    """

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        node = QuantizedNode("QGemm", bb, attr)
        a, a_scale, a_zero, b, b_scale, b_zero, c, y_scale, y_zero = (inputs[i] for i in range(9))
        alpha = float(attr.get("alpha", 1.0))
        a = _transposed(bb, a) if attr.get("transA", 0) else a
        b = _transposed(bb, b) if attr.get("transB", 0) else b
        real = node.dequantize("A", a, a_scale, a_zero)
        weight = node.dequantize("B", b, b_scale, b_zero, axis=1)
        result = bb.normalize(relax.op.matmul(real, weight))
        if alpha != 1.0:
            result = bb.normalize(relax.op.multiply(result, relax.const(alpha, "float32")))
        if c is not None:
            bias = dequantized_bias(node, c, a_scale, b_scale, alpha)
            result = bb.normalize(relax.op.add(result, bias))
        if y_scale is None:
            node.require(y_zero is None, "y_zero_point without y_scale")
            return result
        node.require(y_zero is not None, "y_scale without y_zero_point")
        return node.quantize(result, y_scale, y_zero, str(y_zero.ty.dtype))


def _transposed(bb, matrix: relax.Expr) -> relax.Expr:
    """Return a matrix transposed, a constant as a constant."""
    if is_constant(matrix):
        return relax.const(np.ascontiguousarray(value_of(matrix).T))
    return bb.normalize(relax.op.permute_dims(matrix, [1, 0]))


_OPS = (
    QGemm,
    QLinearAdd,
    QLinearAveragePool,
    QLinearConcat,
    QLinearGlobalAveragePool,
    QLinearLeakyRelu,
    QLinearMul,
    QLinearSigmoid,
    QLinearSoftmax,
)
CONVERTERS = {each.__name__: each for each in _OPS}
