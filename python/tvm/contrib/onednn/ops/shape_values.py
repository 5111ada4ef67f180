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
"""Follows tensors of integers that are shapes, or parts of shapes, as sizes.

Importers write a reshape of open dimensions as one to a shape that is read off a tensor, taken
apart and put together. Its elements are numbers, or sizes that are known by symbols.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Optional

from ..ir.dim import Dim, Size, broadcast, divided, least, product
from ..ir.node import TUPLE, Node
from ..ir.op import infer
from ..ir.op_view import Tensor, tensor_of
from .table import TABLE

# The number of elements up to which a tensor of integers is followed: it may be a shape.
_MAX_ELEMENTS = 16

# The elements of a tensor, None for one that is not known.
Elements = Sequence[Optional[Size]]

# What importers give for the end of an axis: no size is as large.
_LARGEST = 2**31 - 1

_RESHAPES = [name for name, row in TABLE.items() if row.reshapes]


class ShapeValues:
    """The elements of tensors of integers, as far as they are known.

    Nodes are followed when they are asked for, and each once.
    """

    def __init__(self):
        self._known: dict[Node, Elements | None] = {}

    def of(self, node: Node) -> Elements | None:
        """Return the elements of a scalar or vector of integers; None if nothing is known.

        Those of a boolean one are 0 and 1.
        """
        if node not in self._known:
            self._known[node] = self._of(node)
        return self._known[node]

    def _of(self, node: Node) -> Elements | None:
        type_ = node.type
        if not isinstance(type_, Tensor) or len(type_.dims) > 1:
            return None
        if not type_.dtype.startswith(("int", "bool")):
            return None
        count = product(type_.dims)
        if not isinstance(count, int) or count > _MAX_ELEMENTS:
            return None
        if node.is_constant:
            return [int(value) for value in node.value.reshape(-1)]
        values = self._of_call(node) if node.is_call else None
        return values if values is not None and len(values) == count else None

    def _of_call(self, node: Node) -> Elements | None:
        name, operands = node.name, node.operands
        if name == "shape_of":
            return operands[0].type.dims if isinstance(operands[0].type, Tensor) else None
        if name == "concatenate":
            if operands[0].kind != TUPLE:
                return None
            parts = [self.of(field) for field in operands[0].operands]
            return None if None in parts else [size for part in parts for size in part]
        if not operands:
            return None
        values = [self.of(operand) for operand in operands]
        if name in _RESHAPES:
            return values[0]
        if None in values:
            return None
        if name in _ARITHMETIC:
            # A single value goes with each of the others, of which there may be none.
            count = product(node.tensor.dims)
            pairs = [list(each) * count if len(each) == 1 else each for each in values]
            return [_ARITHMETIC[name](*pair) for pair in zip(*pairs)]
        return _OF_ELEMENTS[name](node.attrs, *values) if name in _OF_ELEMENTS else None

    def target(self, node: Node) -> list[Size] | None:
        """Return the shape that a dynamic reshape or broadcast is given, codes replaced."""
        data, shape = node.operands
        values = self.of(shape)
        if values is None or not isinstance(data.type, Tensor):
            return None
        wanted = list(values)
        if node.name == "dyn.broadcast_to":
            return wanted
        source = data.type.dims
        for k, size in enumerate(wanted):
            if size == 0:
                wanted[k] = source[k] if k < len(source) else None
        inferred = [k for k, size in enumerate(wanted) if size == -1]
        for k in inferred:
            others = product([size for other, size in enumerate(wanted) if other != k])
            is_known = len(inferred) == 1 and others is not None and product(source) is not None
            wanted[k] = divided(product(source), others) if is_known and others != 0 else None
        return wanted

    def cut(self, node: Node) -> list[tuple[int, int] | None] | None:
        """Return what a dynamic slice keeps of each axis: from where to where, or None for all."""
        data, *bounds = node.operands
        values = [self.of(bound) for bound in bounds]
        if not isinstance(data.type, Tensor) or None in values:
            return None
        if node.attrs.slice_mode != "end":
            return None
        source, (begin, end, strides) = data.type.dims, values
        if not len(begin) == len(end) == len(source) or any(step != 1 for step in strides):
            return None
        parts: list[tuple[int, int] | None] = []
        for size, first, last in zip(source, begin, end):
            if first is None or last is None:
                return None
            is_last = isinstance(last, int) and last >= _LARGEST
            if first == 0 and (is_last or _is_at_least(last, size)):
                parts.append(None)
                continue
            if not (isinstance(first, int) and isinstance(last, int) and isinstance(size, int)):
                return None
            if not 0 <= first < min(last, size):
                return None
            parts.append((first, min(last, size)))
        return parts

    def infer(self, node: Node) -> Sequence[Size] | None:
        """Return the shape of what an op without a row computes, if it can be inferred."""
        if node.name in ("dyn.reshape", "dyn.broadcast_to"):
            return self.target(node)
        if node.name == "dyn.strided_slice":
            parts = self.cut(node)
            if parts is None:
                return None
            source = node.operands[0].tensor.dims
            return [
                size if part is None else part[1] - part[0] for size, part in zip(source, parts)
            ]
        args = node.args
        if not args or not all(isinstance(arg, Tensor) for arg in args):
            return None
        if node.name == "copy":
            return tensor_of(args[0]).dims
        if node.name in _BROADCAST:
            return broadcast(*(arg.dims for arg in args))
        if node.name == "variance":
            return infer("mean", args[:1], node.attrs).dims
        return _gathered(node) if node.name == "take" else None


_BROADCAST = ("floor_divide", "logical_and", "logical_or", "power", "where")


def _gathered(node: Node) -> Sequence[Size] | None:
    data, indices = (operand.tensor.dims for operand in node.operands)
    if node.attrs.axis is None or node.attrs.batch_dims:
        return None
    axis = node.attrs.axis % len(data)
    return [*data[:axis], *indices, *data[axis + 1 :]]


def _is_at_least(left: Size, right: Size) -> bool:
    """Whether it is so in every run."""
    if left == right:
        return True
    return isinstance(right, int) and 0 < right <= (least(left) or 0)


def _of_known(function):
    """Return a function of elements whose result is unknown where one of them is."""
    return lambda *sizes: None if None in sizes else function(*sizes)


def _maximum(left: Size, right: Size) -> Size:
    if not isinstance(left, Dim) and not isinstance(right, Dim):
        return max(left, right)
    return left if _is_at_least(left, right) else right if _is_at_least(right, left) else None


def _greater_equal(left: Size, right: Size) -> Size:
    if not isinstance(left, Dim) and not isinstance(right, Dim):
        return int(left >= right)
    if _is_at_least(left, right):
        return 1
    return 0 if isinstance(left, int) and left < (least(right) or 0) else None


def _chosen(condition: Size, left: Size, right: Size) -> Size:
    return {1: left, 0: right}.get(condition, left if left == right else None)


_ARITHMETIC: dict[str, Callable] = {
    "add": _of_known(lambda left, right: left + right),
    "divide": _of_known(divided),
    "floor_divide": _of_known(divided),
    "greater_equal": _of_known(_greater_equal),
    "maximum": _of_known(_maximum),
    "multiply": _of_known(lambda left, right: left * right),
    "where": _chosen,
}


def _unchanged(attrs, data: Elements, *others: Elements) -> Elements:
    return data


def _product(attrs, data: Elements) -> Elements | None:
    return None if None in data else [product(data)]


def _picked(attrs, data: Elements, indices: Elements) -> Elements | None:
    # The meaning of an index out of range depends on the mode.
    if not all(isinstance(k, int) and 0 <= k < len(data) for k in indices):
        return None
    return [data[k] for k in indices]


def _sliced_like(attrs, data: Elements, other: Elements) -> Elements | None:
    return None if attrs.axes else data[: len(other)]


def _scattered(attrs, data: Elements, indices: Elements, updates: Elements) -> Elements | None:
    if attrs.reduction != "update":
        return None
    result = list(data)
    for index, update in zip(indices, updates):
        if not isinstance(index, int) or not 0 <= index < len(data):
            return None
        result[index] = update
    return result


def _sliced(attrs, data: Elements, *others: Elements) -> Elements | None:
    begin, end, strides = attrs.begin, attrs.end, attrs.strides
    if begin is None or len(begin) != 1 or end is None or len(end) != 1:
        return None
    step = strides[0] if strides else 1
    if attrs.slice_mode == "size":
        stop = len(data) if end[0] < 0 else begin[0] + end[0]
        return data[begin[0] : stop]
    return data[begin[0] : end[0] : step] if step > 0 else None


# The elements of the result of other ops, from their attributes and the elements of the operands.
_OF_ELEMENTS: dict[str, Callable[..., Elements | None]] = {
    **dict.fromkeys(("cast", "cast_like", "copy"), _unchanged),
    "prod": _product,
    "scatter_elements": _scattered,
    "slice_like": _sliced_like,
    "strided_slice": _sliced,
    "take": _picked,
}
