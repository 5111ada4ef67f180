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
"""Recurrent layers as one op each, see `recurrent_tir.py`."""

from __future__ import annotations

import numpy as np
from tvm import relax
from tvm.relax import op

from ..reading import constant_of, number
from ..recurrent_tir import call_layer

#: Where ONNX has each gate of oneDNN's order: it has i, o, f, c of an LSTM and z, r, h of a GRU.
_ORDERS = {"LSTM": [0, 2, 3, 1], "GRU": [0, 1, 2], "RNN": [0]}

#: By op: the activations of one direction that oneDNN has.
_ACTIVATIONS = {
    "LSTM": [("sigmoid", "tanh", "tanh")],
    "GRU": [("sigmoid", "tanh")],
    "RNN": [("tanh",), ("relu",)],
}


def unrolled_reason(layer) -> str | None:
    """Say why a `RecurrentLayer` is not one op, so that its steps have to be unrolled."""
    names = [tuple(each.name for each in functions) for functions in layer.activations]
    if len(set(names)) > 1 or names[0] not in _ACTIVATIONS[layer.op]:
        return f"it has the activations {', '.join(sum(names, ()))}"
    for name in ("peepholes", "clip"):
        if getattr(layer, name) is not None:
            return f"it has {name}"
    if layer.input_forget:
        return "it has input_forget"
    constants = [layer.weight, layer.recurrent_weight]
    constants += [] if layer.bias is None else [layer.bias]
    if not all(isinstance(each, np.ndarray) for each in constants):
        return "its weights are not constant"
    return None


def one_op(bb: relax.BlockBuilder, layer) -> list[relax.Expr]:
    """Emit a `RecurrentLayer` as one op.

    Returns
    -------
    outputs : list[relax.Expr]
        As those of `recurrent_steps.unrolled`.
    """
    count, hidden, axis = len(layer.directions), layer.hidden_size, layer.time_axis
    dtype = layer.data.ty.dtype.dtype
    initial = _initial_states(bb, layer, dtype)
    attrs = {
        "direction": "bidirectional" if count == 2 else layer.directions[0],
        "batch_first": bool(axis),
        "has_initial_state": bool(initial),
    }
    if layer.op == "GRU":
        attrs["linear_before_reset"] = layer.linear_before_reset
    if layer.op == "RNN":
        attrs["activation"] = layer.activations[0][0].name
    quantization = _quantization(layer) if dtype == "float32" else None
    if quantization is None:
        weights = [layer.weight, layer.recurrent_weight]
        weights = [constant_of(_ordered(layer.op, each), dtype) for each in weights]
    else:
        weights, quantization = quantization
    bias = constant_of(_bias(layer), "float64" if dtype == "float64" else "float32")
    operands = [layer.data, *weights, bias, *initial]
    if layer.lengths is not None:
        attrs["has_lengths"] = True
        is_constant = isinstance(layer.lengths, np.ndarray)
        operands.append(constant_of(layer.lengths, "int32") if is_constant else layer.lengths)
    operands += quantization or []
    results = bb.emit(call_layer(bb, f"dnnl.{layer.op.lower()}", operands, attrs))
    y, *states = (bb.emit(relax.TupleGetItem(results, k)) for k in range(len(results.ty.fields)))
    if count == 1:
        y = bb.emit(op.expand_dims(y, axis + 1))
    else:
        steps, batch = layer.data.ty.shape.values[:2]
        y = bb.emit(op.reshape(y, [steps, batch, count, hidden]))
        y = y if axis else bb.emit(op.permute_dims(y, [0, 2, 1, 3]))
    return [y, *(_directions_first(bb, each) if axis else each for each in states)]


def _ordered(name: str, values: np.ndarray) -> np.ndarray:
    """Return the gates along the second axis in oneDNN's order."""
    gates = np.split(values, len(_ORDERS[name]), 1)
    return np.concatenate([gates[k] for k in _ORDERS[name]], 1)


def _quantization(layer) -> tuple[list, list] | None:
    """Return the int8 weights of a quantized layer, and their scales and zero points.

    Returns
    -------
    weights : list[relax.Constant]
        In oneDNN's order: the weight, (D, G * H, I), and the recurrent weight, (D, G * H, H).
    parameters : list[relax.Constant]
        The scale and the zero point of each weight, (D, G * H).
    """
    if layer.quantized is None:
        return None
    weights, parameters = [], []
    for values, scale, zero_point in layer.quantized:
        shift = 128 if values.dtype == np.uint8 else 0
        values = (values.astype("int32") - shift).transpose(0, 2, 1)
        weights.append(constant_of(_ordered(layer.op, values), "int8"))
        for each, dtype in ((scale, "float32"), (zero_point.astype("int32") - shift, "int32")):
            rows = np.broadcast_to(each.reshape(len(values), -1), values.shape[:2])
            parameters.append(constant_of(_ordered(layer.op, rows), dtype))
    return weights, parameters


def _bias(layer) -> np.ndarray:
    """Return the sum of the biases of data and state, but of the candidate of a GRU both."""
    if layer.bias is None:
        gates = len(_ORDERS[layer.op]) + layer.linear_before_reset
        return np.zeros((len(layer.directions), gates * layer.hidden_size))
    data, state = (_ordered(layer.op, each) for each in np.split(layer.bias, 2, 1))
    if not layer.linear_before_reset:
        return data + state
    gates = 2 * layer.hidden_size
    added = data[:, :gates] + state[:, :gates]
    return np.concatenate([added, data[:, gates:], state[:, gates:]], 1)


def _initial_states(bb, layer, dtype) -> list[relax.Expr]:
    """Return the initial states with the directions first, none if all are zero."""
    if not any(map(_may_be_set, layer.initial)):
        return []
    states = []
    for value in layer.initial:
        if value is None:
            shape = [len(layer.directions), layer.batch, layer.hidden_size]
            is_known = number(layer.batch) is not None
            value = np.zeros([int(size) for size in shape]) if is_known else None
            states.append(
                constant_of(value, dtype) if is_known else bb.emit(op.zeros(shape, dtype))
            )
        elif isinstance(value, np.ndarray):
            value = value.swapaxes(0, 1) if layer.time_axis else value
            states.append(constant_of(value, dtype))
        else:
            states.append(_directions_first(bb, value) if layer.time_axis else value)
    return states


def _may_be_set(value) -> bool:
    """Whether an initial state is not known to be zero."""
    return value is not None and not (isinstance(value, np.ndarray) and not value.any())


def _directions_first(bb, state: relax.Expr) -> relax.Expr:
    """Return a state with its first two axes, directions and sequences, swapped."""
    return bb.emit(op.permute_dims(state, [1, 0, 2]))
