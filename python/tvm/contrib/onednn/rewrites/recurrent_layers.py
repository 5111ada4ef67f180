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
"""Fuses recurrent layers that an importer has unrolled.

Steps are chained by their states, and a layer is a run of steps that have the same weights and read
consecutive positions of a sequence. What reads a step's state reads a position of the layer's
result; what stacks the states of all steps reads the result. All of this is linear in the graph.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

import numpy as np

from ..ir.dim import Size
from ..ir.graph import Graph
from ..ir.node import CALL, Node
from ..ops.recurrent import GATES, GRU, LSTM, RNN
from ..ops.rules import Rules
from .recurrent_results import Layer, Results, sequence_of
from .recurrent_steps import Step, is_joined, position_of, read_step, unreversed
from .recurrent_weights import Initial, Input, Weights


class _Position(NamedTuple):
    """Where a step reads its input.

    Parameters
    ----------
    sequence : Hashable
        The node of the sequence, or the layer; or the sequences that are concatenated.
    index : int
        The position along its first axis.
    """

    sequence: Hashable
    index: int


def read_recurrent_layers(graph: Graph, rules: Rules) -> None:
    """Fuse each unrolled LSTM, GRU and RNN."""
    if all(rules.excludes(name) for name in GATES):
        return
    reader = _LayerReader(graph, rules)
    for chain in reader.chains():
        reader.read(chain)
    if reader.layers:
        Results(graph, reader.positions).replace(reader.layers)


class _LayerReader:
    """Finds the layers of a graph.

    Attributes
    ----------
    layers : list[Layer]
        The layers so far.
    positions : dict[Node, tuple[Layer, int]]
        By state of a step: its layer, and the position of it in the result.
    """

    def __init__(self, graph: Graph, rules: Rules):
        self._graph, self._rules = graph, rules
        self._weights = Weights()
        self.layers: list[Layer] = []
        self.positions: dict[Node, tuple[Layer, int]] = {}
        # By sequence: its node.
        self._data: dict[Hashable, Node] = {}
        # Several where it is open which operand is which; all have the same states.
        self._steps: dict[Node, list[Step]] = {}
        self._by_c: dict[Node, Node] = {}

    def chains(self) -> list[list[list[Step]]]:
        """Return the steps by the state that they begin with, each in order.

        Of each step there are all readings; of those that are not first, one.
        """
        for node in self._graph.nodes:
            steps = [step for step in read_step(node) if self._has_weights(step)]
            if steps:
                self._steps[node] = steps
                self._by_c[steps[0].c] = node
        following: dict[Node, list[Node]] = {}
        firsts = []
        for h, steps in self._steps.items():
            before = [(step, last) for step in steps for last in [self._last(step)] if last]
            if before:
                step, last = before[0]
                self._steps[h] = [step]
                following.setdefault(last, []).append(h)
            else:
                firsts.append(h)
        # Where two steps read one state, neither is the next one.
        firsts += [h for each in following.values() if len(each) > 1 for h in each]
        chains = []
        for h in sorted(firsts, key=lambda node: node.index):
            chain = [self._steps[h]]
            while len(after := following.get(chain[-1][0].h, ())) == 1:
                chain.append(self._steps[after[0]])
            if len(chain) > 1:
                chains.append(chain)
        return chains

    @staticmethod
    def _has_weights(step: Step) -> bool:
        return all(any(each.weight for each in gate.products) for gate in step.gates)

    def _last(self, step: Step) -> Node | None:
        """Return the state h of the step before a step."""
        if step.name == LSTM:
            last = self._by_c.get(step.last_c)
            return last if self._is(last, LSTM) else None
        if step.name == GRU:
            return step.last_h if self._is(step.last_h, GRU) else None
        if len(step.gates[0].products) < 2:
            return None
        own = self._weights.of(step.gates[0])
        for product in step.gates[0].products:
            last = product.operand
            if self._is(last, RNN) and self._weights.of(self._steps[last][0].gates[0]) <= own:
                return last
        return None

    def _is(self, h: Node | None, name: str) -> bool:
        return h in self._steps and self._steps[h][0].name == name

    def read(self, chain: list[list[Step]]) -> None:
        """Read the layers in a chain of steps."""
        signatures = [None]
        for (last, *_), (step, *_) in zip(chain, chain[1:]):
            signatures.append(self._weights.signature(step, last.h))
        places = [self._position(each.inputs) if each else None for each in signatures]
        begin = 1
        while begin < len(chain):
            end = begin + 1
            while end < len(chain) and _continues(signatures, places, begin, end):
                end += 1
            if places[begin] is not None:
                self._read_run(chain, signatures, places, begin, end)
            begin = end

    def _read_run(self, chain, signatures, places, begin: int, end: int) -> None:
        """Read some steps as a layer, with the one before them if that is its first."""
        signature, place = signatures[begin], places[begin]
        steps = [step for step, *_ in chain[begin:end]]
        direction = places[begin + 1].index - place.index if len(steps) > 1 else None
        initial = Initial(chain[begin - 1][0].h, steps[0].last_c)
        for step in chain[begin - 1]:
            first = None if step.h in self.positions else self._weights.first(step, signature)
            before = self._position(first.inputs) if first is not None else None
            if before is None or before.sequence != place.sequence:
                continue
            if place.index - before.index in ((1, -1) if direction is None else (direction,)):
                direction, place = place.index - before.index, before
                steps, initial = [step, *steps], first.initial
                break
        is_whole = len(steps) == _length(place.sequence)
        if direction is None or not is_whole or place.index != (direction < 0) * (len(steps) - 1):
            return
        layer, arrays = Layer(steps, is_reverse=direction < 0), signature.arrays()
        ops = (node.name for node in layer.inner | layer.states if node.kind == CALL)
        if arrays is None or not layer.is_closed or self._rules.excludes(*ops):
            return
        layer.node = self._call(layer, place.sequence, arrays, initial)
        if self._rules.refusal(layer.node) is not None:
            return
        if self.layers:
            self._join(self.layers[-1], layer)
        self.layers.append(layer)
        for k, step in enumerate(steps):
            self.positions[step.h] = layer, (len(steps) - 1 - k if layer.is_reverse else k)

    def _call(
        self, layer: Layer, sequence: Hashable, arrays: list[np.ndarray], initial: Initial
    ) -> Node:
        """Create the op of a layer."""
        graph, step = self._graph, layer.steps[-1]
        if sequence not in self._data:
            self._data[sequence] = sequence_of(graph, sequence, layer.steps[0].h)
        dtypes = [step.h.tensor.dtype] * 2 + ["float32"]
        constants = [graph.constant(array, dtype) for array, dtype in zip(arrays, dtypes)]
        operands = [self._data[sequence], *constants]
        states = [] if initial.is_zero else initial.states(step.name)
        for state in states:
            if len(state.tensor.dims) == 2:
                state = graph.call("expand_dims", [state], step.h, axis=0, num_newaxis=1)
            operands.append(state)
        attrs: dict[str, object] = {
            "direction": "reverse" if layer.is_reverse else "forward",
            "batch_first": False,
            "has_initial_state": bool(states),
        }
        if step.name == GRU:
            attrs["linear_before_reset"] = step.reset_gate is not None
        if step.name == RNN:
            attrs["activation"] = step.activation
        return graph.call(step.name, operands, step.h, **attrs)

    # The input.

    def _position(self, inputs: list[Input]) -> _Position | None:
        """Return the position that tensors, side by side, are of a sequence."""
        places = [self._position_of(*each) for each in inputs]
        if not places or None in places or len({place.index for place in places}) != 1:
            return None
        sequences = [place.sequence for place in places]
        return _Position(sequences[0] if len(sequences) == 1 else tuple(sequences), places[0].index)

    def _position_of(self, node: Node, sequence: Node | None = None) -> _Position | None:
        if node in self.positions:
            return _Position(*self.positions[node])
        if is_joined(node) and node.name == "concatenate":
            is_last = node.attrs.axis in (-1, len(node.tensor.dims) - 1)
            return self._position([(each, None) for each in node.operands[0].operands if is_last])
        place = position_of(node)
        if place is None:
            return None
        source, index = place
        return _Position(*unreversed(source if sequence is None else sequence, index))

    def _join(self, last: Layer, layer: Layer) -> None:
        """Merge the two directions of a bidirectional layer."""
        if last.halves is not None or last.is_reverse == layer.is_reverse:
            return
        halves = (layer, last) if last.is_reverse else (last, layer)
        forward, reverse = (half.node for half in halves)
        attrs = [{**vars(node.attrs), "direction": "bidirectional"} for node in (forward, reverse)]
        shapes = [[each.shape for each in node.args] for node in (forward, reverse)]
        is_alike = forward.name == reverse.name and attrs[0] == attrs[1] and shapes[0] == shapes[1]
        if not is_alike or forward.operands[0] is not reverse.operands[0]:
            return
        graph, operands = self._graph, [forward.operands[0]]
        for own in zip(forward.operands[1:4], reverse.operands[1:4]):
            operands.append(graph.constant(np.concatenate([each.value for each in own])))
        for own in zip(forward.operands[4:], reverse.operands[4:]):
            fields = graph.tuple(own, layer.node)
            operands.append(graph.call("concatenate", [fields], layer.node, axis=0))
        node = graph.call(forward.name, operands, layer.node, **attrs[0])
        if self._rules.refusal(node) is None:
            for half in halves:
                half.node, half.halves = node, halves


def _length(sequence: Hashable) -> Size | None:
    """Return the number of steps of a sequence; None if those of its parts differ."""
    if isinstance(sequence, tuple):
        lengths = {_length(each) for each in sequence}
        return lengths.pop() if len(lengths) == 1 else None
    if isinstance(sequence, Layer):
        return len(sequence.steps)
    return sequence.tensor.dims[0] if isinstance(sequence, Node) else None


def _continues(signatures, places, begin: int, k: int) -> bool:
    """Whether a step belongs to the layer that begins at another one."""
    here, last = places[k], places[k - 1]
    if here is None or last is None or signatures[k].key != signatures[begin].key:
        return False
    if here.sequence != last.sequence or abs(here.index - last.index) != 1:
        return False
    return k == begin + 1 or here.index - last.index == last.index - places[k - 2].index
