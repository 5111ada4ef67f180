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
"""Tensors of integers that are computed from open dimensions, such as the target of a Reshape.

Their elements are known when a model is imported, as sizes: numbers, and polynomials of open
dimensions. NumPy evaluates the ops on arrays of sizes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from tvm import relax, tirx
from tvm.contrib.onednn.frontend.evaluate import MOVES

from ..backend import (
    Analyzer,
    Dim,
    Size,
    dim_from,
    divided,
    is_constant,
    product,
    size_from,
    value_of,
)
from .least_sizes import LeastSizes, is_negative

# Elements up to which a constant may be an operand: those of shapes, and of arithmetic on them.
_MAX_ELEMENTS = 64
# The end of a slice from which on exporters mean the end of the axis.
_UNTIL_END = 2**31 - 1


class UnknownValue(Exception):
    """An op cannot be evaluated."""


@dataclass
class ShapeValue:
    """A tensor whose elements are integers, expressions of open dimensions, or both.

    Attributes
    ----------
    elements : numpy.ndarray
        The elements: ``int`` and `Dim`, see `tvm.contrib.onednn.ir.dim`.
    dtype : str
        The type of the tensor. Elements of a floating-point type are whole numbers, too.
    """

    elements: np.ndarray
    dtype: str

    #: Not a Relax expression: TVM's importer asks each value for its type.
    ty = None

    @staticmethod
    def of(sizes, dtype="int64") -> ShapeValue:
        """Return a vector of sizes, or of dimensions of Relax."""
        elements = [size if isinstance(size, Dim) else size_from(size) for size in sizes]
        return ShapeValue(_array(elements), dtype)

    @property
    def is_constant(self) -> bool:
        """Whether all elements are numbers."""
        return all(isinstance(each, int) for each in self.elements.flat)

    @property
    def has_zero(self) -> bool:
        """Whether an element is the number zero."""
        return any(isinstance(each, int) and each == 0 for each in self.elements.flat)

    def dims(self) -> list:
        """Return the elements as Relax has them."""
        return list(map(_expression, self.elements.flat))

    def shape(self) -> relax.ShapeExpr:
        """Return a vector as a shape."""
        return relax.ShapeExpr(self.dims())

    def tensor(self, builder: relax.BlockBuilder) -> relax.Expr:
        """Return the tensor, which is computed when the model runs unless it is constant."""
        if self.is_constant:
            return relax.const(self.elements.astype(self.dtype), self.dtype)
        value = builder.emit(relax.op.shape_to_tensor(self.shape()))
        if self.elements.ndim != 1:
            value = builder.emit(relax.op.reshape(value, list(self.elements.shape)))
        return value if self.dtype == "int64" else builder.emit(relax.op.astype(value, self.dtype))


def evaluate(
    op: str, inputs: list, attrs: dict, least: LeastSizes
) -> ShapeValue | relax.Expr | None:
    """Evaluate an op on values of shapes and constants, None if that is not possible.

    Parameters
    ----------
    op : str
        The ONNX op.
    inputs : list[ShapeValue | tvm.relax.Expr | None]
        The inputs, with None for those that are left out.
    attrs : dict
        The attributes.
    least : LeastSizes
        What is known of the open dimensions.
    """
    if op not in _OPS and op not in MOVES and op != "Div":
        return None
    values = [None if each is None else _operand(each) for each in inputs]
    if any(value is None for value, each in zip(values, inputs) if each is not None):
        return None
    try:
        if op == "Div":
            elements, dtype = _divide(least, *values)
        elif op in _OPS:
            elements, dtype = _OPS[op](attrs, *values)
        else:
            elements, dtype = _moved(op, attrs, *values)
    except UnknownValue:
        return None
    result = ShapeValue(np.asarray(elements, object), dtype)
    return relax.const(result.elements.astype(dtype), dtype) if result.is_constant else result


def bounds_from_start(
    bounds, data: relax.Expr, axes, least: LeastSizes
) -> ShapeValue | relax.Expr | None:
    """Return bounds of a Slice with open ones that count from the end counted from the start.

    TVM takes open bounds for positions. None if one may be before the first element.
    """
    shape = getattr(data.ty, "shape", None)
    if not isinstance(shape, relax.ShapeExpr) or not (axes is None or is_constant(axes)):
        return None
    elements = []
    for axis, each in zip(range(len(shape)) if axes is None else value_of(axes), bounds.elements):
        if isinstance(each, Dim) and least.is_natural(-each):
            each = size_from(shape[int(axis)]) + each
            if not least.is_natural(each):
                return None
        elements.append(each)
    result = ShapeValue.of(elements, bounds.dtype)
    return relax.const(np.array(elements, "int64")) if result.is_constant else result


def ends_at_sizes(ends, data: relax.Expr, axes, steps) -> ShapeValue | relax.Expr:
    """Return the ends of a Slice from open starts, with sizes in place of "until the end".

    TVM writes the size of such a slice as a minimum of the largest integer.
    """
    shape = getattr(data.ty, "shape", None)
    others = [each for each in (ends, axes, steps) if each is not None]
    if not isinstance(shape, relax.ShapeExpr) or not all(map(is_constant, others)):
        return ends
    if steps is not None and (value_of(steps) != 1).any():
        return ends
    numbers = range(len(shape)) if axes is None else value_of(axes)
    pairs = zip(value_of(ends).tolist(), (size_from(shape[int(axis)]) for axis in numbers))
    return ShapeValue.of([size if end >= _UNTIL_END else end for end, size in pairs])


def reshaped(builder: relax.BlockBuilder, data: relax.Expr, shape: ShapeValue) -> relax.Expr:
    """Reshape a tensor to a computed shape; a size of -1 becomes known where the division is exact.

    TVM does not divide by a size that is written in another way than that of the data.
    """
    target = list(shape.elements)
    sizes = data.ty.shape
    if sizes is not None and target.count(-1) == 1:
        old = [size_from(size) for size in sizes]
        copied = [old[k] if each == 0 else each for k, each in enumerate(target)]
        rest = product([each for each in copied if each != -1])
        missing = divided(product(old), rest)
        if missing is not None:
            target = [missing if each == -1 else each for each in copied]
    return builder.normalize(relax.op.reshape(data, list(map(_expression, target))))


def range_of(
    builder: relax.BlockBuilder, least: LeastSizes, start, limit, step
) -> relax.Expr | None:
    """Return a Range with a step of one whose length is known; None for another.

    TVM 0.26 imports constant ranges only, and 0.27 those of a length that it does not know.
    """
    values = [_operand(each) for each in (start, limit, step)]
    if any(
        value is None or "int" not in value.dtype or value.elements.size != 1 for value in values
    ):
        return None
    first, end, by = (value.elements.item() for value in values)
    length = end - first
    if not isinstance(by, int) or by != 1 or not least.is_natural(length):
        return None
    dtype = values[0].dtype
    positions = builder.normalize(relax.op.arange(0, _expression(length), 1, dtype))
    if isinstance(first, int) and first == 0:
        return positions
    offset = ShapeValue(_array([first]).reshape(()), dtype).tensor(builder)
    return builder.normalize(relax.op.add(positions, offset))


def tiled(builder: relax.BlockBuilder, data: relax.Expr, counts: list) -> relax.Expr:
    """Repeat a tensor along its axes by open counts: broadcast it, and join each two axes."""
    sizes = list(data.ty.shape)
    pairs = [size for pair in zip(counts, sizes, strict=True) for size in pair]
    apart = [size if k % 2 else 1 for k, size in enumerate(pairs)]
    data = builder.normalize(relax.op.reshape(data, apart))
    data = builder.normalize(relax.op.broadcast_to(data, pairs))
    joined = [count * size for count, size in zip(counts, sizes)]
    return builder.normalize(relax.op.reshape(data, joined))


def _operand(value) -> ShapeValue | None:
    if isinstance(value, ShapeValue):
        return value
    if not is_constant(value):
        return None
    array = value_of(value)
    if array.size > _MAX_ELEMENTS or array.dtype.kind not in "biuf":
        return None
    if array.dtype.kind == "f" and not (np.isfinite(array) & (array == np.round(array))).all():
        return None
    elements = _array([int(each) for each in array.flat]).reshape(array.shape)
    return ShapeValue(elements, str(array.dtype))


def _array(elements) -> np.ndarray:
    """Return a vector of sizes."""
    array = np.empty(len(elements), object)
    array[:] = elements
    return array


def _expression(size: Size):
    """Return a size as Relax has it, simplified by TVM."""
    return Analyzer().simplify(dim_from(size)) if isinstance(size, Dim) else dim_from(size)


def _moved(op, attrs, data, *others):
    """Evaluate an op that moves elements; which, is constant."""
    if op == "Concat":
        operands = [each.elements for each in others]
    else:
        operands = [each if each is None else _numbers(each) for each in others]
    return MOVES[op](attrs, data.elements, *operands), data.dtype


def _numbers(value) -> np.ndarray:
    if not value.is_constant:
        raise UnknownValue
    return value.elements.astype("int64")


def _elementwise(function: Callable) -> Callable:
    """Return the evaluation of an op of two inputs, which broadcasts them."""

    def evaluated(attrs, left, right):
        return np.frompyfunc(function, 2, 1)(left.elements, right.elements), left.dtype

    return evaluated


def _quotient(least: LeastSizes, left: Size, right: Size) -> Size:
    """Divide towards zero, as in C."""
    if right == 0:
        raise UnknownValue
    exact = divided(left, right)
    if exact is not None:
        return exact
    if not isinstance(right, int):
        raise UnknownValue
    # As in the backend, whose kernels have no empty inputs.
    if right > 0 and least.is_natural(left):
        return left // right
    return size_from(Analyzer().simplify(tirx.truncdiv(dim_from(left), dim_from(right))))


def _divide(least, left, right):
    if "int" not in left.dtype:
        raise UnknownValue  # the result may be a fraction
    return _elementwise(partial(_quotient, least))({}, left, right)


def _modulo(attrs, left, right):
    """Evaluate a remainder with the sign of the divisor, as of a roll along an open axis."""

    def remainder(one, other):
        if isinstance(one, int) and isinstance(other, int):
            return one % other
        return size_from(Analyzer().simplify(tirx.floormod(dim_from(one), dim_from(other))))

    if attrs.get("fmod", 0) or right.has_zero:
        raise UnknownValue
    return _elementwise(remainder)(attrs, left, right)


def _equal(attrs, left, right):
    def is_equal(one, other):
        difference = one - other
        if isinstance(difference, int):
            return int(difference == 0)
        # Sizes are never -1, which such models use as a marker.
        signs = [is_negative(one), is_negative(other)]
        if sorted(map(str, signs)) != ["False", "True"]:
            raise UnknownValue
        return 0

    return _elementwise(is_equal)(attrs, left, right)[0], "bool"


def _where(attrs, condition, left, right):
    choose = np.frompyfunc(lambda c, a, b: a if c else b, 3, 1)
    return choose(_numbers(condition), left.elements, right.elements), left.dtype


def _cast(attrs, data):
    from tvm.relax.frontend.onnx.onnx_frontend import get_type

    dtype = get_type(attrs["to"])
    if dtype not in ("int32", "int64", "float32", "float64"):
        raise UnknownValue
    return data.elements, dtype


def _unchanged(attrs, data):
    return data.elements, data.dtype


def _negative(attrs, data):
    return np.frompyfunc(operator.neg, 1, 1)(data.elements), data.dtype


def _product(attrs, data, axes=None):
    if data.elements.ndim != 1:
        raise UnknownValue
    result = product(data.elements)
    return _array([result]).reshape([1] if attrs.get("keepdims", 1) else []), data.dtype


_OPS: dict[str, Callable] = {
    "Add": _elementwise(operator.add),
    "Cast": _cast,
    "Ceil": _unchanged,
    "Equal": _equal,
    "Floor": _unchanged,
    "Identity": _unchanged,
    "Mod": _modulo,
    "Mul": _elementwise(operator.mul),
    "Neg": _negative,
    "ReduceProd": _product,
    "Sub": _elementwise(operator.sub),
    "Where": _where,
}
