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
"""Replaces the states of unrolled recurrent layers by the results of the layers."""

from __future__ import annotations

from ..ir.graph import Graph
from ..ir.node import CALL, TUPLE, Node
from ..ir.op_view import Tensor
from ..ops.recurrent import LSTM
from .maker import Maker
from .recurrent_steps import Step, is_joined, is_reverse_of_steps

_RESHAPES = ("expand_dims", "reshape", "squeeze")


class Layer:
    """A run of steps that a layer computes.

    Parameters
    ----------
    steps : list[Step]
        The steps, in the order in which they run.
    is_reverse : bool
        Whether the first of them reads the last position of the sequence.

    Attributes
    ----------
    node : Node
        The op.
    halves : tuple[Layer, Layer] | None
        The layers of both directions, of which this is one, if the op is bidirectional.
    inner : set[Node]
        The nodes of the steps.
    """

    def __init__(self, steps: list[Step], is_reverse: bool):
        self.steps, self.is_reverse = steps, is_reverse
        self.inner: set[Node] = set()
        for step in steps:
            self.inner |= step.inner
        self.states = {step.h for step in steps} | {step.c for step in steps}
        self.node: Node | None = None
        self.halves: tuple[Layer, Layer] | None = None

    @property
    def is_closed(self) -> bool:
        """Whether nothing else reads what the layer does not return, and all is one scope."""
        steps, last = self.steps, self.steps[-1]
        own, free = self.inner | self.states, {step.h for step in steps} | {last.c}
        dependent = set(self.states)
        for node in sorted(own, key=lambda node: node.index):
            if node.scope != last.h.scope:
                return False
            # What is computed of the input alone may be read elsewhere.
            if not dependent.isdisjoint(node.operands):
                dependent.add(node)
            if node in dependent and node not in free and not own.issuperset(node.users):
                return False
        return True


def sequence_of(graph: Graph, sequence, like: Node) -> Node:
    """Return the node of a sequence, or of several, side by side.

    Parameters
    ----------
    graph : Graph
        The graph.
    sequence : Node | Layer | tuple
        The sequence, the layer whose result it is, or the sequences.
    like : Node
        A node of the scope.
    """
    if isinstance(sequence, Node):
        return sequence
    if isinstance(sequence, tuple):
        if sequence == getattr(sequence[0], "halves", None):
            return graph.field_of(sequence[0].node, 0)
        fields = graph.tuple([sequence_of(graph, each, like) for each in sequence], like)
        return graph.call("concatenate", [fields], like, axis=2)
    y = graph.field_of(sequence.node, 0)
    if sequence.halves is None:
        return y
    width = y.tensor.dims[2] // 2
    begin = width * sequence.halves.index(sequence)
    return _part(graph, y, 2, begin, begin + width)


def _part(graph: Graph, data: Node, axis: int, begin: int, end: int) -> Node:
    bounds = dict(begin=[begin], end=[end], strides=[1], axes=[axis], slice_mode="end")
    return graph.call("strided_slice", [data], data, **bounds)


def _known(dims: tuple) -> list[int]:
    """Return dimensions with -1 for open ones."""
    return [size if isinstance(size, int) else -1 for size in dims]


def _types(node: Node) -> list[tuple]:
    return [(_known(each.dims), each.dtype) for each in node.results]


class Results:
    """Replaces what reads the states of steps.

    Parameters
    ----------
    graph : Graph
        The graph.
    positions : dict[Node, tuple[Layer, int]]
        By state of a step: its layer, and the position of it in the result.
    """

    def __init__(self, graph: Graph, positions: dict[Node, tuple[Layer, int]]):
        self._graph, self._positions = graph, positions
        self._by_c: dict[Node, Layer] = {}
        self._y: dict[Layer, Node] = {}
        self._by_y: dict[Node, Layer] = {}

    def replace(self, layers: list[Layer]) -> None:
        """Replace the states of layers by fields and positions of their results."""
        self._by_c = {layer.steps[-1].c: layer for layer in layers}
        for node in self._graph.nodes:
            result = self._reversed(node) or self._last_states(node) or self._stacked(node)
            result = result or self._both(node)
            if result is not None:
                self._graph.replace(node, result)
        for layer in layers:
            for k, step in enumerate(layer.steps):
                if not layer.inner.issuperset(step.h.users):
                    is_last = k == len(layer.steps) - 1
                    new = self._last(layer, 1) if is_last else self._at(layer, step.h)
                    self._graph.replace(step.h, new)
            last = layer.steps[-1]
            if last.name == LSTM and not (layer.inner | layer.states).issuperset(last.c.users):
                self._graph.replace(last.c, self._last(layer, 2))

    def _last(self, layer: Layer, field: int) -> Node:
        """Return a last state, a matrix."""
        state = self._graph.field_of(layer.node, field)
        half = 0 if layer.halves is None else layer.halves.index(layer)
        return self._row(state, half, layer.steps[0].h)

    def _at(self, layer: Layer, h: Node) -> Node:
        """Return the state of a step, a matrix."""
        y = self._y_of(layer)
        return self._row(y, self._positions[h][1], h)

    def _y_of(self, layer: Layer) -> Node:
        """Return the states of all steps."""
        if layer not in self._y:
            self._y[layer] = sequence_of(self._graph, layer, layer.node)
            self._by_y[self._y[layer]] = layer
        return self._y[layer]

    def _both(self, node: Node) -> Node | None:
        """Return the result of a layer that a node puts together of both directions."""
        if not is_joined(node) or node.name != "concatenate" or node.attrs.axis not in (2, -1):
            return None
        elements = node.operands[0].operands
        layer = self._by_y.get(elements[0])
        if layer is None or layer.halves is None:
            return None
        is_both = elements == [self._y.get(half) for half in layer.halves]
        return self._graph.field_of(layer.node, 0) if is_both else None

    def _row(self, data: Node, index: int, h: Node) -> Node:
        """Return a position along the first axis, with the dimensions of a state."""
        row = data if data.tensor.dims[0] == 1 else _part(self._graph, data, 0, index, index + 1)
        is_row = len(h.tensor.dims) == 3
        return row if is_row else self._graph.call("squeeze", [row], row, axis=[0])

    def _last_states(self, node: Node) -> Node | None:
        """Return the last states of both directions that a node puts together."""
        if not is_joined(node) or node.attrs.axis not in (0, -len(node.tensor.dims)):
            return None
        elements = node.operands[0].operands
        layer = self._positions.get(elements[0], (None,))[0] or self._by_c.get(elements[0])
        if layer is None or layer.halves is None:
            return None
        for field, name in ((1, "h"), (2, "c")):
            if elements == [getattr(half.steps[-1], name) for half in layer.halves]:
                return self._reshaped(self._graph.field_of(layer.node, field), node)
        return None

    def _stacked(
        self, node: Node, is_reverse: bool = False, like: Node | None = None
    ) -> Node | None:
        """Return the states of all steps that a node puts together; None for other nodes."""
        if not is_joined(node) or node.attrs.axis not in (0, -len(node.tensor.dims)):
            return None
        elements = node.operands[0].operands
        if node.name == "concatenate" and any(each.tensor.dims[:1] != (1,) for each in elements):
            return None
        result = self._sequence(elements, is_reverse)
        return result if result is None else self._reshaped(result, like or node)

    def _sequence(self, elements: list[Node], is_reverse: bool = False) -> Node | None:
        """Return the sequence that nodes are the positions of, in order."""
        first = elements[0]
        joined = self._joined(elements, is_reverse)
        if joined is not None:
            return joined
        if first in self._positions:
            layer = self._positions[first][0]
            order = range(len(layer.steps))
            wanted = [(layer, k) for k in (order[::-1] if is_reverse else order)]
            is_whole = [self._positions.get(each) for each in elements] == wanted
            if not is_whole:
                return None
            y = self._y_of(layer)
            # The states of some importers have a first dimension of 1.
            is_matrix = len(first.tensor.dims) == 2
            return y if is_matrix else self._reshaped(y, first, (len(order), *first.tensor.dims))
        is_alike = all(
            each.kind == first.kind
            and each.name == first.name
            and len(each.operands) == len(first.operands)
            and each.attrs == first.attrs
            and _types(each) == _types(first)
            for each in elements
        )
        if not is_alike or not (first.kind == TUPLE or first.is_call):
            return None
        if first.kind == CALL and first.name not in (*_RESHAPES, "stack", "concatenate"):
            return None
        operands: list[Node] = []
        for each in zip(*(each.operands for each in elements)):
            operands.append(self._sequence(list(each), is_reverse))
            if operands[-1] is None:
                return None
        return self._of_sequences(first, len(elements), operands)

    def _joined(self, elements: list[Node], is_reverse: bool) -> Node | None:
        """Return the sequence of nodes that put both directions of a layer together."""
        first = elements[0]
        if not is_joined(first) or len(first.operands[0].operands[0].tensor.dims) != 2:
            return None
        halves = [self._positions.get(each, (None,))[0] for each in first.operands[0].operands]
        layer = halves[0]
        if layer is None or layer.halves is None or halves != list(layer.halves):
            return None
        order = range(len(layer.steps))
        for k, each in zip(order[::-1] if is_reverse else order, elements):
            is_same_op = each.name == first.name and each.attrs == first.attrs and each.is_call
            wanted = [(half, k) for half in halves]
            if (
                not is_same_op
                or [self._positions.get(operand) for operand in each.operands[0].operands] != wanted
            ):
                return None
        if len(elements) != len(order):
            return None
        y, axis = self._graph.field_of(layer.node, 0), first.attrs.axis
        if first.name == "concatenate":
            return y if axis in (-1, 1) else None
        make = Maker(self._graph, first)
        steps, sequences, width = y.tensor.dims
        split = make.reshape(y, (steps, sequences, 2, width // 2))
        return make.transpose(split, [0, 2, 1, 3]) if axis in (0, -3) else None

    def _of_sequences(self, node: Node, steps: int, operands: list[Node]) -> Node | None:
        """Return an op, of whose operands there is a sequence each, of all positions."""
        if node.kind == TUPLE:
            return self._graph.tuple(operands, node)
        if node.name in _RESHAPES:
            return self._reshaped(operands[0], node, (steps, *node.tensor.dims))
        axis = node.attrs.axis
        axis = axis + 1 if axis >= 0 else axis
        return self._graph.call(node.name, operands, node, axis=axis)

    def _reshaped(self, data: Node, like: Node, dims: tuple | None = None) -> Node | None:
        """Return data with the dimensions of a node, or others; at most one may be open."""
        dims = like.tensor.dims if dims is None else dims
        if data.name == "reshape" and not data.is_live:
            data = data.operands[0]
        shape, given = _known(dims), _known(data.tensor.dims)
        if shape.count(-1) > 1:
            return None
        # Of the same number of elements, the open dimensions are equal, too.
        if shape == given:
            return data
        type_ = Tensor(tuple(dims), data.tensor.dtype)
        return self._graph.call("reshape", [data], like, type_, newshape=shape, allowzero=False)

    def _reversed(self, node: Node) -> Node | None:
        """Return the result of a layer whose positions are reversed twice."""
        if not is_reverse_of_steps(node):
            return None
        stacked = node.operands[0]
        while stacked.name in _RESHAPES and stacked.tensor.dims[:1] == node.tensor.dims[:1]:
            stacked = stacked.operands[0]
        return self._stacked(stacked, is_reverse=True, like=node)
