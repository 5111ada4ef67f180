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
a concatenation of such; a quantize goes before a concatenation, and a pair of the same scale and
zero point goes away. This is exact, as on the Relay side, whose pass builds Relay's expressions.
"""

from __future__ import annotations

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from .graph import RelaxGraph, value_from
from .ops import ROWS
from .partition.fuse import find_reshaped_bits
from .policy.op_spec import Rules
from .policy.quantized import goes_before_rounding, reads_weight
from .policy.rules.quantize import DEQUANTIZE, parameters
from .policy.tensors import EIGHT_BITS
from .reading import Unread, constant_of, is_constant, op_name, short_name, users_of
from .simplify import reals_of
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
    folded = [
        graph.nodes[i]
        for i, name in enumerate(graph.ops)
        if name == DEQUANTIZE
        and all(map(is_constant, graph.nodes[i].args))
        and not all(reads_weight(graph, rules, i, user) for user in graph.users[i])
    ]
    return _Folder(mod, folded).visit_expr(func) if folded else func


def move_relu_first(mod: tvm.IRModule, func: relax.Function, rules: Rules) -> relax.Function:
    """Return a function with a relu before a rounding, where its reader has 8 bits to read then."""
    graph = RelaxGraph(func, rules.options.exclude)
    relus = (i for i, name in enumerate(graph.ops) if name == "nn.relu")
    found = [graph.nodes[i] for i in relus if goes_before_rounding(graph, rules, i)]
    return _Reorderer(mod, found).visit_expr(func) if found else func


def move_dequantize_first(mod: tvm.IRModule, func: relax.Function, rules: Rules) -> relax.Function:
    """Return a function with a dequantize before a reshape, where fusion goes on behind it then."""
    graph = with_formulas(func, rules)
    found = [graph.nodes[i] for _, i in find_reshaped_bits(graph, rules)]
    return _Reorderer(mod, found).visit_expr(func) if found else func


@mutator
class _Reorderer(PyExprMutator):
    """Moves a relu before a rounding, and a dequantize before a reshape."""

    def __init__(self, mod: tvm.IRModule, found: list[relax.Call]):
        super().__init__(mod)
        self._found = set(found)

    def visit_call_(self, op):  # pylint: disable=arguments-differ
        """Rewrite a call."""
        call = self.visit_expr_post_order(op)
        if op not in self._found:
            return call
        before = self.lookup_binding(call.args[0])
        if op_name(call) == _DEQUANTIZE:
            data = self.builder_.emit(_dequantize(before.args[0], call))
        else:
            bits = self.lookup_binding(before.args[0])
            relu = self.builder_.emit(relax.op.nn.relu(bits.args[0]))
            data = self.builder_.emit(
                relax.Call(bits.op, [relu, *bits.args[1:]], bits.attrs, bits.ty_args)
            )
        return relax.Call(before.op, [data, *before.args[1:]], before.attrs, before.ty_args)


@mutator
class _Folder(PyExprMutator):
    """Computes calls of dequantize."""

    def __init__(self, mod: tvm.IRModule, folded: list[relax.Call]):
        super().__init__(mod)
        self._folded = set(folded)

    def visit_call_(self, op):  # pylint: disable=arguments-differ
        """Rewrite a call."""
        if op not in self._folded:
            return self.visit_expr_post_order(op)
        return constant_of(reals_of(op), str(op.ty.dtype))


@mutator
class _Mover(PyExprMutator):
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
        source = self._bound(call.args[0])
        if op_name(source) != _DEQUANTIZE or _known(source) is None or not self._moves(call):
            return call
        moved = relax.Call(call.op, [source.args[0], *call.args[1:]], call.attrs, call.ty_args)
        moved = self.builder_.emit(moved)
        if not isinstance(call.ty, relax.TupleType):
            return _dequantize(moved, source)
        # The fields are dequantized, one by one.
        fields = (relax.TupleGetItem(moved, k) for k in range(len(call.ty.fields)))
        fields = [_dequantize(self.builder_.emit(field), source) for field in fields]
        return relax.Tuple([self.builder_.emit(field) for field in fields])

    def visit_tuple_getitem_(self, op):  # pylint: disable=arguments-differ
        """Read the field of a tuple that was built here."""
        item = self.visit_expr_post_order(op)
        if not isinstance(item, relax.TupleGetItem):
            return item
        value = self._bound(item.tuple_value)
        return value.fields[item.index] if isinstance(value, relax.Tuple) else item

    def _bound(self, expr):
        """Return what a variable of this block of bindings stands for."""
        value = self.lookup_binding(expr) if isinstance(expr, relax.DataflowVar) else None
        return expr if value is None else value

    def _moves(self, call: relax.Call) -> bool:
        """Whether each element of an op's result is one of its operand's."""
        try:
            row = self._rules.ops.get(ROWS[call.op.name](call).name)
        except Unread:
            return False
        return row is not None and (row.moves == "view" or row.padding == "lowest")

    def _in_8_bits(self, real, quantize: relax.Call):
        """Return what a quantize makes of something, without it if that is already there."""
        source = self._bound(real)
        if op_name(source) == _DEQUANTIZE and _known(source) == _known(quantize):
            if source.args[0].ty.dtype == quantize.ty.dtype:
                return source.args[0]
        axis, dtype = int(quantize.attrs.axis), str(quantize.ty.dtype)
        return self.builder_.emit(relax.op.quantize(real, *quantize.args[1:], axis, dtype))

    def _quantize(self, old: relax.Call, call: relax.Call) -> relax.Expr:
        if _known(call) is None or self._rules.excludes("quantize"):
            return call
        source = self._bound(call.args[0])
        if op_name(source) == "relax.concat" and len(self._users.get(old.args[0], ())) == 1:
            fields = self._bound(source.args[0])
            if isinstance(fields, relax.Tuple):
                fields = [self._in_8_bits(field, call) for field in fields.fields]
                return relax.op.concat(fields, source.attrs.axis)
        same = op_name(source) == _DEQUANTIZE and _known(source) == _known(call)
        return source.args[0] if same and source.args[0].ty.dtype == call.ty.dtype else call

    def _concatenated(self, call: relax.Call) -> relax.Expr:
        fields = self._bound(call.args[0])
        if not isinstance(fields, relax.Tuple):
            return call
        sources = [self._bound(field) for field in fields.fields]
        if not all(op_name(source) == _DEQUANTIZE for source in sources):
            return call
        known = {(_known(source), str(source.args[0].ty.dtype)) for source in sources}
        if len(known) > 1 or _known(sources[0]) is None:
            return call
        data = relax.op.concat([source.args[0] for source in sources], call.attrs.axis)
        return _dequantize(self.builder_.emit(data), sources[0])


def _known(call: relax.Call) -> tuple[float, int] | None:
    """Return the scale and zero point of a quantize or dequantize of 8 bits, if there is one."""
    bits = call.args[0] if op_name(call) == _DEQUANTIZE else call
    if str(bits.ty.dtype) not in EIGHT_BITS or not all(map(is_constant, call.args[1:])):
        return None
    return parameters(*map(value_from, call.args[1:]))


def _dequantize(data: relax.Expr, like: relax.Call) -> relax.Call:
    return relax.op.dequantize(data, *like.args[1:], -1, str(like.ty.dtype))
