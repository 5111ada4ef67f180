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
"""Moves dequantize after, and quantize before, ops that can run on 8-bit tensors.

A dequantize goes after a reshape, a transpose, a slice or a maximum pool, and after a
concatenation of such; one with a scale for each item of an axis goes after what leaves the axis
whole. A quantize goes before a concatenation, and a pair of the same scale and zero point goes
away. This is exact: such ops give the same for floats as for the integers that represent
them. Then a convolution or a matmul has the dequantize of its operands right before it, as fusion
wants it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..ir.graph import Graph
from ..ir.match import is_op
from ..ir.node import CALL, FIELD, TUPLE, Node, constant
from ..ir.numpy_types import along
from ..ir.op_view import Tensor
from ..ops.int8 import goes_before_rounding, reads_weight
from ..ops.quantize import DEQUANTIZE, QUANTIZE, dequantized, parameters, real_bounds, symmetric
from ..ops.rules import Rules
from ..ops.tensors import EIGHT_BITS


def merge_equal(graph: Graph, rules: Rules) -> None:
    """Merge equal quantize and dequantize ops.

    They write the scale and the zero point of each quantize anew, which keeps two of the same
    tensor apart.
    """
    seen: dict[tuple, Node] = {}
    for node in graph.nodes:
        if node.is_constant:
            if np.prod(node.tensor.shape) > _MOST_COMPARED:
                continue
            value = node.value
            key = ("constant", str(value.dtype), value.shape, value.tobytes())
        elif node.is_call or node.kind in (FIELD, TUPLE):
            attrs = sorted(vars(node.attrs).items()) if node.attrs is not None else ()
            key = (node.kind, node.name, repr(attrs), node.scope, *map(id, node.operands))
        else:
            continue
        first = seen.setdefault(key, node)
        if first is not node:
            graph.replace(node, first)


# Scales and zero points of channels are compared, weights are not.
_MOST_COMPARED = 1 << 13


def fold_dequantized(graph: Graph, rules: Rules) -> None:
    """Fold the dequantize of constants, except the weights of int8 matmuls and convolutions."""
    constants = [
        node
        for node in graph.nodes
        if is_op(node, DEQUANTIZE) and all(operand.is_constant for operand in node.operands)
    ]
    # What an op reads in 8 bits also depends on its other operand.
    folded = [
        node
        for node in constants
        if not all(reads_weight(node, user, rules) for user in node.users)
    ]
    for node in folded:
        graph.replace(node, dequantized_constant(node))


def dequantized_constant(node: Node) -> Node:
    """Return the folded constant of a dequantize."""
    values, scale, zero = (operand.value.astype("float64") for operand in node.operands)
    return constant(dequantized(values, scale, zero, node.attrs.axis), node.tensor.dtype)


def move_relu_first(graph: Graph, rules: Rules) -> None:
    """Move a relu before the preceding quantize so that its users read int8."""
    for node in graph.nodes:
        if is_op(node, "nn.relu") and goes_before_rounding(node, rules):
            (dequantized,) = node.operands
            bits, *parameters_ = dequantized.operands
            relu = graph.with_operands(node, [bits.operands[0]])
            bits = graph.with_operands(bits, [relu, *bits.operands[1:]])
            graph.replace(node, graph.with_operands(dequantized, [bits, *parameters_]))


def move_in_int8(graph: Graph, rules: Rules) -> None:
    """Move dequantize down and quantize up; convert constant weights to int8."""
    mover = _Mover(graph, rules)
    for node in graph.nodes:
        new = mover.moved(node)
        if new is not None:
            graph.replace(node, new)


class _Mover:
    """Returns the replacement of each node; operands precede their users."""

    def __init__(self, graph: Graph, rules: Rules):
        self._graph, self._rules = graph, rules

    def moved(self, node: Node) -> Node | None:
        """Return the replacement of a node; None to keep it."""
        if node.kind == FIELD:
            of = node.operands[0]
            return of.operands[node.attrs.index] if of.kind == TUPLE else None
        if node.kind != CALL or not node.operands:
            return None
        special = self._SPECIAL.get(node.name)
        if special is not None:
            return special(self, node)
        return self._after(node) if node.is_call and self._keeps_values(node.name) else None

    def _keeps_values(self, name: str | None) -> bool:
        """Whether an op only copies elements of its operand."""
        is_row = name in self._rules.ops and not self._rules.excludes(name)
        return is_row and self._rules.ops[name].keeps_values

    def _after(self, node: Node) -> Node | None:
        """Move the dequantize of the operand after an op."""
        source = node.operands[0]
        if len(node.operands) != 1 or not is_op(source, DEQUANTIZE):
            return None
        bits, scale, zero_point = source.operands
        axis = source.attrs.axis
        if _parameters(source) is None:
            is_known = scale.is_constant and zero_point.is_constant
            axis = self._rules.output_axis(node, axis) if is_known else None
            if axis is None or bits.tensor.dtype not in EIGHT_BITS:
                return None
        types = tuple(Tensor(value.dims, bits.tensor.dtype) for value in node.results)
        new = self._graph.with_operands(node, [bits], types if node.returns_tuple else types[0])
        if not node.returns_tuple:
            return self._dequantize(new, source, axis)
        # The fields are dequantized, one by one.
        fields = (self._graph.field_of(new, k) for k in range(len(types)))
        return self._graph.tuple([self._dequantize(f, source, axis) for f in fields], node)

    def _dequantize(self, bits: Node, like: Node, axis: int) -> Node:
        attrs = {**vars(like.attrs), "axis": axis}
        type_ = Tensor(bits.tensor.dims, like.tensor.dtype)
        return self._graph.call(DEQUANTIZE, [bits, *like.operands[1:]], bits, type_, **attrs)

    def _constant_weight(self, node: Node) -> Node | None:
        """Convert a constant weight to int8 without a zero point; move a dequantize after a pad."""
        bits, scale, zero_point = node.operands
        if not node.is_call or not (scale.is_constant and zero_point.is_constant):
            return None
        if is_op(bits, "nn.pad"):
            return self._padded(node, bits)
        if not bits.is_constant or bits.tensor.dtype not in EIGHT_BITS:
            return None
        values, zero, axis = bits.value, zero_point.value, node.attrs.axis
        moved = symmetric(values, along(zero, axis, values.ndim)) if zero.any() else None
        if moved is None and bits.tensor.dtype == "uint8" and not zero.any():
            moved = symmetric(values, zero.reshape(-1)[0])
        if moved is None:
            return None
        zeros = self._graph.constant(np.zeros(zero.shape, "int32"))
        return self._graph.call(
            DEQUANTIZE, [self._graph.constant(moved), scale, zeros], node, **vars(node.attrs)
        )

    def _padded(self, node: Node, pad: Node) -> Node | None:
        """Write a dequantize of a pad with zero as a pad of floating-point values.

        A convolution may pad with that. Of several scales one may be that of an item which is
        padding.
        """
        data, value = pad.operands
        known = _parameters(node)
        if known is None or not value.is_constant or pad.attrs.pad_mode != "constant":
            return None
        if float(value.value.reshape(())) != known[1]:
            return None
        dequantized = self._dequantize(data, node, node.attrs.axis)
        zero = self._graph.constant(np.array(0.0), node.tensor.dtype)
        type_ = Tensor(pad.tensor.dims, node.tensor.dtype)
        return self._graph.call("nn.pad", [dequantized, zero], pad, type_, **vars(pad.attrs))

    def _quantize(self, node: Node) -> Node | None:
        known = _parameters(node) if node.is_call else None
        if known is None or self._rules.excludes(QUANTIZE):
            return None
        source = node.operands[0]
        if is_op(source, "concatenate") and source.users == [node]:
            if source.operands[0].kind == TUPLE:
                fields = [self._in_8_bits(field, node) for field in source.operands[0].operands]
                fields = self._graph.tuple(fields, node)
                return self._graph.call(
                    "concatenate", [fields], source, node.type, **vars(source.attrs)
                )
        same = self._in_8_bits(source, node)
        return same if same.name != QUANTIZE or same.is_live else None

    def _in_8_bits(self, dequantized: Node, quantize: Node) -> Node:
        """Return the quantized tensor, without a new quantize if it exists."""
        if is_op(dequantized, DEQUANTIZE) and _parameters(dequantized) == _parameters(quantize):
            if dequantized.operands[0].tensor.dtype == quantize.tensor.dtype:
                return dequantized.operands[0]
        type_ = Tensor(dequantized.tensor.dims, quantize.tensor.dtype)
        operands = [dequantized, *quantize.operands[1:]]
        return self._graph.call(QUANTIZE, operands, quantize, type_, **vars(quantize.attrs))

    def _clipped(self, node: Node) -> Node | None:
        """Move a clip of 8-bit integers before the quantize that makes them."""
        (bits,) = node.operands
        is_clip_of_bits = node.tensor.dtype in EIGHT_BITS and bits.name == QUANTIZE
        known = _parameters(bits) if is_clip_of_bits else None
        if known is None or bits.users != [node]:
            return None
        attrs = node.attrs
        low, high = (0.0, np.inf) if node.name == "nn.relu" else (attrs.a_min, attrs.a_max)
        low, high = real_bounds(float(low), float(high), known, node.tensor.dtype)
        dequantized = self._graph.call("clip", bits.operands[:1], node, a_min=low, a_max=high)
        return self._graph.with_operands(bits, [dequantized, *bits.operands[1:]])

    def _concatenated(self, node: Node) -> Node | None:
        """Move the dequantize of all operands, if it is the same, after a concatenation."""
        fields = node.operands[0]
        if not node.is_call or fields.kind != TUPLE or self._rules.excludes(node.name):
            return None
        sources = fields.operands
        if not all(is_op(source, DEQUANTIZE) for source in sources):
            return None
        known = {(_parameters(source), source.operands[0].tensor.dtype) for source in sources}
        if len(known) > 1 or _parameters(sources[0]) is None:
            return None
        bits = self._graph.tuple([source.operands[0] for source in sources], node)
        type_ = Tensor(node.tensor.dims, bits.type[0].dtype)
        joined = self._graph.call("concatenate", [bits], node, type_, **vars(node.attrs))
        return self._dequantize(joined, sources[0], -1)

    _SPECIAL: dict[str, Callable[[_Mover, Node], Node | None]] = {
        DEQUANTIZE: _constant_weight,
        QUANTIZE: _quantize,
        "nn.relu": _clipped,
        "clip": _clipped,
        "concatenate": _concatenated,
    }


def _parameters(node: Node) -> tuple[float, int] | None:
    """Return the scale and the zero point of a quantize or dequantize of 8 bits, if known."""
    bits = node.operands[0] if node.name == DEQUANTIZE else node
    scale, zero_point = node.operands[1:]
    if bits.tensor.dtype not in EIGHT_BITS or not (scale.is_constant and zero_point.is_constant):
        return None
    return parameters(scale.type, zero_point.type)
