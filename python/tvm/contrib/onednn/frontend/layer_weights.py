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
"""Weights of ONNX's recurrent ops as those of the ops of the table."""

from __future__ import annotations

import numpy as np

#: Where ONNX has each gate of oneDNN's order: it has i, o, f, c of an LSTM and z, r, h of a GRU.
_ORDERS = {"LSTM": [0, 2, 3, 1], "GRU": [0, 1, 2], "RNN": [0]}

#: By op: the activations of one direction that oneDNN has; the first are those of a node without
#: the attribute.
ACTIVATIONS: dict[str, list[tuple[str, ...]]] = {
    "LSTM": [("sigmoid", "tanh", "tanh")],
    "GRU": [("sigmoid", "tanh")],
    "RNN": [("tanh",), ("relu",)],
}


def unrolled_reason(
    op: str, activations: tuple[str, ...], is_constant: bool, **others: bool
) -> str | None:
    """Say why a layer cannot be one op, so that its steps have to be unrolled.

    Parameters
    ----------
    op : str
        ONNX's op.
    activations : tuple[str, ...]
        Those of one direction in lower case; of both, if they differ.
    is_constant : bool
        Whether the weights are constants.
    others : bool
        By name: whether the layer has something that no op has.
    """
    if activations not in ACTIVATIONS[op]:
        return f"it has the activations {', '.join(activations)}"
    for name, is_there in others.items():
        if is_there:
            return f"it has {name}"
    return None if is_constant else "its weights are not constant"


def coupled(values: np.ndarray | None, parts: int) -> np.ndarray | None:
    """Return weights of an LSTM whose forget gate is one minus its input gate.

    One minus a sigmoid is the sigmoid of the negated number, so the weights of the forget gate are
    those of the input gate, negated.

    Parameters
    ----------
    values : np.ndarray | None
        A weight, biases or peepholes with the gates along the second axis, in ONNX's order.
    parts : int
        How many these are: the biases of data and state have four each, peepholes lack the last.
    """
    if values is None:
        return None
    gates = np.split(values, parts, 1)
    for k in range(2, parts, 4):
        gates[k] = -gates[k - 2]
    return np.concatenate(gates, 1)


def ordered(op: str, values: np.ndarray) -> np.ndarray:
    """Return the gates along the second axis in oneDNN's order."""
    gates = np.split(values, len(_ORDERS[op]), 1)
    return np.concatenate([gates[k] for k in _ORDERS[op]], 1)


def summed_bias(
    op: str, bias: np.ndarray | None, directions: int, hidden: int, linear_before_reset: bool
) -> np.ndarray:
    """Return the sum of the biases of data and state, but of the candidate of a GRU both.

    Parameters
    ----------
    op : str
        ONNX's op.
    bias : np.ndarray | None
        (D, 2 * G * H): the one of the data, then the one of the state. None for zeros.
    directions, hidden : int
        D and H.
    linear_before_reset : bool
        Whether a GRU multiplies the reset gate by the product of the state.

    Returns
    -------
    bias : np.ndarray
        (D, G * H), or (D, 4 * H) of a GRU with `linear_before_reset`.
    """
    if bias is None:
        gates = len(_ORDERS[op]) + linear_before_reset
        return np.zeros((directions, gates * hidden))
    data, state = (ordered(op, each) for each in np.split(bias, 2, 1))
    if not linear_before_reset:
        return data + state
    gates = 2 * hidden
    added = data[:, :gates] + state[:, :gates]
    return np.concatenate([added, data[:, gates:], state[:, gates:]], 1)


def int8_weight(op: str, values: np.ndarray, scale: np.ndarray, zero_point: np.ndarray) -> tuple:
    """Return a weight of DynamicQuantizeLSTM as int8, and the scale and zero point of each row.

    Parameters
    ----------
    op : str
        ONNX's op of float32.
    values : np.ndarray
        (D, I, G * H), int8 or uint8.
    scale, zero_point : np.ndarray
        (D,) or (D, G * H).

    Returns
    -------
    weight, scale, zero_point : np.ndarray
        (D, G * H, I), and twice (D, G * H), in oneDNN's order.
    """
    shift = 128 if values.dtype == np.uint8 else 0
    values = (values.astype("int32") - shift).transpose(0, 2, 1)
    rows = [
        np.broadcast_to(each.reshape(len(values), -1), values.shape[:2])
        for each in (scale, zero_point.astype("int32") - shift)
    ]
    return ordered(op, values).astype("int8"), *(ordered(op, each) for each in rows)


def dequantized(values: np.ndarray, scale: np.ndarray, zero_point: np.ndarray) -> np.ndarray:
    """Return weights of LSTM from those of DynamicQuantizeLSTM, see `int8_weight`."""
    scale, zero_point = (each.reshape(len(values), 1, -1) for each in (scale, zero_point))
    weight = (values.astype("int32") - zero_point.astype("int32")) * scale
    return np.ascontiguousarray(weight.transpose(0, 2, 1))


def has_parameters(values: np.ndarray, parameters: np.ndarray) -> bool:
    """Whether a scale or zero point has the size of one per tensor, or one per row."""
    return parameters.size in (len(values), len(values) * values.shape[-1])
