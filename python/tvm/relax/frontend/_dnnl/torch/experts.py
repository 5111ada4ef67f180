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
"""Mixtures of experts: a mask selects the products of each row, which is not moved.

transformers sorts the pairs of a token and an expert by experts, and multiplies groups of rows. A
sort, and the integers that lead from it, stay on TVM, and would end a partition in each layer.
"""

from __future__ import annotations

import copy
import operator

import torch
from torch.export.graph_signature import TensorArgument
from torch.fx import Node

from .graphs import argument, aten, shape
from .mixture import CAT, CHECK, Mixture, call, multiplied
from .selections import grouped_ops


def rewrite(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Return a program whose mixtures of experts sort nothing, or the same if it has none.

    Nor have experts parts whose sizes depend on values, which nothing else is compiled with.
    """
    program, grouped = _grouped_parts(program), grouped_ops()
    if not any(node.target in grouped for node in program.graph.nodes):
        return program
    program = program.run_decompositions({})
    for node in program.graph.nodes:
        if node.target is CHECK and not node.users:
            program.graph.erase_node(node)
    for node in program.graph.find_nodes(op="call_function", target=aten.sort.default):
        mixture = Mixture.of(node)
        if mixture is not None:
            mixture.replace()
    program.graph.eliminate_dead_code()
    return program


def _grouped_parts(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Return a program that multiplies parts of counted rows, one for each expert, by one op.

    JetMoE's experts do so: ``cat([linear(part, w) for part, w in zip(x.split(counts), weight)])``.
    """
    if not any(node.target is aten.item.default for node in program.graph.nodes):
        return program
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(program.graph, {}))
    counted: dict[Node, dict[Node, tuple[Node, Node]]] = {}
    for node in graph.find_nodes(op="call_function", target=CAT):
        parts = _counted_parts(node)
        if parts is not None:
            split, counts, weight = parts
            counted.setdefault(counts, {})[node] = split, weight
    for counts, products in counted.items():
        for node, (split, weight) in products.items():
            with graph.inserting_before(node):
                products[node] = split, call(aten.transpose.int, weight, 1, 2)
        _infer(graph)
        mixture = Mixture.of_counts(counts, products)
        mask = None if mixture is None else mixture.replace()
        for node, (split, weight) in products.items():
            with graph.inserting_before(node):
                x = split.args[0]
                of_rows = _counted_mask(x, counts) if mask is None else mask
                node.replace_all_uses_with(multiplied(x, weight, of_rows))
            if mask is None:
                _infer(graph)
        if mixture is not None:
            # Their rows were as many as the parts had together, which was not known.
            graph.eliminate_dead_code()
            for node in mixture.rows:
                node.meta.pop("val", None)
            _infer(graph)
    for node in reversed(graph.nodes):
        # Sizes of the parts: nothing but the checks of them is left.
        if node.op == "call_function" and not node.users and _is_of_items(node):
            graph.erase_node(node)
    graph.eliminate_dead_code()
    signature = copy.deepcopy(program.graph_signature)
    for spec, node in zip(signature.output_specs, graph.output_node().args[0]):
        if isinstance(spec.arg, TensorArgument):
            spec.arg.name = node.name
    return torch.export.ExportedProgram(
        program.graph_module,
        graph,
        signature,
        program.state_dict,
        program.range_constraints,
        program.module_call_graph,
        program.example_inputs,
        program.constants,
        verifiers=program.verifiers,
    )


def _counted_mask(x: Node, counts: Node) -> Node:
    """Return whether a row, the first axis, is of an expert that has so many of them, the second.

    The rows are counted from 1: how many there are is not known of later layers.
    """
    one = call(aten.slice.Tensor, x, 1, 0, 1)
    one = call(aten.ones_like.default, one, dtype=torch.int64)
    row, ends = call(aten.cumsum.default, one, 0), call(aten.cumsum.default, counts, 0)
    begun = call(aten.gt.Tensor, row, call(aten.sub.Tensor, ends, counts))
    return call(aten.logical_and.default, begun, call(aten.le.Tensor, row, ends))


def _counted_parts(node: Node) -> tuple[Node, Node, Node] | None:
    """Return the split, the counts and the weights of a concat of products of parts, or None."""
    parts = node.args[0]
    if argument(node, "dim") not in (0, -2) or not parts:
        return None
    if any(each.target is not aten.linear.default or len(each.args) > 2 for each in parts):
        return None
    rows, weights = zip(*(each.args for each in parts))
    split, weight = rows[0].args[0], weights[0].args[0]
    is_whole = split.target is aten.split_with_sizes.default and argument(split, "dim") == 0
    if not is_whole or len(split.args[1]) != len(parts) or shape(weight)[0] != len(parts):
        return None
    for k, (row, each, size) in enumerate(zip(rows, weights, split.args[1])):
        is_part = row.target is operator.getitem and row.args == (split, k)
        is_own = each.target is aten.select.int and each.args == (weight, 0, k)
        is_counted = isinstance(size, Node) and size.target is aten.item.default
        if not (is_part and is_own and is_counted and size.args[0].args[1:] == (k,)):
            return None
    unbind = split.args[1][0].args[0].args[0]
    if unbind.target is not aten.unbind.int or len(shape(unbind.args[0])) != 1:
        return None
    is_one = all(size.args[0].args[0] is unbind for size in split.args[1])
    return (split, unbind.args[0], weight) if is_one else None


def _is_of_items(node: Node) -> bool:
    """Whether a number is computed from the elements of tensors alone."""
    return (
        node.target is aten.item.default
        or bool(node.all_input_nodes)
        and all(map(_is_of_items, node.all_input_nodes))
    )


def _infer(graph: torch.fx.Graph) -> None:
    """Compute the types of new nodes."""
    for node in graph.nodes:
        if node.op == "call_function" and "val" not in node.meta:
            args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda each: each.meta["val"])
            with next(iter(graph.nodes)).meta["val"].fake_mode:
                node.meta["val"] = node.target(*args, **kwargs)
