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
"""Finds the spatial positions that are read, where strided 1x1 convolutions skip some.

Where all that reads a tensor skips the same spatial positions, the convolution that computes it
can skip them with strides of its own, and what is between them work on the smaller tensor. Each
number that is still computed is computed as before.
"""

from __future__ import annotations

import functools
import math
from functools import cached_property
from typing import NamedTuple, Optional

from ..ir.numbered import Graph
from ..ir.op_view import OpView
from ..ops.quantize import DEQUANTIZE, QUANTIZE, is_per_tensor
from ..ops.rules import Rules
from ..ops.tensors import ints
from ..ops.windows import SPATIAL

# The steps along each axis; None for 1 along all.
Steps = Optional[tuple[int, ...]]


def _steps(values) -> tuple[int, ...] | None:
    values = tuple(values)
    return None if all(value == 1 for value in values) else values


class _Conv:
    """The strides of a convolution along the axes of its data."""

    def __init__(self, call: OpView):
        attrs = call.attrs
        layout = attrs.data_layout
        self.axes = [layout.index(letter) for letter in layout if letter in SPATIAL]
        strides = ints(attrs.strides)
        strides = strides * (len(self.axes) // len(strides))
        self.strides = [1] * len(layout)
        for axis, stride in zip(self.axes, strides):
            self.strides[axis] = stride
        kernel = dict(zip(attrs.kernel_layout, call.args[1].shape))
        window = [kernel[letter] for letter in layout if letter in SPATIAL]
        self.is_pointwise = math.prod(window) == 1 and not any(ints(attrs.padding))

    def with_steps(self, steps: Steps) -> list[int]:
        """Return the strides of a convolution of which only every so many outputs are read."""
        return [a * b for a, b in zip(self.strides, steps or [1] * len(self.strides))]


class Subsample(NamedTuple):
    """A pool whose windows are single elements: it reads every so many elements of an operand.

    A slice with steps has no number for the end of an axis whose size is open, and oneDNN has none
    where the size is no multiple of the step. The average of one value is that value,
    infinities too, and so is the greatest of one integer.

    Parameters
    ----------
    op : str
        The function of `nn` that pools.
    strides : list[int]
        Along the spatial axes.
    layout : str
        Of the operand.
    is_dequantized : bool
        The operand is a dequantize: its integers are pooled, so that they are still read in 8 bits.
    """

    op: str
    strides: list[int]
    layout: str
    is_dequantized: bool

    @property
    def attrs(self) -> dict[str, object]:
        """The attributes of the pool."""
        window = [1] * len(self.strides)
        return {"pool_size": window, "strides": self.strides, "layout": self.layout}


class ReadPositions:
    """Which elements of what is computed in a graph are read.

    Parameters
    ----------
    graph : Graph
        The function, in which what makes or reads a formula is several ops.
    rules : Rules
        The rules.
    """

    def __init__(self, graph: Graph, rules: Rules):
        self.graph, self.rules = graph, rules
        self._shape = functools.cache(lambda i: graph.result(i).shape)
        self.convs: dict[int, _Conv] = {}
        self.eltwise: set[int] = set()
        # The first result of a batch_norm, and the batch_norm where that is all that is used.
        self.norms: set[int] = set()
        # Few models have one, and to ask the rules about each call takes long.
        if any(map(self._may_skip_positions, graph.views)):
            for i in range(len(graph.operands)):
                self._classify(i)

    def _may_skip_positions(self, call: OpView | None) -> bool:
        """Whether a call is a convolution with strides whose window is one position."""
        spec = None if call is None else self.rules.ops.get(call.name)
        if spec is None or not spec.skips_positions:
            return False
        strides = ints(call.attrs.strides)
        if strides is None or all(stride == 1 for stride in strides):
            return False
        window = zip(call.attrs.kernel_layout, getattr(call.args[1], "shape", ()))
        return all(size == 1 for letter, size in window if letter in SPATIAL)

    def _classify(self, i: int) -> None:
        name = self.graph.ops[i]
        if self.graph.field(i) is not None:
            if self.graph.operands[i][0] in self.norms:
                self.norms.add(i)
        elif name in self.rules.ops and self.rules.refusal(self.graph.views[i]) is None:
            if self.rules.ops[name].skips_positions:
                self.convs[i] = _Conv(self.graph.views[i])
            elif name == "nn.batch_norm":
                if all(self.graph.field(user) == 0 for user in self.graph.users[i]):
                    self.norms.add(i)
            elif self.rules.ops[name].post is not None or name == DEQUANTIZE:
                self.eltwise.add(i)

    @cached_property
    def steps(self) -> dict[int, tuple[int, ...]]:
        """By number: along each axis, only every so many elements are read."""
        if not any(conv.is_pointwise and _steps(conv.strides) for conv in self.convs.values()):
            return {}
        kept: set[int] = set()
        while True:
            steps = self._propagated(kept)
            complete = [i for i in steps if not self._can_skip(i, steps)]
            if not complete:
                return steps
            kept.update(complete)

    def _propagated(self, kept: set[int]) -> dict[int, tuple[int, ...]]:
        """Go from the results to the inputs; of what is in `kept` all is read."""
        steps: dict[int, tuple[int, ...]] = {}
        for i in reversed(range(len(self.graph.operands))):
            if i in kept or not (i in self.convs or i in self.eltwise or i in self.norms):
                continue
            read = {self._read_by(user, i, steps) for user in self.graph.users[i]}
            if len(read) == 1 and None not in read:
                steps[i] = read.pop()
        return steps

    def _read_by(self, user: int, i: int, steps: dict[int, tuple[int, ...]]) -> Steps:
        """Say which elements of `i` one of its users reads."""
        operands = self.graph.operands[user]
        if self.graph.scope[user] != self.graph.scope[i]:
            return None
        if user in self.convs:
            is_data = operands[0] == i and operands[1] != i
            conv = self.convs[user]
            return (
                _steps(conv.with_steps(steps.get(user))) if is_data and conv.is_pointwise else None
            )
        if user in self.norms:
            return steps.get(user) if operands[0] == i else None
        if user in self.eltwise and self._is_full(i, user, steps.get(user)):
            return steps.get(user)
        return None

    def _is_full(self, operand: int, user: int, steps: Steps) -> bool:
        """Whether an operand is not broadcast along the axes of which some elements are skipped.

        Two open sizes must be the same in every call: of others, the shorter ones of different
        sizes could match.
        """
        if len(self._shape(operand)) != len(self._shape(user)):
            return False
        axes = (axis for axis, step in enumerate(steps or ()) if step > 1)
        return all(self.graph.is_same_size(operand, user, axis) for axis in axes)

    def _can_skip(self, i: int, steps: dict[int, tuple[int, ...]]) -> bool:
        """Whether the elements can be left out where they are computed, not only afterwards."""
        if i in self.convs:
            # After a convolution in another layout a spatial axis may be the channels.
            axes = self.convs[i].axes
            return all(step == 1 or axis in axes for axis, step in enumerate(steps[i]))
        operands = self.graph.operands[i]
        if i in self.norms:
            return operands[0] in steps
        full = [operand for operand in operands if self._is_full(operand, i, steps[i])]
        for operand in operands:
            sizes = self._sizes(operand, i) if operand not in full else ()
            if any(s > 1 and n != 1 for s, n in zip(steps[i], sizes)):
                return False
        return any(operand in steps for operand in full) and all(
            operand in steps or self._subsample(operand, steps[i]) is not None for operand in full
        )

    def _sizes(self, operand: int, user: int) -> tuple[int | None, ...]:
        """Return the shape of a broadcast operand, with a dimension for each of the result."""
        shape, rank = self._shape(operand), len(self._shape(user))
        if self.graph.ops[user] in ("nn.bias_add", DEQUANTIZE, QUANTIZE) and shape:
            # A vector along an axis, or a scale of one element.
            sizes = [1] * rank
            sizes[int(self.graph.views[user].attrs.axis)] = shape[0]
            return tuple(sizes)
        return (1,) * (rank - len(shape)) + shape

    def _subsample(self, i: int, steps: tuple[int, ...]) -> Subsample | None:
        """Leave elements out of a tensor of all; None where oneDNN cannot."""
        is_dequantized = self.graph.ops[i] == DEQUANTIZE and is_per_tensor(self.graph.views[i])
        letters = SPATIAL[5 - len(steps) :]
        op = f"{'max' if is_dequantized else 'avg'}_pool{len(letters)}d"
        if self.rules.excludes(f"nn.{op}"):
            return None
        for layout in (f"NC{letters}", f"N{letters}C"):
            strides = [step for letter, step in zip(layout, steps) if letter in letters]
            if math.prod(strides) == math.prod(steps):
                return Subsample(op, strides, layout, is_dequantized)
        return None

    def strides(self) -> dict[int, list[int]]:
        """Return the strides of convolutions that get others, by number."""
        changed = {}
        for i, conv in self.convs.items():
            before = self.steps.get(self.graph.operands[i][0], [1] * len(conv.strides))
            strides = [a // b for a, b in zip(conv.with_steps(self.steps.get(i)), before)]
            if strides != conv.strides:
                changed[i] = [strides[axis] for axis in conv.axes]
        return changed

    def subsamples(self) -> dict[int, list[Subsample | None]]:
        """Return what is read of each operand of elementwise ops, by number; None for all of it."""
        parts_of = {}
        for i in self.eltwise.intersection(self.steps):
            steps = self.steps[i]
            parts = [
                (
                    self._subsample(operand, steps)
                    if operand not in self.steps and self._is_full(operand, i, steps)
                    else None
                )
                for operand in self.graph.operands[i]
            ]
            if any(parts):
                parts_of[i] = parts
        return parts_of
