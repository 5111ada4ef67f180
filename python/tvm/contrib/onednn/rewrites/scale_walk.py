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
"""Matches per-channel scales and shifts that fold into the preceding convolution or matmul."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ..ir.match import is_field, is_op, only_user
from ..ir.node import Node
from ..ir.op_view import Tensor, tensor_of
from ..ops.norm import batch_norm_affine
from ..ops.rules import Rules

# Not fields of the rows: what each does to the factor and the summand is told in `_step`.
ADDITIONS = ("add", "subtract", "nn.bias_add")
FACTORS = ("multiply", "divide", "negative")


class Affine(NamedTuple):
    """The per-channel scale and shift that a batch_norm applies at inference.

    Parameters
    ----------
    axis : int
        Of the channels.
    scale, shift : numpy.ndarray
        What each channel is multiplied by, and what is added then.
    """

    axis: int
    scale: np.ndarray
    shift: np.ndarray


def affine_of(node: Node, rules: Rules) -> Affine | None:
    """Match a batch_norm with constant parameters."""
    if not is_op(node, "nn.batch_norm") or rules.excludes(node.name):
        return None
    statistics = node.operands[1:]
    if not all(operand.is_constant for operand in statistics):
        return None
    values = (operand.value.astype("float64") for operand in statistics)
    return Affine(node.attrs.axis, *batch_norm_affine(node.attrs, *values))


class Folded(NamedTuple):
    """A root with what follows it as one op and, perhaps, a bias.

    Parameters
    ----------
    ops : list[Node]
        The root, and what is folded into it.
    weight : numpy.ndarray
        The new weight, in double precision.
    bias : numpy.ndarray | None
        What is to be added, in a shape that broadcasts along the other axes; None for nothing.
    gone : list[Node]
        Those of the ops that are no more: all but the root, and one addition if there was one.
    """

    ops: list[Node]
    weight: np.ndarray
    bias: np.ndarray | None
    gone: list[Node]


class ScaleWalk:
    """Follows the users of a root as long as they multiply and add constants of channels.

    Parameters
    ----------
    root : Node
        An op with a constant weight.
    rules : Rules
        The rules.
    """

    def __init__(self, root: Node, rules: Rules):
        self.root, self.rules = root, rules
        self.row = rules.ops[root.name]
        self.ops = [root]
        self.out = tensor_of(root.result).shape
        self.axis = self.row.channel_axis(root)
        self.scale, self.shift = np.ones(self.out[self.axis]), np.zeros(self.out[self.axis])
        self._has_batch_norm = False

    def matches(self) -> Iterator[Folded]:
        """Yield the foldable chains, each longer by one op."""
        while self._step():
            if not (self.scale == 1.0).all():
                yield self._folded()

    def _folded(self) -> Folded:
        weight = self.root.operands[1].value.astype("float64")
        with np.errstate(all="ignore"):
            weight = self.row.scaled_weight(self.root, weight, self.scale)
        added = next((op for name in ADDITIONS for op in self.ops if op.name == name), None)
        bias = None
        if added is not None or self._has_batch_norm:
            bias = self.shift.reshape(of_channels(len(self.out), self.axis))
        return Folded(list(self.ops), weight, bias, [op for op in self.ops[1:] if op is not added])

    def _step(self) -> bool:
        """Advance to the only user; return whether it can be folded."""
        user = only_user(self.ops[-1])
        if user is None or user.scope != self.ops[0].scope:
            return False
        affine = affine_of(user, self.rules)
        if affine is not None:
            return self._batch_norm(user, affine)
        name = user.name
        if not is_op(user, *ADDITIONS, *FACTORS) or self.rules.refusal(user):
            return False
        if name == "negative":
            scale, shift = -1.0, 0.0
        else:
            is_first = user.operands[0] is self.ops[-1]
            operand = self._per_channel(user, user.args[1 if is_first else 0])
            if operand is None or (name == "divide" and not is_first):
                return False
            with np.errstate(all="ignore"):
                scale, shift = {
                    "multiply": (operand, 0.0),
                    "divide": (1.0 / operand, 0.0),
                    "subtract": (1.0, -operand) if is_first else (-1.0, operand),
                }.get(name, (1.0, operand))
        self._append([user], scale, shift)
        return True

    def _append(self, ops: list[Node], scale, shift) -> None:
        with np.errstate(all="ignore"):
            self.scale, self.shift = self.scale * scale, self.shift * scale + shift
        self.ops += ops

    def _batch_norm(self, node: Node, affine: Affine) -> bool:
        field = only_user(node)
        if field is None or not is_field(field, 0):
            return False
        is_data = node.operands[0] is self.ops[-1]
        if not is_data or affine.axis % len(self.out) != self.axis:
            return False
        self._has_batch_norm = True
        self._append([node, field], affine.scale, affine.shift)
        return True

    def _per_channel(self, call: Node, operand: Tensor) -> np.ndarray | None:
        """Return the value of each channel, or one value; None if an operand is neither."""
        if not operand.is_constant or tensor_of(call.result).shape != self.out:
            return None
        values = operand.value.astype("float64")
        is_bias = self.rules.is_per_channel(self.root, call, values.shape)
        is_scalar = values.size == 1 and call.name != "nn.bias_add"
        return values.reshape(-1) if is_bias or is_scalar else None


def of_channels(rank: int, axis: int) -> tuple[int, ...]:
    """Return the shape of a vector that numpy broadcasts along the other axes of a tensor."""
    return (-1,) + (1,) * (rank - axis - 1)
