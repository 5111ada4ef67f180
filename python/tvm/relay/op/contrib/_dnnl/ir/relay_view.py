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
"""Reading Relay: the names of ops, the types of expressions, and calls as rules see them."""

from __future__ import annotations

import functools
from numbers import Integral
from types import SimpleNamespace

from tvm import ir, relay, tir
from tvm.contrib.onednn.ir.op_view import NoTensor, OpView, Tensor, Value
from tvm.contrib.onednn.ops.tensors import COMPILER
from tvm.runtime import Object, String

from .constants import to_numpy

# Names of Relay ops by their address: TVM keeps each op, and to ask it for the name is slow.
_NAMES: dict[int, str] = {}


def op_name(expr) -> str | None:
    """Return the name of the Relay op that `expr` calls, or None for anything else."""
    op = expr.op if isinstance(expr, relay.Call) else None
    if not isinstance(op, ir.Op):
        return None
    address = op.handle.value
    if address not in _NAMES:
        _NAMES[address] = op.name
    return _NAMES[address]


def callee_of(expr) -> relay.Expr | None:
    """Return what `expr` calls, None for no call.

    `getattr(expr, "op", None)` would do, but TVM's error for a missing field is a cycle of
    references: it keeps the frames above it, and with them a model, until the garbage collector
    runs.
    """
    return expr.op if isinstance(expr, relay.Call) else None


def callee_name(expr) -> str | None:
    """Return the Relay op or the composite that `expr` calls, or None for anything else.

    A virtual op is a composite that has a row of its own.
    """
    func = callee_of(expr)
    if not isinstance(func, relay.Function):
        return op_name(expr)
    attrs = func.attrs
    return str(attrs["Composite"]) if attrs is not None and "Composite" in attrs else None


def dims(type_: relay.TensorType) -> tuple[int | None, ...]:
    """Return the dimensions of a tensor type, None for an open one."""
    return tuple(dim.value if isinstance(dim, tir.IntImm) else None for dim in type_.shape)


def shape_of(expr) -> tuple[int | None, ...]:
    """Return the shape of an expression of tensor type, with None for open dimensions."""
    return dims(expr.checked_type)


def value_of(expr: relay.Expr) -> Value:
    """Return what an expression computes, as rules see it; a constant needs no type."""
    if isinstance(expr, relay.Tuple):
        return tuple(value_of(field) for field in expr.fields)
    if isinstance(expr, relay.Constant):
        data = expr.data
        return Tensor(tuple(data.shape), data.dtype, functools.partial(to_numpy, data))
    return value_of_type(expr.checked_type)


def value_of_type(type_: ir.Type) -> Value:
    """Return what an expression of a type computes, as rules see it."""
    if isinstance(type_, relay.TensorType):
        return Tensor(dims(type_), type_.dtype)
    return NoTensor(type(type_).__name__)


def view_of(expr: relay.Expr) -> OpView | None:
    """Return the call of a Relay op or of a composite as rules see it, None for anything else."""
    name = callee_name(expr)
    return None if name is None else _CallView(name, expr)


def plain_attrs(call: relay.Call) -> SimpleNamespace:
    """Return the attributes of a call as plain Python values: those of a virtual op are numbers."""
    if isinstance(call.op, relay.Function):
        attrs = {k: v for k, v in (call.op.attrs or {}).items() if k not in _OF_COMPOSITES}
    else:
        attrs = {name: getattr(call.attrs, name) for name in _attr_names(call.attrs)}
    return SimpleNamespace(**{key: _plain(value) for key, value in attrs.items()})


def native_attrs(attrs: dict) -> dict[str, Object]:
    """Return plain Python values as the attributes of a function or call."""
    return {key: _native(value) for key, value in attrs.items()}


def _native(value: str | float) -> Object:
    if isinstance(value, str):
        return String(value)
    if isinstance(value, Integral):
        return tir.IntImm("int32", int(value))
    return tir.FloatImm("float64", float(value))


# The attributes of a composite function that are none of its op.
_OF_COMPOSITES = ("Composite", "PartitionedFromPattern")


def _attr_names(attrs) -> list[str]:
    kind = type(attrs)
    if attrs is None:
        return []
    if not isinstance(attrs, ir.Attrs):
        # TVM's Python does not know the attributes of nn.adaptive_avg_pool1d as such.
        return sorted({*dir(attrs)} - _METHODS)
    if kind in (ir.Attrs, ir.DictAttrs):
        return attrs.keys()
    if kind not in _ATTR_NAMES:
        _ATTR_NAMES[kind] = attrs.keys()
    return _ATTR_NAMES[kind]


_METHODS = {*dir(Object)}
# By class of attributes: TVM returns an object for each name.
_ATTR_NAMES = {}


def _plain(value):
    if isinstance(value, (ir.Array, tuple, list)):
        return [_plain(item) for item in value]
    if isinstance(value, str):
        return str(value)
    return value.value if isinstance(value, tir.expr.ConstExpr) else value


class _CallView(OpView):
    """A call of Relay, of which what is asked for is read, once."""

    def __init__(self, name: str, call: relay.Call):  # pylint: disable=super-init-not-called
        self.name, self._call, self._attrs = name, call, lambda: plain_attrs(call)

    def __eq__(self, other):
        return isinstance(other, _CallView) and self._call.same_as(other._call)

    def __hash__(self):
        return hash(self._call.handle.value)

    @functools.cached_property
    def args(self):
        return [value_of(arg) for arg in self._call.args]

    @functools.cached_property
    def arg_names(self):
        known = () if self.name.startswith(f"{COMPILER}.") else arg_names(self.name)
        count = len(self._call.args)
        return [*known[:count], *(f"argument {i}" for i in range(len(known), count))]

    @functools.cached_property
    def results(self):
        type_ = self._call.checked_type
        is_tuple = isinstance(type_, relay.TupleType)
        return tuple(map(value_of_type, type_.fields)) if is_tuple else (value_of_type(type_),)

    @functools.cached_property
    def returns_tuple(self):
        return isinstance(self._call.checked_type, relay.TupleType)

    @property
    def has_shape_function(self):
        return self.name.startswith(f"{COMPILER}.") or has_shape_function(self.name)


@functools.lru_cache(maxsize=None)
def arg_names(op: str) -> tuple[str, ...]:
    """Return the names of the operands of a Relay op."""
    return tuple(info.name for info in ir.Op.get(op).arguments)


@functools.lru_cache(maxsize=None)
def has_shape_function(op: str) -> bool:
    """Whether TVM's VM can tell the shape of the result of a Relay op."""
    return ir.Op.get(op).get_attr("FShapeFunc") is not None
