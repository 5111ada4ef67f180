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
"""Types of Relax as those of nodes, and sizes as dimensions of Relax."""

from __future__ import annotations

import tvm
from tvm import relax, tirx
from tvm.contrib.onednn.ir.dim import Dim, Size
from tvm.contrib.onednn.ir.op_view import NoTensor, Tensor, Value

from .reading import elements, is_choice, is_constant, sizes, value_of


def value_from(expr) -> Value:
    """Return a tensor, or tensors, as rules see them."""
    if isinstance(expr, relax.Tuple):
        return tuple(value_from(field) for field in expr.fields)
    return _of_type(expr.ty, expr)


def _of_type(type_, expr=None) -> Value:
    # Here and elsewhere, the most frequent class comes first: other classes take `isinstance` long.
    if not isinstance(type_, relax.TensorType):
        if isinstance(type_, relax.TupleType):
            return tuple(_of_type(field) for field in type_.fields)
        return NoTensor(f"of {type(type_).__name__}")
    values = getattr(type_.shape, "values", None)
    dims = None if values is None else elements(values)
    is_static = dims is not None and all(isinstance(dim, tirx.IntImm) for dim in dims)
    if dims is not None and not is_static and any(map(is_choice, dims)):
        return NoTensor("of one of two sizes, whose type TVM cannot copy")
    if dims is None or type_.dtype is None:
        return NoTensor("of unknown type" if type_.dtype is None else "of unknown shape")
    value = (lambda: value_of(expr)) if expr is not None and is_constant(expr) else None
    sizes = [int(dim.value) for dim in dims] if is_static else map(size_from, dims)
    return Tensor(tuple(sizes), str(type_.dtype), value)


def type_from(value: Value):
    """Return the type in Relax of what an op computes."""
    if isinstance(value, tuple):
        return relax.TupleType([type_from(field) for field in value])
    if None in value.dims:
        return relax.TensorType(None, value.dtype, ndim=len(value.dims))
    return relax.TensorType([dim_from(dim) for dim in value.dims], value.dtype)


def type_difference(type_, value: Value) -> str | None:
    """Say how a type of Relax differs from what the graph infers; sizes that are open may."""
    types = type_.fields if isinstance(type_, relax.TupleType) else [type_]
    values = value if isinstance(value, tuple) else (value,)
    for written, inferred in zip(types, values, strict=len(types) > 1):
        shape = sizes(written)
        dims = inferred.shape if shape is None else shape
        is_same = len(dims) == len(inferred.shape) and all(
            a is None or b is None or a == b for a, b in zip(dims, inferred.shape)
        )
        if not is_same or str(written.dtype) != inferred.dtype:
            return f"it is written as {written}, not as {inferred.dtype}{list(inferred.shape)}"
    return None


_ARITHMETIC = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "FloorDiv": lambda a, b: a // b,
}


def size_from(dim) -> Size:
    """Return a dimension of Relax as a size."""
    if isinstance(dim, int):
        return dim
    if isinstance(dim, tirx.IntImm):
        return int(dim.value)
    if isinstance(dim, tirx.Var):
        return Dim.symbol(("var", hash(dim), dim.name), dim)
    function = _ARITHMETIC.get(type(dim).__name__)
    if function is not None:
        return function(size_from(dim.a), size_from(dim.b))
    # Another expression: equal where it is written the same of the same variables.
    names = (
        tuple(sorted(hash(var) for var in tvm.tirx.analysis.undefined_vars(dim)))
        if hasattr(tvm.tirx.analysis, "undefined_vars")
        else ()
    )
    return Dim.symbol(("expression", str(dim), names), dim)


def dim_from(size: Size):
    """Return a size as Relax has it."""
    if not isinstance(size, Dim):
        return tirx.IntImm("int64", size)
    total = None
    for atoms, count in size.terms:
        term = None if count == 1 and atoms else tirx.IntImm("int64", count)
        for atom in atoms:
            native = (
                tirx.floordiv(dim_from(atom.numerator), dim_from(atom.denominator))
                if hasattr(atom, "numerator")
                else atom.native
            )
            term = native if term is None else term * native
        total = term if total is None else total + term
    return total
