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
from tvm.contrib.onednn.frontend import layer_weights
from tvm.contrib.onednn.frontend.layer_weights import int8_weight, ordered, summed_bias
from tvm.relax import op

from ..backend import call_layer, constant_of, number


def unrolled_reason(layer) -> str | None:
    """Say why a `RecurrentLayer` is not one op, so that its steps have to be unrolled."""
    names = [tuple(each.name for each in functions) for functions in layer.activations]
    return layer_weights.unrolled_reason(
        layer.op,
        names[0] if len(set(names)) == 1 else sum(names, ()),
        all(map(is_known, (layer.weight, layer.recurrent_weight, layer.bias))),
        peepholes=layer.peepholes is not None,
        clip=layer.clip is not None,
        input_forget=layer.input_forget,
    )


def is_known(value) -> bool:
    """Whether an operand is constant, or absent."""
    return value is None or isinstance(value, np.ndarray)


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
        weights = [constant_of(ordered(layer.op, each), dtype) for each in weights]
    else:
        weights, quantization = quantization
    bias = summed_bias(layer.op, layer.bias, count, hidden, layer.linear_before_reset)
    bias = constant_of(bias, "float64" if dtype == "float64" else "float32")
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
    for each in layer.quantized:
        weight, scale, zero_point = int8_weight(layer.op, *each)
        weights.append(constant_of(weight, "int8"))
        parameters += [constant_of(scale, "float32"), constant_of(zero_point, "int32")]
    return weights, parameters


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
