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
"""Computes in float32 what a model has in bfloat16 or float16, where the CPU is slow or lacks it.

oneDNN runs it on a CPU that lacks the type then, and sums are as exact as those of a CPU that has
it: TVM sums in the type of the elements. Results are rounded where something else reads them; from
call to call, through casts of the model to float32 and back, they stay in float32, as with
onnxruntime.

A matmul of few rows takes as long as to read the weights. Where oneDNN supports the type, these
stay as they are, the rows are rounded, and the sums are float32.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from .. import cpu
from ..ir.graph import Graph
from ..ir.match import is_op
from ..ir.node import CALL, Node
from ..ir.op_view import Tensor, tensor_of
from ..ops.others import NO_RULE, OTHERS
from ..ops.recurrent import GATES
from ..ops.rules import Rules
from ..ops.tensors import known_product
from .casts import Casts
from .decompose import COMPOSED

# Of the time of float32, a matmul by 2048x4096 in float16 takes 0.50 with one row, 0.69 with
# 4, 1.1 with 16 and 0.95 with 128 (AVX512_FP16); in bfloat16 0.59, 0.71, 1.2 and 1.5 (AVX512_BF16).
_FEW_ROWS = 8


def compute_in_float32(graph: Graph, rules: Rules) -> None:
    """Replace the calls in types that the CPU lacks or is slow in by calls in float32.

    So are recurrent layers in float16 in any case, for which there is no other code.
    """
    narrow = list(_reasons(rules))
    widening = _Widening(graph, rules, narrow)
    layers = widening if "float16" in narrow else _Widening(graph, rules, ["float16"])
    for node in graph.nodes:
        widening.visit(node)
        if layers is not widening and is_op(node, *GATES):
            layers.visit(node)


def ops_in_float32(graph: Graph, rules: Rules) -> Counter:
    """Count the ops that `compute_in_float32` has just replaced, by type, for the report."""
    reasons, texts = _reasons(rules), Counter[str]()
    for node in graph.nodes:
        old = node.like
        is_new = node.kind == CALL and node.made_by == compute_in_float32.__name__
        # A matmul that keeps its weights still reads their type.
        is_narrow = any(map(reasons.get, _dtypes(node.operands)))
        if old is None or not is_new or is_narrow or not _computes(node, rules):
            continue
        dtype = next(filter(reasons.get, _dtypes((old, *old.operands))), None)
        if dtype is not None:
            texts[f"ops in {dtype}, {reasons[dtype]}"] += 1
    return texts


def dtype_in_model(node: Node) -> str | None:
    """Return the type that the model has a tensor in, to which it rounds constants, too."""
    if node.made_by == compute_in_float32.__name__ and node.like is not None:
        node = node.like
    return node.type.dtype if isinstance(node.type, Tensor) else None


def _reasons(rules: Rules) -> dict[str, str]:
    """Return the types that are computed in float32, and why."""
    reasons = {dtype: cpu.why_in_float32(dtype, rules.options.precision) for dtype in cpu.REAL}
    return {dtype: reason for dtype, reason in reasons.items() if reason is not None}


def _dtypes(nodes: Iterable[Node]) -> Iterator[str]:
    """Yield the types of the tensors of nodes."""
    values = (value for node in nodes for value in node.results)
    return (value.dtype for value in values if isinstance(value, Tensor))


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
            keeps = self._keeps_weights(node)
            self.replace(node, self._with_wide_sums(node) if keeps else self._widened(node))

    def _keeps_weights(self, node: Node) -> bool:
        """Whether a call multiplies few rows, or an open number, by weights in their own type."""
        if not is_op(node, "nn.dense", "nn.matmul", "nn.batch_matmul"):
            return False
        data, weight = (each.tensor for each in node.operands)
        rows = data.shape[:-1]
        is_few = None in rows or known_product(rows) <= _FEW_ROWS
        is_same = data.dtype == weight.dtype and cpu.computes(weight.dtype)
        return weight.is_constant and is_few and is_same

    def _with_wide_sums(self, node: Node) -> Node:
        """Return a matmul that writes float32."""
        attrs = {**vars(node.attrs), "out_dtype": "float32"}
        return self.graph.call(node.name, node.operands, node, self.type_of(node.type), **attrs)

    def _is_known_op(self, node: Node) -> bool:
        if node.kind != CALL or node.unsupported not in (None, COMPOSED, NO_RULE):
            return False
        # Without a rule, a power may still be a part of a formula.
        has_row = node.name in self._rules.ops or node.name in OTHERS
        return node.unsupported == COMPOSED or has_row

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
