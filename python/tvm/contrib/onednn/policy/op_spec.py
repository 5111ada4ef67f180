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
"""The rows of the policy, and the rules of one run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from ..ops.schema import Attr
from ..options import Options
from .op_view import OpView
from .operands import is_per_channel
from .refused import REFUSED
from .tensors import result_elements, shape_function_reason

EXCLUDED = "excluded by option"

# The cost weight where oneDNN has vector code and TVM calls a function of the C library.
FUNCTION = 64


@dataclass(frozen=True)
class OpSpec:
    """All that the partitioner knows about one op.

    Parameters
    ----------
    name : str
        The Relay op, or the name of a virtual op, which starts with "dnnl.".
    reason : Callable
        The rule: returns None for a call that oneDNN can run, else why it cannot.
    attrs : tuple[Attr, ...]
        Its attributes.
    channel_axis : Callable | None
        For an op that accepts a bias: the channel axis of a call's result.
    heavy : bool
        Whether the op computes enough to be worth a partition of its own.
    cost_weight : int
        For an op that is not heavy: what an element of its result counts when a partition is
        weighed against TVM.
    moves : str | None
        For an op that computes nothing: "view" if it names elements in another way, "copy" if it
        may have to move them. A partition may reach through it, but not consist of it.
    reshapes : bool
        Whether a view gives the same elements in the same order other dimensions.
    keeps_values : bool
        Whether each element of the result is one of the data's, whatever scale these have.
    axis_behind : Callable | None
        For a view: which axis of a call's results is an axis of its data, None if none is.
    weight_axis : Callable | None
        For an op with a weight: the axis of the output channels in a call's weight; None where the
        weight has none.
    reads_int8 : str | None
        For an op that can read integers in 8 bits: "constant weight" or "weight" if it multiplies
        data by it, "operands" if it reads each of its operands so, "data" if it has one and its
        result must be in 8 bits, too.
    post : str | None
        "eltwise", "binary", "prelu" or "quantize" for an op that can be fused to the result of
        another.
    swaps : bool
        Whether a binary op can be fused to its second operand.
    fuses : tuple[str, ...]
        What can be fused to the result of this op: kinds as in `post`, or ops by name.
    kept_dims : int | None
        How many of the last dimensions a reshape between the post-ops must keep, since the
        primitive sees all the others as one; None where no reshape may be there.
    flops : Callable
        The number of floating-point operations of a call.
    padding : str | None
        For an op with an attribute `padding` that a pad can be folded into: what it pads with.
        "zero"; "lowest", which no value of the data is below; or "average", which are zeros that
        count if the attributes say so.
    grows : bool
        Whether an element of the result may be so much larger than the operands that float16 does
        not hold it.
    typed_operands : int | None
        For an op that computes in float32 whatever it reads: how many operands have the data type
        of the result. The others, such as masks, remain in float32 in reduced precision.
    normalizes : bool
        Whether the op scales rows of its data to one mean square, so that the sum of a residual
        connection, which is what it reads in a transformer, is worth more bits than its result.
    is_not_negative : Callable | None
        Whether no element of a call's result is below zero, whatever the data; None for no.
    scaled_weight : Callable | None
        For an op with a weight that a factor of each output channel can be folded into: returns
        the weight for a call, its old weight and the factors, as arrays.
    relax : str | None
        The ops of Relax that are read as this one, without "relax.", separated by spaces; None for
        one of the same name, and no names for what Relax writes as several ops or does not have.
    skips_positions : bool
        Whether the op has strides that leave out spatial positions of its result, and may get
        larger ones where what reads the result leaves out more.
    patterns : str
        The composites that the pattern table has of this op: what is fused to it, in words
        separated by spaces.
    patterns_int8 : str
        The same of the composites whose op reads integers in 8 bits, but for those that each such
        op has: with nothing fused to it, with a bias in front, and with a quantize.
    """

    name: str
    reason: Callable[[OpView], str | None]
    channel_axis: Callable[[OpView], int] | None = None
    attrs: tuple[Attr, ...] = ()
    heavy: bool = False
    cost_weight: int = 1
    moves: str | None = None
    reshapes: bool = False
    keeps_values: bool = False
    axis_behind: Callable[[OpView, int], int | None] | None = None
    weight_axis: Callable[[OpView], int | None] | None = None
    reads_int8: str | None = None
    post: str | None = None
    swaps: bool = False
    fuses: tuple[str, ...] = ()
    kept_dims: int | None = None
    flops: Callable[[OpView], int] = result_elements
    padding: str | None = None
    grows: bool = False
    typed_operands: int | None = None
    normalizes: bool = False
    is_not_negative: Callable[[OpView], bool] | None = None
    scaled_weight: Callable[[OpView, np.ndarray, np.ndarray], np.ndarray] | None = None
    relax: str | None = None
    skips_positions: bool = False
    patterns: str = ""
    patterns_int8: str = ""

    @property
    def relax_ops(self) -> list[str]:
        """The ops of Relax that are read as this one, without "relax."."""
        return [self.name] if self.relax is None else self.relax.split()


def no_flops(call: OpView) -> int:
    """Return 0, for an op that computes nothing."""
    return 0


def always(call: OpView) -> bool:
    """Return True, for an op of which something holds for every call."""
    return True


def root(name: str, reason, channel_axis, **fields) -> OpSpec:
    """Make the row of an op that computes much, to which others are fused."""
    fuses = ("eltwise", "binary", "prelu", "quantize")
    return OpSpec(name, reason, channel_axis, heavy=True, fuses=fuses, **fields)


def light(name: str, reason, channel_axis=None, **fields) -> OpSpec:
    """Make the row of an op that wins nothing alone, to which others are fused."""
    fuses = ("eltwise", "binary", "quantize")
    return OpSpec(name, reason, channel_axis, cost_weight=0, fuses=fuses, **fields)


def function(name: str, reason, **fields) -> OpSpec:
    """Make the row of an op that computes functions such as exp, and to which nothing is fused."""
    return OpSpec(name, reason, cost_weight=FUNCTION, **fields)


def view(name: str, reason, **fields) -> OpSpec:
    """Make the row of an op that names or orders elements in another way."""
    return OpSpec(name, reason, moves="view", keeps_values=True, flops=no_flops, **fields)


def copy(name: str, reason, **fields) -> OpSpec:
    """Make the row of an op that puts elements together in another way."""
    return OpSpec(name, reason, moves="copy", flops=no_flops, **fields)


def eltwise(name: str, reason, **fields) -> OpSpec:
    """Make the row of a unary elementwise op."""
    fields.update(fuses=("binary", "quantize"), reads_int8="data")
    return OpSpec(name, reason, post="eltwise", **fields)


def binary(name: str, reason, **fields) -> OpSpec:
    """Make the row of a binary elementwise op, the second operand of which may be broadcast."""
    fields.update(fuses=("eltwise", "binary", "quantize"), reads_int8="operands")
    return OpSpec(name, reason, post="binary", **fields)


class Rules:
    """The policy of one run: the rows of the ops with its options.

    Parameters
    ----------
    rows : Mapping[str, OpSpec]
        The rows of ops by name.
    options : Options | None
        What the caller asked for; None for nothing.
    """

    def __init__(self, rows: Mapping[str, OpSpec], options: Options | None = None):
        self.ops, self.options = rows, options or Options()
        # The answers of the rules: several passes ask about one call.
        self._reasons: dict[tuple[OpView, int], str | None] = {}
        # Calls that were accepted, but could not be written.
        self._refused: dict[OpView, str] = {}
        # Calls whose rule raised.
        self.failed: list[tuple[OpView, Exception]] = []

    def is_heavy(self, name: str | None) -> bool:
        """Whether the Relay op `name` is worth a partition of its own."""
        return name in self.ops and self.ops[name].heavy

    def cost_weight(self, name: str | None) -> int:
        """Return the cost weight of the Relay op `name`; without a row, it is part of a formula."""
        return self.ops[name].cost_weight if name in self.ops else FUNCTION

    def moves(self, name: str | None) -> str | None:
        """Say how the Relay op `name` moves elements, if it does nothing else."""
        return self.ops[name].moves if name in self.ops else None

    def is_not_negative(self, call: OpView | None) -> bool:
        """Whether no element of a result is below zero, as far as the op, if any, tells."""
        spec = self.ops.get(call.name) if call is not None else None
        return spec is not None and spec.is_not_negative is not None and spec.is_not_negative(call)

    def is_per_channel(self, root: OpView, call: OpView, operand: tuple[int | None, ...]) -> bool:
        """Whether an operand has one value for each channel of the result of an op with a row.

        Parameters
        ----------
        root : OpView
            The op, whose row has a channel axis.
        call : OpView
            The binary op, whose other operand is the result, or has its shape.
        operand : tuple[int | None, ...]
            The shape of the operand.
        """
        axis = self.ops[root.name].channel_axis(root)
        return is_per_channel(call, operand, root.result.shape, axis)

    def axis_behind(self, call: OpView, axis: int) -> int | None:
        """Return the axis of the results of an op with a row that is an axis of its data, if any.

        Parameters
        ----------
        call : OpView
            The op.
        axis : int
            Of its data, along which there is a scale for each item.
        """
        spec = self.ops[call.name]
        return spec.axis_behind(call, axis) if spec.axis_behind is not None else None

    def with_field(self, field: str) -> list[str]:
        """Return the names of the ops whose rows have a value in a field."""
        return [name for name, spec in self.ops.items() if getattr(spec, field)]

    def excludes(self, *names: str) -> bool:
        """Whether one of these ops or composites is to stay on TVM."""
        return not self.options.exclude.isdisjoint(names)

    def flops(self, call: OpView) -> int:
        """Count the floating-point operations of a call of an op with static shapes.

        A matmul or a convolution needs two for each element of the weight that an element of the
        result needs, a pooling or a reduction one for each element that it reads, any other op one
        for each element of the result.
        """
        return self.ops[call.name].flops(call) if call.name in self.ops else result_elements(call)

    def reason(self, call: OpView) -> str | None:
        """Ask the rule of an op that has a row; once for each call in a run."""
        key = call, call.version
        if key not in self._reasons:
            try:
                reason = self.ops[call.name].reason(call)
                self._reasons[key] = reason or shape_function_reason(call)
            # It costs the op alone.
            except Exception as error:  # pylint: disable=broad-except
                if self.options.strict:
                    raise
                self.failed.append((call, error))
                self._reasons[key] = f"its rule failed: {error}"
        return self._reasons[key]

    def refuse(self, call: OpView, reason: str) -> None:
        """Leave a call to TVM from now on, whatever its rule says."""
        self._refused[call] = reason

    def refusal(self, call: OpView | None) -> str | None:
        """Say why a call of an op, virtual or not, stays on TVM; None if oneDNN can run it.

        A call of something else is None, and stays.
        """
        name = call.name if call is not None else None
        if call in self._refused:
            return self._refused[call]
        if self.excludes(name):
            return EXCLUDED
        if name in self.ops:
            return self.reason(call)
        return REFUSED.get(str(name).removeprefix("qnn."), "no rule for this op")
