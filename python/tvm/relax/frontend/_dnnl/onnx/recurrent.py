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
"""ONNX's recurrent ops LSTM, GRU and RNN, and DynamicQuantizeLSTM of onnxruntime."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import tvm
from tvm import relax
from tvm.contrib.onednn.frontend import unrolled_layers
from tvm.contrib.onednn.frontend.layer_weights import (
    ACTIVATIONS,
    coupled,
    dequantized,
    has_parameters,
)
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter, get_constant

from ..backend import is_constant, is_same, number, value_of
from .recurrent_activations import Activation, read_activations
from .recurrent_layer import is_known, one_op, unrolled_reason
from .recurrent_steps import unrolled

_DIRECTIONS = {
    "forward": ("forward",),
    "reverse": ("reverse",),
    "bidirectional": ("forward", "reverse"),
}
#: By op: the number of gates.
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


@dataclass(frozen=True)
class RecurrentLayer:
    """A recurrent layer as ONNX describes it.

    D is the number of directions, G of gates, H of hidden units, I of inputs, N of sequences
    (the batch), T of steps; N and T may be open. Tensors are `np.ndarray` where they are constant.

    Attributes
    ----------
    op : str
        "LSTM", "GRU" or "RNN".
    directions : tuple[str, ...]
        "forward", "reverse" or both.
    hidden_size : int
        H.
    steps : int | tirx.Expr
        T; open only for a layer that is one op.
    batch : int | tirx.Expr
        N.
    time_axis : int
        0 for time first, 1 for batch first. Initial states have their directions on this axis.
    activations : list[tuple[Activation, ...]]
        The activations of each direction: f, g, h of an LSTM; f, g of a GRU; f of an RNN.
    data : relax.Expr
        (T, N, I), or (N, T, I) for batch first.
    weight, recurrent_weight : np.ndarray | relax.Expr
        (D, G * H, I) and (D, G * H, H). The gates are in ONNX's order: i, o, f, c or z, r, h.
    bias : np.ndarray | relax.Expr | None
        (D, 2 * G * H): the one of the data, then the one of the state.
    lengths : np.ndarray | relax.Expr | None
        (N,), int32; None if each sequence has T steps.
    initial : tuple[np.ndarray | relax.Expr | None, ...]
        The initial state h, and c of an LSTM: (D, N, H), or (N, D, H) for batch first. None for
        zeros.
    peepholes : np.ndarray | relax.Expr | None
        (D, 3 * H) of an LSTM, in the order i, o, f.
    clip : float | None
        The bound for the inputs of the gates' activations, bias included. As in onnxruntime, the
        cell state is not clipped.
    input_forget : bool
        Whether the forget gate of an LSTM is one minus its input gate, where its weights do not say
        so.
    linear_before_reset : bool
        Whether the reset gate of a GRU is applied after the matmul.
    quantized : tuple[tuple[np.ndarray, np.ndarray, np.ndarray], ...] | None
        The values, (D, I, G * H) and (D, H, G * H), scale and zero point of both weights, where
        those above are dequantized.
    """

    op: str
    directions: tuple[str, ...]
    hidden_size: int
    steps: object
    batch: object
    time_axis: int
    activations: list[tuple[Activation, ...]]
    data: relax.Expr
    weight: np.ndarray | relax.Expr
    recurrent_weight: np.ndarray | relax.Expr
    bias: np.ndarray | relax.Expr | None = None
    lengths: np.ndarray | relax.Expr | None = None
    initial: tuple = (None,)
    peepholes: np.ndarray | relax.Expr | None = None
    clip: float | None = None
    input_forget: bool = False
    linear_before_reset: bool = False
    quantized: tuple | None = None


class _Reader:
    """Reads the inputs of a node, and refuses what cannot be imported."""

    def __init__(self, op, inputs, attr, params):
        self.inputs, self.params = inputs, params
        self.node = f"ONNX {op}, node {attr['tvm_custom']['name'] or 'without a name'}"

    def refuse(self, message):
        """Return the error for something that cannot be imported."""
        return tvm.error.OpAttributeUnImplemented(f"{self.node}: {message}")

    def value(self, position):
        """Return an input, as an array if it is constant; None if it is absent."""
        value = self.inputs[position]
        value = None if value is None else get_constant(value, self.params)
        return value_of(value) if value is not None and is_constant(value) else value

    def shape(self, name, value):
        if isinstance(value, np.ndarray):
            return value.shape
        values = getattr(value.ty.shape, "values", None)
        if values is None:
            raise self.refuse(f"the shape of {name} is unknown; {_REMEDY}")
        return tuple(values)

    def shaped(self, name, position, wanted):
        """Return an input that must have a shape; None if it is absent."""
        value = self.value(position)
        if value is None:
            return None
        shape = self.shape(name, value)
        if len(shape) == len(wanted) and all(map(_is_equal, shape, wanted)):
            return value
        # Sizes of different names may be equal, but a cast that compares them at run time is
        # removed by TVM's CanonicalizeBindings.
        is_open = None in map(number, (*shape, *wanted))
        message = f"{name} has shape {_text(shape)}, not {_text(wanted)}"
        raise self.refuse(f"{message}; {_REMEDY}" if is_open else message)


def _is_equal(left, right):
    return is_same(left, right) or (number(left) is not None and number(left) == number(right))


def _text(shape):
    sizes = (size if number(size) is None else number(size) for size in shape)
    return f"({', '.join(map(str, sizes))})"


_REMEDY = "give the shapes of the model's inputs, such as from_onnx(model, shape={'input': [...]})"


def read_layer(op, bb, inputs, attr, params, quantized=None) -> RecurrentLayer:
    """Read a node.

    Parameters
    ----------
    op : str
        "LSTM", "GRU" or "RNN".
    bb, inputs, attr, params
        Those of a converter.
    quantized : tuple | None
        The weights, where they are not those of the node, see `RecurrentLayer`.

    Raises
    ------
    tvm.error.OpAttributeUnImplemented
        The node cannot be imported, for example because the sequence length is open.
    """
    reader = _Reader(op, inputs, attr, params)
    name = attr.get("direction", b"forward").decode()
    if name not in _DIRECTIONS:
        raise reader.refuse(f"direction={name} is not supported")
    directions = _DIRECTIONS[name]
    count, gates = len(directions), _GATES[op]
    if quantized:
        weight, recurrent_weight = (dequantized(*each) for each in quantized)
    else:
        weight, recurrent_weight = reader.value(1), reader.value(2)
    hidden = number(reader.shape("R", recurrent_weight)[-1])
    if hidden is None or attr.get("hidden_size", hidden) != hidden:
        sizes = f"hidden_size={attr.get('hidden_size')} and R with {hidden} columns"
        raise reader.refuse(f"{sizes} do not match")
    time_axis = attr.get("layout", 0)
    shape = reader.shape("X", inputs[0])
    steps, batch = shape[time_axis], shape[1 - time_axis]
    steps = steps if number(steps) is None else number(steps)
    if attr.get("clip", 1.0) <= 0:
        raise reader.refuse(f"clip={attr['clip']} is not positive")
    states = (batch, count, hidden) if time_axis else (count, batch, hidden)
    initial = tuple(
        reader.shaped(f"initial_{name}", 5 + k, states)
        for k, name in enumerate("hc" if op == "LSTM" else "h")
    )
    layer = RecurrentLayer(
        op=op,
        directions=directions,
        hidden_size=hidden,
        steps=steps,
        batch=batch,
        time_axis=time_axis,
        activations=read_activations(attr, ACTIVATIONS[op][0], count, reader.refuse),
        data=inputs[0],
        weight=weight,
        recurrent_weight=recurrent_weight,
        bias=reader.shaped("B", 3, (count, 2 * gates * hidden)),
        lengths=_read_lengths(reader, steps, batch),
        initial=initial,
        peepholes=reader.shaped("P", 7, (count, 3 * hidden)) if op == "LSTM" else None,
        clip=attr.get("clip"),
        input_forget=bool(attr.get("input_forget", 0)),
        linear_before_reset=op == "GRU" and bool(attr.get("linear_before_reset", 0)),
        quantized=quantized,
    )
    layer = _with_forget_gate(layer) if layer.input_forget else layer
    reason = unrolled_reason(layer)
    if reason is not None and number(steps) is None:
        message = (
            f"the sequence length, {steps}, is open, and the layer has to be unrolled: {reason}"
        )
        raise reader.refuse(f"{message}; {_REMEDY}")
    if reason is not None:
        unrolled_layers.note(op, attr["tvm_custom"]["name"], reason)
    return layer


def _with_forget_gate(layer: RecurrentLayer) -> RecurrentLayer:
    """Return an LSTM with weights for what `input_forget` says; the same if it has none."""
    parts = {"weight": 4, "recurrent_weight": 4, "bias": 8, "peepholes": 3}
    values = {name: getattr(layer, name) for name in parts}
    is_sigmoid = all(functions[0].name == "sigmoid" for functions in layer.activations)
    if not is_sigmoid or not all(map(is_known, values.values())):
        return layer
    weights = {name: coupled(value, parts[name]) for name, value in values.items()}
    return replace(layer, input_forget=False, quantized=None, **weights)


def _read_lengths(reader, steps, batch):
    """Return `sequence_lens`, None if they are constant and equal to the number of steps."""
    lengths = reader.value(4)
    if isinstance(lengths, np.ndarray):
        if number(steps) is None:
            return lengths
        if (lengths == steps).all():
            return None
        if (lengths < 0).any() or (lengths > steps).any():
            raise reader.refuse(f"sequence_lens={lengths.tolist()} are not within 0 and {steps}")
        if number(batch) is None:
            raise reader.refuse(f"sequence_lens are constant and the batch, {batch}, is open")
    return reader.shaped("sequence_lens", 4, (batch,))


class _Recurrent(OnnxOpConverter):
    """Converts a recurrent node into one op, or the ops of its steps."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        return _outputs(bb, read_layer(cls.__name__, bb, inputs, attr, params), attr)


class LSTM(_Recurrent):
    """Converts an onnx LSTM node into an equivalent Relax expression."""


class GRU(_Recurrent):
    """Converts an onnx GRU node into an equivalent Relax expression."""


class RNN(_Recurrent):
    """Converts an onnx RNN node into an equivalent Relax expression."""


class DynamicQuantizeLSTM(OnnxOpConverter):
    """Converts a com.microsoft DynamicQuantizeLSTM node into an LSTM with int8 weights.

    onnxruntime quantizes the data, and in each step the state, with one scale for all sequences;
    oneDNN's kernel each row on its own, or nothing where that is faster, as for few weights. An
    LSTM that has to be unrolled computes in float32. The results differ by the error of that
    quantization.
    """

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        reader = _Reader("DynamicQuantizeLSTM", inputs, attr, params)
        quantized = []
        for name, position, scale in (("W", 1, 8), ("R", 2, 10)):
            values = [reader.value(k) for k in (position, scale, scale + 1)]
            if not all(isinstance(value, np.ndarray) for value in values):
                raise reader.refuse(f"{name}, its scale or its zero point is not constant")
            values[1:] = [_parameters(reader, name, values[0], each) for each in values[1:]]
            quantized.append(tuple(values))
        return _outputs(bb, read_layer("LSTM", bb, inputs, attr, params, tuple(quantized)), attr)


def _parameters(reader, name: str, values: np.ndarray, parameters: np.ndarray) -> np.ndarray:
    """Return a scale or zero point, (D,) or (D, G * H); refuse another shape."""
    if not has_parameters(values, parameters):
        shapes = f"{_text(parameters.shape)} does not fit {name} of shape {_text(values.shape)}"
        raise reader.refuse(f"a scale or zero point of shape {shapes}")
    return parameters


def _outputs(bb, layer, attr):
    """Emit a layer; return the outputs of its node, of which the last ones may be absent."""
    results = (one_op if unrolled_reason(layer) is None else unrolled)(bb, layer)
    results = results[: attr["tvm_custom"]["num_outputs"]]
    return relax.Tuple(results) if len(results) > 1 else results[0]


CONVERTERS = {each.__name__: each for each in (DynamicQuantizeLSTM, GRU, LSTM, RNN)}
