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
"""Lowers convolutions of dynamically quantized data, as `quantize_dynamic` exports them.

The ONNX ops are ``DynamicQuantizeLinear -> ConvInteger -> Cast -> Mul``, with a bias added at the
end or, by older versions of onnxruntime, as ``Floor(bias / scale)`` to the sums in int32. They
become a float32 convolution of dequantized weights and of data that one op quantizes and
dequantizes, `dnnl.dynamic_fake_quantize`. The sums are the same but for their rounding in float32.
In 8 bits the scalars stay on TVM, which takes 3 to 30 times as long for 9 to 115 million products.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..ir.graph import Graph
from ..ir.match import is_named, is_op, only_user, scalar_of, uncast
from ..ir.node import Node
from ..ir.op_view import Tensor
from ..ops.quantize import DEQUANTIZE, QUANTIZE
from ..ops.rules import Rules
from .dynamic_quantization import DynamicData, read_data, scaled

FAKE_QUANTIZE = "dnnl.dynamic_fake_quantize"
SCALE = "dnnl.dynamic_quantize_scale"

_CONVS = ("nn.conv1d", "nn.conv2d", "nn.conv3d")


class _Bias(NamedTuple):
    """A bias that is quantized by the product of the scales.

    Parameters
    ----------
    sum : Node
        The op that adds it.
    value : Node
        The bias in float32.
    shape : tuple[int | None, ...]
        The shape in which it is added.
    """

    sum: Node
    value: Node
    shape: tuple


def fuse_dynamic_convs(graph: Graph, rules: Rules) -> None:
    """Compute convolutions of dynamically quantized data in float32."""
    fused: dict[tuple[str, Node, int], Node] = {}
    for node in graph.nodes:
        if not is_op(node, *_CONVS) or node.tensor.dtype != "float32":
            continue
        data = read_data(node.operands[0], node)
        weight = _weight(node.operands[1])
        if data is None or weight is None or not data.is_in_steps or data.epsilon:
            continue
        if rules.excludes(FAKE_QUANTIZE, SCALE, QUANTIZE, DEQUANTIZE, node.name):
            continue
        bias = _bias(node, data)
        product = scaled(node if bias is None else bias.sum, data.scale)
        if product is None or product[1].size != 1:
            continue
        _write(graph, rules, node, data, weight, bias, product, fused)


def _weight(node: Node) -> np.ndarray | None:
    """Return a weight in float32: a dequantize of constants with one scale and one zero point."""
    if not is_named(node, DEQUANTIZE) or not all(operand.is_constant for operand in node.operands):
        return None
    values, scale, zero = (operand.value for operand in node.operands)
    if zero.size != 1 or scalar_of(node.operands[1]) is None:
        return None
    steps = values.astype("int32") - zero.reshape(()).astype("int32")
    return steps.astype("float32") * np.float32(scale.reshape(()))


def _bias(node: Node, data: DynamicData) -> _Bias | None:
    """Read the sum of a convolution with a bias that is rounded to multiples of a scale."""
    user = only_user(node)
    if user is None or not is_named(user, "add"):
        return None
    other = next((each for each in user.operands if each is not node), node)
    shape = other.tensor.shape
    integers = uncast(other)
    if is_named(integers, "reshape"):
        integers = uncast(integers.operands[0])
    floor = _unwrapped(integers)
    if floor is None or not is_named(floor, "floor") or not is_named(floor.operands[0], "divide"):
        return None
    value, scale = floor.operands[0].operands
    factors = scale.operands if is_named(scale, "multiply") else ()
    own = [each for each in factors if each is data.scale]
    weight_scale = [scalar_of(each) for each in factors if each is not data.scale]
    final = scaled(user, data.scale)
    if len(own) != 1 or final is None or weight_scale != [float(final[1].reshape(-1)[0])]:
        return None
    return _Bias(user, value, shape) if value.is_constant else None


def _unwrapped(node: Node) -> Node | None:
    """Return what TVM's importer converts to int32, with large numbers wrapped and NaN zero."""
    if not is_named(node, "where"):
        return node
    is_large, less, wrapped = node.operands
    if not is_named(is_large, "greater_equal") or is_large.operands[0] is not wrapped:
        return None
    if not is_named(less, "subtract") or less.operands[0] is not wrapped:
        return None
    if not is_named(wrapped, "floor_mod"):
        return None
    limits = [is_large.operands[1], less.operands[1], wrapped.operands[1]]
    if not all(each.is_constant and each.tensor.dtype == "int64" for each in limits):
        return None
    if [int(each.value.reshape(-1)[0]) for each in limits] != [2**31, 2**32, 2**32]:
        return None
    finite = uncast(wrapped.operands[0])
    if not is_named(finite, "where") or scalar_of(finite.operands[1]) != 0.0:
        return None
    return finite.operands[2] if _is_not_finite(*finite.operands[::2]) else None


def _is_not_finite(node: Node, value: Node) -> bool:
    """Whether a node is true where another is infinite or NaN, as isfinite is written."""
    less = node.operands[0] if is_named(node, "where") else node
    magnitude = less.operands[0] if is_named(less, "less") else less
    constants = [*node.operands[1:], *less.operands[1:]]
    if not is_named(magnitude, "abs") or magnitude.operands[0] is not value:
        return False
    known = [each.value.reshape(-1).tolist() for each in constants if each.is_constant]
    return known == [[False], [True], [np.inf]]


def _write(graph, rules, node, data, weight, bias, product, fused) -> None:
    """Return the convolution and its bias in float32."""
    result, factor = product
    factor = factor.reshape(-1).astype("float32")

    def of_data(name, old, type_):
        key = (name, data.data, result.scope)
        if key not in fused:
            new = graph.call(name, [data.data], result, type_)
            if rules.refusal(new) is not None:
                return old
            # Stays as it was if it is not offloaded.
            new.expansion = old
            fused[key] = new
        return fused[key]

    old = node.operands[0]
    operands = [data.bits, data.scale, data.zero]
    dequantized = graph.call(DEQUANTIZE, operands, result, old.type, **vars(old.attrs))
    dequantized = of_data(FAKE_QUANTIZE, dequantized, old.type)
    new = graph.with_operands(node, [dequantized, graph.constant(weight * factor)])
    if bias is not None:
        vector = Tensor((1,), "float32")
        scale = graph.call("reshape", [data.scale], result, vector, newshape=(1,), allowzero=False)
        scale = of_data(SCALE, scale, vector)
        scale = graph.call("multiply", [scale, graph.constant(factor)], result)
        steps = graph.call("divide", [bias.value, scale], result)
        rounded = graph.call("multiply", [graph.call("floor", [steps], result), scale], result)
        if rounded.type.shape != bias.shape:
            type_ = Tensor(bias.shape, "float32")
            attrs = {"newshape": bias.shape, "allowzero": False}
            rounded = graph.call("reshape", [rounded], result, type_, **attrs)
        new = graph.call("add", [new, rounded], result)
    graph.replace(result, new)
