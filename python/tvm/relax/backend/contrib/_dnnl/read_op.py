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
"""Helpers of the rows in `ops.py`: a call as an op of the table, and its arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import tvm_ffi
from tvm import relax, tirx
from tvm.contrib.onednn.ir.dim import divided
from tvm.contrib.onednn.rewrites.decompose import COMPOSED

from .reading import UnsupportedOp, elements, number
from .types import size_from


class ReadOp(NamedTuple):
    """A call of Relax as a call of an op of the table.

    Parameters
    ----------
    name : str
        The op in the table.
    operands : list[relax.Expr]
        Tensors, or tuples of tensors, in Relay's order.
    attrs : dict
        Relay's attributes.
    """

    name: str
    operands: list[relax.Expr]
    attrs: dict


Row = Callable[[relax.Call], ReadOp]


def numbers(values) -> list:
    """Return numbers that are known."""
    known = [number(value) for value in _elements(values)]
    if None in known:
        raise UnsupportedOp(f"{list(values)} is not constant")
    return known


def _elements(values) -> Iterable:
    return elements(values) if isinstance(values, tvm_ffi.Array) else values


def shape_argument(arg: relax.Expr) -> list:
    """Return the dimensions that are given as an argument."""
    if isinstance(arg, relax.ShapeExpr):
        return elements(arg.values)
    raise UnsupportedOp("the shape is computed at run time")


def tuple_argument(arg: relax.Expr) -> list:
    """Return the numbers that are given as an argument."""
    if isinstance(arg, relax.Tuple):
        return numbers(arg.fields)
    return numbers(shape_argument(arg))


def attrs_of(call: relax.Call, names: Sequence[str]) -> dict:
    """Return some attributes of a call by name."""
    return {name: plain(getattr(call.attrs, name)) for name in names}


def attributes(call: relax.Call) -> SimpleNamespace:
    """Return all attributes of a call, with those that are no plain values left out."""
    names = () if call.attrs is None else vars(type(call.attrs))
    attrs = {name: getattr(call.attrs, name) for name in names if not name.startswith("_")}
    return SimpleNamespace(**{name: plain(value) for name, value in attrs.items()})


def plain(value):
    """Return an attribute as Python's own text, number or numbers."""
    if isinstance(value, (str, bool, int, float, type(None))):
        return value
    if number(value) is not None:
        return number(value)
    try:
        return numbers(value)
    except TypeError:
        return str(value)


def factor(before, after) -> float:
    """Return by what a dimension is multiplied: a number without a fraction, or of known ones."""
    sizes = number(before), number(after)
    if None not in sizes:
        times = sizes[1] / sizes[0]
        if np.rint(np.float32(sizes[0]) * np.float32(times)) == sizes[1]:
            return times
    times = divided(size_from(after), size_from(before))
    if isinstance(times, int):
        return float(times)
    # ONNX's importer multiplies in float32.
    if isinstance(after, tirx.Cast) and isinstance(after.value, tirx.Mul):
        for scale, size in ((after.value.a, after.value.b), (after.value.b, after.value.a)):
            if isinstance(size, tirx.Cast) and size_from(size.value) == size_from(before):
                times = number(scale)
                if times and times % 1 == 0:
                    return float(times)
    raise UnsupportedOp(f"the size {after} is not a known multiple of {before}")


def same(name: str, *attrs: str, **fixed) -> Row:
    """Read an op that is Relay's op `name`, with the same attributes, and others that are fixed."""
    return lambda call: ReadOp(name, elements(call.args), {**attrs_of(call, attrs), **fixed})


class Composed(UnsupportedOp):
    """An op that has no row, and is written as several that have some.

    Parameters
    ----------
    attrs
        Its attributes, as `rewrites/decompose.py` reads them.
    """

    def __init__(self, **attrs):
        super().__init__(COMPOSED)
        self.attrs = attrs


def composed(*names: str) -> Row:
    """Read an op that is always written as others, with some attributes."""

    def read(call):
        raise Composed(**attrs_of(call, names))

    return read


def unsupported(reason: str) -> Row:
    """Read an op that never has a counterpart in the table."""

    def read(call):
        raise UnsupportedOp(reason)

    return read


def unary(name: str, **attrs) -> Row:
    """Read an op of one tensor that is op `name` of the table with fixed attributes."""
    return lambda call: ReadOp(name, [call.args[0]], attrs)
