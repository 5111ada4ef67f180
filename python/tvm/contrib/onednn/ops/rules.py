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
"""The rules of one run: the rows of the ops, with the options."""

from __future__ import annotations

from collections.abc import Mapping

from ..ir.op_view import OpView, tensor_of
from ..options import Options
from .operands import is_per_channel
from .others import NO_RULE, OTHERS
from .schema import FUNCTION, OpSchema
from .tensors import result_elements, shape_function_reason

EXCLUDED = "excluded by option"


class Rules:
    """The rules of one run: the rows of the ops with its options.

    Parameters
    ----------
    rows : Mapping[str, OpSchema]
        The rows of ops by name.
    options : Options | None
        What the caller asked for; None for nothing.
    """

    def __init__(self, rows: Mapping[str, OpSchema], options: Options | None = None):
        self.ops, self.options = rows, options or Options()
        # The answers of the rules: several passes ask about one call.
        self._reasons: dict[tuple[OpView, int], str | None] = {}
        # Calls that were accepted, but could not be written.
        self._refused: dict[OpView, str] = {}
        # Calls whose rule raised.
        self.failed: list[tuple[OpView, Exception]] = []

    def _row(self, name: str | None) -> OpSchema | None:
        return None if name is None else self.ops.get(name)

    def is_heavy(self, name: str | None) -> bool:
        """Whether the Relay op `name` is worth a partition of its own."""
        row = self._row(name)
        return row is not None and row.heavy

    def cost_weight(self, name: str | None) -> int:
        """Return the cost weight of the Relay op `name`; without a row, it is part of a formula."""
        row = self._row(name)
        return FUNCTION if row is None else row.cost_weight

    def moves(self, name: str | None) -> str | None:
        """Say how the Relay op `name` moves elements, if it does nothing else."""
        row = self._row(name)
        return None if row is None else row.moves

    def is_not_negative(self, call: OpView | None) -> bool:
        """Whether no element of a result is below zero, as far as the op, if any, tells."""
        if call is None or call.name not in self.ops:
            return False
        is_not_negative = self.ops[call.name].is_not_negative
        return is_not_negative is not None and is_not_negative(call)

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
        channel_axis = self.ops[root.name].channel_axis
        if channel_axis is None:
            return False
        return is_per_channel(call, operand, tensor_of(root.result).shape, channel_axis(root))

    def output_axis(self, call: OpView, axis: int) -> int | None:
        """Return the axis of the results of an op with a row that is an axis of its data, if any.

        Parameters
        ----------
        call : OpView
            The op.
        axis : int
            Of its data, along which there is a scale for each item.
        """
        spec = self.ops[call.name]
        return spec.output_axis(call, axis) if spec.output_axis is not None else None

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
        if call is None:
            return NO_RULE
        if call in self._refused:
            return self._refused[call]
        if self.excludes(call.name):
            return EXCLUDED
        if call.name in self.ops:
            return self.reason(call)
        row = OTHERS.get(str(call.name).removeprefix("qnn."))
        return NO_RULE if row is None else row.reason(call)
