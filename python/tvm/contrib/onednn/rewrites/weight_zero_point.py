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
"""Rewrites int8 convolutions whose weight has a zero point, see `offset_weights`."""

from __future__ import annotations

import numpy as np

from ..ir.graph import Graph
from ..ir.match import is_op
from ..ir.node import Node
from ..ops.attrs import attribute
from ..ops.quantize import DEQUANTIZE
from ..ops.rules import Rules
from .offset_weights import OffsetConv, matrix_of, names_with_weight, offset_convs, terms_of


def without_weight_zero_points(graph: Graph, rules: Rules) -> None:
    """Write each as a sum of two convolutions, or as a matmul over the channels."""
    names = names_with_weight(rules)
    calls = [node for node in graph.nodes if is_op(node, *names) and rules.refusal(node) is None]
    for each in list(offset_convs(calls, rules)):
        if each.is_matmul:
            if not rules.excludes("nn.dense", "nn.matmul", "matmul"):
                graph.replace(each.conv, _dense(graph, each))
        elif not rules.excludes("add"):
            last = each.conv if each.bias is None else each.bias[0]
            graph.replace(last, _sum_of_two(graph, each))


def _dense(graph: Graph, each: OffsetConv) -> Node:
    """Multiply the channels (the last axis) by a matrix."""
    conv, weight = each.conv, each.weight
    matrix = graph.constant(matrix_of(conv, weight))
    attrs = {**vars(weight.attrs), "axis": -1}
    matrix = graph.call(DEQUANTIZE, [matrix, *weight.operands[1:]], weight, **attrs)
    return graph.call("nn.dense", [conv.operands[0], matrix], conv, conv.type)


def _sum_of_two(graph: Graph, each: OffsetConv) -> Node:
    """Add two convolutions, to the first of which the bias is added."""
    conv, weight = each.conv, each.weight
    data = conv.operands[0]

    def term(values: np.ndarray, scale: np.float32) -> Node:
        parameters = [graph.constant(np.array(scale)), graph.constant(np.array(0, "int32"))]
        dequantized = graph.call(
            DEQUANTIZE, [graph.constant(values), *parameters], weight, **vars(weight.attrs)
        )
        channels = {"channels": values.shape[conv.attrs.kernel_layout.index("O")]}
        changes = channels if attribute(conv.attrs, "channels", None) is not None else {}
        return graph.with_attrs(conv, [data, dequantized], **changes)

    first, sums = (term(*each) for each in terms_of(conv, weight))
    if each.bias is not None:
        # oneDNN adds a bias at no cost, but not after an operand that has no channels.
        outer, bias = each.bias
        first = graph.call(outer.name, [first, bias], outer, **vars(outer.attrs))
    return graph.call("add", [first, sums], conv, conv.type)
