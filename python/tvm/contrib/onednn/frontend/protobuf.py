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
"""Copies, names and uses of values in ONNX models."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx


def clone(message, without: Iterable[str] = ()):
    """Return a copy of a model or graph.

    Models of any size can be copied, because messages are copied one by one: the protobuf library
    serializes what it copies, up to 2 GB.

    Parameters
    ----------
    message : onnx.ModelProto | onnx.GraphProto
        The model or graph.
    without : Iterable[str]
        Fields to leave out.
    """
    new = type(message)()
    _copy_fields(new, message, without)
    return new


def _copy_fields(new, message, without) -> None:
    for field, value in message.ListFields():
        name = field.name
        if name in without:
            continue
        if name == "graph":
            _copy_fields(new.graph, value, without)
        elif hasattr(value, "append"):
            getattr(new, name).extend(value)
        elif hasattr(value, "ListFields"):
            getattr(new, name).CopyFrom(value)
        else:
            setattr(new, name, value)


def fixed_size(dim: onnx.TensorShapeProto.Dimension) -> int | None:
    """Return the size of a dimension, which may be zero; None if it is open."""
    # paddle2onnx writes -1 for an open one.
    return dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else None


def initializer_names(graph: onnx.GraphProto) -> set[str]:
    """Return the names of the weights of a graph."""
    sparse = (tensor.values.name for tensor in graph.sparse_initializer)
    return {*(tensor.name for tensor in graph.initializer), *sparse}


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Yield the graphs in the attributes of a node, such as the branches of an `If`."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def walk(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Yield nodes, each followed by those of its subgraphs."""
    for node in nodes:
        yield node
        for graph in subgraphs(node):
            yield from walk(graph.node)


def clear_repeated_names(graph: onnx.GraphProto) -> None:
    """Remove the names of nodes that others have, too, in place: onnxruntime refuses them."""
    seen: set[str] = set()
    for node in walk(graph.node):
        if node.name in seen:
            node.ClearField("name")
        seen.add(node.name)


def uses(nodes: Iterable[onnx.NodeProto]) -> Iterator[str]:
    """Yield the names of the values that nodes read, also in subgraphs."""
    for node in nodes:
        yield from node.input
        for graph in subgraphs(node):
            yield from uses(graph.node)
            yield from (output.name for output in graph.output)


def captured(graph: onnx.GraphProto) -> list[str]:
    """Return the names of the values that a graph reads from the graphs around it, sorted."""
    own = {*initializer_names(graph), *(value.name for value in graph.input)}
    names = {value.name for value in graph.output}
    for node in graph.node:
        own.update(node.output)
        names.update(node.input)
        for inner in subgraphs(node):
            names.update(captured(inner))
    return sorted(names - own - {""})


def rename(nodes: Iterable[onnx.NodeProto], names: Mapping[str, str]) -> None:
    """Rename values in nodes and their subgraphs, in place."""
    for node in nodes:
        for values in (node.input, node.output):
            for number, name in enumerate(values):
                if name in names:
                    values[number] = names[name]
        for graph in subgraphs(node):
            rename(graph.node, names)
            for value in graph.output:
                value.name = names.get(value.name, value.name)


def sort_nodes(graph: onnx.GraphProto) -> None:
    """Sort nodes, also of subgraphs, so that each follows the nodes that it reads, in place.

    The standard demands this order, but not all converters keep it. Nodes that are in order, and
    those of a cycle, stay where they are.
    """
    makers = {name: k for k, node in enumerate(graph.node) for name in node.output if name}
    missing = [{makers[name] for name in _reads(node) if name in makers} for node in graph.node]
    readers: dict[int, list[int]] = {}
    for number, others in enumerate(missing):
        for other in others:
            readers.setdefault(other, []).append(number)
    ready, order = [k for k, others in enumerate(missing) if not others], []
    while ready:  # a heap: it begins sorted
        order.append(heapq.heappop(ready))
        for reader in readers.get(order[-1], ()):
            missing[reader].discard(order[-1])
            if not missing[reader]:
                heapq.heappush(ready, reader)
    if len(order) == len(missing) and order != sorted(order):
        nodes = [graph.node[number] for number in order]
        del graph.node[:]
        graph.node.extend(nodes)
    for node in graph.node:
        for inner in subgraphs(node):
            sort_nodes(inner)


def _reads(node: onnx.NodeProto) -> set[str]:
    """Return the names of the values that a node reads, also in its subgraphs."""
    return {*node.input, *(name for graph in subgraphs(node) for name in captured(graph))}
