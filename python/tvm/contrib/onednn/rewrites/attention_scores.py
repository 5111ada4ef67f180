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
"""Matches the scale and masks between the first matmul of an attention and its softmax."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..ir.dim import is_same
from ..ir.match import is_op, scalar_of
from ..ir.node import CALL, Node
from .maker import Maker, UnsupportedOp
from .softmax_guards import filled_value

MATMUL = "nn.batch_matmul"

# A score that is added to such a number, and is not as large itself, is that number.
_LOWEST = -1e30

# What may be between the matmul and the softmax.
_CHANGES = ("add", "multiply", "divide", "where", "reshape")


class Scores(NamedTuple):
    """The scores that a softmax reads.

    Attributes
    ----------
    matmul : Node
        The matmul of queries and keys.
    reshape : Node | None
        Gives the scores of a group of heads, which one matmul computes, a row of each head.
    scale : float
        The factor of the scores.
    masks : list[tuple]
        What changes them, the last first: ("add", what is added), or ("where", the condition,
        whether it is true for the scores that are kept, the value of the others).
    """

    matmul: Node
    reshape: Node | None
    scale: float
    masks: list[tuple]

    @property
    def dims(self):
        """The shape of the scores, with all heads."""
        return (self.reshape or self.matmul).tensor.dims


def scores_of(softmax: Node) -> Scores | None:
    """Return the scores that a softmax reads; None if they are not those of an attention."""
    scale, masks, reshape = 1.0, [], None
    user, node = softmax, softmax.operands[0]
    while not is_inside(node, user, MATMUL):
        if not is_inside(node, user, *_CHANGES):
            return None
        factor = factor_of(node)
        if factor is not None:
            scale, user, node = scale * factor[1], node, factor[0]
            continue
        # Masks are those of heads, which the matmul has as rows.
        if reshape is not None:
            return None
        if node.name == "reshape":
            reshape, user, node = node, node, node.operands[0]
            continue
        mask = _mask_of(node)
        if mask is None or scale != 1.0:
            return None
        masks.append((node.name, *mask[1:]))
        user, node = node, mask[0]
    return Scores(node, reshape, scale, masks)


def mask_of(make: Maker, scores: Scores, is_exact: bool) -> tuple[list[Node], bool]:
    """Return the additive masks, at most two, and whether the attention is causal.

    Parameters
    ----------
    make : Maker
        Makes the mask.
    scores : Scores
        The scores.
    is_exact : bool
        Whether a score of NaN must remain hidden by a mask.

    Raises
    ------
    UnsupportedOp
        No mask that is added has the same result.
    """
    kinds, dtype = [kind for kind, *_ in scores.masks], scores.matmul.tensor.dtype
    masks = [mask for kind, mask, *_ in reversed(scores.masks) if kind == "add"]
    if len(masks) + 2 * kinds.count("where") > 3 or len(masks) > 2:
        raise UnsupportedOp("the sum of several masks would be another op")
    if "where" in kinds:
        if is_exact:
            raise UnsupportedOp("a score of NaN is hidden only by a selection")
        ((_, condition, keeps, number),) = (each for each in scores.masks if each[0] == "where")
        kept = masks[0] if masks else make.scalar(0.0, dtype)
        hidden = make.scalar(number, dtype)
        # What is added after the selection is added to what it selects, too.
        if kinds == ["add", "where"]:
            hidden = make("add", kept, hidden)
        masks = [make("where", condition, *((kept, hidden) if keeps else (hidden, kept)))]
    others = [mask for mask in masks if not _is_causal(mask, scores.dims[-2:])]
    return others, len(others) < len(masks)


def is_inside(node: Node, user: Node, *names: str) -> bool:
    """Whether a node is one of the given ops and `user` is its only user."""
    return (
        node.name in names
        and node.is_call
        and node.users == [user]
        and node.scope == user.scope
        and not node.is_pinned
    )


def factor_of(node: Node) -> tuple[Node, float] | None:
    """Match a tensor multiplied by a scalar."""
    if not is_op(node, "multiply", "divide"):
        return None
    left, right = node.operands
    number = scalar_of(right)
    if number is None and node.name == "multiply":
        left, number = right, scalar_of(left)
    if number is None or not is_same_shape(left.tensor.dims, node.tensor.dims):
        return None
    if node.name == "divide":
        return (left, 1.0 / number) if number else None
    return left, number


def is_same_shape(one, other) -> bool:
    """Whether two shapes are the same in every run."""
    return len(one) == len(other) and all(map(is_same, one, other))


def _leads_to_matmul(node: Node, user: Node) -> bool:
    while is_inside(node, user, *_CHANGES):
        for operand in node.operands:
            if is_inside(operand, node, MATMUL, *_CHANGES):
                user, node = node, operand
                break
        else:
            return False
    return is_inside(node, user, MATMUL)


def _mask_of(node: Node) -> tuple | None:
    """Return the scores that an addition or a selection changes, and how; see `Scores.masks`."""
    if node.name not in ("add", "where"):
        return None
    first = 0 if node.name == "add" else 1
    inner = [k for k in (first, first + 1) if _leads_to_matmul(node.operands[k], node)]
    if len(inner) != 1:
        return None
    scores, other = node.operands[inner[0]], node.operands[2 * first + 1 - inner[0]]
    if node.name == "add":
        return scores, other
    hidden = filled_value(other)
    if hidden is None or not hidden <= _LOWEST:
        return None
    return scores, node.operands[0], inner[0] == 1, hidden


def _is_causal(mask: Node, lengths) -> bool:
    """Whether a mask is exactly the causal one.

    The last query is that of the last key.
    """
    queries, keys = lengths
    if mask.name == "triu" and mask.kind == CALL:
        # All but the diagonal and what is before it is the number.
        hidden = filled_value(mask.operands[0])
        is_square = is_same(queries, keys) and len(mask.operands) == 1
        is_square = is_square and is_same_shape(mask.tensor.dims[-2:], lengths)
        return is_square and mask.attrs.k == 1 and hidden is not None and hidden <= _LOWEST
    if not mask.is_constant or not isinstance(keys, int) or not isinstance(queries, int):
        return False
    values = np.asarray(mask.value, "float32")
    if queries > keys or values.size != queries * keys or values.shape[-2:] != (queries, keys):
        return False
    values = values.reshape(queries, keys)
    seen = np.tri(queries, keys, keys - queries, dtype=bool)
    return bool(np.all(values[seen] == 0) and np.all(values[~seen] <= _LOWEST))
