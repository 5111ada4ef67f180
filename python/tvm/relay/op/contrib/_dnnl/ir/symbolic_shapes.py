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
"""Shapes with names for open dimensions: which of them are the same in every call.

Relay's open dimensions have no names. Here each one of an input gets one, and those of a result
are followed back to it through the ops that keep, multiply or move dimensions. What cannot be
followed gets a name of its own, so that two that are equal here are equal in every call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Optional

from tvm import relay
from tvm.contrib.onednn.policy.graph import Graph
from tvm.contrib.onednn.policy.table import TABLE
from tvm.contrib.onednn.policy.tensors import ints

from .relay_view import dims, op_name
from .shape_kinds import KINDS, ONE, Dim, Shape, product, shape_kind

# The number of elements up to which a tensor of integers is followed: it may be a shape.
_MAX_ELEMENTS = 16


class SymbolicShapes:
    """The shapes of what a graph computes.

    Parameters
    ----------
    graph : Graph
        The typed function, of Relay.

    Attributes
    ----------
    shapes : list[Shape | None]
        The shape of each expression; None for what is no tensor.
    values : list[tuple[Dim | None, ...] | None]
        The elements of tensors of integers that are shapes, or parts of shapes; None for others.
    """

    def __init__(self, graph: Graph):
        self.graph = graph
        self.shapes: list[Shape | None] = []
        self.values: list[tuple[Dim | None, ...] | None] = []
        for i, expr in enumerate(graph.nodes):
            self.shapes.append(self._shape(i, expr))
            self.values.append(self._values(i, expr))

    def _shape(self, i: int, expr: relay.Expr) -> Shape | None:
        type_ = getattr(expr, "_checked_type_", None)
        if not isinstance(type_, relay.TensorType):
            return None
        known = dims(type_)
        if None not in known:
            return tuple(map(Dim, known))
        inferred = self._of_op(i, expr) if isinstance(expr, relay.Call) else None
        if isinstance(expr, relay.TupleGetItem) and expr.index == 0:
            call = self.graph.operands[i][0]
            if shape_kind(op_name(self.graph.nodes[call])) == "same":
                inferred = self.shapes[self.graph.operands[call][0]]
        if inferred is None or len(inferred) != len(known):
            inferred = (None,) * len(known)
        return tuple(
            Dim(size) if size is not None else dim or Dim(1, ((i, axis),))
            for axis, (size, dim) in enumerate(zip(known, inferred))
        )

    def _of_op(self, i: int, call: relay.Call) -> Sequence[Dim | None] | None:
        """Return the dimensions of a call's result as its operands tell, None for unknown ones."""
        kind, operands = shape_kind(op_name(call)), self.graph.operands[i]
        if kind == "given":
            return self.of_value(i)
        if kind == "cut":
            return self.shape_of_cut(i)
        if kind == "joined":
            return self._concatenated(operands[0], int(call.attrs.axis))
        shapes = [self.shapes[k] for k in operands]
        if kind not in KINDS or not shapes or shapes[0] is None:
            return None
        return KINDS[kind](call, *shapes)

    def of_value(self, i: int) -> list[Dim | None] | None:
        """Return the shape that a dynamic reshape or broadcast is given, codes replaced."""
        call, (data, shape) = self.graph.nodes[i], self.graph.operands[i]
        if self.values[shape] is None or self.shapes[data] is None:
            return None
        wanted = list(self.values[shape])
        if op_name(call) == "dyn.broadcast_to":
            return wanted
        source = self.shapes[data]
        for k, dim in enumerate(wanted):
            if dim == Dim(0):
                wanted[k] = source[k] if k < len(source) else None
        inferred = [k for k, dim in enumerate(wanted) if dim == Dim(-1)]
        for k in inferred:
            others = [dim for other, dim in enumerate(wanted) if other != k]
            is_known = len(inferred) == 1 and None not in others
            wanted[k] = product(source).over(product(others)) if is_known else None
        return wanted

    def cut(self, i: int) -> list[tuple[int, int] | None] | None:
        """Return what a dynamic slice keeps of each axis: from where to where, or None for all."""
        call, (data, *bounds) = self.graph.nodes[i], self.graph.operands[i]
        source, values = self.shapes[data], [self.values[k] for k in bounds]
        if source is None or None in values or str(call.attrs.slice_mode) != "end":
            return None
        begin, end, strides = values
        if not len(begin) == len(end) == len(source) or any(step != ONE for step in strides):
            return None
        parts: list[tuple[int, int] | None] = []
        for size, first, last in zip(source, begin, end):
            if first is None or last is None:
                return None
            # No size is as large as the number that importers give for the end.
            is_last = not last.names and last.number >= 2**31 - 1
            if first == Dim(0) and (is_last or _is_at_least(last, size)):
                parts.append(None)
                continue
            if first.names or last.names or size.names:
                return None
            if not 0 <= first.number < min(last.number, size.number):
                return None
            parts.append((first.number, min(last.number, size.number)))
        return parts

    def shape_of_cut(self, i: int) -> list[Dim] | None:
        """Return the shape of a dynamic slice's result, if `cut` knows what it keeps."""
        parts, source = self.cut(i), self.shapes[self.graph.operands[i][0]]
        if parts is None:
            return None
        return [
            size if part is None else Dim(part[1] - part[0]) for size, part in zip(source, parts)
        ]

    def _concatenated(self, fields: int, axis: int):
        if not isinstance(self.graph.nodes[fields], relay.Tuple):
            return None
        shapes = [self.shapes[field] for field in self.graph.operands[fields]]
        if not shapes or None in shapes:
            return None
        joined = list(shapes[0])
        joined[axis] = None
        return joined

    def _values(self, i: int, expr: relay.Expr) -> tuple[Dim | None, ...] | None:
        """Return the elements of a scalar or a vector of integers, as far as they are known.

        Those of a boolean one are 0 and 1.
        """
        shape = self.shapes[i]
        if shape is None or len(shape) > 1:
            return None
        if not expr.checked_type.dtype.startswith(("int", "bool")):
            return None
        count = product(shape)
        if count.names or count.number > _MAX_ELEMENTS:
            return None
        if isinstance(expr, relay.Constant):
            return tuple(Dim(int(value)) for value in expr.data.numpy().reshape(-1))
        values = self._values_of_op(i, expr) if op_name(expr) else None
        return tuple(values) if values is not None and len(values) == count.number else None

    def _values_of_op(self, i: int, call: relay.Call) -> Sequence[Dim | None] | None:
        name, operands = op_name(call), self.graph.operands[i]
        if name == "shape_of":
            return self.shapes[operands[0]]
        if name == "concatenate":
            if not isinstance(self.graph.nodes[operands[0]], relay.Tuple):
                return None
            parts = [self.values[field] for field in self.graph.operands[operands[0]]]
            return None if None in parts else [dim for part in parts for dim in part]
        values = [self.values[k] for k in operands]
        if not values or None in values:
            return None
        if name in _ARITHMETIC:
            # A single value goes with each of the others, of which there may be none.
            count = product(self.shapes[i]).number
            pairs = [each * count if len(each) == 1 else each for each in values]
            return [_ARITHMETIC[name](*pair) for pair in zip(*pairs)]
        if name in TABLE and TABLE[name].reshapes:
            return values[0]
        return _OF_VALUES[name](call.attrs, *values) if name in _OF_VALUES else None


def _is_at_least(left: Dim, right: Dim) -> bool:
    """Whether it is so in every call: a dimension is 1 or more."""
    return left == right or not right.names and 0 < right.number <= left.number


def _of_known(function):
    """Return a function of elements whose result is unknown where one of them is."""
    return lambda *dims_: None if None in dims_ else function(*dims_)


def _maximum(left: Dim, right: Dim) -> Dim | None:
    if not left.names and not right.names:
        return Dim(max(left.number, right.number))
    return left if _is_at_least(left, right) else right if _is_at_least(right, left) else None


def _greater_equal(left: Dim, right: Dim) -> Dim | None:
    if not left.names and not right.names:
        return Dim(int(left.number >= right.number))
    if _is_at_least(left, right):
        return ONE
    return Dim(0) if not left.names and left.number < right.number else None


def _chosen(condition: Dim | None, left: Dim | None, right: Dim | None) -> Dim | None:
    return {ONE: left, Dim(0): right}.get(condition, left if left == right else None)


def _plus(left: Dim, right: Dim) -> Dim | None:
    if left.names == right.names:
        return Dim(left.number + right.number, left.names)
    return left if right == Dim(0) else right if left == Dim(0) else None


_ARITHMETIC = {
    "add": _of_known(_plus),
    "divide": _of_known(Dim.over),
    "floor_divide": _of_known(Dim.over),
    "greater_equal": _of_known(_greater_equal),
    "maximum": _of_known(_maximum),
    "multiply": _of_known(Dim.times),
    "where": _chosen,
}


# The elements of the result of other ops, from their attributes and the elements of the operands.
_Values = Sequence[Optional[Dim]]


def _unchanged(attrs, data: _Values, *others: _Values) -> _Values:
    return data


def _product(attrs, data: _Values) -> _Values | None:
    return None if None in data else [product(data)]


def _picked(attrs, data: _Values, positions: _Values) -> _Values | None:
    indices = [dim.number for dim in positions if dim is not None and not dim.names]
    # The meaning of an index out of range depends on the mode.
    if len(indices) != len(positions) or not all(0 <= k < len(data) for k in indices):
        return None
    return [data[k] for k in indices]


def _sliced_like(attrs, data: _Values, other: _Values) -> _Values | None:
    return None if attrs.axes else data[: len(other)]


def _scattered(attrs, data: _Values, indices: _Values, updates: _Values) -> _Values | None:
    if str(attrs.reduction) != "update":
        return None
    result = list(data)
    for index, update in zip(indices, updates):
        if index is None or index.names or not 0 <= index.number < len(data):
            return None
        result[index.number] = update
    return result


def _sliced(attrs, data: _Values, *others: _Values) -> _Values | None:
    begin, end, strides = (
        ints(getattr(attrs, name)) if getattr(attrs, name) is not None else None
        for name in ("begin", "end", "strides")
    )
    if begin is None or len(begin) != 1 or end is None or len(end) != 1:
        return None
    step = strides[0] if strides else 1
    if str(attrs.slice_mode) == "size":
        stop = len(data) if end[0] < 0 else begin[0] + end[0]
        return data[begin[0] : stop]
    return data[begin[0] : end[0] : step] if step > 0 else None


_OF_VALUES: dict[str, Callable[..., _Values | None]] = {
    **dict.fromkeys(("cast", "cast_like", "copy"), _unchanged),
    "prod": _product,
    "scatter_elements": _scattered,
    "slice_like": _sliced_like,
    "strided_slice": _sliced,
    "take": _picked,
}
