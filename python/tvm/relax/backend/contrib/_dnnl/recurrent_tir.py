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
"""A recurrent layer of any number of steps as one op: the call of a function of TIR.

Relax has no recurrent op. An importer that unrolls a layer makes ops for each step, and needs to
know how many there are. A function of TIR loops over the steps instead: TVM compiles it as it is,
and an attribute tells which op of the table it computes.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from types import SimpleNamespace

from tvm import relax, te, tirx
from tvm.contrib.onednn.policy.rules.recurrent import (
    DIRECTIONS,
    GATES,
    GRU,
    LSTM,
    has_lengths,
    state_operands,
)
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from .tir_ops import named_op_attrs


def call_layer(
    builder: relax.BlockBuilder, name: str, operands: Sequence[relax.Expr], attrs: dict
) -> relax.Call:
    """Return the call of a function that computes a recurrent layer.

    Parameters
    ----------
    builder : relax.BlockBuilder
        The function is added to its module.
    name : str
        The op of the table.
    operands : Sequence[relax.Expr]
        Its operands, see `policy/rules/recurrent.py`. They may be of any floating-point type.
    attrs : dict
        Its attributes.

    Returns
    -------
    call : relax.Call
        It returns a tuple of the states of all steps and the last states.
    """
    return builder.call_te(
        functools.partial(_layer, name, SimpleNamespace(**attrs)),
        list(operands),
        primfunc_name_hint=name.split(".")[-1],
        primfunc_attrs=named_op_attrs(name, attrs),
    )


def _layer(name: str, attrs: SimpleNamespace, operands: list[te.Tensor]) -> list[te.Tensor]:
    """Return the results of a layer as tensors of TE."""
    data, hidden = operands[0], operands[2].shape[-1]
    count = DIRECTIONS[attrs.direction]
    state = (count, data.shape[0 if attrs.batch_first else 1], hidden)
    dtypes = _state_dtypes(name, attrs, operands)
    shapes = [(*data.shape[:2], count * hidden), *[state] * len(dtypes)]

    def body(inputs, outputs):
        inputs, outputs = ([T.buffer_proxy(each) for each in group] for group in (inputs, outputs))
        with IRBuilder() as ib:
            with T.serial(0, state[1]) as n:
                for direction in range(count):
                    _Direction(name, attrs, operands, inputs, outputs, direction).write(n)
            return ib.get()

    results = te.extern(
        shapes, operands, body, name=name.split(".")[-1], dtype=[data.dtype, *dtypes]
    )
    return list(results)


def _state_dtypes(name: str, attrs, operands: Sequence[te.Tensor]) -> list[str]:
    """Return the types of the last states: those of the initial ones."""
    initial = state_operands(name, attrs, operands)
    return [each.dtype for each in initial or operands[:1] * (2 if name == LSTM else 1)]


class _Vector:
    """A vector whose index is passed to TVM as a tuple.

    TVM lets C++ raise an error to tell other indices from tuples, and the first error of a process
    reads the debug information of all libraries.
    """

    def __init__(self, buffer):
        self._proxy = T.buffer_proxy(buffer)

    def __getitem__(self, index):
        return self._proxy[(index,)]

    def __setitem__(self, index, value):
        self._proxy[(index,)] = value


class _Direction:
    """Writes the loops of one direction of a layer.

    It computes in float32, or float64 if the data are of that type: gates and states are vectors of
    one sequence, and rounded where they are stored as results.
    """

    def __init__(self, name, attrs, tensors, inputs, outputs, direction):
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
        self.dtypes = [tensors[0].dtype, *_state_dtypes(name, attrs, tensors)]
        self.dtype = "float64" if tensors[0].dtype == "float64" else "float32"

    def write(self, n: tirx.Var) -> None:
        """Write the loops for a sequence."""
        gates, scratch, *states = (
            _Vector(T.alloc_buffer((size,), self.dtype, scope="global"))
            for size in (self.bias_rows, self.hidden, *[self.hidden] * len(self.last))
        )
        d = self.direction
        with T.serial(0, self.hidden) as j:
            for k, state in enumerate(states):
                zero = tirx.const(0.0, self.dtype)
                state[j] = self.wide(self.initial[k][d, n, j]) if self.initial else zero
        with T.serial(0, self.steps) as step:
            is_reverse = self.attrs.direction == "reverse" or d == 1
            t = self.steps - 1 - step if is_reverse else step
            at = (n, t) if self.attrs.batch_first else (t, n)
            if self.lengths is None:
                self.write_step(gates, states, scratch, at)
            else:
                with T.If(t < self.lengths[(n,)].astype(t.ty.dtype)):
                    with T.Then():
                        self.write_step(gates, states, scratch, at)
                    with T.Else():
                        with T.serial(0, self.hidden) as j:
                            zero = tirx.const(0.0, self.dtypes[0])
                            self.y[(*at, j + d * self.hidden)] = zero
        with T.serial(0, self.hidden) as j:
            for result, state, dtype in zip(self.last, states, self.dtypes[1:]):
                result[d, n, j] = state[j].astype(dtype)

    def write_step(self, gates, states, scratch, at) -> None:
        """Write a step, and its result."""
        self.multiply_data(gates, at)
        self.step(gates, states, scratch)
        with T.serial(0, self.hidden) as j:
            y = states[0][j].astype(self.dtypes[0])
            self.y[(*at, j + self.direction * self.hidden)] = y

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
        with T.serial(0, self.bias_rows) as row:
            gates[row] = self.wide(self.bias[d, row])
        with T.serial(0, self.rows) as row:
            with T.serial(0, self.inputs) as k:
                product = self.wide(self.data[(*at, k)]) * self.weight_at(self.weight, row, k)
                gates[row] = gates[row] + product

    def multiply_state(self, gates, state, rows, begin=0, target=0) -> None:
        """Add the state, multiplied by some rows of its weight, to the gates from `target` on."""
        with T.serial(0, rows) as row:
            with T.serial(0, self.hidden) as k:
                weight = self.weight_at(self.recurrent_weight, row + begin, k)
                gates[row + target] = gates[row + target] + state[k] * weight

    def step(self, gates, states, scratch) -> None:
        """Write the new states."""
        if self.name == GRU:
            self.gru_step(gates, states[0], scratch)
            return
        self.multiply_state(gates, states[0], self.rows)
        with T.serial(0, self.hidden) as j:
            if self.name == LSTM:
                i, f, candidate, o = (gates[j + k * self.hidden] for k in range(GATES[LSTM]))
                h, c = states
                c[j] = tirx.sigmoid(f) * c[j] + tirx.sigmoid(i) * tirx.tanh(candidate)
                h[j] = tirx.sigmoid(o) * tirx.tanh(c[j])
            elif self.attrs.activation == "relu":
                states[0][j] = tirx.max(gates[j], tirx.const(0.0, self.dtype))
            else:
                states[0][j] = tirx.tanh(gates[j])

    def gru_step(self, gates, h, scratch) -> None:
        hidden = self.hidden
        self.multiply_state(gates, h, 2 * hidden)
        is_after = self.attrs.linear_before_reset
        if is_after:
            self.multiply_state(gates, h, hidden, 2 * hidden, 3 * hidden)
        with T.serial(0, hidden) as j:
            reset = tirx.sigmoid(gates[j + hidden])
            if is_after:
                gates[j + 2 * hidden] = gates[j + 2 * hidden] + reset * gates[j + 3 * hidden]
            else:
                scratch[j] = reset * h[j]
        if not is_after:
            self.multiply_state(gates, scratch, hidden, 2 * hidden, 2 * hidden)
        with T.serial(0, hidden) as j:
            update, candidate = tirx.sigmoid(gates[j]), tirx.tanh(gates[j + 2 * hidden])
            h[j] = update * h[j] + (tirx.const(1.0, self.dtype) - update) * candidate
