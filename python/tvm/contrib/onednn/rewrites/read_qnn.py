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
"""Reads QNN ops, and importers' spellings of a dequantize, as float ops.

A QNN op computes what the float op would of the dequantized operands; an
integer q stands for scale * (q - zero_point). So there is one form for what quantizers and
importers write in many, and what is fused is decided as for floats. The nodes keep the QNN op as
their origin: where all of them stay on TVM, it is written as it was.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from ..ir.graph import Graph
from ..ir.match import closed_group, is_op
from ..ir.node import CALL, TUPLE, Node, defined_in
from ..ir.op_view import Tensor
from ..ops.attrs import attribute
from ..ops.evaluate import constant_value
from ..ops.quantize import DEQUANTIZE, QUANTIZE, parameters, real_bounds
from ..ops.rules import Rules
from ..ops.table import TABLE
from ..ops.tensors import EIGHT_BITS, ints
from .qnn_sums import ACCUMULATING, dequantized, read_sum, values_of

_POOLS = [name for name, row in TABLE.items() if row.padding == "average"]

# The node that computes the same in float ops, then the tensors that it reads.
Reading = list[Node]


def read_qnn(graph: Graph, rules: Rules) -> None:
    """Replace QNN ops with float ops where oneDNN runs these."""
    _read(graph, rules, READERS)


def read_dequantize(graph: Graph, rules: Rules) -> None:
    """Replace importers' spellings of a dequantize. Must precede constant folding."""
    _read(graph, rules, {"subtract": _Reader.difference, "cast": _Reader.integer_product})


def _read(graph: Graph, rules: Rules, readers: Mapping[str, Callable]) -> None:
    """Replace what is read, results first, where no op of it is excluded."""
    replaced: set[Node] = set()
    for node in reversed(graph.nodes):
        if node in replaced or not is_op(node, *readers):
            continue
        reading = readers[node.name](_Reader(graph, node), node)
        if reading is None:
            continue
        new, *operands = reading
        group = closed_group(node, operands)
        if group is None or not replaced.isdisjoint(group):
            continue
        if rules.excludes(*(each.name for each in group if each.name is not None)):
            continue
        if _is_accepted(new, node, rules):
            graph.reread(node, new)
            replaced.update(group)


def _is_accepted(new: Node, old: Node, rules: Rules) -> bool:
    """Whether oneDNN runs all new ops, and the result has the type of the replaced op."""
    for node in defined_in(new):
        # TVM computes a scalar, such as a zero point, for the op that has it as a parameter, and
        # casts a bias in int32.
        is_scalar = isinstance(node.type, Tensor) and not node.type.dims
        is_bias = node.name == "cast" and node.operands[0].tensor.dtype == "int32"
        if node.kind == CALL and not (is_scalar or is_bias) and rules.refusal(node) is not None:
            return False
    types = (new.type, old.type)
    if not all(isinstance(type_, Tensor) for type_ in types):
        return False
    return new.tensor.dtype == old.tensor.dtype and new.tensor.shape == old.tensor.shape


class _Reader:
    """Reads integer arithmetic as arithmetic of dequantized values.

    Parameters
    ----------
    graph : Graph
        The graph.
    node : Node
        What is read.
    """

    def __init__(self, graph: Graph, node: Node):
        self._graph, self._node = graph, node

    def _call(self, name: str, *operands: Node, **attrs) -> Node:
        return self._graph.call(name, operands, self._node, **attrs)

    def _dequantize(self, data: Node, scale: Node, zero: Node, axis: int = -1) -> Node:
        return dequantized(self._graph, self._node, data, scale, zero, axis)

    def _quantize(self, data: Node, scale: Node, zero: Node, dtype: str, axis: int = -1) -> Node:
        return self._call(QUANTIZE, data, scale, zero, axis=axis, out_dtype=dtype)

    def _constant(self, value, dtype: str | None = None) -> Node:
        return self._graph.constant(np.asarray(value), dtype)

    @staticmethod
    def _bytes(cast: Node) -> Node | None:
        """Return the 8-bit tensor that an op casts."""
        if not is_op(cast, "cast"):
            return None
        data = cast.operands[0]
        return data if data.tensor.dtype in EIGHT_BITS else None

    def requantized(self, node: Node) -> Reading | None:
        """Read qnn.requantize, of a sum in int32 or of any other integers."""
        dtype = node.tensor.dtype
        return self._requantized(node, dtype) if dtype in EIGHT_BITS else None

    def _requantized(
        self, node: Node, dtype: str, bounds: tuple[float, float] | None = None
    ) -> Reading:
        data, scale, zero, out_scale, out_zero = node.operands
        axis = node.attrs.axis
        as_float, *operands = self._dequantized(data, scale, zero, axis)
        if bounds:
            as_float = self._call("clip", as_float, a_min=bounds[0], a_max=bounds[1])
        result = self._quantize(as_float, out_scale, out_zero, dtype, axis)
        return [result, *operands, out_scale, out_zero]

    def _clipped(self, clip: Node, dtype: str) -> Reading | None:
        """Read a clip of qnn.requantize in int32, as PyTorch's importer writes one to 8 bits."""
        if not is_op(clip, "clip"):
            return None
        attrs, (node,) = clip.attrs, clip.operands
        if not is_op(node, "qnn.requantize"):
            return None
        low, high, limits = attrs.a_min, attrs.a_max, np.iinfo(dtype)
        # A cast wraps around what does not fit into the type. Fractions of the bounds are cut off.
        if not limits.min - 1 < low <= high < limits.max + 1:
            return None
        if (math.trunc(low), math.trunc(high)) == (limits.min, limits.max):
            return self._requantized(node, dtype)
        known = parameters(*node.args[3:])
        return known and self._requantized(node, dtype, real_bounds(low, high, known, dtype))

    def _dequantized(self, data: Node, scale: Node, zero: Node, axis: int) -> Reading:
        """Read scale * (data - zero)."""
        as_float = self._dequantized_sum(data, scale, zero, axis)
        as_float = as_float or self._dequantized_mean(data, scale, zero)
        return as_float or [self._dequantize(data, scale, zero, axis), data, scale, zero]

    def _dequantized_sum(self, data: Node, scale: Node, zero: Node, axis: int) -> Reading | None:
        scales, zeros = values_of(scale), values_of(zero)
        if scales is None or zeros is None or zeros.any():
            return None
        return read_sum(self._graph, data, scales, axis)

    def _dequantized_mean(self, node: Node, scale: Node, zero: Node) -> Reading | None:
        """Read a mean or an average of a tensor that was cast from 8 bits to int32."""
        scales = values_of(scale)
        if scales is None or scales.size != 1 or not zero.is_constant:
            return None
        if not is_op(node, "mean", *_POOLS):
            return None
        data = self._bytes(node.operands[0])
        if data is None or not self._pads_with_zero(node, zero):
            return None
        as_float = self._dequantize(data, scale, zero)
        return [self._call(node.name, as_float, **vars(node.attrs)), data, scale, zero]

    @staticmethod
    def _pads_with_zero(pool: Node, zero: Node) -> bool:
        """Whether the padding that an average of integers counts stands for zero.

        It is the integer 0, whatever the zero point.
        """
        attrs = pool.attrs
        if not attribute(attrs, "count_include_pad", False) or not any(ints(attrs.padding) or (1,)):
            return True
        return zero.is_constant and not zero.value.any()

    def dequantized_sum(self, node: Node) -> Reading | None:
        """Read qnn.dequantize of a sum in int32."""
        return self._dequantized_sum(*node.operands, axis=node.attrs.axis)

    def cast(self, node: Node) -> Reading | None:
        """Read a cast of a sum in int32 to float32, or of what is rounded in int32 to 8 bits."""
        if not isinstance(node.type, Tensor):
            return None
        data, dtype = node.operands[0], node.type.dtype
        if dtype == "float32":
            return read_sum(self._graph, data, np.ones(()))
        if dtype not in EIGHT_BITS:
            return None
        return self._clipped(data, dtype) or self._average(data, dtype)

    def _average(self, pool: Node, dtype: str) -> Reading | None:
        """Read an average in int32 of what was 8 bits, and becomes so again."""
        if not is_op(pool, *_POOLS):
            return None
        source = self._bytes(pool.operands[0])
        if source is None or source.tensor.dtype != dtype:
            return None
        one, zero = self._constant(1.0, "float32"), self._constant(0, "int32")
        as_float = self._call(pool.name, self._dequantize(source, one, zero), **vars(pool.attrs))
        return [self._quantize(as_float, one, zero, dtype), source]

    def difference(self, node: Node) -> Reading | None:
        """Read the cast of an 8-bit tensor to float32, less the cast of its zero points.

        These are one number, or one for each item of the last axis.
        """
        cast, zero = node.operands
        data = self._bytes(cast)
        if data is None or node.tensor.dtype != "float32":
            return None
        shape, one = zero.tensor.shape, self._constant(1.0, "float32")
        is_one = math.prod(-1 if size is None else size for size in shape) == 1
        if not is_one and shape != data.tensor.shape[-1:]:
            return None
        values = values_of(zero)
        if values is not None:
            if (values != np.round(values)).any() or (np.abs(values) > 255).any():
                return None
            values = self._constant(values.reshape(() if is_one else -1), "int32")
            return [self._dequantize(data, one, values), data]
        zero = self._bytes(zero)
        if zero is None or shape:
            return None
        return [self._dequantize(data, one, self._call("cast", zero, dtype="int32")), data, zero]

    def integer_weight(self, node: Node) -> Reading | None:
        """Read a constant of integers by which an 8-bit tensor is multiplied.

        Importers that fold constants leave that of ONNX's ConvInteger and MatMulInteger.
        """
        data, weight = node.operands
        values = values_of(weight)
        if values is None or not values.size or not is_op(data, DEQUANTIZE):
            return None
        if weight.tensor.dtype != "float32" or data.operands[0].tensor.dtype not in EIGHT_BITS:
            return None
        as_float = self._integers(values)
        if as_float is None:
            return None
        return [self._call(node.name, data, as_float, **vars(node.attrs)), data]

    def _integers(self, values: np.ndarray) -> Node | None:
        """Return the dequantize of a constant with these values, None if 8 bits do not hold it."""
        low, high = values.min(), values.max()
        if not high - low <= 255 or (values != np.round(values)).any():
            return None
        # For weights that are not around zero oneDNN needs a zero point, which matmul has.
        shift = 0 if low >= -128 and high <= 127 else int(low)
        integers = self._constant(values - shift, "uint8" if shift else "int8")
        one, zero = self._constant(1.0, "float32"), self._constant(-shift, "int32")
        return self._dequantize(integers, one, zero)

    def integer_product(self, node: Node) -> Reading | None:
        """Read a cast to float32 of a matmul or convolution in int32 of 8-bit operands.

        Relax's importer writes ONNX's ConvInteger and MatMulInteger so. The sums are exact in
        int32, and rounded to float32 as the cast does. A bias in int32 is added in float32.
        """
        (product,) = node.operands
        if not isinstance(node.type, Tensor) or node.type.dtype != "float32":
            return None
        if is_op(product, "add") and product.tensor.dtype == "int32":
            for addend, bias in (product.operands, product.operands[::-1]):
                reading = self._integer_product(addend)
                if reading is not None:
                    as_float, *inputs = reading
                    bias_cast = self._call("cast", bias, dtype="float32")
                    return [self._call("add", as_float, bias_cast), *inputs, bias]
        return self._integer_product(product)

    def _integer_product(self, product: Node) -> Reading | None:
        if not is_op(product, *_PRODUCTS) or product.tensor.dtype != "int32":
            return None
        as_float, inputs = [], []
        for operand in product.operands:
            reading = self._dequantized_operand(operand)
            if reading is None:
                return None
            as_float.append(reading[0])
            inputs += reading[1:]
        attrs = dict(vars(product.attrs))
        if "out_dtype" in attrs:
            attrs["out_dtype"] = "float32"
        return [self._call(product.name, *as_float, **attrs), *inputs]

    def _dequantized_operand(self, node: Node) -> Reading | None:
        """Read an 8-bit tensor that was cast to int32, less its zero point if it has one."""
        if is_op(node, "transpose"):
            reading = self._dequantized_operand(node.operands[0])
            return reading and [
                self._call("transpose", reading[0], **vars(node.attrs)),
                *reading[1:],
            ]
        zero = self._constant(0, "int32")
        if is_op(node, "subtract"):
            node, zero = node.operands
            value = constant_value(zero)
            zero = zero if value is None else self._constant(value, "int32")
        data = self._bytes(node)
        if (node if data is None else data).is_constant and zero.is_constant:
            values = (node if data is None else data).value.astype("int32") - zero.value
            as_float = self._integers(values) if values.size else None
            return None if as_float is None else [as_float]
        if data is None or zero.tensor.dtype != "int32" or zero.tensor.shape:
            return None
        return [self._dequantize(data, self._constant(1.0, "float32"), zero), data, zero]

    def binary(self, node: Node) -> Reading | None:
        """Read qnn.add, qnn.subtract or qnn.mul."""
        dtype = node.tensor.dtype
        if dtype not in EIGHT_BITS:
            return None
        axes = [int(attribute(node.attrs, name, -1)) for name in ("lhs_axis", "rhs_axis")]
        lhs, rhs, left_scale, left_zero, right_scale, right_zero, scale, zero = node.operands
        left = self._dequantize(lhs, left_scale, left_zero, axes[0])
        right = self._dequantize(rhs, right_scale, right_zero, axes[1])
        as_float = self._call(_BINARY[node.name], left, right)
        return [self._quantize(as_float, scale, zero, dtype), *node.operands]

    def unary(self, node: Node) -> Reading | None:
        """Read a QNN op of one operand."""
        dtype = node.tensor.dtype
        if dtype not in EIGHT_BITS or len(node.operands) != 5:
            return None
        data, scale, zero, out_scale, out_zero = node.operands
        # TVM brings integers to the scale and zero point of the result, and averages these.
        if not self._pads_with_zero(node, out_zero):
            return None
        as_float = self._dequantize(data, scale, zero)
        if node.name == "qnn.hardswish":
            # What another rewrite makes one op of.
            shifted = self._call("add", as_float, self._constant(3.0, "float32"))
            clip = self._call("clip", shifted, a_min=0.0, a_max=6.0)
            product = self._call("multiply", as_float, clip)
            as_float = self._call("divide", product, self._constant(6.0, "float32"))
        else:
            as_float = self._call(_UNARY[node.name], as_float, **vars(node.attrs))
        return [self._quantize(as_float, out_scale, out_zero, dtype), *node.operands]

    def concatenated(self, node: Node) -> Reading | None:
        """Read qnn.concatenate of tensors that are given one by one."""
        *tuples, out_scale, out_zero = node.operands
        dtype = node.tensor.dtype
        if dtype not in EIGHT_BITS or not all(each.kind == TUPLE for each in tuples):
            return None
        parts, scales, zeros = (each.operands for each in tuples)
        as_float = [self._dequantize(*each) for each in zip(parts, scales, zeros)]
        joined = self._graph.tuple(as_float, node)
        joined = self._call("concatenate", joined, axis=node.attrs.axis)
        result = self._quantize(joined, out_scale, out_zero, dtype)
        return [result, *parts, *scales, *zeros, out_scale, out_zero]


# The float ops of which integers are read: matmuls and convolutions.
_PRODUCTS = frozenset(row.name for row in ACCUMULATING.values())

_BINARY = {"qnn.add": "add", "qnn.subtract": "subtract", "qnn.mul": "multiply"}

# The float op of one operand, with the same attributes.
_UNARY: dict[str, str] = {
    f"qnn.{name.removeprefix('nn.')}": name
    for name, row in TABLE.items()
    if row.post == "eltwise" or name in ("erf", "nn.avg_pool2d", "nn.softmax")
}

# How to read an op as one of dequantized values.
READERS: dict[str, Callable[[_Reader, Node], Reading | None]] = {
    "qnn.requantize": _Reader.requantized,
    "qnn.dequantize": _Reader.dequantized_sum,
    "qnn.concatenate": _Reader.concatenated,
    "cast": _Reader.cast,
    **dict.fromkeys(_PRODUCTS, _Reader.integer_weight),
    **dict.fromkeys(_BINARY, _Reader.binary),
    **dict.fromkeys((*_UNARY, "qnn.hardswish"), _Reader.unary),
}
