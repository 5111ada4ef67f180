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
"""Finds the factors and summands of channels that fold into the convolution or matmul before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ..ir.numbered import Graph
from ..ir.op_view import OpView, Tensor
from ..ops.rules import Rules

# Not fields of the rows: what each does to the factor and the summand is told in `_step`.
ADDITIONS = ("add", "subtract", "nn.bias_add")
FACTORS = ("multiply", "divide", "negative")


class Affine(NamedTuple):
    """The factor and the summand of each channel that a batch_norm applies at inference.

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


class Folded(NamedTuple):
    """A root with what follows it as one op and, perhaps, a bias.

    Parameters
    ----------
    ops : list[int]
        The root, and what is folded into it, by number.
    weight : numpy.ndarray
        The new weight, in double precision.
    bias : numpy.ndarray | None
        What is to be added, in a shape that broadcasts along the other axes; None for nothing.
    gone : list[int]
        Those of the ops that are no more: all but the root, and one addition if there was one.
    """

    ops: list[int]
    weight: np.ndarray
    bias: np.ndarray | None
    gone: list[int]


class ScaleWalk:
    """Follows the users of a root as long as they multiply and add constants of channels.

    A reader derives from it for its IR.

    Parameters
    ----------
    graph : Graph
        The function.
    rules : Rules
        The rules.
    root : int
        An op with a constant weight, by number.
    view : OpView
        The root as its rule sees it.
    """

    def __init__(self, graph: Graph, rules: Rules, root: int, view: OpView):
        self.graph, self.rules, self.view = graph, rules, view
        self.row = rules.ops[view.name]
        self.ops = [root]
        self.out = view.result.shape
        self.axis = self.row.channel_axis(view)
        self.scale, self.shift = np.ones(self.out[self.axis]), np.zeros(self.out[self.axis])
        self._has_batch_norm = False

    def batch_norm(self, i: int) -> Affine | None:
        """Return what an expression does if it is a batch_norm of constants, at inference."""
        raise NotImplementedError

    def matches(self) -> Iterator[Folded]:
        """Yield what can be folded, one op more each time."""
        while self._step():
            if not (self.scale == 1.0).all():
                yield self._folded()

    def _folded(self) -> Folded:
        weight = self.view.args[1].value.astype("float64")
        with np.errstate(all="ignore"):
            weight = self.row.scaled_weight(self.view, weight, self.scale)
        added = next((i for name in ADDITIONS for i in self.ops if self.graph.ops[i] == name), None)
        bias = None
        if added is not None or self._has_batch_norm:
            bias = self.shift.reshape(of_channels(len(self.out), self.axis))
        return Folded(list(self.ops), weight, bias, [i for i in self.ops[1:] if i != added])

    def _step(self) -> bool:
        """Follow the only user; return whether it was one to fold."""
        users = self.graph.users[self.ops[-1]]
        if len(users) != 1 or self.graph.scope[users[0]] != self.graph.scope[self.ops[0]]:
            return False
        affine = self.batch_norm(users[0])
        if affine is not None:
            return self._batch_norm(users[0], affine)
        user, name = self.graph.views[users[0]], self.graph.ops[users[0]]
        if name not in (*ADDITIONS, *FACTORS) or self.rules.refusal(user):
            return False
        if name == "negative":
            scale, shift = -1.0, 0.0
        else:
            is_first = self.graph.operands[users[0]][0] == self.ops[-1]
            operand = self._per_channel(user, user.args[1 if is_first else 0])
            if operand is None or (name == "divide" and not is_first):
                return False
            with np.errstate(all="ignore"):
                scale, shift = {
                    "multiply": (operand, 0.0),
                    "divide": (1.0 / operand, 0.0),
                    "subtract": (1.0, -operand) if is_first else (-1.0, operand),
                }.get(name, (1.0, operand))
        self._append(users, scale, shift)
        return True

    def _append(self, ops: list[int], scale, shift) -> None:
        with np.errstate(all="ignore"):
            self.scale, self.shift = self.scale * scale, self.shift * scale + shift
        self.ops += ops

    def _batch_norm(self, i: int, affine: Affine) -> bool:
        fields = self.graph.users[i]
        if len(fields) != 1 or self.graph.field(fields[0]) != 0:
            return False
        is_data = self.graph.operands[i][0] == self.ops[-1]
        if not is_data or affine.axis % len(self.out) != self.axis:
            return False
        self._has_batch_norm = True
        self._append([i, *fields], affine.scale, affine.shift)
        return True

    def _per_channel(self, call: OpView, operand: Tensor) -> np.ndarray | None:
        """Return the value of each channel, or one value; None if an operand is neither."""
        if not operand.is_constant or call.result.shape != self.out:
            return None
        values = operand.value.astype("float64")
        is_bias = self.rules.is_per_channel(self.view, call, values.shape)
        is_scalar = values.size == 1 and call.name != "nn.bias_add"
        return values.reshape(-1) if is_bias or is_scalar else None


def of_channels(rank: int, axis: int) -> tuple[int, ...]:
    """Return the shape of a vector that numpy broadcasts along the other axes of a tensor."""
    return (-1,) + (1,) * (rank - axis - 1)
