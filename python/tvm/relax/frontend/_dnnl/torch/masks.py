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
"""Rewrites of attention: boolean masks, and repeated heads."""

from __future__ import annotations

import math

import torch
from torch.fx import Node

from .graphs import argument, aten, call, shape
from .simplify import is_true

_ATTENTION = aten.scaled_dot_product_attention.default
#: Added to the scores of masked positions: their softmax is exactly 0, and a row of them is finite.
_MASKED = -1e30


def rewrite(program, values: dict[Node, torch.Tensor]) -> None:
    """Rewrite the attentions of a program in place.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        The program, in which attention is not decomposed.
    values : dict[Node, torch.Tensor]
        Its constants.
    """
    biases: dict[tuple[Node, torch.dtype], Node] = {}
    for node in program.graph.find_nodes(op="call_function", target=_ATTENTION):
        _share_heads(node)
        mask = argument(node, "attn_mask")
        if mask is not None:
            _float_mask(node, mask, values, biases)
    program.graph.eliminate_dead_code()


def _float_mask(node: Node, mask: Node, values: dict, biases: dict) -> None:
    """Add a mask to the scores: -inf where it is False.

    The converter of the attention makes rows without any position 0, as PyTorch defines it.
    """
    mask = _not_broadcast(mask, values)
    if mask.meta["val"].dtype == torch.bool:
        key = mask, node.meta["val"].dtype
        if key not in biases:
            biases[key] = _bias(*key, _MASKED if _has_positions(mask, values) else -math.inf)
        mask = biases[key]
    node.update_arg(3, mask) if len(node.args) > 3 else node.update_kwarg("attn_mask", mask)


def _bias(mask: Node, dtype: torch.dtype, masked: float) -> Node:
    """Return 0 where a mask is True, and another value elsewhere; once for all attentions."""
    axes, narrow = [], mask
    while narrow.target is aten.unsqueeze.default:
        axes.insert(0, narrow.args[1])
        narrow = narrow.args[0]
    with mask.graph.inserting_before(mask.next):
        options = [
            mask.graph.call_function(aten.full.default, ([], value), {"dtype": dtype})
            for value in (0.0, masked)
        ]
        for each in options:
            each.meta = {"val": narrow.meta["val"].new_empty([], dtype=dtype)}
        bias = call(aten.where.self, narrow, *options)
        for axis in axes:
            bias = call(aten.unsqueeze.default, bias, axis)
    return bias


def _not_broadcast(mask: Node, values: dict) -> Node:
    """Return what a mask is expanded from, or combined with True: attention broadcasts it."""
    operands = [mask.args[0]] if mask.target is aten.expand.default else []
    if mask.target is aten.bitwise_and.Tensor:
        pairs = mask.args, mask.args[::-1]
        operands = [one for one, other in pairs if is_true(other, values)]
    for each in operands:
        last = [str(shape(one)[-1:]) for one in (each, mask)]
        if len(shape(each)) >= 2 and last[0] == last[1]:
            return _not_broadcast(each, values)
    return mask


def _has_positions(mask: Node, values: dict) -> bool:
    """Whether each row of a mask is known to have a position that is not masked."""
    value = values.get(mask)
    if value is None:
        return False
    kept = value if value.dtype == torch.bool else value > float("-inf")
    return bool(kept.any(-1).all())


def _share_heads(node: Node) -> None:
    """Let queries share the heads of keys and values that a model repeats for them."""
    query, key, value = node.args[:3]
    heads = [shape(each)[1] for each in (query, key, value) if len(shape(each)) == 4]
    if len(heads) == 3 and heads[0] != 1 and heads[1:] == [1, 1]:
        # PyTorch broadcasts a single head, as of multi-query attention, to those of the queries.
        node.update_kwarg("enable_gqa", True)
        return
    pair = _not_repeated(key), _not_repeated(value)
    if argument(node, "enable_gqa") or None in pair or shape(pair[0])[1] != shape(pair[1])[1]:
        return
    node.args = (query, *pair, *node.args[3:])
    node.update_kwarg("enable_gqa", True)


def _not_repeated(node: Node) -> Node | None:
    """Return what view(expand(unsqueeze(x, 2))) repeats along axis 1, if that is what a node is."""
    repeated = node
    if node.target not in (aten.view.default, aten.reshape.default):
        return None
    node = node.args[0]
    if node.target is aten.clone.default:
        node = node.args[0]
    if node.target is not aten.expand.default:
        return None
    expanded, node = shape(node), node.args[0]
    if node.target is not aten.unsqueeze.default or node.args[1] != 2 or len(expanded) != 5:
        return None
    source = node.args[0]
    batch, heads, repeats, *rest = expanded
    same = (batch, heads, *rest) == shape(source) and shape(node)[2] == 1
    return source if same and shape(repeated) == (batch, heads * repeats, *rest) else None
