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
"""Recurrent layers.

Of T steps, N sequences, I inputs, H hidden units and D directions, the operands are

- the data, (T, N, I), or (N, T, I) with `batch_first`;
- the weight of the data, (D, G * H, I), and that of the state, (D, G * H, H);
- the bias, (D, G * H), zeros where a model has none: the sum of those of the data and the state;
- with `has_initial_state` the initial states h and, of an LSTM, c: (D, N, H),
- with `has_lengths` the number of steps that each sequence has, (N,), int32. Past its end a
  sequence keeps its states, and its result is zero; in reverse it begins at its own end,
- if the weights are int8 the scale and the zero point of each row of the weight, then those of the
  recurrent weight, (D, G * H): float32 and int32.

The weights of float32 data may be bfloat16, and those of an LSTM int8: the kernel multiplies by
int8 weights what it quantizes to 8 bits, each row of the data and of the states on its own.

The G gates are in oneDNN's order: input, forget, cell and output of an LSTM, update, reset and
candidate of a GRU, whose state is ``u * h + (1 - u) * candidate``. A GRU with `linear_before_reset`
multiplies the reset gate by the product of the state and its weight, and has a fourth bias, that
of this product. The results are the states h of all steps, (T, N, D * H) or (N, T, D * H), in the
order of the data, and the last states, (D, N, H).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace

import numpy as np

from ..ir.numpy_types import Array, sigmoid
from ..ir.op import attributes_of
from ..ir.op_view import OpView, Tensor, tensor_of
from .attrs import Attr, Bool, Text
from .draw import Call, Draw
from .schema import OpSchema
from .tensors import known_product, open_reason, tensor_reason, text_of_shape

LSTM, GRU, RNN = "dnnl.lstm", "dnnl.gru", "dnnl.rnn"

# By op: the number of gates.
GATES = {LSTM: 4, GRU: 3, RNN: 1}

DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}

ACTIVATIONS = ("tanh", "relu")

# oneDNN has no float16 layer on most CPUs, and the runtime none.
_DTYPES = ("float32", "bfloat16")

_NAMES = ("data", "weight", "recurrent weight", "bias", "initial h", "initial c")

_INT8_NAMES = tuple(
    f"{field} of the {name}" for name in _NAMES[1:3] for field in ("scale", "zero point")
)

_RESULTS = ("y", "h_n", "c_n")


def states_of(name: str) -> int:
    """Return how many states a layer has: an LSTM has h and c, the others h."""
    return 2 if name == LSTM else 1


def bias_gates(name: str, attrs) -> int:
    """Return how many vectors of H values the bias of one direction has."""
    return GATES[name] + (name == GRU and attrs.linear_before_reset)


def has_lengths(attrs) -> bool:
    """Whether the sequences of a layer have lengths."""
    return attrs.has_lengths


def state_operands(name: str, attrs, operands: Sequence) -> Sequence:
    """Return the initial states among the operands of a layer."""
    return operands[4 : 4 + states_of(name) * attrs.has_initial_state]


def recurrent_reason(call: OpView) -> str | None:
    """Accept constant weights, and data of any number of steps and sequences."""
    return _attributes_reason(call) or _types_reason(call) or _shapes_reason(call)


def _attributes_reason(call: OpView) -> str | None:
    attrs, states = call.attrs, states_of(call.name)
    if attrs.direction not in DIRECTIONS:
        return f"direction={attrs.direction} is not {' or '.join(DIRECTIONS)}"
    if call.name == RNN and attrs.activation not in ACTIVATIONS:
        return f"activation={attrs.activation} is not {' or '.join(ACTIVATIONS)}"
    names = _names(call)
    if len(call.args) != len(names) or len(call.results) != 1 + states:
        counts = f"{len(call.args)} operands and {len(call.results)} results"
        return f"{counts}, not {len(names)} and {1 + states}"
    return None


def _names(call: OpView) -> list[str]:
    """Return what reasons call the operands."""
    names = [*_NAMES[:4], *state_operands(call.name, call.attrs, _NAMES)]
    names += ["lengths"] * has_lengths(call.attrs)
    is_int8 = len(call.args) > 1 and getattr(call.args[1], "dtype", None) == "int8"
    return [*names, *_INT8_NAMES] if is_int8 else names


def _types_reason(call: OpView) -> str | None:
    dtype = getattr(call.args[0], "dtype", None)
    weights = {"float32": ("float32", "bfloat16")}.get(dtype, (dtype,))
    weights += ("int8",) if call.name == LSTM and dtype == "float32" else ()
    types = {
        "data": _DTYPES,
        "weight": weights,
        "recurrent weight": (getattr(call.args[1], "dtype", None),),
        "bias": ("float32",),
        "initial c": (dtype, "float32"),
        "c_n": (dtype, "float32"),
        "lengths": ("int32",),
        **{name: ("int32",) if "zero" in name else ("float32",) for name in _INT8_NAMES},
    }
    constants = ("weight", "recurrent weight", "bias", *_INT8_NAMES)
    for name, tensor in (*zip(_names(call), call.args), *zip(_RESULTS, call.results)):
        wanted = types.get(name, (dtype,))
        reason = tensor_reason(name, tensor, dtypes=wanted)
        if reason:
            return reason
        if name in constants and not tensor.is_constant:
            return f"the {name} is not constant"
    if dtype != "float32" and has_lengths(call.attrs):
        return f"sequence lengths of {dtype} data"
    return None


def _shapes_reason(call: OpView) -> str | None:
    data, *others = (arg.shape for arg in call.args)
    if len(data) != 3:
        return f"data has shape {text_of_shape(data)}; rank 3 is required"
    reason = open_reason("data", "inputs", data[2], data)
    if reason:
        return reason
    names = _names(call)
    for name, shape in zip(names[1:4], others):
        if None in shape:
            return open_reason(name, "dimensions", None, shape)
    hidden = others[1][-1]
    shapes = operand_shapes(
        call.name, call.attrs, data, hidden, tensor_of(call.args[1]).dtype == "int8"
    )
    for name, shape, wanted in zip(names[1:], others, shapes[1:]):
        is_same = len(shape) == len(wanted) and all(
            size == other or None in (size, other) for size, other in zip(shape, wanted)
        )
        if not is_same:
            return f"{name} has shape {text_of_shape(shape)}, not {text_of_shape(wanted)}"
    return None


def operand_shapes(
    name: str, attrs, data: tuple, hidden: int, is_int8: bool = False
) -> list[tuple]:
    """Return the shapes of the operands of a layer.

    Parameters
    ----------
    name : str
        The op.
    attrs : object
        Its attributes.
    data : tuple
        The shape of the data, (T, N, I) or, with `batch_first`, (N, T, I). Dimensions may be open.
    hidden : int
        The number of hidden units, H.
    is_int8 : bool
        Whether the weights are, and have scales and zero points.
    """
    count, rows = DIRECTIONS[attrs.direction], GATES[name] * hidden
    batch = data[0 if attrs.batch_first else 1]
    states = [(count, batch, hidden)] * states_of(name) if attrs.has_initial_state else []
    bias = (count, bias_gates(name, attrs) * hidden)
    others = [*states, *[(batch,)] * has_lengths(attrs), *[(count, rows)] * (4 * is_int8)]
    return [data, (count, rows, data[2]), (count, rows, hidden), bias, *others]


def recurrent_flops(call: OpView) -> int:
    """Count the matmuls of the data and of the states, an open dimension as one."""
    weights = sum(known_product(tensor_of(arg).shape) for arg in call.args[1:3])
    return 2 * known_product(tensor_of(call.args[0]).shape[:2]) * weights


def _layer_type(name, args, attrs):
    data, recurrent_weight = args[0], args[2]
    count, hidden = DIRECTIONS[attrs.direction], recurrent_weight.dims[-1]
    batch = data.dims[0 if attrs.batch_first else 1]
    y = Tensor((*data.dims[:2], count * hidden), data.dtype)
    # The last states have the types of the initial ones, zeros that of the data.
    dtypes = [arg.dtype for arg in state_operands(name, attrs, args)]
    dtypes = dtypes or [data.dtype] * states_of(name)
    return (y, *(Tensor((count, batch, hidden), dtype) for dtype in dtypes))


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


def _draw_layer(name: str) -> Callable[[Draw], Call]:
    def draw(d):
        steps, batch, inputs, hidden = d.shape(4)
        directions = d.choice(list(DIRECTIONS))
        attrs = {"direction": directions, "batch_first": bool(d.integer(0, 1))}
        attrs["has_initial_state"] = bool(d.integer(0, 1))
        attrs["has_lengths"] = bool(d.integer(0, 1))
        if name == GRU:
            attrs["linear_before_reset"] = bool(d.integer(0, 1))
        if name == RNN:
            attrs["activation"] = d.choice(ACTIVATIONS)
        data = (batch, steps, inputs) if attrs["batch_first"] else (steps, batch, inputs)
        is_int8 = name == LSTM and d.integer(0, 1)
        shapes = operand_shapes(
            name, attributes_of(name, SimpleNamespace(**attrs)), data, hidden, is_int8
        )
        values = [d.values(shape) - np.float32(0.9) for shape in shapes]
        if is_int8:
            for k, most in (1, 100), (2, 100), (-3, 3), (-1, 3):
                dtype = "int8" if k > 0 else "int32"
                values[k] = d.numbers.integers(-most, most, shapes[k]).astype(dtype)
        if attrs["has_lengths"]:
            k = len(shapes) - 1 - 4 * bool(is_int8)
            values[k] = d.numbers.integers(0, steps + 1, shapes[k]).astype("int32")
        return Call(values, attrs)

    return draw


_ATTRS = (
    *(Text("direction", "forward"), Bool("batch_first", False)),
    *(Bool("has_initial_state", False), Bool("has_lengths", False)),
)


def _row(name: str, step, *attrs: Attr) -> OpSchema:
    fields = dict(
        infer=partial(_layer_type, name), numpy=_layer(name, step), draw=_draw_layer(name)
    )
    fields.update(attrs=(*_ATTRS, *attrs), flops=recurrent_flops, heavy=True, relax="")
    return OpSchema(name, recurrent_reason, **fields)


ROWS = [
    _row(LSTM, _lstm_step),
    _row(GRU, _gru_step, Bool("linear_before_reset", False)),
    _row(RNN, _rnn_step, Text("activation", "tanh")),
]
