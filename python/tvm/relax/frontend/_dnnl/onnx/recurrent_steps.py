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
"""Recurrent layers as the ops of their steps.

The data of all steps is multiplied by the weight in one matmul; each step multiplies its state by
the recurrent weight. The states have the rank of the data, with size 1 on the time axis, which may
be the first axis or the second.
"""

from __future__ import annotations

import functools

import numpy as np
from tvm import relax
from tvm.relax import op

from ..backend import constant_of, is_constant, number, value_of


def unrolled(bb: relax.BlockBuilder, layer) -> list[relax.Expr]:
    """Emit the ops of a `RecurrentLayer`.

    Returns
    -------
    outputs : list[relax.Expr]
        Y of shape (T, D, N, H), or (N, T, D, H) for batch first; Y_h, and Y_c of an LSTM, in the
        shape of the initial states.
    """
    kind = "LBR_GRU" if layer.op == "GRU" and layer.linear_before_reset else layer.op
    cells = [_CELLS[kind](bb, layer, index) for index in range(len(layer.directions))]
    mask, axis = mask_of(bb, layer), layer.time_axis
    sequences, *states = zip(*(_run(cell, mask) for cell in cells))
    if len(cells) == 1:
        return [bb.emit(op.expand_dims(sequences[0], axis + 1)), *(each[0] for each in states)]
    sequence = bb.emit(op.stack(list(sequences), axis + 1))
    return [sequence, *(bb.emit(op.concat(list(each), axis)) for each in states)]


def _run(cell, mask):
    """Emit the steps of a direction; return the states h of all steps, and the last states."""
    layer, emit, axis = cell.layer, cell.bb.emit, cell.layer.time_axis
    data, steps = cell.data(), range(layer.steps)
    masks = [None] * len(steps) if mask is None else cell.split(mask, len(steps), axis)
    states, sequence = [cell.initial(value) for value in layer.initial], [None] * len(steps)
    for k in steps if layer.directions[cell.index] == "forward" else reversed(steps):
        new = cell.step(*data[k], *states)
        if mask is not None:
            # Past the end of a sequence, its states stay: the last ones, or, in reverse, the
            # initial ones.
            new = [emit(op.where(masks[k], *pair)) for pair in zip(new, states)]
        states, sequence[k] = new, new[0]
    sequence = sequence[0] if len(steps) == 1 else emit(op.concat(sequence, axis))
    if mask is not None:
        sequence = emit(op.where(mask, sequence, relax.const(0, cell.dtype)))
    return [sequence, *states]


def mask_of(bb, layer):
    """Return which steps the sequences have; None if each has all.

    Returns
    -------
    mask : relax.Expr | None
        Of shape (T, N, 1), or (N, T, 1) for batch first.
    """
    lengths, axis = layer.lengths, layer.time_axis
    if lengths is None:
        return None
    steps = np.arange(layer.steps, dtype="int32").reshape((1, -1, 1) if axis else (-1, 1, 1))
    shape = (layer.batch, 1, 1) if axis else (1, layer.batch, 1)
    if isinstance(lengths, np.ndarray):
        return relax.const(steps < lengths.reshape([int(size) for size in shape]))
    return bb.emit(op.less(relax.const(steps), bb.emit(op.reshape(lengths, shape))))


class _Cell:
    """One direction of a layer: its weights, and the ops of a step."""

    #: Where the data of a step is split.
    sections = ()
    #: Whether the recurrent bias is added to the data.
    has_one_bias = True

    def __init__(self, bb, layer, index):
        self.bb, self.layer, self.index = bb, layer, index
        self.dtype = layer.data.ty.dtype.dtype
        self.functions = layer.activations[index]
        self.bias, self.recurrent_bias = self.vectors(layer.bias, 2)
        if layer.bias is not None and self.has_one_bias:
            self.bias, self.recurrent_bias = self.sum(self.bias, self.recurrent_bias), None

    @functools.cached_property
    def recurrent_weight(self):
        return self.matrix(self.layer.recurrent_weight)

    def matrix(self, value, begin=0, end=None):
        """Return the transposed weights of this direction, or some of their rows."""
        k = self.index
        if isinstance(value, np.ndarray):
            return constant_of(value[k, begin:end].T, self.dtype)
        end = value.ty.shape.values[1] if end is None else end
        value = self.bb.emit(op.strided_slice(value, [0, 1], [k, begin], [k + 1, end]))
        return self.bb.emit(op.permute_dims(self.bb.emit(op.squeeze(value, [0])), [1, 0]))

    def vectors(self, value, count):
        """Return equal parts of a vector of this direction."""
        if value is None:
            return [None] * count
        if isinstance(value, np.ndarray):
            parts = np.split(value[self.index], count)
            return [constant_of(part, self.dtype) for part in parts]
        value = self.bb.emit(op.strided_slice(value, [0], [self.index], [self.index + 1]))
        return self.split(self.bb.emit(op.squeeze(value, [0])), count, 0)

    def data(self):
        """Return the data of each step, multiplied by the weight."""
        layer = self.layer
        data = self.linear(layer.data, self.matrix(layer.weight), self.bias)
        parts = self.split(data, list(self.sections), -1) if self.sections else [data]
        return list(zip(*(self.split(part, layer.steps, layer.time_axis) for part in parts)))

    def initial(self, value):
        """Return an initial state of this direction."""
        layer, axis = self.layer, self.layer.time_axis
        if value is None:
            shape = [1, 1, layer.hidden_size]
            shape[1 - axis] = layer.batch
            if number(layer.batch) is None:
                return self.bb.emit(op.zeros(shape, self.dtype))
            value = np.zeros([int(size) for size in shape])
        elif isinstance(value, np.ndarray):
            value = np.take(value, [self.index], axis)
        elif len(layer.directions) > 1:
            begin, end = [self.index], [self.index + 1]
            return self.bb.emit(op.strided_slice(value, [axis], begin, end))
        return constant_of(value, self.dtype) if isinstance(value, np.ndarray) else value

    def split(self, value, sections, axis):
        if sections == 1:
            return [value]
        parts = self.bb.emit(op.split(value, sections, axis))
        return [self.bb.emit(relax.TupleGetItem(parts, k)) for k in range(len(parts.ty.fields))]

    def linear(self, value, weight, bias=None):
        return self.add(self.bb.emit(op.matmul(value, weight)), bias)

    def sum(self, left, right):
        """Return a sum of vectors, which is folded if they are constant."""
        if is_constant(left) and is_constant(right):
            return constant_of(value_of(left) + value_of(right), self.dtype)
        return self.add(left, right)

    def add(self, left, right):
        """Return a sum, in which the right operand may be absent."""
        return left if right is None else self.bb.emit(op.add(left, right))

    def multiply(self, left, right):
        return self.bb.emit(op.multiply(left, right))

    def one_minus(self, value):
        return self.bb.emit(op.subtract(relax.const(1, self.dtype), value))

    def gate(self, position, value):
        """Return the activation of a gate, given the activation's position."""
        clip = self.layer.clip
        value = value if clip is None else self.bb.emit(op.clip(value, -clip, clip))
        return self.functions[position](self.bb, value)


class _RnnCell(_Cell):
    def step(self, x, state):
        return [self.gate(0, self.linear(state, self.recurrent_weight, x))]


class _LstmCell(_Cell):
    def __init__(self, bb, layer, index):
        super().__init__(bb, layer, index)
        self.peepholes = self.vectors(layer.peepholes, 3)

    def step(self, x, state, cell):
        layer, gates = self.layer, self.linear(state, self.recurrent_weight, x)
        if layer.peepholes is None and not layer.input_forget:
            # One activation of the three gates i, o and f: fewer ops per step.
            gates, c = self.split(gates, [3 * layer.hidden_size], -1)
            i, o, forget = self.split(self.gate(0, gates), 3, -1)
            cell = self.next_cell(i, forget, c, cell)
        else:
            i, o, forget, c = self.split(gates, 4, -1)
            i = self.gate(0, self.peep(i, 0, cell))
            if layer.input_forget:
                forget = self.one_minus(i)
            else:
                forget = self.gate(0, self.peep(forget, 2, cell))
            cell = self.next_cell(i, forget, c, cell)
            o = self.gate(0, self.peep(o, 1, cell))
        # As in onnxruntime, the cell state is not clipped.
        return [self.multiply(o, self.functions[2](self.bb, cell)), cell]

    def next_cell(self, i, forget, c, cell):
        return self.add(self.multiply(forget, cell), self.multiply(i, self.gate(1, c)))

    def peep(self, gate, position, cell):
        """Return a gate with the cell state seen through a peephole."""
        weight = self.peepholes[position]
        return gate if weight is None else self.add(gate, self.multiply(cell, weight))


class _GruCell(_Cell):
    """A GRU whose reset gate is applied to the state, before the matmul."""

    def __init__(self, bb, layer, index):
        super().__init__(bb, layer, index)
        middle = 2 * layer.hidden_size
        self.sections = (middle,)
        self.gates_weight = self.matrix(layer.recurrent_weight, end=middle)
        self.hidden_weight = self.matrix(layer.recurrent_weight, begin=middle)

    def step(self, x, x_hidden, state):
        z, r = self.split(self.gate(0, self.linear(state, self.gates_weight, x)), 2, -1)
        reset = self.multiply(r, state)
        return self.mixed(z, self.linear(reset, self.hidden_weight, x_hidden), state)

    def mixed(self, z, hidden, state):
        # Not hidden + z * (state - hidden): that is zero for z = 1 and a large hidden value.
        hidden = self.multiply(self.one_minus(z), self.gate(1, hidden))
        return [self.add(hidden, self.multiply(z, state))]


class _LbrGruCell(_GruCell):
    """A GRU whose reset gate is applied after the matmul ("linear before reset")."""

    has_one_bias = False

    def __init__(self, bb, layer, index):
        _Cell.__init__(self, bb, layer, index)
        self.sections = (2 * layer.hidden_size,)

    def step(self, x, x_hidden, state):
        gates = self.linear(state, self.recurrent_weight, self.recurrent_bias)
        gates, hidden = self.split(gates, list(self.sections), -1)
        z, r = self.split(self.gate(0, self.add(gates, x)), 2, -1)
        return self.mixed(z, self.add(self.multiply(r, hidden), x_hidden), state)


_CELLS = {"GRU": _GruCell, "LBR_GRU": _LbrGruCell, "LSTM": _LstmCell, "RNN": _RnnCell}
