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
"""Fuses matmuls of dynamically quantized data, as onnxruntime's `quantize_dynamic` exports them.

Its ONNX ops, ``DynamicQuantizeLinear -> MatMulInteger -> Cast -> Mul``, and PyTorch's
``choose_qparams -> quantize -> dequantize -> linear`` are a dozen ops of TVM: the
smallest and the largest element, the scale and the zero point of these, a quantize, a matmul in
int32, and a product with both scales. They become one op, `dnnl.dynamic_quantized_dense`, which
computes what onnxruntime does.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ..ir.graph import Graph
from ..ir.match import is_named, is_op, scalar_of, uncast, untupled
from ..ir.node import Node
from ..ops.quantize import DEQUANTIZE, QUANTIZE, symmetric
from ..ops.rules import Rules

DYNAMIC_DENSE = "dnnl.dynamic_quantized_dense"

_MATMULS = ("nn.dense", "nn.matmul", "nn.batch_matmul")


class _Weight(NamedTuple):
    """An 8-bit weight of a matmul.

    Parameters
    ----------
    node : Node | None
        The constant, if it is (N, K).
    values : numpy.ndarray
        The integers, (N, K).
    scale, zero : numpy.ndarray
        One value, or N.
    """

    node: Node | None
    values: np.ndarray
    scale: np.ndarray
    zero: np.ndarray


class _Reading(NamedTuple):
    """A matmul of dynamically quantized data.

    Parameters
    ----------
    result : Node
        The last node: the matmul, or the product with the scales.
    data : Node
        The tensor that is quantized.
    factors : numpy.ndarray
        What is multiplied to the scales of the weight, one value or N.
    epsilon : float
        The smallest scale of the data.
    """

    result: Node
    data: Node
    factors: np.ndarray
    epsilon: float


def fuse_dynamic_quantization(graph: Graph, rules: Rules) -> None:
    """Fuse each matmul with the dynamic quantization of its data."""
    for node in graph.nodes:
        reading = _read(node)
        if reading is None or rules.excludes(DYNAMIC_DENSE, QUANTIZE, DEQUANTIZE, node.name):
            continue
        weight = _weight_of(node)
        operands = weight and _weight_operands(graph, weight, reading.factors)
        if not operands:
            continue
        data, result = reading.data, reading.result
        attrs = {"epsilon": reading.epsilon}
        new = graph.call(DYNAMIC_DENSE, [data, *operands], result, result.type, **attrs)
        is_same = result.tensor.dims == (*data.tensor.dims[:-1], operands[0].tensor.shape[0])
        if is_same and rules.refusal(new) is None:
            graph.fuse_into(result, new)


def _read(node: Node) -> _Reading | None:
    """Read a matmul of a tensor that is quantized by its smallest and largest element."""
    if not is_op(node, *_MATMULS) or node.tensor.dtype != "float32":
        return None
    data = node.operands[0]
    if is_named(data, "reshape"):
        # Relay's importer makes a batch of matrices of data of any rank.
        data = data.operands[0]
    is_transposed = node.name != "nn.dense" and node.attrs.transpose_a
    quantized = None if is_transposed else read_data(data, node)
    if quantized is None:
        return None
    real, scale = quantized.data, quantized.scale
    rows = node
    if len(node.users) == 1 and is_named(node.users[0], "reshape") and node.scope == data.scope:
        rows = node.users[0]
    if not quantized.is_in_steps:
        return _Reading(rows, real, np.float32(1.0), quantized.epsilon)
    product = scaled(rows, scale)
    return product and _Reading(product[0], real, product[1], quantized.epsilon)


class DynamicData(NamedTuple):
    """A tensor that is quantized by its smallest and largest element.

    Parameters
    ----------
    data : Node
        The tensor.
    bits, scale, zero : Node
        The tensor in uint8, its scale, and its zero point in int32.
    is_in_steps : bool
        Whether what reads it multiplies by the scale, later.
    epsilon : float
        The smallest scale, as PyTorch has it; 0 where the scale of zeros is 1, as in onnxruntime.
    """

    data: Node
    bits: Node
    scale: Node
    zero: Node
    is_in_steps: bool
    epsilon: float


def read_data(node: Node, reader: Node) -> DynamicData | None:
    """Read the dequantize of a tensor that is quantized by its smallest and largest element."""
    if not is_named(node, DEQUANTIZE):
        return None
    bits, scale, zero = map(untupled, node.operands)
    if not is_named(bits, QUANTIZE) or bits.tensor.dtype != "uint8" or bits.scope != reader.scope:
        return None
    real, own_scale, own_zero = map(untupled, bits.operands)
    epsilon = _epsilon_of_range(own_scale, own_zero, real)
    if uncast(zero) is not uncast(own_zero) or epsilon is None:
        return None
    if scale is not own_scale and scalar_of(scale) != 1.0:
        return None
    return DynamicData(real, bits, own_scale, own_zero, scale is not own_scale, epsilon)


def scaled(node: Node, scale: Node) -> tuple[Node, np.ndarray | np.floating] | None:
    """Return the rescaled result of a matmul, and its other factors."""
    if len(node.users) != 1 or not is_named(node.users[0], "multiply"):
        return None
    (product,) = node.users
    (other,) = [untupled(o) for o in product.operands if o is not node] or [node]
    if product.tensor.dims != node.tensor.dims or product.scope != node.scope:
        return None
    if other is scale:
        return product, np.float32(1.0)
    factors = other.operands if is_named(other, "multiply") else []
    factors = [operand for operand in factors if untupled(operand) is not scale]
    if len(factors) != 1 or not factors[0].is_constant:
        return None
    shape, values = factors[0].tensor.shape, factors[0].value
    # One value, or one for each column.
    is_row = bool(shape) and math.prod(shape) == shape[-1] == node.tensor.shape[-1]
    return (product, values.reshape(-1)) if is_row or math.prod(shape) == 1 else None


def _weight_of(node: Node) -> _Weight | None:
    """Return the weight of a matmul; None if it is not constant, or there are several."""
    weight = node.operands[1]
    is_transposed = node.name == "nn.dense" or node.attrs.transpose_b
    if is_named(weight, "transpose") and list(weight.attrs.axes or ()) in ([], [1, 0]):
        weight, is_transposed = weight.operands[0], not is_transposed
    axis = len(weight.tensor.shape) - (2 if is_transposed else 1)
    if is_named(weight, DEQUANTIZE) and all(operand.is_constant for operand in weight.operands):
        source, (values, scale, zero) = weight.operands[0], (o.value for o in weight.operands)
        own = weight.attrs.axis % values.ndim
        if max(scale.size, zero.size) > 1 and axis != own:
            return None
    elif weight.is_constant:
        source, scale = None, np.float32(1.0)
        values, zero = _integers(weight.value) or (None, None)
    else:
        return None
    if values is None or values.ndim < 2:
        return None
    # Importers may repeat a matrix for each of the data.
    matrices = values.reshape(-1, *values.shape[-2:])
    if not (matrices == matrices[0]).all():
        return None
    matrix = matrices[0] if is_transposed else matrices[0].T
    is_given = source is not None and is_transposed and values.ndim == 2
    return _Weight(source if is_given else None, matrix, scale, zero)


def _integers(values: np.ndarray) -> tuple[np.ndarray, np.integer] | None:
    """Return the 8-bit integers that float32 values are, and their zero point."""
    if not values.size or (values != np.rint(values)).any():
        return None
    low, high = values.min(), values.max()
    if high - low > 255:
        return None
    shift = 0 if low >= -128 and high <= 127 else int(low)
    return (values - shift).astype("uint8" if shift else "int8"), np.int32(-shift)


def _weight_operands(graph: Graph, weight: _Weight, factors: np.ndarray) -> list[Node] | None:
    """Return a weight, its scale and its zero point as operands; None if the op has no such."""
    values, zero = weight.values, weight.zero.reshape(-1)
    if (zero == zero[0]).all():
        zero = zero[:1]
    else:
        values, zero = symmetric(values, zero[:, None]), np.zeros(1, "int32")
    if values is None:
        return None
    scale = weight.scale.astype("float32").reshape(-1) * factors.astype("float32").reshape(-1)
    as_given = values is weight.values and weight.node is not None
    return [
        weight.node if as_given else graph.constant(np.ascontiguousarray(values)),
        graph.constant(scale.reshape(()) if scale.size == 1 else scale, "float32"),
        graph.constant(zero.reshape(()).astype("int32")),
    ]


def _epsilon_of_range(scale: Node, zero: Node, data: Node) -> float | None:
    """Return the smallest scale if those are the scale and zero point of the range of some data.

    They are computed as by ONNX's DynamicQuantizeLinear, or PyTorch's choose_qparams.
    """
    if is_named(scale, "maximum"):
        guarded, epsilon = scale.operands[0], scalar_of(scale.operands[1])
        is_range = epsilon is not None and epsilon > 0 and _is_of_range(guarded, scale, zero, data)
        return epsilon if is_range else None
    return 0.0 if _is_of_range(scale, scale, zero, data) else None


def _is_of_range(guarded: Node, scale: Node, zero: Node, data: Node) -> bool:
    """Whether a scale, before its lower bound, and a zero point are those of some data's range."""
    if is_named(guarded, "where") and len(guarded.operands) == 3:
        # A scale of zero becomes one.
        condition, one, guarded = guarded.operands
        is_guard = is_named(condition, "equal") and condition.operands[0] is guarded
        if not is_guard or scalar_of(condition.operands[1]) != 0.0 or scalar_of(one) != 1.0:
            return False
    if not is_named(guarded, "divide") or scalar_of(guarded.operands[1]) != 255.0:
        return False
    difference = guarded.operands[0]
    if not is_named(difference, "subtract"):
        return False
    high, low = difference.operands
    if not _is_bound(high, "maximum", "max", data) or not _is_bound(low, "minimum", "min", data):
        return False
    rounded = uncast(zero)
    if not is_named(rounded, "dnnl.round", "round"):
        return False
    clip = rounded.operands[0]
    if not is_named(clip, "clip") or (clip.attrs.a_min, clip.attrs.a_max) != (0, 255):
        return False
    shift = clip.operands[0]
    if not is_named(shift, "subtract") or scalar_of(shift.operands[0]) != 0.0:
        return False
    quotient = shift.operands[1]
    # Where the smallest element is positive, the clip makes of it what it makes of zero.
    smallest = quotient.operands[0] if is_named(quotient, "divide") else None
    is_low = smallest is low or (smallest is not None and _is_reduced(smallest, "min", data))
    return is_low and quotient.operands[1] is scale


def _is_bound(node: Node, binary: str, reduction: str, data: Node) -> bool:
    """Whether a node is the largest, or smallest, of zero and all elements of some data."""
    if not is_named(node, binary):
        return False
    reduced = [operand for operand in node.operands if scalar_of(operand) != 0.0]
    return len(reduced) == 1 and _is_reduced(reduced[0], reduction, data)


def _is_reduced(node: Node, reduction: str, data: Node) -> bool:
    """Whether a node is a reduction of all elements of some data, in one step or several."""
    is_scalar = math.prod(size or 0 for size in node.tensor.shape) == 1
    each = node
    while is_named(each, reduction) and each is not data:
        each = each.operands[0]
    return is_scalar and each is data and node is not data
