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
"""Folding factors and summands of channels into the convolution or matmul in front of them.

These are those of a batch_norm, and constants that are one number or one for each channel. What
they make of a weight and a bias is computed in double precision and rounded once, so the results
may differ in the last bits. Where nothing is multiplied, all is left as it is.

A batch_norm of float32 with nothing to be folded into becomes one factor and one summand of each
channel. oneDNN's own code takes three to ten times as long where the data lies in Relay's order,
and as long in others. With the channels last it stays: there a summand is not fused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from tvm import relay

from ..ir.constants import to_constant, to_double
from ..ir.dataflow_graph import DataflowGraph, Rewritten, TypedFunction
from ..policy.op_spec import Rules
from ..policy.op_view import OpView, Tensor
from ..policy.rules.reduce import batch_norm_affine
from .driver import Match, rewrite

# Not fields of the rows: what each does to the factor and the summand is told in `_Walk._step`.
ADDITIONS = ("add", "subtract", "nn.bias_add")
FACTORS = ("multiply", "divide", "negative")


def _scale_and_shift(bn: relay.Call) -> tuple[np.ndarray, np.ndarray]:
    """Return what an inference batch_norm multiplies each channel by, and then adds."""
    return batch_norm_affine(bn.attrs, *map(to_double, bn.args[1:]))


def fold_scale(function: TypedFunction, rules: Rules) -> Rewritten:
    """Fold constants behind convolutions and matmuls into their weights and biases."""
    return rewrite(function, rules, _find)


def _find(graph: DataflowGraph, rules: Rules, calls_of: Callable) -> Iterator[Match]:
    for i in calls_of(*rules.with_field("scaled_weight")):
        call = graph.views[i]
        weight = call.args[1]
        if not weight.is_constant or rules.refusal(call) is not None:
            continue
        if weight.dtype == call.result.dtype:
            # The match of the most ops that can be folded.
            yield from list(_Walk(graph, rules, i).matches())[-1:]
    for i in calls_of("nn.batch_norm"):
        yield from _unfolded(graph, i)


def _unfolded(graph: DataflowGraph, i: int) -> Iterator[Match]:
    """Write a batch_norm as a factor and a summand; reduced types would round these."""
    bn, users = graph.nodes[i], graph.users[i]
    if not _is_constant(bn) or len(users) != 1 or not _is_first_result(graph.nodes[users[0]]):
        return
    data = bn.args[0].checked_type
    if data.dtype != "float32" or int(bn.attrs.axis) % len(data.shape) != 1:
        return
    shape = _of_channels(len(data.shape), 1)
    constants = [to_constant(values.reshape(shape), data.dtype) for values in _scale_and_shift(bn)]
    if all(np.isfinite(to_double(constant)).all() for constant in constants):
        yield Match([i, *users], graph.operands[i][:1], partial(_affine, *constants), folded=[i])


def _affine(scale: relay.Constant, shift: relay.Constant, data: relay.Expr) -> relay.Call:
    return relay.add(relay.multiply(data, scale), shift)


def _is_constant(bn: relay.Call) -> bool:
    """Whether all but the data of a batch_norm is constant."""
    return all(isinstance(arg, relay.Constant) for arg in bn.args[1:])


def _is_first_result(expr: relay.Expr) -> bool:
    return isinstance(expr, relay.TupleGetItem) and expr.index == 0


def _of_channels(rank: int, axis: int) -> tuple[int, ...]:
    """Return the shape of a vector that numpy broadcasts along the other axes of a tensor."""
    return (-1,) + (1,) * (rank - axis - 1)


class _Walk:
    """Follows the users of a root as long as they multiply and add constants of channels."""

    def __init__(self, graph: DataflowGraph, rules: Rules, root: int):
        self.graph, self.rules = graph, rules
        self.call, self.view = graph.nodes[root], graph.views[root]
        self.row = rules.ops[self.view.name]
        self.ops = [root]
        self.out = self.view.result.shape
        self.axis = self.row.channel_axis(self.view)
        self.scale, self.shift = np.ones(self.out[self.axis]), np.zeros(self.out[self.axis])

    def matches(self) -> Iterator[Match]:
        """Yield what can be folded, one op more each time."""
        while self._step():
            if not (self.scale == 1.0).all():
                weight, bias = self._weight_and_bias()
                if all(np.isfinite(to_double(constant)).all() for constant in (weight, bias)):
                    yield self._match(weight, bias)

    def _step(self) -> bool:
        """Follow the only user; return whether it was one to fold."""
        users = self.graph.users[self.ops[-1]]
        if len(users) != 1 or self.graph.scope[users[0]] != self.graph.scope[self.ops[0]]:
            return False
        user, name = self.graph.views[users[0]], self.graph.ops[users[0]]
        if name not in ("nn.batch_norm", *ADDITIONS, *FACTORS) or self.rules.refusal(user):
            return False
        if name == "nn.batch_norm":
            return self._batch_norm(users[0])
        if name == "negative":
            scale, shift = -1.0, 0.0
        else:
            is_first = self.graph.operands[users[0]][0] == self.ops[-1]
            operand = self._per_channel(user, user.args[1 if is_first else 0])
            if operand is None or (name == "divide" and not is_first):
                return False
            with np.errstate(all="ignore"):
                scale, shift = {
                    "multiply": (operand, 0.0),
                    "divide": (1.0 / operand, 0.0),
                    "subtract": (1.0, -operand) if is_first else (-1.0, operand),
                }.get(name, (1.0, operand))
        self._append(users, scale, shift)
        return True

    def _append(self, ops: list[int], scale, shift) -> None:
        with np.errstate(all="ignore"):
            self.scale, self.shift = self.scale * scale, self.shift * scale + shift
        self.ops += ops

    def _batch_norm(self, i: int) -> bool:
        bn = self.graph.nodes[i]
        if not _is_constant(bn):
            return False
        if int(bn.attrs.axis) % len(self.out) != self.axis:
            return False
        fields = [self.graph.nodes[user] for user in self.graph.users[i]]
        if len(fields) != 1 or not _is_first_result(fields[0]):
            return False
        if self.graph.operands[i][0] != self.ops[-1]:
            return False
        self._append([i, *self.graph.users[i]], *_scale_and_shift(bn))
        return True

    def _per_channel(self, call: OpView, operand: Tensor) -> np.ndarray | None:
        """Return the value of each channel, or one value; None if an operand is neither."""
        if not operand.is_constant or call.result.shape != self.out:
            return None
        values = operand.value.astype("float64")
        is_bias = self.rules.is_per_channel(self.view, call, values.shape)
        is_scalar = values.size == 1 and call.name != "nn.bias_add"
        return values.reshape(-1) if is_bias or is_scalar else None

    def _weight_and_bias(self) -> tuple[relay.Constant, relay.Constant]:
        dtype = self.view.result.dtype
        shape = _of_channels(len(self.out), self.axis)
        weight = self.view.args[1].value.astype("float64")
        weight = self.row.scaled_weight(self.view, weight, self.scale)
        return to_constant(weight, dtype), to_constant(self.shift.reshape(shape), dtype)

    def _match(self, weight: relay.Constant, bias: relay.Constant) -> Match:
        names = [self.graph.ops[i] for i in self.ops]
        added = next((i for name in ADDITIONS for i in self.ops if self.graph.ops[i] == name), None)
        has_bias = added is not None or "nn.batch_norm" in names
        build = partial(_call, self.call, weight, bias if has_bias else None)
        # The root is still there, and one addition if there was one.
        folded = [i for i in self.ops[1:] if i != added]
        data = self.graph.operands[self.ops[0]][:1]
        return Match(list(self.ops), data, build, folded)


def _call(
    root: relay.Call, weight: relay.Constant, bias: relay.Constant | None, data: relay.Expr
) -> relay.Call:
    """Call a root with the constants that stand for all that is folded into it."""
    call = relay.Call(root.op, [data, weight], root.attrs, root.type_args, root.span)
    return call if bias is None else relay.add(call, bias)
