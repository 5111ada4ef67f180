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
"""ONNX's recurrent ops, and DynamicQuantizeLSTM of onnxruntime, as one op each.

TVM's converters unroll a layer into the ops of all steps. The op has a loop over the steps, of
which there may be any number; see `tvm.relay.op.contrib._dnnl.recurrent`.
"""

from __future__ import annotations

import numpy as np
from tvm.contrib.onednn.frontend import layer_weights
from tvm.contrib.onednn.frontend.layer_weights import (
    ACTIVATIONS,
    coupled,
    dequantized,
    has_parameters,
    int8_weight,
    ordered,
    summed_bias,
)

from ... import expr as _expr
from ... import op as _op
from .incremental import infer_shape, infer_type


def unrolled_reason(name, inputs, attrs) -> str | None:
    """Say why a node cannot be one op.

    Parameters
    ----------
    name : str
        "LSTM", "GRU" or "RNN".
    inputs, attrs
        Those of a converter.
    """
    dtype = infer_type(inputs[0]).checked_type.dtype
    # Without freeze_params the weights are parameters.
    is_constant = all(inputs[k] is None or _value(inputs[k]) is not None for k in (1, 2, 3))
    return layer_weights.unrolled_reason(
        name,
        _activations(name, attrs),
        is_constant,
        peepholes=inputs[7] is not None,
        clip="clip" in attrs,
        input_forget=bool(attrs.get("input_forget")),
        **{f"{dtype} data": dtype != "float32"},
    )


def with_forget_gate(inputs, attrs) -> tuple:
    """Return a node with weights for what `input_forget` says; the same if it has none."""
    parts = {1: 4, 2: 4, 3: 8, 7: 3}
    values = {k: _value(inputs[k]) for k in parts if inputs[k] is not None}
    functions = _activations("LSTM", attrs)
    if any(each is None for each in values.values()) or {*functions[::3]} != {"sigmoid"}:
        return inputs, attrs
    result = type(inputs)(inputs)
    for k, value in values.items():
        result[k] = _expr.const(coupled(value, parts[k]), str(value.dtype))
    return result, {**attrs, "input_forget": 0}


def clipped(convert, bound: float):
    """Return a converter of TVM whose layers clip the inputs of the gates' activations."""

    class Clipped(convert.__self__):
        """The class of the converter, with other activations."""

        @classmethod
        def _get_activations(cls, attr, multiplier, num_directions, rnn_type):
            functions = super()._get_activations(attr, multiplier, num_directions, rnn_type)
            # The third one of an LSTM is that of the cell state: onnxruntime does not clip it.
            return [
                function if k % multiplier == 2 else _after_clip(function, bound)
                for k, function in enumerate(functions)
            ]

    return getattr(Clipped, convert.__name__)


def _after_clip(function, bound: float):
    return lambda x: function(_op.clip(x, -bound, bound))


def one_op(name, inputs, attrs, refuse, quantized=None):
    """Return the outputs of a node as one op.

    Parameters
    ----------
    name : str
        "LSTM", "GRU" or "RNN".
    inputs, attrs
        Those of a converter.
    refuse : Callable[[str], None]
        Raises the error for a message.
    quantized : tuple[tuple, tuple] | None
        The values, scale and zero point of both weights, where those of the node are dequantized.
    """
    directions = _direction(attrs)
    weights = [_value(inputs[k]) for k in (1, 2)]
    bias = _value(inputs[3])
    # pylint: disable=import-outside-toplevel
    from .backend import layer_call, states_of

    is_batch_first, linear = bool(attrs.get("layout", 0)), name == "GRU"
    linear = linear and bool(attrs.get("linear_before_reset", 0))
    count, hidden = len(weights[1]), weights[1].shape[-1]
    if attrs.get("hidden_size", hidden) != hidden:
        refuse(f"hidden_size={attrs['hidden_size']} with {hidden} columns of R")
    if count != 1 + (directions == "bidirectional"):
        refuse(f"direction={directions} with weights for {count} directions")
    operands, parameters = [inputs[0]], []
    for each in quantized or ():
        weight, scale, zero_point = int8_weight(name, *each)
        operands.append(_expr.const(weight, "int8"))
        parameters += [_expr.const(scale, "float32"), _expr.const(zero_point, "int32")]
    if not quantized:
        operands += [_expr.const(ordered(name, each), "float32") for each in weights]
    operands.append(_expr.const(summed_bias(name, bias, count, hidden, linear), "float32"))
    table_op = f"dnnl.{name.lower()}"
    initial = _initial_states(inputs, states_of(table_op), is_batch_first)
    lengths = _lengths(inputs, is_batch_first, refuse)
    layer = {"direction": directions, "batch_first": is_batch_first}
    layer.update(has_initial_state=bool(initial))
    layer.update({"linear_before_reset": linear} if name == "GRU" else {})
    layer.update({"activation": _activations(name, attrs)[0]} if name == "RNN" else {})
    layer.update({"has_lengths": True} if lengths else {})
    operands += [*initial, *lengths, *parameters]
    results = layer_call(table_op, operands, layer)
    y, *states = _expr.TupleWrapper(results, 1 + states_of(table_op))
    axis = 2 if is_batch_first else 1
    if count == 1:
        y = _op.expand_dims(y, axis)
    else:
        y = _op.reshape(y, [0, 0, count, hidden])
        y = y if is_batch_first else _op.transpose(y, [0, 2, 1, 3])
    states = [_swapped(each) if is_batch_first else each for each in states]
    return _expr.TupleWrapper(_expr.Tuple([y, *states]), 1 + len(states))


def dynamic_quantize_lstm(inputs, attrs, params, convert, refuse):
    """Convert a DynamicQuantizeLSTM: as one op with int8 weights, or as an LSTM of float32.

    Parameters
    ----------
    convert : Callable
        The converter of LSTM.
    refuse : Callable[[str], None]
        Raises the error for a message.
    """
    quantized = []
    for name, position, scale in (("W", 1, 8), ("R", 2, 10)):
        values = tuple(_value(inputs[k]) for k in (position, scale, scale + 1))
        if any(each is None for each in values):
            refuse(f"{name} with values, a scale or a zero point that are not constant")
        if not all(has_parameters(values[0], each) for each in values[1:]):
            refuse(f"a scale or zero point that does not fit {name}")
        quantized.append(values)
    floats = type(inputs)(list(inputs)[:8])
    for k, each in enumerate(quantized):
        floats[1 + k] = _expr.const(dequantized(*each), "float32")
    if unrolled_reason("LSTM", floats, attrs) is None:
        return one_op("LSTM", floats, attrs, refuse, quantized)
    return convert(floats, attrs, params)


def _value(expr) -> np.ndarray | None:
    return expr.data.numpy() if isinstance(expr, _expr.Constant) else None


def _direction(attrs) -> str:
    direction = attrs.get("direction", "forward")
    return direction.decode() if isinstance(direction, bytes) else direction


def _activations(name: str, attrs) -> tuple[str, ...]:
    """Return the activations of one direction; those of both, if they differ."""
    given = tuple(each.decode().lower() for each in attrs.get("activations", ()))
    default = ACTIVATIONS[name][0]
    first = given[: len(default)]
    return first if given and given in (first, first * 2) else given or default


def _initial_states(inputs, states: int, is_batch_first: bool) -> list:
    """Return the initial states with the directions first, none if all are zero."""
    given = [inputs[5 + k] for k in range(states)]
    values = [_value(each) for each in given]
    given = [
        None if value is not None and not value.any() else each
        for each, value in zip(given, values)
    ]
    known = [each for each in given if each is not None]
    if not known:
        return []
    given = [_op.zeros_like(known[0]) if each is None else each for each in given]
    return [_swapped(each) if is_batch_first else each for each in given]


def _swapped(state):
    """Return a state with its first two axes, directions and sequences, swapped."""
    return _op.transpose(state, [1, 0, 2])


def _lengths(inputs, is_batch_first: bool, refuse) -> list:
    """Return `sequence_lens`, nothing if they are constant and equal to the number of steps."""
    lengths, steps = inputs[4], infer_shape(inputs[0])[1 if is_batch_first else 0]
    values = _value(lengths)
    if lengths is None or values is None:
        return [] if lengths is None else [lengths]
    if isinstance(steps, int):
        if (values == steps).all():
            return []
        if (values < 0).any() or (values > steps).any():
            refuse(f"sequence_lens={values.tolist()} outside of 0 to {steps}")
    return [lengths]
