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

import operator

import torch
from torch.fx import Node

from .graphs import argument, aten, shape
from .selections import grouped_ops

_CHECK = aten._assert_tensor_metadata.default
_VIEWS = aten.view.default, aten.reshape.default
_CAT = aten.cat.default
_CONCATS = _CAT, aten.concat.default
_BY_PLACE = aten.gather.default, aten.scatter.value
#: Ops of rows, but along the first axis.
_ALONG = {
    aten.slice.Tensor: "dim",
    aten.split.Tensor: "dim",
    aten.split_with_sizes.default: "dim",
    aten.chunk.default: "dim",
    aten.unsqueeze.default: "dim",
}


def rewrite(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Return a program whose mixtures of experts sort nothing, or the same if it has none.

    Nor have experts parts whose sizes depend on values, which nothing else is compiled with.
    """
    program, grouped = _grouped_parts(program), grouped_ops()
    if not any(node.target in grouped for node in program.graph.nodes):
        return program
    program = program.run_decompositions({})
    for node in program.graph.nodes:
        if node.target is _CHECK and not node.users:
            program.graph.erase_node(node)
    for node in program.graph.find_nodes(op="call_function", target=aten.sort.default):
        mixture = _Mixture.of(node)
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
    for node in graph.find_nodes(op="call_function", target=_CAT):
        counted = _counted_parts(node)
        if counted is None:
            continue
        x, counts, weight = counted
        with graph.inserting_before(node):
            # The rows are counted from 1: how many there are is not known of later layers.
            one = _call(aten.slice.Tensor, x, 1, 0, 1)
            one = _call(aten.ones_like.default, one, dtype=torch.int64)
            row, ends = _call(aten.cumsum.default, one, 0), _call(aten.cumsum.default, counts, 0)
            begun = _call(aten.gt.Tensor, row, _call(aten.sub.Tensor, ends, counts))
            mask = _call(aten.logical_and.default, begun, _call(aten.le.Tensor, row, ends))
            weight = _call(aten.transpose.int, weight, 1, 2)
            _infer(graph)
            node.replace_all_uses_with(_multiplied(x, weight, mask))
            _infer(graph)
    for node in reversed(graph.nodes):
        # Sizes of the parts: nothing but the checks of them is left.
        if node.op == "call_function" and not node.users and _is_of_items(node):
            graph.erase_node(node)
    graph.eliminate_dead_code()
    return torch.export.ExportedProgram(
        program.graph_module,
        graph,
        program.graph_signature,
        program.state_dict,
        program.range_constraints,
        program.module_call_graph,
        program.example_inputs,
        program.constants,
        verifiers=program.verifiers,
    )


def _counted_parts(node: Node) -> tuple[Node, Node, Node] | None:
    """Return the rows, the counts and the weights of a concat of the products of parts, or None."""
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
    return (split.args[0], unbind.args[0], weight) if is_one else None


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


def _multiplied(x: Node, weight: Node, mask: Node) -> Node:
    """Return the products of rows and the weights of the experts that a mask selects."""
    experts, rows, columns = shape(weight)
    weight = _call(aten.permute.default, weight, [1, 0, 2])
    weight = _call(aten.reshape.default, weight, [rows, experts * columns])
    result = _call(aten.mm.default, x, weight)
    result = _call(aten.reshape.default, result, [-1, experts, columns])
    return _selected(_call(aten.unsqueeze.default, mask, 2), result, 1)


class _Mixture:
    """The nodes that read a sort of pairs by experts."""

    def __init__(self, ids, experts, biases, matmuls, places, inverses, tokens):
        self.ids, self.experts, self.biases, self.matmuls = ids, experts, biases, matmuls
        self.places, self.inverses, self.tokens = places, inverses, tokens

    @classmethod
    def of(cls, sort: Node) -> _Mixture | None:
        """Return the mixture of a sort, or None if something else reads the sort."""
        results = {each.args[1]: each for each in sort.users}
        if set(results) != {0, 1} or len(shape(sort.args[0])) != 1:
            return None
        sorted_ids, order = results[0], results[1]
        biases = _indexed_by(sorted_ids)
        counts = _only(_only([each for each in sorted_ids.users if each not in biases]))
        offsets = _only(counts, aten.histc.default)
        matmuls = list(offsets.users) if offsets and offsets.target is aten.cumsum.default else []
        if not matmuls or any(each.target not in grouped_ops() for each in matmuls):
            return None
        experts = shape(offsets)[0]
        places, others = _indexed_by(order), []
        tokens, inverses = [], []
        for each in set(order.users) - set(places):
            if each.target is aten.floor_divide.default and isinstance(each.args[1], int):
                tokens += [(reader, each.args[1]) for reader in _indexed_by(each)]
                others += set(each.users) - set(_indexed_by(each))
            elif each.target is aten.index_put.default and list(each.args[1]) == [order]:
                inverses += _indexed_by(each)
                others += set(each.users) - set(inverses)
            elif each.target is not aten.empty_like.default:
                return None
        first = {*matmuls, *places, *biases, *(reader for reader, _ in tokens)}
        if others or not inverses or not _is_by_rows(first, set(inverses)):
            return None
        return cls(sort.args[0], experts, biases, matmuls, places, inverses, tokens)

    def replace(self) -> None:
        """Compute the pairs in the order of the tokens."""
        mask = self._mask()
        for node, repeats in self.tokens:
            with node.graph.inserting_before(node):
                x, (count, size) = node.args[0], shape(node.args[0])
                x = _call(aten.unsqueeze.default, x, 1)
                x = _call(aten.expand.default, x, [count, repeats, size])
                node.replace_all_uses_with(_call(aten.reshape.default, x, shape(node)))
        for node in (*self.places, *self.inverses):
            node.replace_all_uses_with(node.args[0])
        for node in self.biases:
            with node.graph.inserting_before(node):
                one = _call(aten._to_copy.default, mask, dtype=node.meta["val"].dtype)
                node.replace_all_uses_with(_call(aten.mm.default, one, node.args[0]))
        for node in self.matmuls:
            with node.graph.inserting_before(node):
                node.replace_all_uses_with(_multiplied(*node.args[:2], mask))

    def _mask(self) -> Node:
        """Return whether a pair, the first axis, is of an expert, the second."""
        source, pairs = self.ids, shape(self.ids)[0]
        while source.target in _VIEWS:
            source = source.args[0]
        parts = source.args[0] if source.target in _CONCATS else [source]
        if not all(_is_of_rows(each, self.experts) for each in parts) or (
            len(parts) > 1 and argument(source, "dim") not in (-1, 1)
        ):
            with self.ids.graph.inserting_after(self.ids):
                ids = _call(aten.unsqueeze.default, self.ids, 1)
            with self.ids.graph.inserting_after(ids):
                every = ids.graph.call_function(aten.arange.default, (self.experts,))
            with self.ids.graph.inserting_after(every):
                return _call(aten.eq.Tensor, ids, every)
        masks = [_selection(each) for each in parts]
        with source.graph.inserting_before(source):
            mask = masks[0] if len(masks) == 1 else source.graph.call_function(_CAT, (masks, 1))
            _read_by_mask(source, mask, self.experts)
            return _call(aten.reshape.default, mask, [pairs, self.experts])


def _selection(index: Node) -> Node:
    """Return whether the largest element of a rank, the second axis, is at a place, the third."""
    top = index.args[0]
    x, is_topk = top.args[0], top.target is aten.topk.default
    with top.graph.inserting_before(top):
        mask = _top(x, top.args[1] if is_topk else 1)
        for result in top.users if is_topk else ():
            if result.args[1] == 0:
                row = _call(aten.unsqueeze.default, x, 1)
                result.replace_all_uses_with(_selected(mask, row, 2))
    _read_by_mask(index, mask, shape(x)[1])
    return mask


def _read_by_mask(index: Node, mask: Node, experts: int) -> None:
    """Let what gathers or assigns elements of rows by the places of a mask read the mask."""
    rows, count = shape(index)
    for node in list(index.users):
        is_along = node.target in _BY_PLACE and argument(node, "dim") in (-1, 1)
        if not is_along or shape(node.args[0]) != (rows, experts):
            continue
        with node.graph.inserting_before(node):
            if node.target is aten.gather.default:
                row = _call(aten.unsqueeze.default, node.args[0], 1)
                node.replace_all_uses_with(_selected(mask, row, 2))
            elif count == 1:
                one = _call(aten.reshape.default, mask, [rows, experts])
                value = _call(aten.full_like.default, node.args[0], argument(node, "value"))
                new = _call(aten.where.self, one, value, node.args[0])
                # The next largest element may be chosen from it.
                new.meta = dict(node.meta)
                node.replace_all_uses_with(new)


def _only(nodes, target=None) -> Node | None:
    """Return the only node, or the only user of a node that calls an op, or None."""
    if isinstance(nodes, Node):
        nodes = nodes.users if target in (None, nodes.target) else ()
    nodes = list(nodes or ())
    return nodes[0] if len(nodes) == 1 else None


def _indexed_by(node: Node) -> list[Node]:
    """Return the nodes that index the first axis of others by a node."""
    return [
        each
        for each in node.users
        if each.target is aten.index.Tensor and list(each.args[1]) == [node]
    ]


def _is_by_rows(nodes: set, ends: set) -> bool:
    """Whether all that follows, until these ends, computes each row alone."""
    reached, todo = set(), list(nodes)
    while todo:
        node = todo.pop()
        if node in reached or node in ends:
            continue
        reached.add(node)
        if node not in nodes and not _is_by_row(node):
            return False
        todo += node.users
    return True


def _is_by_row(node: Node) -> bool:
    if node.target in _ALONG:
        return argument(node, _ALONG[node.target]) != 0
    if node.target is operator.getitem or node.target in grouped_ops():
        return True
    return torch.Tag.pointwise in getattr(node.target, "tags", ())


def _is_of_rows(index: Node, experts: int) -> bool:
    """Whether a node has the places of the largest elements of rows of the experts."""
    if index.target is not operator.getitem or index.args[1] != 1:
        return False
    top = index.args[0]
    if top.target is aten.topk.default:
        is_largest = argument(top, "largest")
    else:
        is_largest = top.target is aten.max.dim and argument(top, "keepdim")
    if not is_largest or argument(top, "dim") not in (-1, 1):
        return False
    sizes = shape(top.args[0])
    return len(sizes) == 2 and sizes[1] == experts


def _top(x: Node, count: int) -> Node:
    """Return whether the largest element of a rank, the second axis, is at a place, the third."""
    graph = x.graph
    size, dtype = shape(x)[1], x.meta["val"].dtype
    ones = graph.call_function(aten.ones.default, ([size, size],), {"dtype": dtype})
    earlier = _call(aten.tril.default, ones, -1)
    other, own = (_call(aten.unsqueeze.default, x, axis) for axis in (1, 2))
    # Of equal elements the first one precedes.
    equal = _call(aten.where.ScalarOther, _call(aten.ge.Tensor, other, own), earlier, 0.0)
    before = _call(aten.where.ScalarSelf, _call(aten.gt.Tensor, other, own), 1.0, equal)
    rank = _call(aten.sum.dim_IntList, before, [-1])
    every = graph.call_function(aten.arange.default, (count,), {"dtype": dtype})
    every = _call(aten.unsqueeze.default, every, 1)
    return _call(aten.eq.Tensor, _call(aten.unsqueeze.default, rank, 1), every)


def _selected(mask: Node, x: Node, axis: int) -> Node:
    """Return the one element along an axis that a mask selects."""
    return _call(aten.sum.dim_IntList, _call(aten.where.ScalarOther, mask, x, 0.0), [axis])


def _call(target, first: Node, *args, **kwargs) -> Node:
    """Add a call without a type: the decomposition that follows computes it."""
    return first.graph.call_function(target, (first, *args), kwargs)
