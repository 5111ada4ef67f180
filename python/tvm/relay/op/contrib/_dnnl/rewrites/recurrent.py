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
"""Multiplies the inputs of all steps of an unrolled recurrent layer by their weights at once.

TVM's importers write `dense(concatenate(x_t, h_t), W)` for a step of an LSTM, and `dense(x_t, W)`
for one of a GRU. No x_t waits for another step: one matmul of them all reads these weights once,
and what is left to a step is the matmul of its state. Biases are added there, too.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import tvm
from tvm import relay
from tvm.contrib.onednn.policy.op_spec import Rules
from tvm.contrib.onednn.policy.operands import BIAS_OPS, is_per_channel

from ..ir.constants import to_constant, to_double, to_numpy
from ..ir.dataflow_graph import DataflowGraph, Rewritten, TypedFunction
from .driver import Match, rewrite


class _Step(NamedTuple):
    """A step of a layer, by numbers in the graph.

    Parameters
    ----------
    index : int
        Which step it is.
    ops : list[int]
        The matmul, and the additions of biases behind it.
    part : int
        Its input.
    state : int | None
        What is concatenated to the input.
    weights : list[int]
        The constants that it multiplies by, and adds.
    """

    index: int
    ops: list[int]
    part: int
    state: int | None
    weights: list[int]


def hoist_input_products(function: TypedFunction, rules: Rules) -> Rewritten:
    """Write the matmuls of the inputs of all steps of a recurrent layer as one."""
    return rewrite(function, rules, _find)


def _find(graph: DataflowGraph, rules: Rules, calls_of: Callable) -> Iterator[Match]:
    # By what is split into steps, and by the constants, of which importers make a copy a step.
    layers: dict[tuple, list[_Step]] = defaultdict(list)
    for dense in calls_of("nn.dense"):
        data, weight = graph.operands[dense]
        part, state = _input_and_state(graph, data)
        inputs, index = _source(graph, part)
        if inputs is not None and isinstance(graph.nodes[weight], relay.Constant):
            ops, biases = _with_biases(graph, dense)
            step = _Step(index, ops, part, state, [weight, *biases])
            digests = (_digest(graph.nodes[i].data) for i in step.weights)
            layers[(inputs, graph.result(part).shape, *digests)].append(step)
    for (inputs, shape, *_), steps in layers.items():
        count = graph.result(inputs).shape[0]
        if None in shape or sorted(step.index for step in steps) != list(range(count)):
            continue
        layer = _Layer(shape, *(graph.nodes[i] for i in (steps[0].ops[0], *steps[0].weights)))
        for step in steps:
            operands = [inputs] if step.state is None else [inputs, step.state]
            group = graph.closed_group(step.ops[-1], [step.part, *operands])
            yield Match(group, operands, partial(layer.step, step.index))


def _input_and_state(graph: DataflowGraph, data: int) -> tuple[int, int | None]:
    """Return what of the data of a matmul is the input, and what the state."""
    if graph.ops[data] == "concatenate" and graph.views[data].attrs.axis in (1, -1):
        fields = graph.operands[graph.operands[data][0]]
        if len(fields) == 2:
            return fields[0], fields[1]
    return data, None


def _source(graph: DataflowGraph, part: int) -> tuple[int | None, int]:
    """Return of which tensor's first axis a matrix is one position, and which position."""
    # Neither changes the order of the elements.
    while graph.ops[part] in ("squeeze", "reshape"):
        part = graph.operands[part][0]
    index = graph.field(part)
    if index is not None and graph.ops[split := graph.operands[part][0]] == "split":
        inputs, call = graph.operands[split][0], graph.views[split]
        count, *rest = graph.result(inputs).shape
        if call.attrs.axis in (0, -1 - len(rest)) and 1 < len(call.results) == count:
            return inputs, index
    return None, 0


def _with_biases(graph: DataflowGraph, dense: int) -> tuple[list[int], list[int]]:
    """Return a matmul and the additions of biases behind it, and the biases."""
    ops, biases = [dense], []
    shape = graph.result(dense).shape
    while len(users := graph.users[ops[-1]]) == 1 and graph.ops[users[0]] in BIAS_OPS:
        (bias,) = (i for i in graph.operands[users[0]] if i != ops[-1])
        is_constant = isinstance(graph.nodes[bias], relay.Constant)
        call, own = graph.views[users[0]], graph.result(bias).shape
        if not is_constant or not is_per_channel(call, own, shape, channel_axis=1):
            break
        ops.append(users[0])
        biases.append(bias)
    return ops, biases


def _digest(data: tvm.nd.NDArray) -> bytes:
    return hashlib.sha256(to_numpy(data).tobytes()).digest()


class _Layer:
    """Builds what the steps of a layer are replaced by, of constants that they share.

    Parameters
    ----------
    shape : tuple[int, int]
        The shape of the input of a step.
    dense : relay.Call
        The matmul of a step.
    weight : relay.Constant
        Its weights, those of the input first.
    biases : relay.Constant
        What is added to it.
    """

    def __init__(
        self,
        shape: tuple[int, int],
        dense: relay.Call,
        weight: relay.Constant,
        *biases: relay.Constant,
    ):
        self.rows, self.width = shape
        self.dtype = dense.attrs.out_dtype
        values = to_numpy(weight.data)
        halves = values[:, : self.width], values[:, self.width :]
        self.weights = [relay.const(tvm.nd.array(half.copy())) for half in halves]
        total = sum(to_double(bias).reshape(-1) for bias in biases)
        self.biases = [to_constant(total, biases[0].data.dtype)] if biases else []
        # By the address of the inputs, which live as long as their product.
        self.products: dict[int, tuple[relay.Expr, relay.Call]] = {}

    def step(self, index: int, inputs: relay.Expr, state: relay.Expr | None = None) -> relay.Call:
        """Return what is computed of the input of a step, and of its state."""
        bounds = [index * self.rows], [(index + 1) * self.rows]
        own = relay.strided_slice(self._product(inputs), *bounds, strides=[1], axes=[0])
        if state is None:
            return own
        return relay.add(relay.nn.dense(state, self.weights[1], out_dtype=self.dtype), own)

    def _product(self, inputs: relay.Expr) -> relay.Call:
        """Return the product of all inputs, the same one for all steps."""
        address = inputs.handle.value
        if address not in self.products:
            matrix = relay.reshape(inputs, (-1, self.width))
            product = relay.nn.dense(matrix, self.weights[0], out_dtype=self.dtype)
            for bias in self.biases:
                product = relay.add(product, bias)
            self.products[address] = inputs, product
        return self.products[address][1]
