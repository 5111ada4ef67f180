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
"""Numpy definitions of recurrent layers."""

from __future__ import annotations

import numpy as np

from ..ir.numpy_types import Array, sigmoid
from .recurrent import GRU, LSTM, RNN, has_lengths, state_operands, states_of


def _lstm_step(attrs, x, weight, bias, h, c):
    gates = x + h @ weight.T + bias
    i, f, candidate, o = np.split(gates, 4, -1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(candidate)
    return [sigmoid(o) * np.tanh(c), c]


def _gru_step(attrs, x, weight, bias, h):
    x_update, x_reset, x_candidate = np.split(x, 3, -1)
    update_weight, reset_weight, candidate_weight = np.split(weight, 3)
    u_bias, r_bias, *candidate_bias = np.split(bias, 4 if attrs.linear_before_reset else 3)
    update = sigmoid(x_update + h @ update_weight.T + u_bias)
    reset = sigmoid(x_reset + h @ reset_weight.T + r_bias)
    if attrs.linear_before_reset:
        state = reset * (h @ candidate_weight.T + candidate_bias[1])
    else:
        state = (reset * h) @ candidate_weight.T
    candidate = np.tanh(x_candidate + candidate_bias[0] + state)
    return [update * h + (1.0 - update) * candidate]


def _rnn_step(attrs, x, weight, bias, h):
    value = x + h @ weight.T + bias
    return [np.tanh(value) if attrs.activation == "tanh" else np.maximum(value, 0.0)]


def _layer(name: str, step):
    """Define a layer by its step: the new states, the first of which is the result of the step."""

    def compute(attrs, result_type, *operands):
        data, weight, recurrent_weight, bias, *others = operands
        data = np.swapaxes(data, 0, 1) if attrs.batch_first else data
        count, _, hidden = recurrent_weight.shape
        zeros = np.zeros((count, data.shape[1], hidden))
        initial = state_operands(name, attrs, operands) or (zeros,) * states_of(name)
        lengths, quantization = np.full(data.shape[1], len(data)), others[-4:]
        if weight.dtype == "int8":
            others = others[:-4]
            weight = _dequantized(weight, *quantization[:2])
            recurrent_weight = _dequantized(recurrent_weight, *quantization[2:])
        if has_lengths(attrs):
            lengths = others[-1]
        sequences, states = [], []
        for k in range(count):
            is_reverse = attrs.direction == "reverse" or k == 1
            given = [state[k] for state in initial]
            # Past its end a sequence may be NaN.
            mask = np.arange(len(data))[:, None, None] < lengths[:, None]
            x = np.where(mask, data, 0.0) @ weight[k].T
            order = slice(None, None, -1 if is_reverse else 1)
            x, mask = x[order], mask[order]
            sequence, last = _run(step, attrs, x, mask, recurrent_weight[k], bias[k], given)
            sequences.append(sequence[order])
            states.append(last)
        y = np.concatenate(sequences, -1)
        y = np.swapaxes(y, 0, 1) if attrs.batch_first else y
        return [y, *map(np.stack, zip(*states))]

    return compute


def _dequantized(weight: Array, scale: Array, zero_point: Array) -> Array:
    return (weight.astype("float64") - zero_point[..., None]) * scale[..., None]


def _run(step, attrs, data: Array, mask: Array, weight: Array, bias: Array, states: list[Array]):
    """Return the results of all steps of one direction, and the last states."""
    sequence = np.empty((len(data), *states[0].shape))
    for t, x in enumerate(data):
        new = step(attrs, x, weight, bias, *states)
        states = [np.where(mask[t], *pair) for pair in zip(new, states)]
        sequence[t] = np.where(mask[t], states[0], 0.0)
    return sequence, states


DEFINITIONS = {
    LSTM: _layer(LSTM, _lstm_step),
    GRU: _layer(GRU, _gru_step),
    RNN: _layer(RNN, _rnn_step),
}
