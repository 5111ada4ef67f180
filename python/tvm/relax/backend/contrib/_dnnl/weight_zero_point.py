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
"""Convolutions whose weight needs a zero point run in 8 bits, as `offset_weights` says."""

from __future__ import annotations

from functools import partial

import numpy as np
import tvm
from tvm import relax
from tvm.contrib.onednn.policy.op_spec import Rules
from tvm.contrib.onednn.rewrites.offset_weights import (
    OffsetConv,
    matrix_of,
    names_with_weight,
    offset_convs,
    terms_of,
)

from .graph import RelaxGraph
from .mutators import BindingMutator, Replace, replaced


def without_weight_zero_points(
    mod: tvm.IRModule, func: relax.Function, rules: Rules
) -> relax.Function:
    """Return a function with such convolutions as others, or as a matmul of the channels.

    Parameters
    ----------
    mod : tvm.IRModule
        The module that the function is of.
    func : relax.Function
        The function.
    rules : Rules
        The policy.
    """
    graph = RelaxGraph(func, rules.options.exclude)
    names = names_with_weight(rules)
    calls = [i for i, name in enumerate(graph.ops) if name in names]
    calls = [i for i in calls if rules.refusal(graph.views[i]) is None]
    values = {}
    for each in offset_convs(graph, rules, calls):
        # The result is to run on oneDNN.
        if not rules.excludes(*(("matmul", "nn.matmul") if each.is_matmul else ("add",))):
            last, replace = _replacement(graph, each)
            values[last] = replace
    return replaced(mod, func, values)


def _replacement(graph: RelaxGraph, each: OffsetConv) -> tuple[relax.Expr, Replace]:
    """Return what is written anew, and how."""
    views = graph.views[each.conv], graph.views[each.weight]
    conv, weight = graph.nodes[each.conv], graph.nodes[each.weight]
    if each.is_matmul:
        return conv, partial(_matmul, matrix_of(*views), list(weight.args[1:]))
    last = conv if each.bias is None else graph.nodes[each.bias[0]]
    return last, partial(_sum_of_two, conv, terms_of(*views))


def _matmul(
    matrix: np.ndarray, parameters: list[relax.Expr], mutator: BindingMutator, conv: relax.Call
) -> relax.Call:
    """Multiply the channels, which are the last, by a matrix."""
    matrix = mutator.builder_.emit(relax.op.dequantize(relax.const(matrix.T.copy()), *parameters))
    return relax.op.matmul(conv.args[0], matrix)


def _sum_of_two(
    conv: relax.Call,
    terms: list[tuple[np.ndarray, np.float32]],
    mutator: BindingMutator,
    last: relax.Call,
) -> relax.Call:
    """Add two convolutions, to the first of which the bias is added."""
    emit, data = mutator.builder_.emit, mutator.visit_expr(conv.args[0])

    def term(weight: np.ndarray, scale: np.float32) -> relax.Expr:
        zero = relax.const(np.int8(0))
        weight = emit(relax.op.dequantize(relax.const(weight), relax.const(scale), zero))
        return emit(relax.Call(conv.op, [data, weight], conv.attrs, conv.ty_args))

    first, sums = (term(*each) for each in terms)
    if last.op != conv.op:
        # oneDNN adds a bias at no cost, but not behind an operand that has no channels.
        first = emit(relax.Call(last.op, [first, last.args[1]], last.attrs, last.ty_args))
    return relax.op.add(first, sums)
