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
from ..ir.node import FIELD, TUPLE, Node
from ..ir.op_view import Tensor, Value
from ..ops.rules import Rules
from .reduced_calls import KEPT, ReducedCalls


def reduce_precision(graph: Graph, rules: Rules) -> None:
    """Lower to the precision that the options name."""
    choice = ReducedCalls(graph, rules)
    casts = _Casts(graph, choice)
    for node in graph.nodes:
        if node in choice.inside:
            casts.write(node)


class _Casts:
    """Creates the reduced calls, and casts at their boundaries."""

    def __init__(self, graph: Graph, choice: ReducedCalls):
        self._graph, self._choice = graph, choice
        self._dtype = choice.rules.options.precision
        # By node and scope.
        self._reduced: dict[tuple[Node, int], Node] = {}

    def write(self, node: Node) -> None:
        """Replace a call with a reduced one, and its result for other users with a cast."""
        graph = self._graph
        operands, count = list(node.operands), self._choice.typed_operands(node)
        operands[:count] = [self._in_reduced(operand, node.scope) for operand in operands[:count]]
        is_wide = node in self._choice.wide
        type_ = node.type if is_wide else self._typed(node.type)
        if self._choice.multiplies(node):
            attrs = {key: value for key, value in vars(node.attrs).items() if key != "out_dtype"}
            attrs.update({"out_dtype": "float32"} if is_wide else {})
            new = graph.call(node.name, operands, node, type_, **attrs)
        else:
            new = graph.with_operands(node, operands, type_)
        if is_wide:
            graph.replace(node, new)
        elif not node.returns_tuple:
            self._hand_over(node, new)
        else:
            for user in list(node.users):
                assert user.kind == FIELD
                self._hand_over(user, graph.field_of(new, user.attrs.index))

    def _typed(self, value: Value) -> Value:
        if isinstance(value, tuple):
            return tuple(map(self._typed, value))
        return Tensor(value.dims, self._dtype)

    def _hand_over(self, node: Node, new: Node) -> None:
        self._reduced[node, node.scope] = new
        self._graph.replace(node, self._graph.call("cast", [new], node, dtype="float32"))

    def _in_reduced(self, node: Node, scope: int) -> Node:
        """Return an operand in the reduced type."""
        if node.kind == TUPLE:
            return self._graph.tuple([self._in_reduced(o, scope) for o in node.operands], node)
        if getattr(node.type, "dtype", None) in KEPT:
            return node
        node = self._source(node, scope)
        if (node, scope) not in self._reduced:
            if node.is_constant:
                new = self._graph.constant(node.value, self._dtype)
                if self._dtype == "bfloat16":
                    new.rounded = node
            else:
                new = self._graph.call("cast", [node], node, dtype=self._dtype)
                new.scope = scope
            self._reduced[node, scope] = new
        return self._reduced[node, scope]

    def _source(self, node: Node, scope: int) -> Node:
        """Return the reduced tensor that a cast back to float32 reads."""
        return node.like if node.name == "cast" and (node.like, scope) in self._reduced else node
