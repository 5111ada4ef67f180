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

Their elements are known when a model is imported, as numbers or as expressions of open dimensions.
NumPy evaluates the ops on them, on arrays of expressions.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax, tirx

from ..backend import Analyzer, is_constant, value_of


# Elements up to which a constant may be an operand: those of shapes, and of arithmetic on them.
_MAX_ELEMENTS = 64


class UnknownValue(Exception):
    """An op cannot be evaluated."""


@dataclass
class ShapeValue:
    """A tensor whose elements are integers, expressions of open dimensions, or both.

    Attributes
    ----------
    elements : numpy.ndarray
        The elements: ``int`` and ``tvm.tirx.PrimExpr`` of int64.
    dtype : str
        The type of the tensor. Elements of a floating-point type are whole numbers, too.
    """

    elements: np.ndarray
    dtype: str

    #: Not a Relax expression: TVM's importer asks each value for its type.
    ty = None

    @staticmethod
    def of(sizes, dtype="int64") -> ShapeValue:
        """Return a vector of sizes."""
        return ShapeValue(_array([_simplified(size) for size in sizes]), dtype)

    @property
    def is_constant(self) -> bool:
        """Whether all elements are numbers."""
        return all(isinstance(each, int) for each in self.elements.flat)

    @property
    def has_zero(self) -> bool:
        """Whether an element is the number zero."""
        return any(isinstance(each, int) and each == 0 for each in self.elements.flat)

    def shape(self) -> relax.ShapeExpr:
        """Return a vector as a shape."""
        return relax.ShapeExpr([_expression(each) for each in self.elements])

    def tensor(self, builder: relax.BlockBuilder) -> relax.Expr:
        """Return the tensor, which is computed when the model runs unless it is constant."""
        if self.is_constant:
            return relax.const(self.elements.astype(self.dtype), self.dtype)
        flat = relax.ShapeExpr([_expression(each) for each in self.elements.flat])
        value = builder.emit(relax.op.shape_to_tensor(flat))
        if self.elements.ndim != 1:
            value = builder.emit(relax.op.reshape(value, list(self.elements.shape)))
        return value if self.dtype == "int64" else builder.emit(relax.op.astype(value, self.dtype))


def evaluate(op: str, inputs: list, attrs: dict) -> ShapeValue | relax.Expr | None:
    """Evaluate an op on values of shapes and constants, None if that is not possible.

    Parameters
    ----------
    op : str
        The ONNX op.
    inputs : list[ShapeValue | tvm.relax.Expr | None]
        The inputs, with None for those that are left out.
    attrs : dict
        The attributes.
    """
    if op not in _OPS:
        return None
    values = [None if each is None else _operand(each) for each in inputs]
    if any(value is None for value, each in zip(values, inputs) if each is not None):
        return None
    try:
        elements, dtype = _OPS[op](attrs, *values)
    except UnknownValue:
        return None
    result = ShapeValue(np.asarray(elements, object), dtype)
    return relax.const(result.elements.astype(dtype), dtype) if result.is_constant else result


def range_of(builder: relax.BlockBuilder, start, limit, step) -> relax.Expr | None:
    """Return a Range with a step of one whose length is known; None for another.

    TVM 0.26 imports constant ranges only, and 0.27 those of a length that it does not know.
    """
    values = [_operand(each) for each in (start, limit, step)]
    if any(
        value is None or "int" not in value.dtype or value.elements.size != 1 for value in values
    ):
        return None
    first, end, by = (value.elements.item() for value in values)
    length = _simplified(end - first)
    if not isinstance(by, int) or by != 1 or _is_negative(length) is not False:
        return None
    dtype = values[0].dtype
    positions = builder.normalize(relax.op.arange(0, _expression(length), 1, dtype))
    if isinstance(first, int) and first == 0:
        return positions
    offset = ShapeValue(_array([first]).reshape(()), dtype).tensor(builder)
    return builder.normalize(relax.op.add(positions, offset))


def _operand(value) -> ShapeValue | None:
    if isinstance(value, ShapeValue):
        return value
    if not is_constant(value):
        return None
    array = value_of(value)
    if array.size > _MAX_ELEMENTS or array.dtype.kind not in "biuf":
        return None
    if array.dtype.kind == "f" and not np.array_equal(array, np.round(array)):
        return None
    elements = _array([int(each) for each in array.flat]).reshape(array.shape)
    return ShapeValue(elements, str(array.dtype))


def _array(elements) -> np.ndarray:
    """Return a vector; NumPy would look for elements in the expressions."""
    array = np.empty(len(elements), object)
    array[:] = elements
    return array


def _expression(element):
    return tirx.IntImm("int64", element) if isinstance(element, int) else element


def _simplified(size):
    """Return a size as a number if it is one."""
    if isinstance(size, (int, np.integer)):
        return int(size)
    size = Analyzer().simplify(size)
    return int(size) if isinstance(size, tirx.IntImm) else size


def _is_negative(size) -> bool | None:
    """Return whether a size is negative, given that dimensions are not; None if it may be."""
    if isinstance(size, int):
        return size < 0
    analyzer = Analyzer()
    for each in tirx.analysis.undefined_vars(size):
        analyzer.bind(each, tvm.ir.Range.from_min_extent(0, tirx.IntImm("int64", 2**40)))
    if analyzer.can_prove(size >= 0):
        return False
    return True if analyzer.can_prove(size < 0) else None


def _elementwise(function: Callable) -> Callable:
    """Return the evaluation of an op of two inputs, which broadcasts them."""

    def evaluated(attrs, left, right):
        elements = np.frompyfunc(lambda a, b: _simplified(function(a, b)), 2, 1)
        return elements(left.elements, right.elements), left.dtype

    return evaluated


def _quotient(left, right):
    # Integers are divided towards zero, as in C.
    if not isinstance(right, int) or right == 0:
        raise UnknownValue
    if isinstance(left, int):
        return int(math.copysign(1, left) * math.copysign(1, right)) * (abs(left) // abs(right))
    if right > 0 and _is_negative(left) is False:
        return tirx.floordiv(left, _expression(right))
    return tirx.truncdiv(left, _expression(right))


def _divide(attrs, left, right):
    if "int" not in left.dtype:
        raise UnknownValue  # the result may be a fraction
    return _elementwise(_quotient)(attrs, left, right)


def _equal(attrs, left, right):
    def is_equal(one, other):
        difference = _simplified(one - other)
        if isinstance(difference, int):
            return int(difference == 0)
        # Sizes are never -1, which such models use as a marker.
        signs = [_is_negative(one), _is_negative(other)]
        if sorted(map(str, signs)) != ["False", "True"]:
            raise UnknownValue
        return 0

    return _elementwise(is_equal)(attrs, left, right)[0], "bool"


def _where(attrs, condition, left, right):
    if not condition.is_constant:
        raise UnknownValue
    choose = np.frompyfunc(lambda c, a, b: a if c else b, 3, 1)
    return choose(condition.elements, left.elements, right.elements), left.dtype


def _cast(attrs, data):
    from tvm.relax.frontend.onnx.onnx_frontend import get_type

    dtype = get_type(attrs["to"])
    if dtype not in ("int32", "int64", "float32", "float64"):
        raise UnknownValue
    return data.elements, dtype


def _unchanged(attrs, data):
    return data.elements, data.dtype


def _numbers(value) -> list[int]:
    if not value.is_constant:
        raise UnknownValue
    return [int(each) for each in value.elements.flat]


def _concat(attrs, *parts):
    axis = attrs.get("axis", 0)
    return np.concatenate([part.elements for part in parts], axis), parts[0].dtype


def _gather(attrs, data, indices):
    if not indices.is_constant:
        raise UnknownValue
    return np.take(data.elements, indices.elements.astype(int), attrs.get("axis", 0)), data.dtype


def _slice(attrs, data, *bounds):
    names = ("starts", "ends", "axes", "steps")
    given = [_numbers(each) if each else None for each in bounds]
    given += [list(attrs[name]) if name in attrs else None for name in names[len(given) :]]
    starts, ends, axes, steps = given
    parts = [slice(None)] * data.elements.ndim
    for k, (start, end) in enumerate(zip(starts, ends)):
        step = steps[k] if steps else 1
        # A negative end of a negative step may stand for "before the first".
        if step < 0 and end < -data.elements.shape[axes[k] if axes else k]:
            end = None
        parts[axes[k] if axes else k] = slice(start, end, step)
    return data.elements[tuple(parts)], data.dtype


def _axes(attrs, axes) -> tuple[int, ...] | None:
    if axes is not None:
        return tuple(_numbers(axes))
    return tuple(attrs["axes"]) if "axes" in attrs else None


def _squeeze(attrs, data, axes=None):
    return np.squeeze(data.elements, _axes(attrs, axes)), data.dtype


def _unsqueeze(attrs, data, axes=None):
    return np.expand_dims(data.elements, _axes(attrs, axes)), data.dtype


def _reshape(attrs, data, shape):
    target = _numbers(shape)
    if 0 in target:
        raise UnknownValue
    return data.elements.reshape(target), data.dtype


def _product(attrs, data, axes=None):
    if data.elements.ndim != 1:
        raise UnknownValue
    result = _simplified(math.prod(data.elements))
    return _array([result]).reshape([1] if attrs.get("keepdims", 1) else []), data.dtype


_OPS: dict[str, Callable] = {
    "Add": _elementwise(operator.add),
    "Cast": _cast,
    "Ceil": _unchanged,
    "Concat": _concat,
    "Div": _divide,
    "Equal": _equal,
    "Floor": _unchanged,
    "Gather": _gather,
    "Identity": _unchanged,
    "Mul": _elementwise(operator.mul),
    "ReduceProd": _product,
    "Reshape": _reshape,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Sub": _elementwise(operator.sub),
    "Unsqueeze": _unsqueeze,
    "Where": _where,
}
