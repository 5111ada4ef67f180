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
from collections.abc import Iterable, Iterator, Sequence

from ..ir.graph import Graph
from ..ir.node import CALL, FIELD, INPUT, NATIVE, TUPLE
from ..ir.node import Node as GraphNode
from ..ir.op_view import OpView, Tensor, Value
from ..ops.attrs import attribute
from ..ops.quantize import DEQUANTIZE
from ..ops.rules import Rules
from ..partition.units import OffloadDecision, Units
from .offload_report import LEFT, UNPARTITIONED, Node, scales_text, tensor_text


class Description:
    """The nodes of the report for a function. A reader may derive from it for its IR.

    Parameters
    ----------
    graph : Graph
        The function.
    rules : Rules
        The rules.
    function : str
        Its name.
    units, decision : Units, OffloadDecision
        What is fused, and what goes into partitions; None for a function that is not partitioned.
    partitions : Sequence[str]
        The names of the partitions.
    default : str | None
        Why an op stays on TVM that nothing else tells the reason of.

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
        decision: OffloadDecision | None = None,
        partitions: Sequence[str] = (),
        default: str | None = None,
    ):
        self.graph, self.function = graph, function
        self._rules, self._units = rules, units
        self.nodes: list[Node] = []
        self.in_8_bits: Counter = Counter()
        self._default = default or (UNPARTITIONED if decision is None else LEFT)
        # By member of a partition, its last op for one that is fused: the name.
        self._partition_of: dict[GraphNode, str] = {}
        # What is in a partition only.
        self._offloaded: set[GraphNode] = set()
        self._reasons: dict[GraphNode, str] = {}
        if decision is not None and units is not None:
            for name, members in zip(partitions, decision.partitions):
                self._partition_of.update(dict.fromkeys(members, name))
                self._offloaded.update(units.hidden(members))
            for node, reason in decision.reasons.items():
                self._reasons.update(dict.fromkeys(units.members(node), reason))
        # By node: the nodes of the report that its value comes from.
        self.sources: dict[GraphNode, list[int]] = {}
        for node in self.parameters():
            self.sources[node] = self.add(self._new("input", graph.title(node), node.type))
        self._describe_all()
        result = self.result()
        self.add(self._new("output", "result", result.type, inputs=self.sources[result]))

    # What depends on the IR.

    def parameters(self) -> list[GraphNode]:
        """Return the parameters of the function, also those that nothing reads."""
        return [node for node in self.graph.nodes if node.kind == INPUT]

    def result(self) -> GraphNode:
        """Return what the function returns."""
        return self.graph.nodes[-1]

    def kernel_name(self, node: GraphNode) -> str:
        """Return the name of the kernel of an op to which nothing is fused."""
        return self.graph.title(node)

    def op_names(self, node: GraphNode) -> list[str]:
        """Return the ops of the IR that a call is."""
        return [self.graph.title(node)]

    def native_names(self, node: GraphNode) -> list[str]:
        """Return the ops of the IR in the expression that a node was read from."""
        return [self.graph.title(node)]

    def model_names(self, node: GraphNode) -> Iterable[str]:
        """Return the names that an op had in the imported model."""
        return ()

    def remark(self, node: GraphNode) -> str:
        """Return what to add to the reason of an op that stays on TVM."""
        return ""

    def inputs(self, node: GraphNode) -> list[GraphNode]:
        """Return the nodes that the value of a node comes from."""
        if node.kind == FIELD and node.operands[0].kind == TUPLE:
            return [node.operands[0].operands[node.attrs.index]]
        return node.operands

    def native(self, node: GraphNode) -> list[int]:
        """Describe an expression that is no call of an op, if there are ops in it."""
        ops = self.graph.closed_ops(node)
        if ops is None:
            return self._read(node)
        title, names, reason = ops
        inputs = self._read(node)
        return self.add(self._new("tvm", title, node.type, names, reason=reason, inputs=inputs))

    # What does not.

    def add(self, node: Node) -> list[int]:
        """Add a node; return its number."""
        self.nodes.append(node)
        return [len(self.nodes) - 1]

    def _new(self, kind: str, name: str, type_: Value, ops: Sequence[str] = (), **fields) -> Node:
        fields = {"ops": list(ops), "model_ops": list(ops), **fields}
        return Node(kind, name, self.function, shape=value_text(type_), **fields)

    def _describe_all(self) -> None:
        """Describe all nodes, and what only expressions read that are written as they were."""
        entered: set[GraphNode] = set()
        for start in self.graph.nodes:
            stack = [start]
            while stack:
                node = stack[-1]
                needs = [] if node in entered or node in self.sources else self._inputs(node)
                entered.add(node)
                needs = [need for need in needs if need not in entered]
                if needs:
                    # The last pushed is described first.
                    stack.extend(reversed(needs))
                    continue
                stack.pop()
                if node not in self.sources:
                    self.sources[node] = self._describe(node)

    def _describe(self, node: GraphNode) -> list[int]:
        if node.kind == CALL and node in self._partition_of:
            return self._composite(node)
        if node in self._offloaded or self._is_inside_origin(node):
            return self._read(node)
        if node.kind == NATIVE:
            return self.native(node)
        return self._on_tvm(node) if node.kind == CALL else self._read(node)

    @property
    def _known_units(self) -> Units:
        assert self._units is not None, "only a function that is partitioned has composites"
        return self._units

    def _inputs(self, node: GraphNode) -> list[GraphNode]:
        if node.kind == CALL and node in self._partition_of:
            return self._known_units.flow.operands[node]
        origin = node.origin
        if node.kind == CALL and origin is not None and self.is_as_read(node):
            return [operand.current for operand in origin.operands]
        return self.inputs(node)

    def _is_inside_origin(self, node: GraphNode) -> bool:
        """Whether a node is a part of an op that TVM runs as it was."""
        origin = node.origin
        return origin is not None and node is not origin.nodes[-1] and self._is_whole(origin)

    def is_as_read(self, node: GraphNode) -> bool:
        """Whether a node stays, as the expression that it was read from."""
        origin = node.origin
        return origin is not None and node is origin.nodes[-1] and self._is_whole(origin)

    def _is_whole(self, origin) -> bool:
        is_there = len(origin.nodes) == 1 or origin.is_intact
        return is_there and self._offloaded.isdisjoint(origin.nodes)

    def _on_tvm(self, node: GraphNode) -> list[int]:
        parts, names = [node], list(self._names(node))
        if node.origin is not None and self.is_as_read(node):
            parts, names = node.origin.nodes, self.native_names(node)
        reason = next(filter(None, self._refusals(parts)), self._default) + self.remark(node)
        title = names[-1] if names else self.graph.title(node)
        new = self._new("tvm", title, node.type, names, reason=reason, inputs=self._read(node))
        new.details = _joined(map(details, parts))
        new.sources = self._model_names(parts)
        return self.add(new)

    def _refusals(self, parts: list[GraphNode]) -> Iterator[str | None]:
        """Yield why an op that was read as several nodes may stay on TVM."""
        for node in parts:
            yield node.unsupported
        for node in parts:
            yield from map(self._rules.refusal, node.calls)
        for node in parts:
            yield self._reasons.get(node)

    def _composite(self, node: GraphNode) -> list[int]:
        fused = self._known_units.fused.get(node)
        title = self.kernel_name(node) if fused is None else fused.name
        members = self._known_units.members(node)
        calls = [call for member in members for call in member.calls]
        read = [call for call in calls if call.name == DEQUANTIZE]
        if read and len(calls) > 1:
            scales = [call.args[1] for call in read]
            shapes = [each.shape for each in scales if isinstance(each, Tensor)]
            self.in_8_bits[scales_text(shapes)] += 1
        new = self._new("dnnl", title, node.type, inputs=self._read(node))
        for member in members:
            new.ops += self.op_names(member) if member.kind == CALL else ()
            new.model_ops += self._names(member)
        new.partition = self._partition_of[node]
        new.details = _joined(map(details, calls))
        new.sources = self._model_names(members)
        return self.add(new)

    def _model_names(self, parts: Iterable[GraphNode]) -> list[str]:
        return list(dict.fromkeys(name for node in parts for name in self.model_names(node)))

    def _names(self, node: GraphNode) -> Iterator[str]:
        """Yield the ops that a node stands for."""
        if node.expansion is None:
            yield from self.op_names(node) if node.kind == CALL else ()
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
                ops.append(list(self._names(each)))
            if each.expansion is None:
                stack.extend(each.operands)
        yield from itertools.chain(*reversed(ops))

    def _read(self, node: GraphNode) -> list[int]:
        """Return the nodes of the report that a node reads."""
        return merged(self.sources.get(each, []) for each in self._inputs(node))


def merged(sources: Iterable[list[int]]) -> list[int]:
    """Return all that some values come from, each once."""
    return list(dict.fromkeys(itertools.chain(*sources)))


def _joined(parts: Iterable[str]) -> str:
    return ", ".join(filter(None, parts))


def value_text(value: Value) -> str:
    """Write a type for people, each tensor as `tensor_text` does."""
    if isinstance(value, tuple):
        return ", ".join(map(value_text, value))
    return tensor_text(value.shape, value.dtype) if isinstance(value, Tensor) else ""


def details(call: OpView) -> str:
    """Describe an op by the attributes that matter for its cost."""
    attrs, parts = call.attrs, []
    for key, title in (("kernel_size", ""), ("pool_size", ""), ("strides", "stride ")):
        value = attribute(attrs, key, None) or ()
        sizes = [str(size) for size in (value if hasattr(value, "__len__") else [value])]
        is_default = key == "strides" and set(sizes) == {"1"}
        if sizes and not is_default and call.name != "strided_slice":
            parts.append(title + "x".join(sizes))
    groups = int(attribute(attrs, "groups", None) or 1)
    if groups > 1:
        parts.append(f"{groups} groups")
    if attribute(attrs, "direction", "forward") != "forward":
        parts.append(attrs.direction)
    if call.name == "transpose" and attrs.axes is not None:
        parts.append("to " + ", ".join(map(str, attrs.axes)))
    return _joined(parts)
