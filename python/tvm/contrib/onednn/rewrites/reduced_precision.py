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
"""Lowers the calls that `ReducedCalls` chooses to bfloat16 or float16.

The other calls read and write float32 as before. A softmax or a normalization may be among the
reduced ones: oneDNN computes these in float32 inside, whatever the type of their operands is.
"""

from __future__ import annotations

from ..ir.graph import Graph
from ..ir.node import Node
from ..ops.rules import Rules
from .casts import Casts
from .reduced_calls import ReducedCalls


def reduce_precision(graph: Graph, rules: Rules) -> None:
    """Lower to the precision that the options name."""
    choice = ReducedCalls(graph, rules)
    casts = Casts(graph, ("float32",), rules.options.precision)
    for node in graph.nodes:
        if node in choice.inside:
            _write(graph, choice, casts, node)


def _write(graph: Graph, choice: ReducedCalls, casts: Casts, node: Node) -> None:
    """Replace a call with a reduced one, and its result for other users with a cast."""
    operands, count = list(node.operands), choice.typed_operands(node)
    operands[:count] = [casts.read(operand, node.scope) for operand in operands[:count]]
    is_wide = node in choice.wide
    type_ = node.type if is_wide else casts.type_of(node.type)
    if choice.multiplies(node):
        attrs = {key: value for key, value in vars(node.attrs).items() if key != "out_dtype"}
        attrs.update({"out_dtype": "float32"} if is_wide else {})
        new = graph.call(node.name, operands, node, type_, **attrs)
    else:
        new = graph.with_operands(node, operands, type_)
    if is_wide:
        graph.replace(node, new)
    else:
        casts.replace(node, new)
