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
"""Computes in float32 what a model has in bfloat16 or float16 on a CPU that lacks the type.

oneDNN runs it then, and sums are as exact as those of a CPU that has it: TVM sums in the type of
the elements. Results are rounded where something else reads them; from call to call, through casts
of the model to float32 and back, they stay in float32, as with onnxruntime.
"""

from __future__ import annotations

from collections import Counter

from .. import cpu
from ..ir.graph import Graph
from ..ir.match import is_op
from ..ir.node import CALL, Node
from ..ir.op_view import tensor_of
from ..ops.others import OTHERS
from ..ops.rules import Rules
from .casts import Casts
from .decompose import COMPOSED


def compute_in_float32(graph: Graph, rules: Rules) -> None:
    """Replace the calls in types that the CPU lacks by calls in float32."""
    narrow = list(filter(cpu.lacks, cpu.REAL))
    if not narrow:
        return
    widening = _Widening(graph, rules, narrow)
    for node in graph.nodes:
        widening.visit(node)


def ops_in_float32(graph: Graph, rules: Rules) -> Counter:
    """Count the ops that `compute_in_float32` has just replaced, by type, for the report."""
    texts: Counter = Counter()
    for node in graph.nodes:
        old, is_new = node.like, node.made_by == compute_in_float32.__name__
        if is_new and node.kind == CALL and _computes(node, rules) and old is not None:
            values = (value for each in (old, *old.operands) for value in each.results)
            dtype = next(filter(cpu.lacks, (getattr(value, "dtype", "") for value in values)))
            texts[f"ops in {dtype}, which oneDNN does not support on this CPU"] += 1
    return texts


def _computes(node: Node, rules: Rules) -> bool:
    """Whether a call does not only move or convert elements."""
    return not is_op(node, "cast") and rules.moves(node.name) is None


class _Widening(Casts):
    def __init__(self, graph: Graph, rules: Rules, narrow: list[str]):
        super().__init__(graph, narrow, "float32")
        self._rules = rules

    def visit(self, node: Node) -> None:
        """Replace a call if it computes, or moves or converts what is there in float32."""
        if not self._is_known_op(node):
            return
        is_narrow = any(self.is_old(each.type) for each in (*node.operands, node))
        if not is_narrow or self._rules.excludes(node.name.removeprefix("relax.")):
            return
        is_there = any(self.is_known(each, node.scope) for each in node.operands)
        if is_there or _computes(node, self._rules):
            self.replace(node, self._widened(node))

    def _is_known_op(self, node: Node) -> bool:
        if node.kind != CALL or node.unsupported not in (None, COMPOSED):
            return False
        return node.unsupported is not None or node.name in self._rules.ops or node.name in OTHERS

    def _widened(self, node: Node) -> Node:
        """Return a call as another one, in float32."""
        operands = [self.read(operand, node.scope) for operand in node.operands]
        type_, attrs = self.type_of(node.type), vars(node.attrs)
        if is_op(node, "cast") and operands[0].tensor.dtype == tensor_of(type_).dtype:
            return operands[0]
        changed = {name: "float32" for name, value in attrs.items() if value in self.old}
        if changed:
            return self.graph.call(node.name, operands, node, type_, **{**attrs, **changed})
        new = self.graph.with_operands(node, operands, type_)
        new.unsupported = node.unsupported
        return new

    def _converted(self, node: Node, scope: int) -> Node:
        """Look through views and casts of the model, so that no cast cuts a pattern."""
        is_inside = node.is_call and node.scope == scope
        is_view = is_inside and self._rules.moves(node.name) == "view" and not node.returns_tuple
        if is_view or is_inside and is_op(node, "cast"):
            return self._widened(node)
        return super()._converted(node, scope)
