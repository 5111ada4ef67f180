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
from .recurrent_steps import mask_of

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
    if layer.lengths is not None and not _is_masked(layer):
        return "it has sequence_lens"
    if layer.input_forget:
        return "it has input_forget"
    constants = [layer.weight, layer.recurrent_weight]
    constants += [] if layer.bias is None else [layer.bias]
    if not all(isinstance(each, np.ndarray) for each in constants):
        return "its weights are not constant"
    return None


def _is_masked(layer) -> bool:
    """Whether the layer is one op though its sequences have lengths, see `_Masked`."""
    is_float32 = layer.data.ty.dtype.dtype == "float32"
    return layer.op == "GRU" and number(layer.steps) is not None and is_float32


class _Masked:
    """A GRU whose sequences have lengths.

    The data have one more input, which is 1 past the end of a sequence and saturates the update
    gate: the state stays as it is, in both directions.
    """

    #: The pre-activation of a gate past the end.
    SATURATED = 1e30

    def __init__(self, bb, layer):
        self.bb, self.layer = bb, layer
        self.mask, self.zero = mask_of(bb, layer), relax.const(0.0, "float32")

    def data(self) -> relax.Expr:
        """Return the data, with zeros past the end, and the input that says where that is."""
        emit, shape = self.bb.emit, self.layer.data.ty.shape.values
        # What is past the end may be NaN.
        data = emit(op.where(self.mask, self.layer.data, self.zero))
        one = relax.const(1.0, "float32")
        past = emit(op.where(self.mask, self.zero, one))
        past = emit(op.broadcast_to(past, [*shape[:2], 1]))
        return emit(op.concat([data, past], 2))

    def weight(self, values: np.ndarray) -> np.ndarray:
        """Return the weight of the data in oneDNN's order, with a column for the new input."""
        column = np.zeros((*values.shape[:2], 1), values.dtype)
        column[:, : self.layer.hidden_size] = self.SATURATED
        return np.concatenate([values, column], 2)

    def result(self, y: relax.Expr) -> relax.Expr:
        """Return the states of all steps, which are zero past the end."""
        return self.bb.emit(op.where(self.mask, y, self.zero))


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
    data, weight = layer.data, _ordered(layer.op, layer.weight)
    masked = None if layer.lengths is None else _Masked(bb, layer)
    if masked is not None:
        data, weight = masked.data(), masked.weight(weight)
    weights = weight, _ordered(layer.op, layer.recurrent_weight)
    operands = [data, *(constant_of(each, dtype) for each in weights)]
    operands.append(constant_of(_bias(layer), "float64" if dtype == "float64" else "float32"))
    call = call_layer(bb, f"dnnl.{layer.op.lower()}", [*operands, *initial], attrs)
    results = bb.emit(call)
    y, *states = (bb.emit(relax.TupleGetItem(results, k)) for k in range(len(results.ty.fields)))
    y = y if masked is None else masked.result(y)
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
