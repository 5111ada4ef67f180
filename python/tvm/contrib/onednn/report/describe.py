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
"""Describes a graph for the report: where each op runs, and why."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence

from ..graph.graph import Graph
from ..graph.node import CALL, CONSTANT, INPUT, NATIVE
from ..graph.node import Node as GraphNode
from ..partition.units import Choice, Units
from ..policy.op_spec import Rules
from ..policy.op_view import Tensor, Value
from ..policy.tensors import COMPILER
from .offload_report import LEFT, UNPARTITIONED, Node, scales_text, tensor_text


class Description:
    """The nodes of the report for a function.

    Parameters
    ----------
    graph : Graph
        The function.
    rules : Rules
        The policy.
    function : str
        Its name.
    units, choice : Units, Choice
        What is fused, and what goes into partitions; None for a function that is not partitioned.
    partitions : Sequence[str]
        The names of the partitions.

    Attributes
    ----------
    nodes : list[Node]
        The nodes, which count what they read from 0 on.
    in_8_bits : Counter
        By kind of scale: the composites that read integers in 8 bits.
    """

    def __init__(
        self,
        graph: Graph,
        rules: Rules,
        function: str,
        units: Units | None = None,
        choice: Choice | None = None,
        partitions: Sequence[str] = (),
    ):
        self._graph, self._rules, self._function = graph, rules, function
        self._units = units
        self.nodes: list[Node] = []
        self.in_8_bits: Counter = Counter()
        self._default = UNPARTITIONED if choice is None else LEFT
        # By number of a member of a partition, its last op for one that is fused: the name.
        self._partition_of: dict[int, str] = {}
        # What is in a partition only.
        self._offloaded: set[GraphNode] = set()
        self._reasons: dict[int, str] = {}
        if choice is not None:
            for name, members in zip(partitions, choice.partitions):
                self._partition_of.update(dict.fromkeys(members, name))
                self._offloaded.update(graph.nodes[k] for k in units.hidden(members))
            for i, reason in choice.reasons.items():
                self._reasons.update(dict.fromkeys(units.members(i), reason))
        # By number: the nodes of the report that a value comes from.
        self._sources: list[list[int]] = []
        for i, node in enumerate(graph.nodes):
            self._sources.append(self._describe(i, node))
        last = graph.nodes[-1]
        shape = value_text(last.type)
        self._add(Node("output", "result", function, shape=shape, inputs=self._read(last)))

    def _describe(self, i: int, node: GraphNode) -> list[int]:
        if node.kind == CONSTANT:
            return []
        if node.kind == INPUT:
            shape = value_text(node.type)
            return self._add(Node("input", self._graph.title(node), self._function, shape=shape))
        if i in self._partition_of and node.kind == CALL:
            return self._composite(i, node)
        if node in self._offloaded or self._is_inside_origin(node):
            return self._read(node)
        if node.kind == NATIVE:
            return self._native(i, node)
        return self._on_tvm(i, node) if node.kind == CALL else self._read(node)

    def _is_inside_origin(self, node: GraphNode) -> bool:
        """Whether a node is a part of an op that TVM runs as it was."""
        return (
            node.origin is not None and node is not node.origin.nodes[-1] and self._is_whole(node)
        )

    def _is_whole(self, node: GraphNode) -> bool:
        origin = node.origin
        return origin.is_intact and self._offloaded.isdisjoint(origin.nodes)

    def _on_tvm(self, i: int, node: GraphNode) -> list[int]:
        reason = node.unread or self._rules.refusal(node) or self._reasons.get(i, self._default)
        is_whole = node.origin is not None and self._is_whole(node)
        names = [self._graph.title(node)] if is_whole else list(self._names(node))
        nodes = self._read(node)
        title = names[-1] if names else self._graph.title(node)
        new = Node("tvm", title, self._function, names, reason=reason, inputs=nodes)
        new.shape = value_text(node.type)
        return self._add(new)

    def _native(self, i: int, node: GraphNode) -> list[int]:
        """Describe an expression that is no call of an op, if there are ops in it."""
        ops = self._graph.closed_ops(node)
        if ops is None:
            return self._read(node)
        title, names, reason = ops
        new = Node("tvm", title, self._function, names, reason=reason, inputs=self._read(node))
        new.shape = value_text(node.type)
        return self._add(new)

    def _composite(self, i: int, node: GraphNode) -> list[int]:
        units, graph = self._units, self._graph
        fused = units.fused.get(i)
        title = fused.name if fused is not None else node.name
        if not title.startswith(f"{COMPILER}."):
            title = f"{COMPILER}.{title.split('.')[-1]}"
        members = [graph.nodes[k] for k in units.members(i)]
        names = [name for member in members for name in self._names(member)]
        if fused is not None and fused.dequantized:
            read = (graph.nodes[k] for k in fused.dequantized)
            self.in_8_bits[scales_text(each.args[1].shape for each in read)] += 1
        new = Node("dnnl", title, self._function, names, partition=self._partition_of[i])
        new.shape = value_text(node.type)
        new.inputs = _merged(self._sources[k] for k in units.graph.operands[i])
        return self._add(new)

    def _names(self, node: GraphNode) -> Iterator[str]:
        """Yield the ops that a node stands for."""
        if node.expansion is None:
            if node.kind == CALL:
                yield self._graph.title(node)
            return
        inputs = {operand.current for operand in node.operands}
        seen: set[GraphNode] = set()
        stack, ops = [node.expansion], []
        while stack:
            each = stack.pop()
            if each in seen or each.current in inputs or each in inputs:
                continue
            seen.add(each)
            # The casts around a formula are no ops of it.
            if each.kind == CALL and each.name != "cast":
                ops.append(list(self._names(each)) if each.expansion else [self._graph.title(each)])
            if each.expansion is None:
                stack.extend(each.operands)
        yield from itertools.chain(*reversed(ops))

    def _read(self, node: GraphNode) -> list[int]:
        """Return the nodes of the report that a node reads."""
        return _merged(self._sources[operand.index] for operand in node.operands)

    def _add(self, node: Node) -> list[int]:
        self.nodes.append(node)
        return [len(self.nodes) - 1]


def _merged(sources) -> list[int]:
    return list(dict.fromkeys(itertools.chain(*sources)))


def value_text(value: Value) -> str:
    """Write a type for people, each tensor as `tensor_text` does."""
    if isinstance(value, tuple):
        return ", ".join(map(value_text, value))
    return tensor_text(value.shape, value.dtype) if isinstance(value, Tensor) else ""
