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
"""Finds the spatial positions that strided 1x1 convolutions read.

Where all that reads a tensor skips the same spatial positions, the convolution that computes it
can skip them with strides of its own, and what is between them work on the smaller tensor. Each
number that is still computed is computed as before.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import NamedTuple, Optional

from ..ir.dim import is_same
from ..ir.graph import Graph
from ..ir.match import is_field, is_op
from ..ir.node import FIELD, Node
from ..ir.op_view import OpView, tensor_of
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
        kernel = dict(zip(attrs.kernel_layout, tensor_of(call.args[1]).shape))
        window = [kernel[letter] for letter in layout if letter in SPATIAL]
        self.is_pointwise = math.prod(window) == 1 and not any(ints(attrs.padding))

    def with_steps(self, steps: Steps) -> list[int]:
        """Return the strides of a convolution whose output is subsampled."""
        return [a * b for a, b in zip(self.strides, steps or [1] * len(self.strides))]


class Subsample(NamedTuple):
    """A pool with a window of one element: it subsamples an operand.

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
    """The elements of each node that its users read.

    Parameters
    ----------
    graph : Graph
        The function, in which what makes or reads a formula is several ops.
    rules : Rules
        The rules.
    """

    def __init__(self, graph: Graph, rules: Rules):
        self.graph, self.rules = graph, rules
        self.convs: dict[Node, _Conv] = {}
        self.eltwise: set[Node] = set()
        # The first result of a batch_norm, and the batch_norm where that is all that is used.
        self.norms: set[Node] = set()
        # Few models have one, and to ask the rules about each call takes long.
        if any(map(self._may_skip_positions, graph.nodes)):
            for node in graph.nodes:
                self._classify(node)

    def _may_skip_positions(self, call: Node) -> bool:
        """Whether a node is a convolution with strides whose window is one position."""
        spec = self.rules.ops.get(call.name) if call.is_call else None
        if spec is None or not spec.skips_positions:
            return False
        strides = ints(call.attrs.strides)
        if strides is None or all(stride == 1 for stride in strides):
            return False
        window = zip(call.attrs.kernel_layout, getattr(call.args[1], "shape", ()))
        return all(size == 1 for letter, size in window if letter in SPATIAL)

    def _classify(self, node: Node) -> None:
        row = self.rules.ops.get(node.name) if node.is_call else None
        if node.kind == FIELD:
            if node.operands[0] in self.norms:
                self.norms.add(node)
        elif row is not None and self.rules.refusal(node) is None:
            if row.skips_positions:
                self.convs[node] = _Conv(node)
            elif node.name == "nn.batch_norm":
                if all(is_field(user, 0) for user in node.users):
                    self.norms.add(node)
            elif row.post is not None or node.name == DEQUANTIZE:
                self.eltwise.add(node)

    @cached_property
    def steps(self) -> dict[Node, tuple[int, ...]]:
        """By node: along each axis, only every so many elements are read."""
        if not any(conv.is_pointwise and _steps(conv.strides) for conv in self.convs.values()):
            return {}
        kept: set[Node] = set()
        while True:
            steps = self._propagated(kept)
            complete = [node for node in steps if not self._can_skip(node, steps)]
            if not complete:
                return steps
            kept.update(complete)

    def _propagated(self, kept: set[Node]) -> dict[Node, tuple[int, ...]]:
        """Go from the results to the inputs; of what is in `kept` all is read."""
        steps: dict[Node, tuple[int, ...]] = {}
        known = (self.eltwise | self.norms | self.convs.keys()) - kept
        for node in reversed(self.graph.nodes):
            if node not in known:
                continue
            read = {self._read_by(user, node, steps) for user in node.users}
            if len(read) == 1 and None not in read:
                steps[node] = read.pop()
        return steps

    def _read_by(self, user: Node, node: Node, steps: dict[Node, tuple[int, ...]]) -> Steps:
        """Say which elements of a node one of its users reads."""
        operands = user.operands
        if user.scope != node.scope:
            return None
        if user in self.convs:
            is_data = operands[0] is node and operands[1] is not node
            conv = self.convs[user]
            return (
                _steps(conv.with_steps(steps.get(user))) if is_data and conv.is_pointwise else None
            )
        if user in self.norms:
            return steps.get(user) if operands[0] is node else None
        if user in self.eltwise and self._is_full(node, user, steps.get(user)):
            return steps.get(user)
        return None

    def _is_full(self, operand: Node, user: Node, steps: Steps) -> bool:
        """Whether an operand is not broadcast along the axes of which some elements are skipped.

        Two open sizes must be the same in every call: of others, the shorter ones of different
        sizes could match.
        """
        dims, result = operand.tensor.dims, user.tensor.dims
        if len(dims) != len(result):
            return False
        axes = (axis for axis, step in enumerate(steps or ()) if step > 1)
        return all(is_same(dims[axis], result[axis]) for axis in axes)

    def _can_skip(self, node: Node, steps: dict[Node, tuple[int, ...]]) -> bool:
        """Whether an op can skip the elements itself."""
        operands, own = node.operands, steps[node]
        if node in self.convs:
            # After a convolution in another layout a spatial axis may be the channels.
            axes = self.convs[node].axes
            return all(step == 1 or axis in axes for axis, step in enumerate(own))
        if node in self.norms:
            return operands[0] in steps
        full = [operand for operand in operands if self._is_full(operand, node, own)]
        for operand in operands:
            sizes = _sizes(operand, node) if operand not in full else ()
            if any(s > 1 and n != 1 for s, n in zip(own, sizes)):
                return False
        return any(operand in steps for operand in full) and all(
            operand in steps or self._subsample(operand, own) is not None for operand in full
        )

    def _subsample(self, node: Node, steps: tuple[int, ...]) -> Subsample | None:
        """Subsample a tensor; None where oneDNN cannot."""
        is_dequantized = is_op(node, DEQUANTIZE) and is_per_tensor(node)
        letters = SPATIAL[5 - len(steps) :]
        op = f"{'max' if is_dequantized else 'avg'}_pool{len(letters)}d"
        if self.rules.excludes(f"nn.{op}"):
            return None
        for layout in (f"NC{letters}", f"N{letters}C"):
            strides = [step for letter, step in zip(layout, steps) if letter in letters]
            if math.prod(strides) == math.prod(steps):
                return Subsample(op, strides, layout, is_dequantized)
        return None

    def strides(self) -> dict[Node, list[int]]:
        """Return the new strides of convolutions."""
        changed = {}
        for node, conv in self.convs.items():
            before = self.steps.get(node.operands[0], [1] * len(conv.strides))
            strides = [a // b for a, b in zip(conv.with_steps(self.steps.get(node)), before)]
            if strides != conv.strides:
                changed[node] = [strides[axis] for axis in conv.axes]
        return changed

    def subsamples(self) -> dict[Node, list[Subsample | None]]:
        """Return the subsample of each operand of elementwise ops; None for the whole operand."""
        parts_of = {}
        for node in self.eltwise.intersection(self.steps):
            steps = self.steps[node]
            parts = [
                (
                    self._subsample(operand, steps)
                    if operand not in self.steps and self._is_full(operand, node, steps)
                    else None
                )
                for operand in node.operands
            ]
            if any(parts):
                parts_of[node] = parts
        return parts_of


def _sizes(operand: Node, user: Node) -> tuple[int | None, ...]:
    """Return the shape of a broadcast operand, with a dimension for each of the result."""
    shape, rank = operand.tensor.shape, len(user.tensor.shape)
    if is_op(user, "nn.bias_add", DEQUANTIZE, QUANTIZE) and shape:
        # A vector along an axis, or a scale of one element.
        sizes = [1] * rank
        sizes[user.attrs.axis] = shape[0]
        return tuple(sizes)
    return (1,) * (rank - len(shape)) + shape
