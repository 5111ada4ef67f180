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
"""Prepares a function before it is read: folds constants, writes other ops as ops of the table."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import tvm
import tvm_ffi
from tvm import ir, relax, tirx
from tvm.contrib.onednn.policy.table import TABLE
from tvm.relax import transform
from tvm.relax.expr_functor import mutator

from . import decompose
from .fold_constants import constant_like, folded, is_same_type
from .mutators import BindingMutator
from .reading import (
    Unread,
    axes_of,
    constant_of,
    dims,
    is_constant,
    op_name,
    short_name,
    sizes,
    value_of,
)
from .steps import on_each_function
from .tir_ops import elementwise_of, pad_of, resize_of

_SOFTMAX = {
    "relax.nn.log_softmax": relax.op.nn.log_softmax,
    "relax.nn.softmax": relax.op.nn.softmax,
}
_RESHAPES = [f"relax.{op}" for row in TABLE.values() if row.reshapes for op in row.relax_ops]


def simplify(
    mod: tvm.IRModule,
    excluded: Collection[str],
    failures: dict[str, str],
    transposes_weights: bool = True,
) -> tvm.IRModule:
    """Return a module with constants folded, and attentions and others as ops of the table.

    Parameters
    ----------
    mod : tvm.IRModule
        The module.
    excluded : Collection[str]
        Ops of Relax, without "relax.", that are not written as others.
    failures : dict[str, str]
        By function: why it was left as it was.
    transposes_weights : bool
        Whether the constant weight of a matmul becomes one that is transposed, as that of a dense;
        else one that is transposed is folded.
    """
    mod = transform.ConvertToDataflow()(transform.Normalize()(mod))

    def simplified(builder, _, func):
        return _Simplifier(builder.get(), excluded, transposes_weights).visit_expr(func)

    return without_dead_code(on_each_function(mod, "simplify", simplified, failures))


def without_dead_code(mod: tvm.IRModule) -> tvm.IRModule:
    """Return a module without bindings that are only another name, or that nothing reads."""
    return transform.DeadCodeElimination()(transform.CanonicalizeBindings()(mod))


@mutator
class _Simplifier(BindingMutator):
    """Rewrites calls, operands first."""

    def __init__(self, mod, excluded: Collection[str], transposes_weights: bool):
        super().__init__(mod)
        self._excluded, self._transposes_weights = excluded, transposes_weights
        self._mod = mod

    def visit_call_(self, op):  # pylint: disable=arguments-differ
        """Rewrite a call."""
        call = self.visit_expr_post_order(op)
        name = op_name(call)
        if name is None:
            return call
        if name == "relax.call_tir":
            return self._of_tir(call)
        args = [self.constant_or(arg) for arg in call.args]
        call = relax.Call(call.op, args, call.attrs, call.ty_args, ret_ty=call.ty)
        known = folded(call)
        if known is not call:
            return known
        if name in decompose.WRITTEN_ANEW and short_name(call) not in self._excluded:
            written = self._written_anew(call)
            if written is not None:
                return written
        return self._REWRITES[name](self, call) if name in self._REWRITES else call

    def visit_tuple_getitem_(self, op):  # pylint: disable=arguments-differ
        """Read the field of a tuple that is known, or of a dropout, which does nothing here."""
        item = super().visit_tuple_getitem_(op)
        if not isinstance(item, relax.TupleGetItem) or item.index != 0:
            return item
        value = self.bound(item.tuple_value)
        return value.args[0] if op_name(value) == "relax.nn.dropout" else item

    def _written_anew(self, call):
        """Return a call as calls of ops of the table; None if it is not written so."""
        check, write = decompose.WRITTEN_ANEW[call.op.name]
        try:
            check(call)
        except Unread:
            return None

        def simplified(expr):
            return self.visit_call_(self.builder_.normalize(expr))

        return simplified(write(call, lambda expr: self.builder_.emit(simplified(expr))))

    def _permuted(self, call):
        """Return a transpose of a transpose as one or none."""
        data, inner = call.args[0], self.bound(call.args[0])
        try:
            axes = axes_of(call)
        except Unread:
            return call
        if op_name(inner) == "relax.permute_dims":
            data, below = self.constant_or(inner.args[0]), axes_of(inner)
            axes = [below[axis] for axis in axes]
        if is_constant(data):
            return constant_like(np.transpose(value_of(data), axes), call)
        if axes == sorted(axes):
            return data
        return call if data is call.args[0] else relax.op.permute_dims(data, axes)

    def _broadcast(self, call):
        """Return the data of a broadcast that changes nothing."""
        return call.args[0] if is_same_type(call, call.args[0]) else call

    def _reshaped(self, call):
        """Return a reshape of a constant as a constant, a softmax of rows without reshapes."""
        data, shape = call.args[0], sizes(call.ty)
        if shape is None:
            return call
        if None in shape:
            return self._softmax_of_rows(call)
        return constant_like(value_of(data).reshape(shape), call) if is_constant(data) else call

    def _softmax_of_rows(self, restored):
        """Return a softmax of rows, joined of open sizes that are restored, as one of the data.

        onnxruntime writes a softmax so when it brings a model of an opset before 13 to a newer one.
        """
        rows = self.bound(restored.args[0])
        if op_name(rows) not in _SOFTMAX or short_name(rows) in self._excluded:
            return restored
        joined, axis = self.bound(rows.args[0]), int(rows.attrs.axis)
        if op_name(joined) not in _RESHAPES:
            return restored
        data = joined.args[0]
        try:
            row, last = dims(rows), dims(data)[-1:]
        except Unread:
            return restored
        is_of_rows = axis in (-1, len(row) - 1) and tvm_ffi.structural_equal(row[-1:], last)
        if not is_of_rows or not is_same_type(restored, data):
            return restored
        return self.builder_.normalize(_SOFTMAX[op_name(rows)](data, axis=-1))

    def _matmul(self, call):
        """Return a matmul with the weight as a dense has it, for which oneDNN has more kernels."""
        data, weight = self._of_one_matrix(call)
        if self._transposes_weights and is_constant(weight) and weight.ty.ndim == 2:
            weight = constant_of(value_of(weight).T, str(weight.ty.dtype))
            weight = self.builder_.emit(relax.op.permute_dims(weight))
        return relax.Call(call.op, [data, weight], call.attrs, call.ty_args, ret_ty=call.ty)

    def _of_one_matrix(self, call):
        """Return the operands of a matmul with a weight once, that it has for each of the batch."""
        data, weight = call.args
        many = self.bound(weight)
        if op_name(many) != "relax.broadcast_to":
            return call.args
        matrix = self.constant_or(many.args[0])
        if not is_constant(matrix) or matrix.ty.ndim != 2:
            return call.args
        matmul = relax.Call(call.op, [data, matrix], call.attrs, call.ty_args)
        return [data, matrix if is_same_type(self.builder_.normalize(matmul), call) else weight]

    def _of_tir(self, call):
        """Return a call of TIR that is a pad, a resize, or a bound of one number as such an op.

        ONNX's Pad and Clip come as such, and its Resize of rows.
        """
        func = self._mod[call.args[0]] if isinstance(call.args[0], ir.GlobalVar) else None
        if not isinstance(func, tirx.PrimFunc) or not isinstance(call.args[1], relax.Tuple):
            return call
        pad = pad_of(func, call)
        if pad is not None:
            return self.builder_.normalize(pad)
        if "image.resize2d" not in self._excluded:
            attrs = resize_of(func, call)
            if attrs is not None:
                return self._resized(call, attrs)
        make = elementwise_of(func)
        if make is None:
            return call
        data, end = call.args[1].fields
        end = self.constant_or(end)
        if not is_constant(end) or value_of(end).size != 1:
            return call
        low = self.bound(data)
        if make is relax.op.minimum and op_name(low) == "relax.maximum":
            least = self.constant_or(low.args[1])
            if is_constant(least) and value_of(least).size == 1:
                ends = (float(value_of(each).reshape(())) for each in (least, end))
                return self.builder_.normalize(relax.op.clip(low.args[0], *ends))
        return self.builder_.normalize(make(data, end))

    def _resized(self, call, attrs):
        """Return a resize of rows as one of images of one row, which Relax has."""
        emit, (data,) = self.builder_.emit, call.args[1].fields
        size = relax.ShapeExpr([1, dims(call)[2]])
        images = emit(relax.op.expand_dims(data, [2]))
        images = emit(relax.op.image.resize2d(images, size, layout="NCHW", **attrs))
        return self.builder_.normalize(relax.op.squeeze(images, [2]))

    _REWRITES = {
        **dict.fromkeys(_RESHAPES, _reshaped),
        "relax.broadcast_to": _broadcast,
        "relax.matmul": _matmul,
        "relax.permute_dims": _permuted,
    }
