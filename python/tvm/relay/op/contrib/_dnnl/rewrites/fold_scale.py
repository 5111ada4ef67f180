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
from tvm.contrib.onednn.policy.op_spec import Rules
from tvm.contrib.onednn.policy.rules.reduce import batch_norm_affine
from tvm.contrib.onednn.rewrites.scale_walk import Affine, ScaleWalk, of_channels

from ..ir.constants import to_constant, to_double
from ..ir.dataflow_graph import DataflowGraph, Rewritten, TypedFunction
from .driver import Match, rewrite


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
            match = _Walk(graph, rules, i, call).match()
            if match is not None:
                yield match
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
    shape = of_channels(len(data.shape), 1)
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


class _Walk(ScaleWalk):
    def batch_norm(self, i: int) -> Affine | None:
        """Return what an expression does if it is a batch_norm of constants, at inference."""
        bn = self.graph.nodes[i]
        if self.graph.ops[i] != "nn.batch_norm" or not _is_constant(bn):
            return None
        if self.rules.refusal(self.graph.views[i]) is not None:
            return None
        return Affine(int(bn.attrs.axis), *_scale_and_shift(bn))

    def match(self) -> Match | None:
        """Return the match of the most ops that can be folded."""
        root, dtype, last = self.ops[0], self.view.result.dtype, None
        for folded in self.matches():
            values = (value for value in folded[1:3] if value is not None)
            constants = [to_constant(value, dtype) for value in values]
            if all(np.isfinite(to_double(constant)).all() for constant in constants):
                last = folded, constants
        if last is None:
            return None
        folded, (weight, *bias) = last
        build = partial(_call, self.graph.nodes[root], weight, bias[0] if bias else None)
        return Match(folded.ops, self.graph.operands[root][:1], build, folded.gone)


def _call(
    root: relay.Call, weight: relay.Constant, bias: relay.Constant | None, data: relay.Expr
) -> relay.Call:
    """Call a root with the constants that stand for all that is folded into it."""
    call = relay.Call(root.op, [data, weight], root.attrs, root.type_args, root.span)
    return call if bias is None else relay.add(call, bias)
