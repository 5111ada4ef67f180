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
"""The nodes of a mixture of experts, which sorts pairs of a token and an expert."""

from __future__ import annotations

import operator

import torch
from torch.fx import Node

from .graphs import argument, aten, shape
from .selections import grouped_ops

#: The op that checks the type of a tensor.
CHECK = aten._assert_tensor_metadata.default
_VIEWS = aten.view.default, aten.reshape.default, aten.flatten.using_ints
_CASTS = aten.to.dtype, aten._to_copy.default
_ZEROS = aten.zeros.default, aten.new_zeros.default
#: The op that joins tensors.
CAT = aten.cat.default
_CONCATS = CAT, aten.concat.default
_BY_PLACE = aten.gather.default, aten.scatter.value
#: What leads from one choice to the next, beside ops of rows.
_BETWEEN = (
    *(*_VIEWS, *_CASTS, *_BY_PLACE, aten.sum.dim_IntList),
    *(aten.expand.default, aten.clone.default, aten._unsafe_view.default),
    aten.masked_fill.Scalar,
)
#: Ops of rows, but along the first axis.
_ALONG = {
    aten.slice.Tensor: "dim",
    aten.split.Tensor: "dim",
    aten.split_with_sizes.default: "dim",
    aten.chunk.default: "dim",
    aten.unsqueeze.default: "dim",
}


class Mixture:
    """The nodes that read a sort of pairs by experts.

    Attributes
    ----------
    rows : set[Node]
        The nodes with a row for each pair, in the order of the sort.
    """

    def __init__(self, ids, experts, biases=(), matmuls=()):
        self.ids, self.experts, self.biases, self.matmuls = ids, experts, biases, matmuls
        self.places, self.inverses, self.tokens, self.sums = [], [], [], []
        self.rows = set()

    @classmethod
    def of(cls, sort: Node) -> Mixture | None:
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
        result = cls(sort.args[0], shape(offsets)[0], biases, matmuls)
        return result if result._reads(order, {*matmuls, *biases}, set()) else None

    @classmethod
    def of_counts(cls, counts: Node, products: dict) -> Mixture | None:
        """Return the mixture whose pairs are counted, or None if it is not all that reads a sort.

        Parameters
        ----------
        counts : Node
            The number of pairs of each expert.
        products : dict[Node, tuple[Node, Node]]
            By the products of sorted rows: the split of the rows, and the weights.
        """
        chosen, experts = _scattered(counts), shape(counts)[0]
        if chosen is None or not _is_of_rows(chosen, experts):
            return None
        for ids in filter(lambda each: each.target in _VIEWS, chosen.users):
            sort = _only(ids)
            if sort is None or sort.target is not aten.sort.default or len(shape(ids)) != 1:
                continue
            order = _only([each for each in sort.users if each.users])
            if order is None or order.args[1] != 1:
                continue
            result = cls(ids, experts)
            if result._reads(order, {*products}, {split for split, _ in products.values()}):
                return result
        return None

    def _reads(self, order: Node, first: set, last: set) -> bool:
        """Find what reads the order of the sort; return whether all of it can be replaced.

        Products of the sorted rows are `first`, and what they read is `last`.
        """
        self.places, others, pairs = _indexed_by(order), [], shape(self.ids)[0]
        for each in set(order.users) - set(self.places):
            if _is_quotient(each):
                count, indexed = each.args[1], _indexed_by(each)
                sums = [one for one in each.users if _is_sum(one, each, pairs // count)]
                self.tokens += [(reader, count) for reader in indexed]
                self.sums += [(one, count) for one in sums]
                others += set(each.users) - {*indexed, *sums}
            elif each.target is aten.index_put.default and list(each.args[1]) == [order]:
                self.inverses += _indexed_by(each)
                others += set(each.users) - set(self.inverses)
            elif _is_sum(each, order, pairs):
                self.inverses.append(each)
            elif each.target is not aten.empty_like.default:
                return False
        ends = {*self.inverses, *(one for one, _ in self.sums)}
        first = {*first, *self.places, *(reader for reader, _ in self.tokens)}
        rows = _by_rows(first, ends | last)
        self.rows = rows or set()
        return not others and bool(ends) and rows is not None

    def replace(self) -> Node:
        """Compute the pairs in the order of the tokens; return the experts of each."""
        mask = self._mask()
        for node, repeats in self.tokens:
            with node.graph.inserting_before(node):
                x, (count, size) = node.args[0], shape(node.args[0])
                x = call(aten.unsqueeze.default, x, 1)
                x = call(aten.expand.default, x, [count, repeats, size])
                node.replace_all_uses_with(call(aten.reshape.default, x, shape(node)))
        for node in (*self.places, *self.inverses):
            is_sum = node.target is aten.index_add.default
            node.replace_all_uses_with(node.args[3 if is_sum else 0])
        for node, repeats in self.sums:
            with node.graph.inserting_before(node):
                count, *rest = shape(node)
                x = call(aten.reshape.default, node.args[3], [count, repeats, *rest])
                node.replace_all_uses_with(call(aten.sum.dim_IntList, x, [1]))
        for node in self.biases:
            with node.graph.inserting_before(node):
                one = call(aten._to_copy.default, mask, dtype=node.meta["val"].dtype)
                node.replace_all_uses_with(call(aten.mm.default, one, node.args[0]))
        for node in self.matmuls:
            with node.graph.inserting_before(node):
                node.replace_all_uses_with(multiplied(*node.args[:2], mask))
        return mask

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
                ids = call(aten.unsqueeze.default, self.ids, 1)
            with self.ids.graph.inserting_after(ids):
                every = ids.graph.call_function(aten.arange.default, (self.experts,))
            with self.ids.graph.inserting_after(every):
                return call(aten.eq.Tensor, ids, every)
        for each in parts:
            _select_groups(each.args[0].args[0])
        masks = [_selection(each) for each in parts]
        with source.graph.inserting_before(source):
            mask = masks[0] if len(masks) == 1 else source.graph.call_function(CAT, (masks, 1))
            _read_by_mask(source, mask)
            return call(aten.reshape.default, mask, [pairs, self.experts])


def _select_groups(x: Node) -> None:
    """Let what chooses groups of experts, and masks the elements of the others, sort nothing."""
    todo, reached = [x], set()
    while todo:
        node = todo.pop()
        if node in reached:
            continue
        reached.add(node)
        if node.target is aten.topk.default:
            results = {each.args[1]: each for each in node.users}
            is_last = argument(node, "dim") in (-1, len(shape(node.args[0])) - 1)
            if is_last and argument(node, "largest"):
                _replace_top(node, results.get(1))
            todo.append(node.args[0])
        elif _is_by_row(node) or node.target in _BETWEEN:
            todo += node.all_input_nodes


def _selection(index: Node) -> Node:
    """Return whether the largest element of a rank, the second axis, is at a place, the third."""
    return _replace_top(index.args[0], index)


def _replace_top(top: Node, index: Node | None) -> Node:
    """Let what reads the elements and the places of the largest ones read their mask; return it."""
    x, is_topk = top.args[0], top.target is aten.topk.default
    with top.graph.inserting_before(top):
        mask = _top(x, top.args[1] if is_topk else 1)
        for result in top.users if is_topk else ():
            if result.args[1] == 0:
                row = call(aten.unsqueeze.default, x, -2)
                result.replace_all_uses_with(_selected(mask, row, -1))
    if index is not None:
        _read_by_mask(index, mask)
    return mask


def _read_by_mask(index: Node, mask: Node) -> None:
    """Let what gathers or assigns elements of rows by the places of a mask read the mask."""
    *rows, _ = shape(index)
    for node in list(index.users):
        is_along = node.target in _BY_PLACE and argument(node, "dim") in (-1, len(rows))
        if not is_along or shape(node.args[0])[:-1] != tuple(rows):
            continue
        with node.graph.inserting_before(node):
            if node.target is aten.gather.default:
                row = call(aten.unsqueeze.default, node.args[0], -2)
                node.replace_all_uses_with(_selected(mask, row, -1))
            else:
                counts = call(aten.sum.dim_IntList, call(aten.where.Scalar, mask, 1.0, 0.0), [-2])
                one = call(aten.gt.Scalar, counts, 0)
                value = call(aten.full_like.default, node.args[0], argument(node, "value"))
                new = call(aten.where.self, one, value, node.args[0])
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


def _is_quotient(node: Node) -> bool:
    """Whether a node is one of integers that are not negative, by a number."""
    is_rounded = node.target is aten.div.Tensor_mode and argument(node, "rounding_mode")
    is_divided = node.target is aten.floor_divide.default or is_rounded
    return bool(is_divided) and isinstance(node.args[1], int)


def _is_sum(node: Node, index: Node, count: int) -> bool:
    """Whether a node adds rows by their indices to so many rows of zeros."""
    if node.target is not aten.index_add.default or node.args[2] is not index:
        return False
    is_zero = node.args[0].target in _ZEROS and argument(node, "alpha") == 1
    return is_zero and argument(node, "dim") == 0 and shape(node)[0] == count


def _scattered(counts: Node) -> Node | None:
    """Return the indices of rows that are counted: by the sum of ones at their places, or None."""
    if counts.target is not aten.sum.dim_IntList or list(counts.args[1]) != [0]:
        return None
    ones = counts.args[0]
    while ones.target in _CASTS:
        ones = ones.args[0]
    is_one = ones.target is aten.scatter.value and argument(ones, "value") == 1
    if not is_one or ones.args[0].target not in _ZEROS or argument(ones, "dim") not in (-1, 1):
        return None
    return ones.args[2]


def _by_rows(nodes: set, ends: set) -> set | None:
    """Return what follows, until these ends, if it computes each row alone, else None."""
    reached, todo = set(), list(nodes)
    while todo:
        node = todo.pop()
        if node in reached or node in ends or node.target is CHECK:
            continue
        reached.add(node)
        if node not in nodes and not _is_by_row(node):
            return None
        todo += node.users
    return reached


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
    """Return whether the element of a rank, the last axis but one, is at a place, the last one."""
    graph = x.graph
    size, dtype = shape(x)[-1], x.meta["val"].dtype
    ones = graph.call_function(aten.ones.default, ([size, size],), {"dtype": dtype})
    earlier = call(aten.tril.default, ones, -1)
    other, own = (call(aten.unsqueeze.default, x, axis) for axis in (-2, -1))
    # Of equal elements the first one precedes.
    equal = call(aten.where.ScalarOther, call(aten.ge.Tensor, other, own), earlier, 0.0)
    before = call(aten.where.ScalarSelf, call(aten.gt.Tensor, other, own), 1.0, equal)
    rank = call(aten.sum.dim_IntList, before, [-1])
    every = graph.call_function(aten.arange.default, (count,), {"dtype": dtype})
    every = call(aten.unsqueeze.default, every, 1)
    return call(aten.eq.Tensor, call(aten.unsqueeze.default, rank, -2), every)


def _selected(mask: Node, x: Node, axis: int) -> Node:
    """Return the one element along an axis that a mask selects."""
    return call(aten.sum.dim_IntList, call(aten.where.ScalarOther, mask, x, 0.0), [axis])


def call(target, first: Node, *args, **kwargs) -> Node:
    """Add a call without a type: the decomposition that follows computes it."""
    return first.graph.call_function(target, (first, *args), kwargs)


def multiplied(x: Node, weight: Node, mask: Node) -> Node:
    """Return the products of rows and the weights of the experts that a mask selects."""
    experts, rows, columns = shape(weight)
    weight = call(aten.permute.default, weight, [1, 0, 2])
    weight = call(aten.reshape.default, weight, [rows, experts * columns])
    result = call(aten.mm.default, x, weight)
    result = call(aten.reshape.default, result, [-1, experts, columns])
    return _selected(call(aten.unsqueeze.default, mask, 2), result, 1)
