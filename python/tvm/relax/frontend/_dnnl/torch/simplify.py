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
"""Rewrites of aten ops that TVM's importer cannot read, or reads as ops that stay on TVM."""

from __future__ import annotations

import operator

import torch
from torch.fx import Node

from .graphs import argument, aten, call, shape


def rewrite(program, values: dict[Node, torch.Tensor]) -> None:
    """Rewrite a program, whose constants have these values, in place."""
    graph = program.graph
    for target in (operator.add, operator.mul):
        for node in graph.find_nodes(op="call_function", target=target):
            _in_pairs(node)
    for node in graph.find_nodes(op="call_function", target=aten.cat.default):
        _without_empty(node)
    for node in graph.find_nodes(op="call_function", target=aten.slice.Tensor):
        if argument(node, "step") == 1 and str(shape(node)) == str(shape(node.args[0])):
            node.replace_all_uses_with(node.args[0])
    for node in graph.find_nodes(op="call_function", target=aten.index.Tensor):
        _indexed_by_ranges(node, values)
    graph.eliminate_dead_code()


def _in_pairs(node: Node) -> None:
    """Add or multiply sizes two by two: PyTorch writes a product of several as one call."""
    first, *rest = node.args
    with node.graph.inserting_before(node):
        for each in rest[:-1]:
            first = call(node.target, first, each)
    node.args = (first, rest[-1])


def _without_empty(node: Node) -> None:
    """Leave out parts of no elements. cat accepts those of shape (0,) with tensors of any rank."""
    axis = argument(node, "dim")
    kept = [each for each in node.args[0] if shape(each) != (0,) and not _is_zero(each, axis)]
    if len(kept) == 1:
        node.replace_all_uses_with(kept[0])
    elif kept and len(kept) < len(node.args[0]):
        node.args = (kept, *node.args[1:])


def _is_zero(node: Node, axis: int) -> bool:
    size = shape(node)[axis]
    return isinstance(size, int) and size == 0


def is_true(node: Node, values: dict) -> bool:
    """Whether all elements of a node are known to be True, as those of range(n) >= 0."""
    value = values.get(node)
    if value is not None:
        return value.dtype == torch.bool and bool(value.all())
    if node.target is aten.bitwise_and.Tensor:
        return all(is_true(each, values) for each in node.args)
    if node.target is not aten.ge.Scalar or node.args[1] > 0:
        return False
    node = _range_of(node.args[0])
    if node.target is not aten.arange.start_step:
        return False
    return argument(node, "start") == 0 and argument(node, "step") > 0


def _range_of(node: Node) -> Node:
    """Return what a node is with other dimensions of one, and 0 added."""
    while node.target is aten.unsqueeze.default or (
        node.target is aten.add.Tensor and node.args[1] == 0
    ):
        node = node.args[0]
    return node


def _indexed_by_ranges(node: Node, values: dict) -> None:
    """Rewrite an index by the range of each axis as a reshape.

    transformers 5 broadcasts padding masks so: mask[range(batch)[:, None], range(length)[None]].
    """
    x, indices = node.args
    sizes, rank = shape(x), len(shape(node))
    if len(indices) != len(sizes) or not all(
        _is_range(each, size, values) for each, size in zip(indices, sizes)
    ):
        return
    # The axis of the result that each axis of the data goes to. Those of size 1 go anywhere.
    axes = []
    for index in indices:
        dims = shape(index)
        axes += [rank - len(dims) + i for i, dim in enumerate(dims) if not _is_one(dim)]
    if axes != sorted(set(axes)):
        return
    with node.graph.inserting_before(node):
        ones = [axis for axis, size in enumerate(sizes) if _is_one(size)]
        x = call(aten.squeeze.dims, x, ones) if ones else x
        for axis in range(rank):
            x = x if axis in axes else call(aten.unsqueeze.default, x, axis)
    node.replace_all_uses_with(x)


def _is_range(node: Node | None, size, values: dict) -> bool:
    """Whether the elements of a node are those of range(size), along one of its axes."""
    if node is None:
        return False
    value = values.get(node)
    if value is not None:
        return isinstance(size, int) and torch.equal(value.flatten(), torch.arange(size))
    node = _range_of(node)
    if node.target is aten.arange.start_step and node.args[0] == 0 and len(node.args) == 2:
        return str(shape(node)[0]) == str(size)
    return False


def _is_one(size) -> bool:
    return isinstance(size, int) and size == 1
