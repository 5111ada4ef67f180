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
"""The loops of a recurrent layer of any number of steps, in TIR.

A layer that is unrolled has ops for each step. A function with these loops computes it instead
where it stays on TVM, and is compiled as it is. Both TVMs share them: the modules and builders of
TIR that they differ in are given by a `Builder`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Protocol

from ..ops.recurrent import DIRECTIONS, GATES, GRU, LSTM, has_lengths, state_operands, states_of


class Builder(Protocol):
    """Writes statements of TIR.

    Attributes
    ----------
    tir : ModuleType
        The module with `const`, `sigmoid`, `tanh` and `max`.
    """

    tir: ModuleType

    def serial(self, count) -> AbstractContextManager:
        """Return the scope of a loop, whose variable it yields."""

    def vector(self, size: int, dtype: str):
        """Return a new buffer of one dimension, to be indexed."""

    def choose(self, condition, then: Callable[[], None], otherwise: Callable[[], None]) -> None:
        """Write both branches of a condition."""

    def is_below(self, index, bound):
        """Compare an index and an int32."""


def write_layer(
    builder: Builder, name: str, attrs, tensors: Sequence, inputs: Sequence, outputs: Sequence
) -> None:
    """Write the loops of a layer, see `Direction`."""
    with builder.serial(tensors[0].shape[0 if attrs.batch_first else 1]) as n:
        for direction in range(DIRECTIONS[attrs.direction]):
            Direction(builder, name, attrs, tensors, inputs, outputs, direction).write(n)


def result_shapes(name: str, attrs, tensors: Sequence) -> list[tuple]:
    """Return the shapes of the results of a layer, of operands that have a shape and a dtype."""
    data, hidden = tensors[0], tensors[2].shape[-1]
    count = DIRECTIONS[attrs.direction]
    state = (count, data.shape[0 if attrs.batch_first else 1], hidden)
    states = [state] * len(state_dtypes(name, attrs, tensors))
    return [(*data.shape[:2], count * hidden), *states]


def state_dtypes(name: str, attrs, operands: Sequence) -> list[str]:
    """Return the types of the last states: those of the initial ones."""
    initial = list(state_operands(name, attrs, operands))
    return [each.dtype for each in initial or [operands[0]] * states_of(name)]


class Direction:
    """Writes the loops of one direction of a layer.

    It computes in float32, or float64 if the data are of that type: gates and states are vectors of
    one sequence, and rounded where they are stored as results.

    Parameters
    ----------
    builder : Builder
        Writes the loops.
    name : str
        The op of the table.
    attrs : object
        Its attributes.
    tensors : Sequence
        Its operands as tensors of TE.
    inputs, outputs : Sequence
        The buffers of the operands and of the results, to be indexed.
    direction : int
        Which direction it is.
    """

    def __init__(self, builder, name, attrs, tensors, inputs, outputs, direction):
        self.builder, self.tir, self.serial = builder, builder.tir, builder.serial
        self.name, self.attrs, self.direction = name, attrs, direction
        self.data, self.weight, self.recurrent_weight, self.bias, *others = inputs
        self.initial = state_operands(name, attrs, inputs)
        # Scales and zero points of both weights.
        self.quantization = others[-4:] if tensors[1].dtype == "int8" else ()
        self.lengths = others[len(self.initial)] if has_lengths(attrs) else None
        self.y, *self.last = outputs
        data, weight, recurrent_weight, bias = (each.shape for each in tensors[:4])
        self.steps = data[1 if attrs.batch_first else 0]
        self.inputs, self.hidden = int(weight[2]), int(recurrent_weight[2])
        self.rows, self.bias_rows = int(weight[1]), int(bias[1])
        self.dtypes = [tensors[0].dtype, *state_dtypes(name, attrs, tensors)]
        self.dtype = "float64" if tensors[0].dtype == "float64" else "float32"

    def write(self, n) -> None:
        """Write the loops for a sequence."""
        gates, scratch, *states = (
            self.builder.vector(size, self.dtype)
            for size in (self.bias_rows, self.hidden, *[self.hidden] * len(self.last))
        )
        d = self.direction
        with self.serial(self.hidden) as j:
            for k, state in enumerate(states):
                zero = self.tir.const(0.0, self.dtype)
                state[j] = self.wide(self.initial[k][d, n, j]) if self.initial else zero
        with self.serial(self.steps) as step:
            is_reverse = self.attrs.direction == "reverse" or d == 1
            t = self.steps - 1 - step if is_reverse else step
            at = (n, t) if self.attrs.batch_first else (t, n)
            if self.lengths is None:
                self.write_step(gates, states, scratch, at)
            else:
                self.builder.choose(
                    self.builder.is_below(t, self.lengths[n]),
                    lambda at=at: self.write_step(gates, states, scratch, at),
                    lambda at=at: self.write_zeros(at),
                )
        with self.serial(self.hidden) as j:
            for result, state, dtype in zip(self.last, states, self.dtypes[1:]):
                result[d, n, j] = state[j].astype(dtype)

    def write_step(self, gates, states, scratch, at) -> None:
        """Write a step, and its result."""
        self.multiply_data(gates, at)
        self.step(gates, states, scratch)
        with self.serial(self.hidden) as j:
            y = states[0][j].astype(self.dtypes[0])
            self.y[(*at, j + self.direction * self.hidden)] = y

    def write_zeros(self, at) -> None:
        """Write the result past the end of a sequence."""
        with self.serial(self.hidden) as j:
            zero = self.tir.const(0.0, self.dtypes[0])
            self.y[(*at, j + self.direction * self.hidden)] = zero

    def wide(self, value):
        return value.astype(self.dtype)

    def weight_at(self, weight, row, k):
        """Return an element of a weight, dequantized."""
        value = self.wide(weight[self.direction, row, k])
        if not self.quantization:
            return value
        first = 0 if weight is self.weight else 2
        scale, zero_point = self.quantization[first : first + 2]
        shifted = value - self.wide(zero_point[self.direction, row])
        return shifted * self.wide(scale[self.direction, row])

    def multiply_data(self, gates, at) -> None:
        """Write the bias, and what the data are multiplied by, to the gates."""
        d = self.direction
        with self.serial(self.bias_rows) as row:
            gates[row] = self.wide(self.bias[d, row])
        with self.serial(self.rows) as row:
            with self.serial(self.inputs) as k:
                product = self.wide(self.data[(*at, k)]) * self.weight_at(self.weight, row, k)
                gates[row] = gates[row] + product

    def multiply_state(self, gates, state, rows, begin=0, target=0) -> None:
        """Add the state, multiplied by some rows of its weight, to the gates from `target` on."""
        with self.serial(rows) as row:
            with self.serial(self.hidden) as k:
                weight = self.weight_at(self.recurrent_weight, row + begin, k)
                gates[row + target] = gates[row + target] + state[k] * weight

    def step(self, gates, states, scratch) -> None:
        """Write the new states."""
        if self.name == GRU:
            self.gru_step(gates, states[0], scratch)
            return
        self.multiply_state(gates, states[0], self.rows)
        with self.serial(self.hidden) as j:
            if self.name == LSTM:
                i, f, candidate, o = (gates[j + k * self.hidden] for k in range(GATES[LSTM]))
                h, c = states
                added = self.tir.sigmoid(i) * self.tir.tanh(candidate)
                c[j] = self.tir.sigmoid(f) * c[j] + added
                h[j] = self.tir.sigmoid(o) * self.tir.tanh(c[j])
            elif self.attrs.activation == "relu":
                states[0][j] = self.tir.max(gates[j], self.tir.const(0.0, self.dtype))
            else:
                states[0][j] = self.tir.tanh(gates[j])

    def gru_step(self, gates, h, scratch) -> None:
        hidden = self.hidden
        self.multiply_state(gates, h, 2 * hidden)
        is_after = self.attrs.linear_before_reset
        if is_after:
            self.multiply_state(gates, h, hidden, 2 * hidden, 3 * hidden)
        with self.serial(hidden) as j:
            reset = self.tir.sigmoid(gates[j + hidden])
            if is_after:
                gates[j + 2 * hidden] = gates[j + 2 * hidden] + reset * gates[j + 3 * hidden]
            else:
                scratch[j] = reset * h[j]
        if not is_after:
            self.multiply_state(gates, scratch, hidden, 2 * hidden, 2 * hidden)
        with self.serial(hidden) as j:
            update, candidate = self.tir.sigmoid(gates[j]), self.tir.tanh(gates[j + 2 * hidden])
            h[j] = update * h[j] + (self.tir.const(1.0, self.dtype) - update) * candidate
