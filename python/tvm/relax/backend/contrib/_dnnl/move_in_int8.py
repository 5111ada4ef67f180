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
"""Moves dequantize and quantize so that ops which only move elements do so in 8 bits.

A dequantize of one scale goes behind a reshape, a transpose, a slice or a maximum pool, and behind
a concatenation of such; one of a scale for each item of an axis goes behind what leaves the axis
whole. A quantize goes before a concatenation, and a pair of the same scale and zero point goes
away. This is exact, as on the Relay side, whose pass builds Relay's expressions.
"""

from __future__ import annotations

import tvm
from tvm import relax
from tvm.contrib.onednn.partition.fuse import find_reshaped_bits
from tvm.contrib.onednn.policy.op_spec import Rules
from tvm.contrib.onednn.policy.quantized import goes_before_rounding, reads_weight
from tvm.contrib.onednn.policy.rules.quantize import DEQUANTIZE, parameters
from tvm.contrib.onednn.policy.tensors import EIGHT_BITS
from tvm.relax.expr_functor import mutator

from .fold_constants import reals_of
from .graph import RelaxGraph, value_from, view_of
from .mutators import BindingMutator, replaced
from .ops import ROWS
from .reading import Unread, constant_of, is_constant, op_name, short_name, users_of
from .virtual_ops import with_formulas

_DEQUANTIZE, _QUANTIZE = "relax.dequantize", "relax.quantize"


def merge_equal(_mod: tvm.IRModule, func: relax.Function, _rules: Rules) -> relax.Function:
    """Return a function that computes once what importers write for each op that reads it."""
    alone = tvm.IRModule({relax.GlobalVar("main"): func})
    return relax.transform.EliminateCommonSubexpr()(alone)["main"]


def move_in_int8(mod: tvm.IRModule, func: relax.Function, rules: Rules) -> relax.Function:
    """Return a function with dequantize and quantize in other places.

    Parameters
    ----------
    mod : tvm.IRModule
        The module that the function is of.
    func : relax.Function
        The function.
    rules : Rules
        The policy, which tells the ops that only move elements.
    """
    return _Mover(mod, func, rules).visit_expr(func)


def fold_dequantized(mod: tvm.IRModule, func: relax.Function, rules: Rules) -> relax.Function:
    """Return a function without the dequantize of constants, but for weights that are read so."""
    graph = RelaxGraph(func, rules.options.exclude)
    folded = (
        graph.nodes[i]
        for i, name in enumerate(graph.ops)
        if name == DEQUANTIZE
        and all(map(is_constant, graph.nodes[i].args))
        and not all(reads_weight(graph, rules, i, user) for user in graph.users[i])
    )
    return replaced(mod, func, dict.fromkeys(folded, _folded))


def move_relu_first(mod: tvm.IRModule, func: relax.Function, rules: Rules) -> relax.Function:
    """Return a function with a relu before a rounding, where its reader has 8 bits to read then."""
    graph = RelaxGraph(func, rules.options.exclude)
    relus = (i for i, name in enumerate(graph.ops) if name == "nn.relu")
    before = (graph.nodes[i] for i in relus if goes_before_rounding(graph, rules, i))
    return replaced(mod, func, dict.fromkeys(before, _relu_first))


def move_dequantize_first(mod: tvm.IRModule, func: relax.Function, rules: Rules) -> relax.Function:
    """Return a function with a dequantize before a reshape, where fusion goes on behind it then."""
    graph = with_formulas(func, rules)
    before = (graph.nodes[i] for _, i in find_reshaped_bits(graph, rules))
    return replaced(mod, func, dict.fromkeys(before, _dequantize_first))


def _folded(_replacer: BindingMutator, call: relax.Call) -> relax.Expr:
    """Compute a dequantize."""
    return constant_of(reals_of(call), str(call.ty.dtype))


def _relu_first(replacer: BindingMutator, call: relax.Call) -> relax.Expr:
    """Write a relu of what is rounded as rounding a relu."""
    real = replacer.lookup_binding(call.args[0])
    bits = replacer.lookup_binding(real.args[0])
    relu = replacer.builder_.emit(relax.op.nn.relu(bits.args[0]))
    return _with_data(real, replacer.builder_.emit(_with_data(bits, relu)))


def _dequantize_first(replacer: BindingMutator, call: relax.Call) -> relax.Expr:
    """Write a dequantize of a reshape as a reshape of a dequantize."""
    reshape = replacer.lookup_binding(call.args[0])
    return _with_data(reshape, replacer.builder_.emit(_dequantize(reshape.args[0], call)))


def _with_data(call: relax.Call, data: relax.Expr) -> relax.Call:
    return relax.Call(call.op, [data, *call.args[1:]], call.attrs, call.ty_args)


@mutator
class _Mover(BindingMutator):
    """Rewrites calls, operands first."""

    def __init__(self, mod: tvm.IRModule, func: relax.Function, rules: Rules):
        super().__init__(mod)
        self._rules = rules
        self._users = users_of(func)

    def visit_call_(self, op):  # pylint: disable=arguments-differ
        """Rewrite a call."""
        call = self.visit_expr_post_order(op)
        name = op_name(call)
        if name == _QUANTIZE:
            return self._quantize(op, call)
        if name not in ROWS or not call.args or self._rules.excludes(short_name(call)):
            return call
        if name == "relax.concat":
            return self._concatenated(call)
        source = self.bound(call.args[0])
        axis = self._axis_behind(call, source) if op_name(source) == _DEQUANTIZE else None
        if axis is None:
            return call
        moved = self.builder_.emit(_with_data(call, source.args[0]))
        if not isinstance(call.ty, relax.TupleType):
            return _dequantize(moved, source, axis)
        # The fields are dequantized, one by one.
        fields = (relax.TupleGetItem(moved, k) for k in range(len(call.ty.fields)))
        fields = [_dequantize(self.builder_.emit(field), source, axis) for field in fields]
        return relax.Tuple([self.builder_.emit(field) for field in fields])

    def _axis_behind(self, call: relax.Call, source: relax.Call) -> int | None:
        """Return the axis that a dequantize has behind an op, None if it cannot go there.

        It can if each element of the op's result is one of its operand's.
        """
        try:
            view = view_of(call, ROWS[call.op.name](call))
        except Unread:
            return None
        row = self._rules.ops.get(view.name)
        if row is None or not row.keeps_values:
            return None
        if _known(source) is not None:
            return -1
        axis = int(source.attrs.axis)
        return self._rules.axis_behind(view, axis) if _is_known(source) else None

    def _in_8_bits(self, real, quantize: relax.Call):
        """Return what a quantize makes of something, without it if that is already there."""
        source = self.bound(real)
        if op_name(source) == _DEQUANTIZE and _known(source) == _known(quantize):
            if source.args[0].ty.dtype == quantize.ty.dtype:
                return source.args[0]
        axis, dtype = int(quantize.attrs.axis), str(quantize.ty.dtype)
        return self.builder_.emit(relax.op.quantize(real, *quantize.args[1:], axis, dtype))

    def _quantize(self, old: relax.Call, call: relax.Call) -> relax.Expr:
        if _known(call) is None or self._rules.excludes("quantize"):
            return call
        source = self.bound(call.args[0])
        if op_name(source) == "relax.concat" and len(self._users.get(old.args[0], ())) == 1:
            fields = self.bound(source.args[0])
            if isinstance(fields, relax.Tuple):
                fields = [self._in_8_bits(field, call) for field in fields.fields]
                return relax.op.concat(fields, source.attrs.axis)
        same = op_name(source) == _DEQUANTIZE and _known(source) == _known(call)
        return source.args[0] if same and source.args[0].ty.dtype == call.ty.dtype else call

    def _concatenated(self, call: relax.Call) -> relax.Expr:
        fields = self.bound(call.args[0])
        if not isinstance(fields, relax.Tuple):
            return call
        sources = [self.bound(field) for field in fields.fields]
        if not all(op_name(source) == _DEQUANTIZE for source in sources):
            return call
        known = {(_known(source), str(source.args[0].ty.dtype)) for source in sources}
        if len(known) > 1 or _known(sources[0]) is None:
            return call
        data = relax.op.concat([source.args[0] for source in sources], call.attrs.axis)
        return _dequantize(self.builder_.emit(data), sources[0])


def _is_known(call: relax.Call) -> bool:
    """Whether a quantize or dequantize of 8 bits has constant scales and zero points."""
    bits = call.args[0] if op_name(call) == _DEQUANTIZE else call
    return str(bits.ty.dtype) in EIGHT_BITS and all(map(is_constant, call.args[1:]))


def _known(call: relax.Call) -> tuple[float, int] | None:
    """Return the scale and zero point of a quantize or dequantize of 8 bits, if there is one."""
    return parameters(*map(value_from, call.args[1:])) if _is_known(call) else None


def _dequantize(data: relax.Expr, like: relax.Call, axis: int = -1) -> relax.Call:
    return relax.op.dequantize(data, *like.args[1:], axis, str(like.ty.dtype))
