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
"""A module as a graph of plain data: each op, where it runs, and what it reads."""

from __future__ import annotations

import itertools

import tvm
from tvm import relay
from tvm.contrib.onednn.report.offload_report import Node, tensor_text

from ..ir.dataflow_graph import DataflowGraph, has_attr, is_composite, is_partition
from ..ir.relay_view import dims, op_name
from .walk import Walk


def type_text(kind) -> str:
    """Write a type for people, each tensor as `tensor_text` does."""
    if isinstance(kind, relay.TupleType):
        return ", ".join(type_text(part) for part in kind.fields)
    if not isinstance(kind, relay.TensorType):
        return ""
    return tensor_text(dims(kind), kind.dtype)


def _name(call: relay.Call) -> str:
    if is_composite(call):
        return str(call.op.attrs["Composite"])
    return op_name(call) or type(call.op).__name__


def _product(sizes) -> str:
    return "x".join(str(size) for size in sizes)


def call_details(call: relay.Call) -> str:
    """Describe a call of a Relay op by the attributes that matter for its cost."""
    attrs = call.attrs
    if attrs is None or not hasattr(attrs, "keys"):
        return ""
    keys = {str(key) for key in attrs.keys()}
    parts = []
    for key, one in (("kernel_size", ""), ("pool_size", ""), ("strides", "stride ")):
        value = getattr(attrs, key) if key in keys else None
        if value is None or (key == "strides" and all(str(size) == "1" for size in value)):
            continue
        if op_name(call) != "strided_slice":
            parts.append(one + _product(value))
    if "groups" in keys and int(attrs.groups) > 1:
        parts.append(f"{int(attrs.groups)} groups")
    if "axes" in keys and attrs.axes is not None and op_name(call) == "transpose":
        parts.append("to " + ", ".join(str(axis) for axis in attrs.axes))
    return ", ".join(parts)


class _Flow:
    """Collects the nodes of a module, function by function."""

    def __init__(self, walk: Walk):
        self.walk = walk
        self.nodes: list[Node] = []

    def add(self, node: Node) -> list[int]:
        self.nodes.append(node)
        return [len(self.nodes) - 1]

    def function(self, name: str, func: relay.Function) -> None:
        """Add a function that is TVM's."""
        given = {}
        for param in func.params:
            node = Node("input", param.name_hint, name, shape=type_text(param.checked_type))
            given[param] = self.add(node)
        results = self.body(name, self.walk.graphs[name], given, None)
        shape = type_text(func.body.checked_type)
        self.add(Node("output", "result", name, shape=shape, inputs=results))

    def body(
        self, name: str, graph: DataflowGraph, given: dict, partition: str | None
    ) -> list[int]:
        """Add the nodes of the body of a function; return those that its value comes from.

        `given` has, by variable, the nodes that its value comes from.
        """
        bound = {
            expr.var: graph.operands[i][0]
            for i, expr in enumerate(graph.nodes)
            if isinstance(expr, relay.Let)
        }
        # By expression: the nodes that its value comes from.
        sources: list[list[int]] = []
        for i, expr in enumerate(graph.nodes):
            children = [sources[child] for child in graph.operands[i]]
            if isinstance(expr, relay.Let):
                sources.append(children[1])
            elif isinstance(expr, relay.Var):
                value = bound.get(expr)
                # In its own value, a function that calls itself is not there yet.
                is_there = value is not None and value < len(sources)
                sources.append(sources[value] if is_there else given.get(expr, []))
            elif isinstance(expr, relay.TupleGetItem) and isinstance(expr.tuple_value, relay.Tuple):
                sources.append(sources[graph.operands[graph.operands[i][0]][expr.index]])
            elif isinstance(expr, relay.Call):
                sources.append(self.call(name, expr, children, partition))
            else:
                sources.append(_merged(children))
        return sources[-1]

    def call(self, name, call, children, partition) -> list[int]:
        """Add a call, or the nodes of the partition that it calls."""
        callee = call.op.name_hint if isinstance(call.op, tvm.ir.GlobalVar) else None
        if callee and is_partition(self.walk.mod[callee]):
            args = children[len(children) - len(call.args) :]
            inner = dict(zip(self.walk.mod[callee].params, args))
            return self.body(name, self.walk.graphs[callee], inner, callee)
        unit = self.walk.unit_of(call)
        parts = unit.parts if is_composite(call) else [call]
        return self.add(
            Node(
                "tvm" if partition is None else "dnnl",
                callee or _name(call),
                name,
                ops=[_name(part) for part in parts],
                details=", ".join(filter(None, (call_details(part) for part in parts))),
                shape=type_text(call.checked_type),
                partition=partition,
                reason=unit.reason if unit and partition is None else None,
                inputs=_merged(children),
                sources=_sources(parts),
            )
        )


def _sources(calls: list[relay.Call]) -> list[str]:
    """Return what calls were in the imported model, where the importer noted it in their spans."""
    names: dict[str, None] = {}
    for span in filter(None, (call.span for call in calls)):
        for each in getattr(span, "spans", None) or [span]:
            # In front of the name of the node, an importer puts that of the model's output.
            names[each.source_name.name.rpartition("@@")[2]] = None
    return list(names)


def _merged(children: list[list[int]]) -> list[int]:
    return list(dict.fromkeys(itertools.chain(*children)))


def make_nodes(walk: Walk) -> list[Node]:
    """Return the nodes of all functions of a module; partitions are shown where they are called."""
    flow = _Flow(walk)
    for var, func in walk.mod.functions.items():
        if isinstance(func, relay.Function) and not has_attr(func, "Compiler"):
            flow.function(var.name_hint, func)
    return flow.nodes
