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
"""Hoists the input matmuls of a recurrent layer's steps into one matmul.

TVM's importers write `dense(concatenate(x_t, h_t), W)` for a step of an LSTM, and `dense(x_t, W)`
for one of a GRU. No x_t waits for another step: one matmul of them all reads these weights once,
and what is left to a step is the matmul of its state. Biases are added there, too.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from typing import NamedTuple

from ..ir.graph import Graph
from ..ir.match import closed_group, is_op
from ..ir.node import CALL, FIELD, Node, defined_in
from ..ops.operands import BIAS_OPS, is_per_channel
from ..ops.rules import Rules


class _Step(NamedTuple):
    """A step of a layer.

    Parameters
    ----------
    index : int
        Which step it is.
    ops : list[Node]
        The matmul, and the additions of biases after it.
    part : Node
        Its input.
    state : Node | None
        What is concatenated to the input.
    weights : list[Node]
        The constants that it multiplies by, and adds.
    """

    index: int
    ops: list[Node]
    part: Node
    state: Node | None
    weights: list[Node]


def hoist_input_products(graph: Graph, rules: Rules) -> None:
    """Merge the input matmuls of all steps of a recurrent layer."""
    # By what is split into steps, and by the constants, of which importers make a copy a step.
    layers: dict[tuple, list[_Step]] = defaultdict(list)
    digests: dict[Node, bytes] = {}
    for node in graph.nodes:
        step, source = _step_of(node)
        if step is not None:
            for each in step.weights:
                if each not in digests:
                    digests[each] = hashlib.sha256(each.value.tobytes()).digest()
            key = source, step.part.tensor.shape, *(digests[each] for each in step.weights)
            layers[key].append(step)
    for (source, shape, *_), steps in layers.items():
        count = source.tensor.shape[0]
        if None in shape or sorted(step.index for step in steps) != list(range(count)):
            continue
        layer = _Layer(graph, source, steps[0])
        for step in steps:
            operands = [source] if step.state is None else [source, step.state]
            inputs = [operand.current for operand in (step.part, *operands)]
            group = closed_group(step.ops[-1], inputs)
            if group is None or rules.excludes(*(node.name for node in group if node.name)):
                continue
            new = layer.step(step)
            calls = (node for node in defined_in(new) if node.kind == CALL)
            if all(rules.refusal(node) is None for node in calls):
                graph.replace(step.ops[-1], new)


def _step_of(dense: Node) -> tuple[_Step | None, Node | None]:
    """Match a step, and the tensor that contains the inputs of all steps."""
    if not is_op(dense, "nn.dense") or not dense.operands[1].is_constant:
        return None, None
    data, weight = dense.operands
    part, state = _input_and_state(data)
    source, index = _source(part)
    if source is None:
        return None, None
    ops, biases = _with_biases(dense)
    return _Step(index, ops, part, state, [weight, *biases]), source


def _input_and_state(data: Node) -> tuple[Node, Node | None]:
    """Split the data of a matmul into input and state."""
    if is_op(data, "concatenate") and data.attrs.axis in (1, -1):
        fields = data.operands[0].operands
        if len(fields) == 2:
            return fields[0], fields[1]
    return data, None


def _source(part: Node) -> tuple[Node | None, int]:
    """Return of which tensor's first axis a matrix is one position, and which position."""
    # Neither changes the order of the elements.
    while part.name in ("squeeze", "reshape"):
        part = part.operands[0]
    if part.kind == FIELD and part.operands[0].name == "split":
        split = part.operands[0]
        source = split.operands[0]
        count, *rest = source.tensor.shape
        is_first = split.attrs.axis in (0, -1 - len(rest))
        if is_first and 1 < len(split.results) == count:
            return source, part.attrs.index
    return None, 0


def _with_biases(dense: Node) -> tuple[list[Node], list[Node]]:
    """Return a matmul and the additions of biases after it, and the biases."""
    ops, biases = [dense], []
    shape = dense.tensor.shape
    while len(users := ops[-1].users) == 1 and is_op(users[0], *BIAS_OPS):
        others = [operand for operand in users[0].operands if operand is not ops[-1]]
        if len(others) != 1 or not others[0].is_constant:
            break
        if not is_per_channel(users[0], others[0].tensor.shape, shape, channel_axis=1):
            break
        ops.append(users[0])
        biases.append(others[0])
    return ops, biases


class _Layer:
    """Creates the replacement of a layer's steps.

    Parameters
    ----------
    graph : Graph
        The graph.
    source : Node
        The inputs of all steps.
    step : _Step
        One of the steps.
    """

    def __init__(self, graph: Graph, source: Node, step: _Step):
        self._graph, self._source = graph, source
        self._rows, self._width = step.part.tensor.shape
        dense = step.ops[0]
        out = dense.attrs.out_dtype
        self._attrs = {"out_dtype": out} if out else {}
        weight, *biases = step.weights
        values = weight.value
        halves = values[:, : self._width], values[:, self._width :]
        self._weights = [graph.constant(half.copy()) for half in halves]
        total = sum(bias.value.astype("float64").reshape(-1) for bias in biases)
        self._bias = graph.constant(total, biases[0].tensor.dtype) if biases else None
        self._product: Node | None = None

    def step(self, step: _Step) -> Node:
        """Return the products of a step's input and of its state."""
        graph, like = self._graph, step.ops[-1]
        begin, end = step.index * self._rows, (step.index + 1) * self._rows
        bounds = dict(begin=[begin], end=[end], strides=[1], axes=[0], slice_mode="end")
        own = graph.call("strided_slice", [self._of_all()], like, **bounds)
        if step.state is None:
            return own
        state = graph.call("nn.dense", [step.state, self._weights[1]], like, **self._attrs)
        return graph.call("add", [state, own], like)

    def _of_all(self) -> Node:
        """Return the product of all inputs, which the steps share."""
        if self._product is None:
            graph, source = self._graph, self._source
            newshape = [-1, self._width]
            rows = graph.call("reshape", [source], source, newshape=newshape, allowzero=False)
            product = graph.call("nn.dense", [rows, self._weights[0]], source, **self._attrs)
            if self._bias is not None:
                product = graph.call("add", [product, self._bias], source)
            self._product = product
        return self._product
