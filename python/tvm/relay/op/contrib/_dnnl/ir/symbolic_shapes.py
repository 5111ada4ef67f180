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

from collections.abc import Sequence
from typing import NamedTuple

from tvm import relay

from ..policy.graph import Graph
from ..policy.tensors import ints
from .relay_view import dims, op_name, shape_of

# The number of elements up to which a tensor of integers is followed: it may be a shape.
_MAX_ELEMENTS = 16

# Whose results have the shape of their first operand.
SAME_SHAPE = frozenset("""abs cast clip copy erf exp log negative nn.bias_add nn.fast_softmax
    nn.group_norm nn.instance_norm nn.l2_normalize nn.layer_norm nn.leaky_relu nn.log_softmax nn.lrn
    nn.prelu nn.relu nn.softmax qnn.dequantize qnn.quantize rsqrt sigmoid sqrt tanh""".split())
_BROADCAST = frozenset(
    """add divide equal floor_divide greater greater_equal less less_equal logical_and logical_or
    maximum minimum multiply not_equal power subtract""".split()
)
_REDUCE = frozenset(["max", "mean", "min", "prod", "sum", "variance"])


class Dim(NamedTuple):
    """A product of a number and of names of open dimensions, each of which is 1 or more."""

    number: int
    names: tuple = ()

    def times(self, other: Dim) -> Dim:
        """Return the product."""
        return Dim(self.number * other.number, tuple(sorted((*self.names, *other.names), key=str)))

    def over(self, other: Dim) -> Dim | None:
        """Return the quotient, if the division leaves nothing in every call."""
        names = list(self.names)
        for name in other.names:
            if name not in names:
                return None
            names.remove(name)
        if other.number == 0 or self.number % other.number:
            return None
        return Dim(self.number // other.number, tuple(names))


ONE = Dim(1)
Shape = tuple[Dim, ...]


def product(dims_: Sequence[Dim]) -> Dim:
    """Return the product of dimensions."""
    found = ONE
    for dim in dims_:
        found = found.times(dim)
    return found


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
        found = self._of_op(i, expr) if isinstance(expr, relay.Call) else None
        if isinstance(expr, relay.TupleGetItem) and expr.index == 0:
            call = self.graph.operands[i][0]
            if op_name(self.graph.nodes[call]) == "nn.batch_norm":
                found = self.shapes[self.graph.operands[call][0]]
        if found is None or len(found) != len(known):
            found = (None,) * len(known)
        return tuple(
            Dim(size) if size is not None else dim or Dim(1, ((i, axis),))
            for axis, (size, dim) in enumerate(zip(known, found))
        )

    def _of_op(self, i: int, call: relay.Call) -> Sequence[Dim | None] | None:
        """Return the dimensions of a call's result as its operands tell, None for unknown ones."""
        name, attrs = op_name(call), call.attrs
        operands = [self.shapes[k] for k in self.graph.operands[i]]
        if not operands or operands[0] is None:
            if name == "concatenate":
                return self._concatenated(self.graph.operands[i][0], int(attrs.axis))
            return None
        data = operands[0]
        if name in SAME_SHAPE:
            return data
        if name in _BROADCAST:
            return _broadcast(data, operands[1])
        if name == "transpose":
            axes = ints(attrs.axes) if attrs.axes is not None else range(len(data))[::-1]
            return [data[axis] for axis in axes]
        if name == "nn.dense":
            return [*data[:-1], None]
        if name == "nn.batch_matmul":
            return _batch_matmul(attrs, *operands)
        if name in _REDUCE:
            return _reduced(attrs, data)
        if name == "expand_dims":
            axis = int(attrs.axis) % (len(data) + 1)
            return [*data[:axis], *(ONE,) * int(attrs.num_newaxis), *data[axis:]]
        if name == "squeeze" and attrs.axis is not None:
            gone = {axis % len(data) for axis in ints(attrs.axis)}
            return [dim for axis, dim in enumerate(data) if axis not in gone]
        if name == "reshape":
            return self._reshaped(data, ints(attrs.newshape))
        if name in ("dyn.reshape", "dyn.broadcast_to"):
            return self.of_value(i)
        if name == "take" and attrs.axis is not None and not int(attrs.batch_dims):
            axis = int(attrs.axis) % len(data)
            return [*data[:axis], *operands[1], *data[axis + 1 :]]
        if name.startswith("nn.") and ("conv" in name or "pool" in name):
            return _window(call, data)
        return None

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

    def _reshaped(self, data: Shape, newshape: tuple[int, ...] | None):
        """Return the dimensions that a reshape without its rarer codes gives."""
        if newshape is None or any(code < -1 for code in newshape):
            return None
        found = [
            (data[k] if k < len(data) else None) if code == 0 else Dim(code)
            for k, code in enumerate(newshape)
        ]
        if Dim(-1) in found:
            k = found.index(Dim(-1))
            others = [dim for other, dim in enumerate(found) if other != k]
            found[k] = None if None in others else product(data).over(product(others))
        return found

    def _concatenated(self, fields: int, axis: int):
        if not isinstance(self.graph.nodes[fields], relay.Tuple):
            return None
        shapes = [self.shapes[field] for field in self.graph.operands[fields]]
        if not shapes or None in shapes:
            return None
        found = list(shapes[0])
        found[axis] = None
        return found

    def _values(self, i: int, expr: relay.Expr) -> tuple[Dim | None, ...] | None:
        """Return the elements of a scalar or a vector of integers, as far as they are known."""
        shape = self.shapes[i]
        if shape is None or len(shape) > 1 or not expr.checked_type.dtype.startswith("int"):
            return None
        count = product(shape)
        if count.names or count.number > _MAX_ELEMENTS:
            return None
        if isinstance(expr, relay.Constant):
            return tuple(Dim(int(value)) for value in expr.data.numpy().reshape(-1))
        found = self._values_of_op(i, expr) if op_name(expr) else None
        return tuple(found) if found is not None and len(found) == count.number else None

    def _values_of_op(self, i: int, call: relay.Call) -> Sequence[Dim | None] | None:
        name, attrs, operands = op_name(call), call.attrs, self.graph.operands[i]
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
        data = values[0]
        if name in ("cast", "copy", "expand_dims", "reshape", "squeeze"):
            return data
        if name == "take":
            indices = [dim.number for dim in values[1] if dim is not None and not dim.names]
            # What an index out of range means depends on the mode.
            if len(indices) != len(values[1]) or not all(0 <= k < len(data) for k in indices):
                return None
            return [data[k] for k in indices]
        if name == "strided_slice":
            return _sliced(attrs, data)
        if name == "prod":
            return None if None in data else [product(data)]
        if name in _ARITHMETIC:
            # A single value goes with each of the others, of which there may be none.
            count = product(self.shapes[i]).number
            pairs = [each * count if len(each) == 1 else each for each in values]
            return [None if None in pair else _ARITHMETIC[name](*pair) for pair in zip(*pairs)]
        return None


def _maximum(left: Dim, right: Dim) -> Dim | None:
    if not left.names and not right.names:
        return Dim(max(left.number, right.number))
    # A dimension is 1 or more.
    for one, other in ((left, right), (right, left)):
        if not one.names and one.number <= other.number and other.number > 0:
            return other
    return left if left == right else None


def _plus(left: Dim, right: Dim) -> Dim | None:
    if left.names == right.names:
        return Dim(left.number + right.number, left.names)
    return left if right == Dim(0) else right if left == Dim(0) else None


def _quotient(left: Dim, right: Dim) -> Dim | None:
    return left.over(right)


_ARITHMETIC = {
    "add": _plus,
    "divide": _quotient,
    "floor_divide": _quotient,
    "maximum": _maximum,
    "multiply": Dim.times,
}


def _broadcast(left: Shape, right: Shape) -> list[Dim | None] | None:
    if left is None or right is None:
        return None
    rank = max(len(left), len(right))
    pairs = zip(*((ONE,) * (rank - len(shape)) + tuple(shape) for shape in (left, right)))
    found = []
    for a, b in pairs:
        if a == b or b == ONE:
            found.append(a)
        else:
            # One of them may be 1.
            found.append(b if a == ONE else None)
    return found


def _batch_matmul(attrs, data: Shape, weight: Shape) -> list[Dim | None]:
    (batch,) = _broadcast(data[:1], weight[:1])
    return [batch, data[2 if attrs.transpose_a else 1], weight[1 if attrs.transpose_b else 2]]


def _reduced(attrs, data: Shape) -> list[Dim]:
    listed = {int(axis) % len(data) for axis in attrs.axis or ()} or set(range(len(data)))
    if attrs.exclude:
        listed = set(range(len(data))) - listed
    kept = [ONE if axis in listed else dim for axis, dim in enumerate(data)]
    return kept if attrs.keepdims else [d for k, d in enumerate(kept) if k not in listed]


def _window(call: relay.Call, data: Shape) -> list[Dim | None] | None:
    """Return the shape of a convolution's or pooling's result: its sizes have names if alike."""
    attrs = call.attrs
    keys = {str(key) for key in attrs.keys()}
    layout = str(attrs.data_layout if "data_layout" in keys else attrs.layout)
    if len(layout) != len(data) or "N" not in layout:
        return None
    spatial = [axis for axis, letter in enumerate(layout) if letter not in "NC"]
    kernel: tuple[int | None, ...] = ()
    if "kernel_layout" in keys:
        letters, known = str(attrs.kernel_layout), shape_of(call.args[1])
        kernel = tuple(known[letters.index(layout[axis])] for axis in spatial)
        if None in kernel:
            return None
    elif "pool_size" in keys:
        kernel = _for_each(attrs.pool_size, len(spatial))
    # All that the sizes depend on, where they do not depend on the window in the usual way.
    window = [str(getattr(attrs, key)) for key in sorted(keys - {"channels", "groups"})]
    window += [op_name(call), str(kernel)]
    is_usual = kernel and "output_padding" not in keys and not getattr(attrs, "ceil_mode", False)
    found = list(data)
    for k, axis in enumerate(spatial):
        found[axis] = Dim(1, ((k, *window, data[axis]),))
        if is_usual:
            found[axis] = _count(attrs, k, kernel, data[axis])
    if "channels" in keys:
        found[layout.index("C")] = None
    return found


def _for_each(values, count: int) -> tuple[int, ...]:
    """Return the numbers of an attribute, of which one may stand for all."""
    values = ints(values)
    return values * (count // len(values))


def _count(attrs, k: int, kernel: tuple[int, ...], size: Dim) -> Dim:
    """Return how many windows there are along the k-th spatial axis: (size + more) / stride."""
    rank = len(kernel)
    strides, dilation = (_for_each(each, rank) for each in (attrs.strides, attrs.dilation))
    padding = _for_each(attrs.padding, 2 * rank)
    more = padding[k] + padding[k + rank] - (kernel[k] - 1) * dilation[k] - 1 + strides[k]
    if (more, strides[k]) == (0, 1):
        return size
    return Dim(1, (("windows", more, strides[k], size),))


def _sliced(attrs, data: Sequence[Dim | None]) -> Sequence[Dim | None] | None:
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
