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
"""What a function goes through before it is read: constants folded, batch_norm and clip as ops."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import tvm
from tvm import ir, relax, tirx
from tvm.relax import transform
from tvm.relax.expr_functor import PyExprMutator, mutator

from . import decompose
from .fold_constants import constant_like, folded, is_same_type, reals_of
from .graph import view_of
from .ops import ROWS
from .policy.rules.quantize import along
from .policy.rules.reduce import batch_norm_affine
from .policy.table import TABLE
from .reading import (
    Constant,
    Unread,
    axes_of,
    constant_of,
    is_constant,
    op_name,
    own_functions,
    short_name,
    sizes,
    users_of,
    value_of,
)
from .tir_ops import elementwise_of, pad_of

_RESHAPES = [f"relax.{op}" for row in TABLE.values() if row.reshapes for op in row.relax_ops]


def simplify(
    mod: tvm.IRModule, excluded: Collection[str], transposes_weights: bool = True
) -> tvm.IRModule:
    """Return a module with constants folded, and batch_norm and others as ops of the table.

    Parameters
    ----------
    mod : tvm.IRModule
        The module.
    excluded : Collection[str]
        Ops of Relax, without "relax.", that are not written as others.
    transposes_weights : bool
        Whether the constant weight of a matmul becomes one that is transposed, as that of a dense;
        else one that is transposed is folded.
    """
    mod = transform.ConvertToDataflow()(transform.Normalize()(mod))
    builder = relax.BlockBuilder(mod)
    for var, func in own_functions(mod):
        simplifier = _Simplifier(mod, func, excluded, transposes_weights)
        builder.update_func(var, simplifier.visit_expr(func))
    return without_dead_code(builder.finalize())


def without_dead_code(mod: tvm.IRModule) -> tvm.IRModule:
    """Return a module without bindings that are only another name, or that nothing reads."""
    return transform.DeadCodeElimination()(transform.CanonicalizeBindings()(mod))


@mutator
class _Simplifier(PyExprMutator):
    """Rewrites calls, operands first."""

    def __init__(
        self, mod, func: relax.Function, excluded: Collection[str], transposes_weights: bool
    ):
        super().__init__(mod)
        self._excluded, self._transposes_weights = excluded, transposes_weights
        self._mod = mod
        self._old = relax.analysis.get_var2val(func)
        self._users = users_of(func)

    def _bound(self, expr):
        """Return what a variable stands for, or any other expression as it is."""
        while isinstance(expr, relax.Var):
            value = self.lookup_binding(expr)
            if value is None:
                return expr
            expr = value
        return expr

    def _has_one_user(self, var) -> bool:
        return isinstance(var, relax.DataflowVar) and len(self._users.get(var, ())) == 1

    def visit_call_(self, op):  # pylint: disable=arguments-differ
        """Rewrite a call."""
        call = self.visit_expr_post_order(op)
        name = op_name(call)
        if name is None:
            return call
        if name == "relax.call_tir":
            return self._of_tir(call)
        args = [self._constant_or(arg) for arg in call.args]
        call = relax.Call(call.op, args, call.attrs, call.ty_args, ret_ty=call.ty)
        if name == "relax.nn.batch_norm" and short_name(call) not in self._excluded:
            return self._batch_norm(op, call, args)
        known = folded(call)
        if known is not call:
            return known
        if name in decompose.WRITTEN_ANEW and short_name(call) not in self._excluded:
            written = self._written_anew(call)
            if written is not None:
                return written
        if name == "relax.permute_dims":
            return self._permuted(call)
        if name == "relax.broadcast_to" and is_same_type(call, args[0]):
            return args[0]
        if name == "relax.matmul":
            call = self._of_one_matrix(call, args)
            return self._of_transposed(call, call.args) if self._transposes_weights else call
        if name in _RESHAPES and is_constant(args[0]):
            shape = sizes(call.ty)
            if shape is not None and None not in shape:
                return constant_like(value_of(args[0]).reshape(shape), call)
        return call

    def visit_tuple_getitem_(self, op):  # pylint: disable=arguments-differ
        """Read the field of a tuple that is known."""
        item = self.visit_expr_post_order(op)
        if not isinstance(item, relax.TupleGetItem):
            return item
        value = self._bound(item.tuple_value)
        if op_name(value) == "relax.nn.dropout" and item.index == 0:
            # That is what it is at inference.
            return value.args[0] if isinstance(item.tuple_value, relax.DataflowVar) else item
        return value.fields[item.index] if isinstance(value, relax.Tuple) else item

    def _constant_or(self, expr):
        if isinstance(expr, relax.Tuple):
            return relax.Tuple([self._constant_or(field) for field in expr.fields])
        bound = self._bound(expr)
        return bound if is_constant(bound) else expr

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
        data, inner = call.args[0], self._bound(call.args[0])
        try:
            axes = axes_of(call)
        except Unread:
            return call
        # Others may have been bound where what they read is not seen from here.
        if op_name(inner) == "relax.permute_dims" and isinstance(data, relax.DataflowVar):
            data, below = self._constant_or(inner.args[0]), axes_of(inner)
            axes = [below[axis] for axis in axes]
        if is_constant(data):
            return constant_like(np.transpose(value_of(data), axes), call)
        if axes == sorted(axes):
            return data
        return call if data is call.args[0] else relax.op.permute_dims(data, axes)

    def _of_one_matrix(self, call, args):
        """Return a matmul with a weight that is there once, not once for each of the batch."""
        weight = self._bound(args[1])
        if op_name(weight) != "relax.broadcast_to" or not isinstance(args[1], relax.DataflowVar):
            return call
        matrix = self._constant_or(weight.args[0])
        if not is_constant(matrix) or matrix.ty.ndim != 2:
            return call
        matmul = relax.Call(call.op, [args[0], matrix], call.attrs, call.ty_args)
        matmul = self.builder_.normalize(matmul)
        return matmul if is_same_type(matmul, call) else call

    def _of_transposed(self, call, args):
        """Return a matmul with the weight as a dense has it, for which oneDNN has more kernels."""
        if not is_constant(args[1]) or args[1].ty.ndim != 2:
            return call
        weight = constant_of(value_of(args[1]).T, str(args[1].ty.dtype))
        weight = self.builder_.emit(relax.op.permute_dims(weight))
        return relax.Call(call.op, [args[0], weight], call.attrs, call.ty_args, ret_ty=call.ty)

    def _of_tir(self, call):
        """Return a call of TIR that is a pad, a maximum or a minimum with one number as such an op.

        ONNX's Pad and Clip come as such.
        """
        func = self._mod[call.args[0]] if isinstance(call.args[0], ir.GlobalVar) else None
        if not isinstance(func, tirx.PrimFunc) or not isinstance(call.args[1], relax.Tuple):
            return call
        pad = pad_of(func, call)
        if pad is not None:
            return self.builder_.normalize(pad)
        make = elementwise_of(func)
        if make is None:
            return call
        data, bound = call.args[1].fields
        bound = self._constant_or(bound)
        if not is_constant(bound) or value_of(bound).size != 1:
            return call
        low = self._bound(data)
        if make is relax.op.minimum and op_name(low) == "relax.maximum":
            least = self._constant_or(low.args[1])
            if is_constant(least) and value_of(least).size == 1:
                ends = (float(value_of(end).reshape(())) for end in (least, bound))
                return self.builder_.normalize(relax.op.clip(low.args[0], *ends))
        return self.builder_.normalize(make(data, bound))

    def _batch_norm(self, old, call, args):
        """Fold a batch_norm into the convolution before it, or make it a factor and a summand."""
        data, *statistics = args
        attrs = call.attrs
        values = [self._real(arg) for arg in statistics]
        if attrs.training or data.ty.ndim < 0 or any(value is None for value in values):
            return call
        scale, shift = batch_norm_affine(attrs, *values)
        result = self._folded(old.args[0], data, scale, shift, int(attrs.axis))
        if result is None:
            scale, shift = (_along(v, data, int(attrs.axis)) for v in (scale, shift))
            result = self.builder_.emit(relax.op.multiply(data, scale))
            result = relax.op.add(result, shift)
        return relax.Tuple([self.builder_.emit(result), *statistics[2:]])

    def _real(self, expr) -> np.ndarray | None:
        """Return the value of a constant of real numbers, or of one that is dequantized."""
        bound = self._bound(expr)
        if is_constant(bound):
            return value_of(bound).astype("float64")
        if op_name(bound) != "relax.dequantize" or not all(is_constant(arg) for arg in bound.args):
            return None
        return reals_of(bound)

    def _folded(self, old, data, scale, shift, axis: int):
        """Return the convolution that computes a batch_norm as well; None if there is none."""
        if not self._has_one_user(old):
            return None
        conv = self._bound(data)
        bias = None
        if op_name(conv) == "relax.add":
            summand, added = self._constant_or(conv.args[1]), self._old.get(old)
            # It may be what a batch_norm or a dropout has become.
            if not is_constant(summand) or op_name(added) != "relax.add":
                return None
            if not self._has_one_user(added.args[0]):
                return None
            bias, conv = value_of(summand).astype("float64"), self._bound(conv.args[0])
        if op_name(conv) not in ROWS:
            return None
        try:
            view = view_of(conv, ROWS[op_name(conv)](conv))
        except Unread:
            return None
        row = TABLE.get(view.name)
        weight = self._constant_or(conv.args[1]) if row and row.scaled_weight else None
        if weight is None or not is_constant(weight) or row.reason(view) is not None:
            return None
        if row.channel_axis(view) != axis % len(view.result.shape):
            return None
        if bias is not None:
            flat, rank = bias.reshape(-1), len(view.result.shape)
            if bias.shape != along(flat, axis, rank).shape[rank - bias.ndim :]:
                return None
            shift = flat * scale + shift
        scaled = row.scaled_weight(view, value_of(weight).astype("float64"), scale)
        scaled = constant_of(scaled, str(weight.ty.dtype))
        call = relax.Call(conv.op, [conv.args[0], scaled], conv.attrs, conv.ty_args)
        return relax.op.add(self.builder_.emit(call), _along(shift, data, axis))


def _along(values: np.ndarray, data, axis: int) -> Constant:
    """Return values of channels as a constant that broadcasts to data."""
    return constant_of(along(values, axis, data.ty.ndim), str(data.ty.dtype))
