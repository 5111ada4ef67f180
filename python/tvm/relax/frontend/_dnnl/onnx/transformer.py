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
"""ONNX ops that onnxruntime's optimizer fuses in transformers: norms, activations, matmuls."""

from __future__ import annotations

import numpy as np
from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter

from ..attention_parts import is_equal
from ..backend import number
from .node import Node
from .rotary import counted


def _statistics(node: Node, x, axes, epsilon: float):
    """Return the mean of a layer norm and the inverse of its standard deviation."""
    mean = node.emit(relax.op.mean(x, axes, keepdims=True))
    variance = node.emit(relax.op.variance(x, axes, keepdims=True))
    return mean, _inverse_root(node, variance, epsilon)


def _root_mean_square(node: Node, x, axes, epsilon: float):
    """Return the inverse of the root of the mean square."""
    square = node.emit(relax.op.mean(node.emit(relax.op.square(x)), axes, keepdims=True))
    return _inverse_root(node, square, epsilon)


def _inverse_root(node: Node, x, epsilon: float):
    shifted = node.emit(relax.op.add(x, relax.const(epsilon, x.ty.dtype)))
    return node.emit(relax.op.rsqrt(shifted))


def _axes(node: Node, x) -> list[int]:
    """Return the axes of a norm: the attribute axis, and those that follow it."""
    rank = len(node.shape(x))
    return list(range(node.attr.get("axis", -1) % rank, rank))


def _of_axes(node: Node, vector, x, axes):
    """Return a factor or summand, which may be broadcast, with the shape of the axes."""
    shape = [node.static(node.shape(x)[axis], "a size along axis") for axis in axes]
    given = node.shape(vector)
    if len(given) == len(shape) and all(map(is_equal, given, shape)):
        return vector
    while len(given) > len(shape) and number(given[0]) == 1:
        given = given[1:]
    vector = node.reshape(vector, given)
    return node.emit(relax.op.broadcast_to(vector, shape))


class LayerNormalization(OnnxOpConverter):
    """Converts LayerNormalization with all of its outputs.

    TVM's converter returns zeros for the mean and the deviation, and derives the axes from the rank
    of the factor instead of the attribute.
    """

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        node = Node("LayerNormalization", bb, attr)
        x, gamma, beta = inputs[:3]
        axes, epsilon = _axes(node, x), attr.get("epsilon", 1e-5)
        if beta is None:
            beta = relax.const(np.zeros((), gamma.ty.dtype.dtype))
        gamma, beta = (_of_axes(node, each, x, axes) for each in (gamma, beta))
        out = node.emit(relax.op.nn.layer_norm(x, gamma, beta, axes, epsilon))
        if node.num_outputs == 1:
            return out
        if x.ty.dtype.dtype != "float32":
            node.refuse(f"the output Mean of {x.ty.dtype.dtype}")
        return node.outputs(out, *_statistics(node, x, axes, epsilon))


class SimplifiedLayerNormalization(OnnxOpConverter):
    """Converts SimplifiedLayerNormalization, a root mean square norm."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        node = Node("SimplifiedLayerNormalization", bb, attr)
        x, gamma = inputs[:2]
        axes, epsilon = _axes(node, x), attr.get("epsilon", 1e-5)
        gamma = _of_axes(node, gamma, x, axes)
        out = node.emit(relax.op.nn.rms_norm(x, gamma, axes, epsilon))
        if node.num_outputs == 1:
            return out
        return node.outputs(out, _root_mean_square(node, x, axes, epsilon))


def _skip_sum(node: Node, x, skip, bias):
    """Return the sum of the data, the residual and the bias."""
    skip = node.broadcast(skip, node.shape(x), "a skip")
    x = node.emit(relax.op.add(x, skip))
    return x if bias is None else node.emit(relax.op.add(x, bias))


class SkipLayerNormalization(OnnxOpConverter):
    """Converts SkipLayerNormalization of com.microsoft.

    TVM's converter requires beta and bias, and returns zeros for the other outputs.
    """

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        node = Node("SkipLayerNormalization", bb, attr)
        x, skip, gamma, beta, bias = inputs[:5]
        epsilon = attr.get("epsilon", 1e-12)
        x = _skip_sum(node, x, skip, bias)
        if beta is None:
            size = node.static(node.shape(gamma)[0], "a hidden size")
            beta = relax.const(np.zeros(size, gamma.ty.dtype.dtype))
        out = node.emit(relax.op.nn.layer_norm(x, gamma, beta, [-1], epsilon))
        if node.num_outputs == 1:
            return out
        return node.outputs(out, *_statistics(node, x, [-1], epsilon), x)


class SkipSimplifiedLayerNormalization(OnnxOpConverter):
    """Converts SkipSimplifiedLayerNormalization of com.microsoft."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        node = Node("SkipSimplifiedLayerNormalization", bb, attr)
        x, skip, gamma, bias = inputs[:4]
        epsilon = attr.get("epsilon", 1e-12)
        x = _skip_sum(node, x, skip, bias)
        out = node.emit(relax.op.nn.rms_norm(x, gamma, [-1], epsilon))
        if node.num_outputs == 1:
            return out
        mean = node.emit(relax.op.mean(x, [-1], keepdims=True))
        return node.outputs(out, mean, _root_mean_square(node, x, [-1], epsilon), x)


class EmbedLayerNormalization(OnnxOpConverter):
    """Converts EmbedLayerNormalization of com.microsoft.

    TVM's converter fails for open sizes and for the output embedding_sum.
    """

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        node = Node("EmbedLayerNormalization", bb, attr)
        ids, segments, words, places, kinds, gamma, beta, mask, positions = inputs[:9]
        batch, length = node.shape(ids)
        if positions is None:
            positions = counted(node, 0, length)
        positions = node.broadcast(positions, [batch, length], "position_ids")
        x = cls._rows(node, words, ids)
        x = node.emit(relax.op.add(x, cls._rows(node, places, positions)))
        if segments is not None:
            segments = node.checked(segments, [batch, length], "segment_ids")
            x = node.emit(relax.op.add(x, cls._rows(node, kinds, segments)))
        epsilon = attr.get("epsilon", 1e-12)
        out = node.emit(relax.op.nn.layer_norm(x, gamma, beta, [-1], epsilon))
        if node.num_outputs == 1:
            return out
        if mask is None:
            count = node.emit(relax.op.zeros([batch], ids.ty.dtype))
        else:
            count = node.emit(relax.op.sum(mask, axis=1))
        return node.outputs(out, count, x)

    @staticmethod
    def _rows(node: Node, table, indices):
        """Return rows of a table; for an index out of range, its nearest one."""
        return node.emit(relax.op.take(table, indices, axis=0, mode="clip"))


class GemmFastGelu(OnnxOpConverter):
    """Converts GemmFastGelu of com.microsoft: the gelu, by tanh, of a matmul and a bias."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        x, weight, bias = inputs[:3]
        x = bb.emit(relax.op.matmul(x, weight))
        return relax.op.nn.gelu_tanh(x if bias is None else bb.emit(relax.op.add(x, bias)))


class BiasSplitGelu(OnnxOpConverter):
    """Converts BiasSplitGelu of com.microsoft: one half times the gelu of the other."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        node = Node("BiasSplitGelu", bb, attr)
        x, gate = node.split(node.emit(relax.op.add(*inputs[:2])), 2, -1)
        return relax.op.multiply(x, node.emit(relax.op.nn.gelu(gate)))


class QuickGelu(OnnxOpConverter):
    """Converts QuickGelu of com.microsoft: x * sigmoid(alpha * x)."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        x, alpha = inputs[0], relax.const(attr.get("alpha", 1.702), inputs[0].ty.dtype)
        gate = bb.emit(relax.op.sigmoid(bb.emit(relax.op.multiply(x, alpha))))
        return relax.op.multiply(x, gate)


class FusedMatMul(OnnxOpConverter):
    """Converts FusedMatMul of com.microsoft."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        node = Node("FusedMatMul", bb, attr)
        left, right = (cls._operand(node, x, side) for x, side in zip(inputs, "AB"))
        out = node.emit(relax.op.matmul(left, right))
        alpha = attr.get("alpha", 1.0)
        return out if alpha == 1.0 else relax.op.multiply(out, relax.const(alpha, out.ty.dtype))

    @staticmethod
    def _operand(node: Node, x, side: str):
        """Return an operand with the axes in order; of a vector, onnxruntime transposes none."""
        rank = len(node.shape(x))
        axes = list(range(rank))
        names = f"transBatch{side}", f"trans{side}"
        is_batch, is_transposed = (node.attr.get(name, 0) and rank > 1 for name in names)
        if is_batch:
            axes = [*axes[1:-1], 0, axes[-1]]
        if is_transposed:
            axes[-2:] = axes[:-3:-1]
        return x if axes == sorted(axes) else node.transpose(x, axes)


def _activate(node: Node, x, name: bytes, values: list[float]):
    """Emit the activation of a fused node; its values have defaults."""
    name = name.decode()
    simple = {
        "Relu": relax.op.nn.relu,
        "Sigmoid": relax.op.sigmoid,
        "Tanh": relax.op.tanh,
    }
    if name in simple:
        return simple[name](x)
    first, second = [*values, None, None][:2]
    if name == "LeakyRelu":
        return relax.op.nn.leakyrelu(x, 0.01 if first is None else first)
    if name == "Clip" and second is not None:
        return relax.op.clip(x, first, second)
    if name == "HardSigmoid":
        slope, shift = 0.2 if first is None else first, 0.5 if second is None else second
        x = node.emit(relax.op.multiply(x, relax.const(slope, x.ty.dtype)))
        x = node.emit(relax.op.add(x, relax.const(shift, x.ty.dtype)))
        return relax.op.clip(x, 0, 1)
    node.refuse(f"activation={name}")


class FusedConv(OnnxOpConverter):
    """Converts FusedConv of com.microsoft: an activation of a convolution and a residual."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        node = Node("FusedConv", bb, attr)
        conv = onnx_frontend.Conv.get_converter(11)
        x = node.emit(conv(bb, onnx_frontend.onnx_input(inputs[:3]), attr, params))
        if inputs[3] is not None:
            x = node.emit(relax.op.add(x, inputs[3]))
        values = list(attr.get("activation_params", []))
        return _activate(node, x, attr["activation"], values) if "activation" in attr else x


class FusedGemm(OnnxOpConverter):
    """Converts FusedGemm of com.microsoft: an activation of a Gemm."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        node = Node("FusedGemm", bb, attr)
        x = node.emit(onnx_frontend.Gemm.get_converter(13)(bb, inputs, attr, params))
        values = [attr.get(f"activation_{name}") for name in ("alpha", "beta")]
        return _activate(node, x, attr["activation"], values) if attr.get("activation") else x


CONVERTERS = {
    "BiasSplitGelu": BiasSplitGelu,
    "FusedConv": FusedConv,
    "FusedGemm": FusedGemm,
    "FusedMatMul": FusedMatMul,
    "GemmFastGelu": GemmFastGelu,
    "QuickGelu": QuickGelu,
    "SimplifiedLayerNormalization": SimplifiedLayerNormalization,
    "SkipSimplifiedLayerNormalization": SkipSimplifiedLayerNormalization,
}

REPLACEMENTS = {
    "EmbedLayerNormalization": EmbedLayerNormalization,
    "LayerNormalization": LayerNormalization,
    "SkipLayerNormalization": SkipLayerNormalization,
}
