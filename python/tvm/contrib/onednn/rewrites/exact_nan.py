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
"""Propagates NaN through ops that drop it, with the option `exact_nan`.

oneDNN's relu, clip, maximum, minimum and max pools select a value and may drop NaN, as TVM's do.
Their result is added to a tensor that is NaN where an operand is, and zero elsewhere: 0 * tanh(x).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .. import cpu
from ..ir.graph import Graph
from ..ir.node import Node
from ..ir.op_view import Tensor
from ..ops.quantize import QUANTIZE
from ..ops.rules import Rules


def propagate_nan(graph: Graph, rules: Rules) -> None:
    """Make the results of ops that select a value NaN where an operand is NaN.

    An op that only quantizes read stays as it is: integers have no NaN.
    """
    for node in graph.nodes:
        nan_of = SELECTING.get(node.name)
        if nan_of is None or not node.is_call or rules.excludes(node.name):
            continue
        is_float = isinstance(node.type, Tensor) and node.type.dtype in cpu.REAL
        if not is_float or all(user.name == QUANTIZE for user in node.users):
            continue
        new = graph.with_operands(node, node.operands, node.type)
        for operand in dict.fromkeys(node.operands):
            if not operand.is_constant:
                new = graph.call("add", [new, nan_of(graph, node, operand)], node, node.type)
        graph.replace(node, new)


def _zero_or_nan(graph: Graph, node: Node, operand: Node) -> Node:
    """Return zero for each number, infinities among them, and NaN for NaN."""
    zero = graph.constant(np.asarray(0.0), operand.tensor.dtype)
    return graph.call("multiply", [graph.call("tanh", [operand], node), zero], node)


def _reduced_by(name: str, **more) -> Callable[[Graph, Node, Node], Node]:
    """Return the same for ops that select among several elements: the sum or mean of the above."""

    def nan_of(graph: Graph, node: Node, operand: Node) -> Node:
        attrs = {**vars(node.attrs), **more}
        return graph.call(name, [_zero_or_nan(graph, node, operand)], node, **attrs)

    return nan_of


# The padding counts, so that no window is empty and 0 / 0.
SELECTING: dict[str, Callable[[Graph, Node, Node], Node]] = {
    **dict.fromkeys(
        ("nn.relu", "clip", "dnnl.hard_sigmoid", "maximum", "minimum", "sign"), _zero_or_nan
    ),
    **{
        f"nn.max_pool{n}d": _reduced_by(f"nn.avg_pool{n}d", count_include_pad=True)
        for n in (1, 2, 3)
    },
    **{f"nn.adaptive_max_pool{n}d": _reduced_by(f"nn.adaptive_avg_pool{n}d") for n in (1, 2, 3)},
    "nn.global_max_pool2d": _reduced_by("nn.global_avg_pool2d"),
}
