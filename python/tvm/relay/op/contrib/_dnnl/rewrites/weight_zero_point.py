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

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from tvm import relay
from tvm.contrib.onednn.policy.op_spec import Rules
from tvm.contrib.onednn.rewrites.offset_weights import (
    matrix_of,
    names_with_weight,
    offset_convs,
    terms_of,
)
from tvm.relay.qnn.op import dequantize

from ..ir.dataflow_graph import DataflowGraph, Rewritten, TypedFunction, with_attrs
from ..ir.relay_view import shape_of
from .driver import Match, rewrite


def without_weight_zero_points(function: TypedFunction, rules: Rules) -> Rewritten:
    """Write such convolutions as others, or as a dense of the rows of the channels."""
    return rewrite(function, rules, _find)


def _find(graph: DataflowGraph, rules: Rules, calls_of: Callable) -> Iterator[Match]:
    for each in offset_convs(graph, rules, calls_of(*names_with_weight(rules))):
        views = graph.views[each.conv], graph.views[each.weight]
        conv, weight = graph.nodes[each.conv], graph.nodes[each.weight]
        if each.is_matmul:
            build = partial(_matmul, conv, matrix_of(*views), weight.args[1:])
            yield Match([each.conv], [each.data], build)
            continue
        ops, operands, outer = [each.conv], [each.data], None
        if each.bias is not None:
            outer = graph.nodes[each.bias[0]]
            ops, operands = [each.conv, each.bias[0]], [each.data, each.bias[1]]
        yield Match(ops, operands, partial(_sum_of_two, conv, terms_of(*views), outer))


def _matmul(
    conv: relay.Call, matrix: np.ndarray, parameters: list[relay.Expr], data: relay.Expr
) -> relay.Call:
    matrix = dequantize(relay.const(matrix), *parameters)
    rows = relay.reshape(data, (-1, shape_of(conv.args[0])[-1]))
    return relay.reshape(relay.nn.dense(rows, matrix), (-1, *shape_of(conv)[1:]))


def _sum_of_two(
    conv: relay.Call,
    terms: list[tuple[np.ndarray, np.float32]],
    outer: relay.Call | None,
    data: relay.Expr,
    bias: relay.Expr | None = None,
) -> relay.Call:
    def term(weight: np.ndarray, scale: np.float32, **attrs: object) -> relay.Call:
        weight = dequantize(relay.const(weight), relay.const(scale), relay.const(0))
        return with_attrs(conv, (data, weight), **attrs)

    first, sums = term(*terms[0]), term(*terms[1], channels=1)
    if outer is not None:
        # oneDNN adds a bias at no cost, but not behind an operand that has no channels.
        first = relay.Call(outer.op, [first, bias], outer.attrs, span=outer.span)
    return relay.add(first, sums)
