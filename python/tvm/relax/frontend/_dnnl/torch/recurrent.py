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
"""Converters of LSTM, GRU and RNN: one op a layer, see `recurrent_tir.py`.

PyTorch's decomposition and TVM's importer unroll the steps.
"""

from __future__ import annotations

import numpy as np
from tvm import relax

from ..backend import GATES, call_layer, constant_of
from .graphs import argument, aten, constants

#: By op of PyTorch: the op of the table, where PyTorch has each gate of its order, and attributes.
_OPS = {
    aten.lstm.input: ("dnnl.lstm", (0, 1, 2, 3), {}),
    aten.gru.input: ("dnnl.gru", (1, 0, 2), {"linear_before_reset": True}),
    aten.rnn_tanh.input: ("dnnl.rnn", (0,), {"activation": "tanh"}),
    aten.rnn_relu.input: ("dnnl.rnn", (0,), {"activation": "relu"}),
}


def kept(program) -> list:
    """Return the ops of which each call in a program is converted to layers.

    An LSTM with projections is not, nor one whose weights are computed.
    """
    known = constants(program)
    ops = {node.target for node in program.graph.nodes if node.target in _OPS}
    others = {
        node.target
        for node in program.graph.nodes
        if node.target in ops and not _is_converted(node, known)
    }
    return [op for op in ops if op not in others]


def _is_converted(node, known) -> bool:
    params = argument(node, "params")
    count = argument(node, "num_layers") * (1 + bool(argument(node, "bidirectional")))
    each = 4 if argument(node, "has_biases") else 2
    return len(params) == each * count and all(param in known for param in params)


def converters(values: dict) -> dict:
    """Return the converters for a program, given the values of its constants by node."""
    names = {node.name: value for node, value in values.items()}

    def convert(node, importer):
        return _Converter(node, importer, names).results()

    return {f"{op._schema.name.split('::')[-1]}.input": convert for op in _OPS}


class _Converter:
    """Converts a call, which has one or several layers."""

    def __init__(self, node, importer, values):
        self.node, self.env, self.values = node, importer.env, values
        self.builder = importer.block_builder
        self.name, self.order, self.attrs = _OPS[node.target]
        if argument(node, "train") and argument(node, "dropout"):
            raise ValueError(f"{node.name}: dropout in training mode; export in eval()")
        self.is_bidirectional = bool(argument(node, "bidirectional"))
        self.directions = 1 + self.is_bidirectional
        self.layers = argument(node, "num_layers")

    def results(self) -> list[relax.Expr]:
        """Emit the layers; return the states of all steps, and the last states of all layers."""
        data, states = self.env[self.node.args[0]], []
        for layer in range(self.layers):
            data, *last = self.layer(data, layer)
            states.append(last)
        if self.layers == 1:
            return [data, *states[0]]
        return [data, *(self.emit(relax.op.concat(list(each), 0)) for each in zip(*states))]

    def emit(self, value):
        return self.builder.emit(value)

    def layer(self, data, layer: int) -> list[relax.Expr]:
        initial = self.initial(layer)
        attrs = {
            "direction": "bidirectional" if self.is_bidirectional else "forward",
            "batch_first": bool(argument(self.node, "batch_first")),
            "has_initial_state": bool(initial),
            **self.attrs,
        }
        dtype = str(data.ty.dtype)
        weight, recurrent_weight, bias = self.weights(layer)
        operands = [data, constant_of(weight, dtype), constant_of(recurrent_weight, dtype)]
        operands.append(constant_of(bias, "float64" if dtype == "float64" else "float32"))
        results = self.emit(call_layer(self.builder, self.name, [*operands, *initial], attrs))
        return [self.emit(relax.TupleGetItem(results, k)) for k in range(len(results.ty.fields))]

    def weights(self, layer: int) -> list[np.ndarray]:
        """Return the weights and the bias of a layer."""
        has_biases = argument(self.node, "has_biases")
        count, params = 4 if has_biases else 2, argument(self.node, "params")
        parts = []
        for k in range(layer * self.directions, (layer + 1) * self.directions):
            own = [self.array(param) for param in params[k * count : (k + 1) * count]]
            if not has_biases:
                own += [np.zeros(len(own[0]))] * 2
            parts.append((*map(self.ordered, own[:2]), self.bias(*map(self.ordered, own[2:]))))
        return [np.stack(each) for each in zip(*parts)]

    def array(self, param) -> np.ndarray:
        return self.values[param.name].double().numpy()

    def ordered(self, values: np.ndarray) -> np.ndarray:
        """Return the gates in oneDNN's order."""
        gates = np.split(values, GATES[self.name])
        return np.concatenate([gates[k] for k in self.order])

    def bias(self, data: np.ndarray, state: np.ndarray) -> np.ndarray:
        """Return the sum of the biases, but of the candidate of a GRU both."""
        if not self.attrs.get("linear_before_reset"):
            return data + state
        gates = len(data) // 3 * 2
        return np.concatenate([data[:gates] + state[:gates], data[gates:], state[gates:]])

    def initial(self, layer: int) -> list[relax.Expr]:
        """Return the initial states of a layer, none if all are zero."""
        given = argument(self.node, "hx")
        given = list(given) if isinstance(given, (list, tuple)) else [given]
        if all(map(self.is_zero, given)):
            return []
        states = [self.env[state] for state in given]
        if self.layers == 1:
            return states
        begin, end = layer * self.directions, (layer + 1) * self.directions
        return [self.emit(relax.op.strided_slice(each, [0], [begin], [end])) for each in states]

    def is_zero(self, state) -> bool:
        if state.name in self.values:
            return not self.values[state.name].any()
        return state.target is aten.full.default and state.args[1] == 0
