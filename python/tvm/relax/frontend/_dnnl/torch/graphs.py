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
"""Helpers to read and write the graphs of exported programs."""

from __future__ import annotations

import torch
from torch.export.graph_signature import InputKind, InputSpec, TensorArgument
from torch.fx import Node
from torch.utils._pytree import tree_leaves

aten = torch.ops.aten


def constants(program) -> dict[Node, torch.Tensor]:
    """Return the parameters, buffers and constants of a program by their placeholders."""
    tensors = {**program.state_dict, **program.constants}
    kinds = InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR
    names = {
        spec.arg.name: tensors[spec.target]
        for spec in program.graph_signature.input_specs
        if spec.kind in kinds and spec.target in tensors
    }
    nodes = program.graph.find_nodes(op="placeholder")
    return {node: names[node.name].detach() for node in nodes if node.name in names}


def add_constant(program, like: Node, value: torch.Tensor) -> Node:
    """Add a constant to a program in the place of a node, which must have the same value."""
    node = new_constant(program, f"folded_{like.name}", value, like.meta["val"])
    like.replace_all_uses_with(node)
    return node


def new_constant(program, name: str, value: torch.Tensor, meta: torch.Tensor) -> Node:
    """Add a constant to a program, whose type is that of the fake tensor `meta`."""
    graph = program.graph
    first = next(iter(graph.nodes))
    with graph.inserting_before(first):
        node = graph.placeholder(name)
    node.target = node.name
    node.meta = {"val": meta}
    program.constants[node.name] = value.detach().contiguous()
    spec = InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(node.name), node.name)
    program.graph_signature.input_specs.insert(0, spec)
    return node


def drop_inputs(program, names: set[str]) -> None:
    """Remove inputs of a program that nothing reads."""
    specs = program.graph_signature.input_specs
    for node in program.graph.find_nodes(op="placeholder"):
        if node.name in names:
            program.graph.erase_node(node)
    for spec in [each for each in specs if each.arg.name in names]:
        specs.remove(spec)
        program.constants.pop(spec.target, None)


def call(target, *args, **kwargs) -> Node:
    """Add a call where its graph currently inserts nodes, with the type of its result."""
    graph = next(arg.graph for arg in tree_leaves(args) if isinstance(arg, Node))
    node = graph.call_function(target, args, kwargs)
    real_args = torch.fx.map_arg(args, lambda arg: arg.meta["val"])
    node.meta = {"val": target(*real_args, **kwargs)}
    return node


def shape(node: Node) -> tuple:
    """Return the shape of a node's result."""
    return tuple(node.meta["val"].shape)


def argument(node: Node, name: str):
    """Return an argument of a call by its name in the schema, or its default."""
    for i, each in enumerate(node.target._schema.arguments):
        if each.name == name:
            if i < len(node.args) and not each.kwarg_only:
                return node.args[i]
            return node.kwargs.get(name, each.default_value)
    raise KeyError(name)
