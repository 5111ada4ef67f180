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
"""Reads Relax's expressions: the ops that they call, sizes, and constants."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator

import numpy as np
import tvm
from tvm import ir, relax, runtime, tirx

# Constants and loads of TIR have other names, and their fields, too, in v0.26.
Analyzer = (getattr(tvm, "sym", None) or tvm.arith).Analyzer
Constant = getattr(ir, "GenericConst", None) or relax.Constant
TensorLoad = getattr(ir, "TensorLoad", None) or tirx.BufferLoad


# Functions with one of these attributes are single units to whoever made them.
OPAQUE = ("Codegen", "Composite", "Primitive")


class UnsupportedOp(Exception):
    """An op is called in a way that has no counterpart in the table; the text says why."""


class ExprDict:
    """A dict of expressions by address. As keys of a Python dict, TVM compares them slowly.

    Parameters
    ----------
    pairs : Iterable[tuple]
        Expressions with their values.
    """

    def __init__(self, pairs: Iterable[tuple] = ()):
        # The hash of an expression is its address; the pairs keep it alive.
        self._pairs = {hash(expr): (expr, value) for expr, value in pairs}

    def __contains__(self, expr):
        return hash(expr) in self._pairs

    def __getitem__(self, expr):
        return self._pairs[hash(expr)][1]

    def __setitem__(self, expr, value):
        self._pairs[hash(expr)] = expr, value

    def get(self, expr, default=None):
        """Return the value of an expression, or the default."""
        return self._pairs.get(hash(expr), (None, default))[1]

    def items(self) -> Iterable[tuple]:
        """Return the expressions with their values."""
        return self._pairs.values()


def elements(array) -> list:
    """Return the elements of an array of TVM. A slice takes a third of an iteration's time."""
    return array[:]


def op_name(expr) -> str | None:
    """Return the op that an expression calls, such as "relax.add"; None for anything else."""
    is_call = isinstance(expr, relax.Call) and isinstance(expr.op, ir.Op)
    return expr.op.name if is_call else None


def short_name(expr) -> str | None:
    """Return the op that an expression calls without "relax."; None for anything else."""
    name = op_name(expr)
    return name and name.removeprefix("relax.")


def sizes(type_) -> tuple[int | None, ...] | None:
    """Return the dimensions of a tensor type, None for an open one; None if they are not known."""
    values = getattr(type_.shape, "values", None)
    return None if values is None else tuple(map(number, elements(values)))


def dims(expr: relax.Expr) -> list:
    """Return the dimensions of a tensor as Relax has them."""
    shape = expr.ty.shape
    values = getattr(shape, "values", None)
    if values is None:
        values = getattr(getattr(shape, "ty", None), "values", None)
    if values is None:
        raise UnsupportedOp("the rank or the shape of a tensor is unknown")
    return elements(values)


def number(value) -> int | float | None:
    """Return the number that an expression is, None for any other."""
    if isinstance(value, (tirx.IntImm, tirx.FloatImm)):
        return value.value
    return value if isinstance(value, (int, float)) else None


def is_choice(dim) -> bool:
    """Whether a dimension is one of two, as that of a pool with ceil_mode and an open size is."""
    # The classes of its parts have other names in each TVM.
    return number(dim) is None and not isinstance(dim, tirx.Var) and "if_then_else" in str(dim)


def is_same(left, right) -> bool:
    """Whether two dimensions are the same expression."""
    return left is right or bool(getattr(left, "same_as", lambda other: False)(right))


def axes_of(call: relax.Call) -> list[int]:
    """Return where each axis of a transpose comes from."""
    rank = len(dims(call.args[0]))
    axes = range(rank)[::-1] if call.attrs.axes is None else call.attrs.axes
    return [int(axis) % rank for axis in axes]


def with_attrs(call: relax.Call, **changes) -> relax.Call:
    """Return a call of an op of `relax.op` with some other attributes."""
    make = relax.op
    for part in short_name(call).split("."):
        make = getattr(make, part)
    names = inspect.signature(make).parameters
    attrs = {name: getattr(call.attrs, name) for name in names if hasattr(call.attrs, name)}
    return make(*call.args, **{**attrs, **changes})


def is_opaque(func) -> bool:
    """Whether a function is a single unit to whoever made it."""
    return any(key in func.attrs for key in OPAQUE)


def own_functions(mod: tvm.IRModule) -> Iterator[tuple[ir.GlobalVar, relax.Function]]:
    """Yield the functions of Relax that are ours to look into and to change."""
    for var, func in mod.functions_items():
        if isinstance(func, relax.Function) and not is_opaque(func):
            yield var, func


def is_constant(expr) -> bool:
    """Whether an expression is a tensor that is known."""
    return isinstance(expr, Constant) and isinstance(expr.ty, relax.TensorType)


def value_of(constant) -> np.ndarray:
    """Return the value of a constant, which must not be written to: it is not copied."""
    tensor = constant.value if hasattr(constant, "value") else constant.data
    # numpy has no type for the others.
    return np.from_dlpack(tensor) if hasattr(np, str(tensor.dtype)) else tensor.numpy()


def buffer_of(load):
    """Return the buffer that a load of TIR reads."""
    return load.source if hasattr(load, "source") else load.buffer


def buffers_of(func: tirx.PrimFunc) -> list:
    """Return the parameters of a function of TIR that are buffers."""
    buffers = getattr(func, "buffer_map", None)
    if buffers is None:
        return [each for each in func.params if not ir.is_prim_expr(each)]
    return [buffers[each] for each in func.params if each in buffers]


def constant_of(values: np.ndarray, dtype: str) -> Constant:
    """Return a constant of a type, floating-point values rounded to the nearest."""
    # By way of float32, as oneDNN and TVM round to bfloat16. TVM makes 32 bits of numpy's 64.
    values = np.asarray(values, "float32" if dtype == "bfloat16" else None)
    tensor = runtime.empty(values.shape, dtype)
    view = np.from_dlpack(tensor) if str(values.dtype) == dtype else None
    if view is not None and view.flags.writeable and values.size:
        # Weights are transposed on the way, without a copy of their own.
        np.copyto(view, values)
        return relax.const(tensor)
    with np.errstate(over="ignore"):
        return relax.const(runtime.tensor(np.asarray(values, order="C").astype(dtype, copy=False)))
