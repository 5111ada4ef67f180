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

A dequantize goes behind a reshape, a transpose or a maximum pool, and a quantize before a
concatenation; a pair of them with the same scale and zero point goes away. This is exact: such ops
give the same for real numbers as for the integers that stand for them. Then a convolution or a
matmul has the dequantize of its operands right before it, as fusion wants it.

The driver of rewrites is of no use here: its matches do not overlap, and in one walk a dequantize
moves behind op after op.
"""

from __future__ import annotations

import numpy as np
from tvm import relay
from tvm.contrib.onednn.policy.op_spec import Rules
from tvm.contrib.onednn.policy.quantized import reads_weight, weights_in_float32
from tvm.contrib.onednn.policy.rules.quantize import (
    DEQUANTIZE,
    QUANTIZE,
    along,
    dequantized,
    parameters,
    real_bounds,
    symmetric,
)
from tvm.contrib.onednn.policy.tensors import EIGHT_BITS
from tvm.relay.qnn.op import dequantize, quantize

from ..ir.constants import to_constant, to_double
from ..ir.dataflow_graph import DataflowGraph, Rewritten, TypedFunction
from ..ir.relay_view import op_name, value_of
from .simplify import with_constants_folded


def move_in_int8(function: TypedFunction, rules: Rules) -> Rewritten:
    """Move dequantize down and quantize up, and bring constant weights into the form int8 has."""
    graph = function.graph
    if not any(name in (QUANTIZE, DEQUANTIZE) for name in graph.ops):
        return Rewritten(function.func)
    mover = _Mover(graph, rules)
    func = graph.rebuild(lambda i: graph.operands[i], mover.build)
    return Rewritten(with_constants_folded(func, function.mod))


def fold_dequantized(function: TypedFunction, rules: Rules) -> Rewritten:
    """Compute the dequantize of constants, but for weights that oneDNN multiplies in 8 bits.

    What comes of it is a constant, of which the driver of rewrites could ask oneDNN nothing.
    """
    graph = function.graph
    replacements = {}
    for i, expr in enumerate(graph.nodes):
        if graph.ops[i] != DEQUANTIZE or not all(
            isinstance(arg, relay.Constant) for arg in expr.args
        ):
            continue
        if not all(reads_weight(graph, rules, i, user) for user in graph.users[i]):
            value = _dequantized(expr)
            replacements[i] = [], lambda value=value: value
    in_float32 = weights_in_float32(graph, rules)
    return Rewritten(graph.replace(replacements), in_float32=in_float32)


def _parameters(call: relay.Call) -> tuple[float, int] | None:
    """Return the scale and the zero point of a quantize or a dequantize, if these are known."""
    # A new expression that is not a constant has no type yet.
    if not all(isinstance(arg, relay.Constant) for arg in call.args[1:]):
        return None
    return parameters(*map(value_of, call.args[1:]))


def _dequantized(call: relay.Call) -> relay.Constant:
    arrays = [to_double(arg) for arg in call.args]
    return to_constant(dequantized(*arrays, int(call.attrs.axis)), "float32")


class _Mover:
    """Builds a function anew with dequantize and quantize in other places.

    Parameters
    ----------
    graph : DataflowGraph
        The typed function.
    rules : Rules
        The policy, which tells the ops that only move elements.
    """

    def __init__(self, graph: DataflowGraph, rules: Rules):
        self.graph, self.rules = graph, rules

    def build(self, i: int, done: dict[int, relay.Expr]) -> relay.Expr:
        """Build an expression of what its operands have become."""
        name, expr = self.graph.ops[i], self.graph.nodes[i]
        args = [done[operand] for operand in self.graph.operands[i]]
        moved = None
        if isinstance(expr, relay.TupleGetItem):
            moved = self._part(args[0], expr.index)
        elif name == DEQUANTIZE:
            moved = self._dequantize(expr, args)
        elif name == QUANTIZE:
            moved = self._quantize(i, args)
        elif name in ("nn.relu", "clip"):
            moved = self._clipped(i, args[0])
        elif name == "concatenate":
            moved = self._concatenated(expr, args[0])
        elif self._keeps_values(name):
            moved = self._behind(i, args)
        return self.graph.remake(i, done) if moved is None else moved

    def _keeps_values(self, name: str | None) -> bool:
        """Whether each element of an op's result is one of its operand's."""
        if name not in self.rules.ops or self.rules.excludes(name):
            return False
        return self.rules.ops[name].keeps_values

    def _behind(self, i: int, args: list[relay.Expr]) -> relay.Expr | None:
        """Move the dequantize of the operand behind the op."""
        expr = self.graph.nodes[i]
        if len(args) != 1 or op_name(args[0]) != DEQUANTIZE:
            return None
        data, scale, zero_point = args[0].args
        axis = int(args[0].attrs.axis)
        if _parameters(args[0]) is None:
            view = self.graph.views[i]
            known = all(isinstance(arg, relay.Constant) for arg in (scale, zero_point))
            axis = self.rules.axis_behind(view, axis) if known and view is not None else None
            if axis is None:
                return None
        moved = relay.Call(expr.op, [data], expr.attrs, expr.type_args, expr.span)
        if isinstance(expr.checked_type, relay.TupleType):
            # The fields are dequantized, one by one.
            fields = range(len(expr.checked_type.fields))
            return relay.Tuple(
                [dequantize(relay.TupleGetItem(moved, k), scale, zero_point, axis) for k in fields]
            )
        return dequantize(moved, scale, zero_point, axis)

    @staticmethod
    def _part(values: relay.Expr, index: int) -> relay.Expr | None:
        return values.fields[index] if isinstance(values, relay.Tuple) else None

    def _dequantize(self, expr: relay.Call, args: list[relay.Expr]) -> relay.Expr | None:
        data, scale, zero_point = args
        axis = int(expr.attrs.axis)
        if not all(isinstance(arg, relay.Constant) for arg in (scale, zero_point)):
            return None
        if op_name(data) == "nn.pad" and isinstance(data.args[1], relay.Constant):
            # Zero in real numbers, which a convolution may pad with. Of several scales one may be
            # that of an item which is padding.
            zero, is_frame = zero_point.data.numpy(), str(data.attrs.pad_mode) == "constant"
            is_one = zero.size == scale.data.numpy().size == 1
            if is_frame and is_one and float(data.args[1].data.numpy()) == zero.reshape(()):
                real = dequantize(data.args[0], scale, zero_point, axis)
                return relay.nn.pad(real, data.attrs.pad_width, 0.0)
        if isinstance(data, relay.Constant) and data.data.dtype in EIGHT_BITS:
            values, zero = data.data.numpy(), zero_point.data.numpy()
            moved = symmetric(values, along(zero, axis, values.ndim)) if zero.any() else None
            if moved is None and data.data.dtype == "uint8" and not zero.any():
                moved = symmetric(values, zero.reshape(-1)[0])
            if moved is not None:
                return dequantize(relay.const(moved), scale, relay.const(0), axis)
        return None

    def _quantize(self, i: int, args: list[relay.Expr]) -> relay.Expr | None:
        data, scale, zero_point = args
        expr = self.graph.nodes[i]
        known = _parameters(expr)
        if known is None:
            return None
        dtype = expr.checked_type.dtype

        def in_8_bits(real):
            is_same = op_name(real) == DEQUANTIZE and _parameters(real) == known
            # The types of what was built here are not known yet; a quantize says its own.
            if is_same and self._dtype(real.args[0]) == dtype:
                return real.args[0]
            return quantize(real, scale, zero_point, int(expr.attrs.axis), dtype)

        source = self.graph.operands[i][0]
        if op_name(data) == "concatenate" and self.graph.users[source] == [i]:
            if isinstance(data.args[0], relay.Tuple):
                fields = [in_8_bits(field) for field in data.args[0].fields]
                return relay.concatenate(fields, int(data.attrs.axis))
        same = in_8_bits(data)
        return same if op_name(same) != QUANTIZE else None

    @staticmethod
    def _dtype(expr: relay.Expr) -> str:
        """Return the type of the integers that a dequantize reads.

        What was built here has no type yet: it moves what has one, or what a quantize makes.
        """
        while True:
            if isinstance(expr, relay.Constant):
                return expr.data.dtype
            if expr._checked_type_ is not None:  # pylint: disable=protected-access
                return expr.checked_type.dtype
            if op_name(expr) == QUANTIZE:
                return str(expr.attrs.out_dtype)
            if isinstance(expr, relay.TupleGetItem):
                expr = expr.tuple_value
            operand = expr.args[0]
            expr = operand.fields[0] if isinstance(operand, relay.Tuple) else operand

    def _clipped(self, i: int, data: relay.Expr) -> relay.Expr | None:
        """Move a clip of 8-bit integers before the quantize that makes them."""
        expr = self.graph.nodes[i]
        if expr.checked_type.dtype not in EIGHT_BITS or op_name(data) != QUANTIZE:
            return None
        known = _parameters(data)
        if known is None or self.graph.users[self.graph.operands[i][0]] != [i]:
            return None
        low, high = (
            (0.0, np.inf) if op_name(expr) == "nn.relu" else (expr.attrs.a_min, expr.attrs.a_max)
        )
        bounds = real_bounds(float(low), float(high), known, expr.checked_type.dtype)
        real = relay.clip(data.args[0], *bounds)
        return relay.Call(data.op, [real, *data.args[1:]], data.attrs)

    def _concatenated(self, expr: relay.Call, fields: relay.Expr) -> relay.Expr | None:
        """Move the dequantize of all operands, if it is the same, behind a concatenation."""
        if not isinstance(fields, relay.Tuple):
            return None
        if not all(op_name(field) == DEQUANTIZE for field in fields.fields):
            return None
        first = fields.fields[0]
        known = {(_parameters(field), self._dtype(field.args[0])) for field in fields.fields}
        if len(known) > 1 or _parameters(first) is None:
            return None
        data = relay.concatenate([field.args[0] for field in fields.fields], int(expr.attrs.axis))
        return dequantize(data, *first.args[1:])
