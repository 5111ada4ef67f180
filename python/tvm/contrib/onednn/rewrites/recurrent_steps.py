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
"""Reads the steps of unrolled recurrent layers.

A step ends in its state h. The inputs of its activations, here called gates, are sums of matmuls by
constant weights and of biases. Importers write these differently: with one matmul for all gates,
which is split, or one for each; of the input and the state concatenated, or of either; and with one
bias, or two.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ..ir.match import is_op, orders
from ..ir.node import CALL, FIELD, TUPLE, Node
from ..ir.op_view import Tensor
from ..ops.attrs import attribute
from ..ops.recurrent import GRU, LSTM, RNN
from ..ops.view import sliced

# A gate is computed by fewer ops than this; so each is read in constant time.
MAX_OPS = 24

# Reversal along axes, in Relay and in Relax.
REVERSES = ("reverse", "flip", "relax.flip")

RNN_ACTIVATIONS = {"tanh": "tanh", "nn.relu": "relu"}


class Product(NamedTuple):
    """A part of a gate: an operand times a part of a constant weight.

    Parameters
    ----------
    operand : Node
        What is multiplied; it may be constant.
    weight : Node | None
        The constant, of shape (outputs, inputs); None for the identity.
    rows, columns : slice
        The part of the weight.
    sequence : Node | None
        What is multiplied if the inputs of all steps are multiplied at once; the operand is then a
        position of that product, and its position of this sequence is meant.
    """

    operand: Node
    weight: Node | None
    rows: slice
    columns: slice
    sequence: Node | None = None


class Gate:
    """The input of an activation: a sum of products and of constants.

    Attributes
    ----------
    products : list[Product]
        The products, by columns of the weight.
    biases : list[tuple[Node, slice]]
        Constants, and which part of their last axis is added.
    ops : list[Node]
        The nodes that compute it.
    """

    def __init__(self, node: Node):
        self.width = node.tensor.dims[-1]
        self.products: list[Product] = []
        self.biases: list[tuple[Node, slice]] = []
        self.ops: list[Node] = []
        self._read(node, 0, self.width)
        self.products.sort(key=lambda product: product.columns.start)

    def _read(self, node: Node, begin: int, end: int) -> None:
        """Read some of the columns of a node."""
        if node.is_constant:
            self.biases.append((node, slice(begin, end)))
            return
        inner = self._operands(node, begin) if len(self.ops) < MAX_OPS else None
        if inner is not None:
            self.ops.append(node)
            for operand, first in inner:
                self._read(operand, first, first + end - begin)
        elif not self._is_dense(node):
            self._read_leaf(node, begin, end)
        else:
            self.ops.append(node)
            data, weight = node.operands
            column = 0
            for part in self._parts(data):
                columns = slice(column, column + part.tensor.dims[-1])
                self.products.append(Product(part, weight, slice(begin, end), columns))
                column = columns.stop

    def _read_leaf(self, node: Node, begin: int, end: int) -> None:
        """Read what may be a position of the product of all inputs."""
        place = position_of(node)
        dense = place[0] if place is not None else None
        biases = []
        while dense is not None and is_op(dense, "add"):
            data, bias = sorted(dense.operands, key=lambda operand: operand.is_constant)
            is_bias = bias.is_constant and bias.tensor.shape == dense.tensor.dims[-1:]
            biases.append((bias, slice(begin, end)))
            dense = data if is_bias and data.tensor.dims == dense.tensor.dims else None
        if dense is None or not self._is_dense(dense):
            self.products.append(Product(node, None, slice(begin, end), slice(0, 0)))
            return
        data, weight = dense.operands
        columns = slice(0, weight.tensor.shape[1])
        self.biases += biases
        self.products.append(Product(node, weight, slice(begin, end), columns, data))

    def _operands(self, node: Node, begin: int) -> list[tuple[Node, int]] | None:
        """Return what a sum or a part of columns reads, with the first column of each."""
        if node.kind == FIELD and node.operands[0].name == "split":
            split = node.operands[0]
            if split.is_call and _is_last(split.attrs.axis, node):
                before = split.type[: node.attrs.index]
                self.ops.append(split)
                return [(split.operands[0], begin + sum(each.dims[-1] for each in before))]
        if not node.is_call:
            return None
        if node.name == "add" or (node.name == "nn.bias_add" and _is_last(node.attrs.axis, node)):
            is_whole = all(_is_addend(operand, node) for operand in node.operands)
            return [(operand, begin) for operand in node.operands] if is_whole else None
        if node.name == "strided_slice":
            first = first_of_slice(node, len(node.tensor.dims) - 1)
            return None if first is None else [(node.operands[0], begin + first)]
        return None

    @staticmethod
    def _is_dense(node: Node) -> bool:
        if not is_op(node, "nn.dense"):
            return False
        data, weight = node.operands
        return weight.is_constant and data.tensor.dtype == node.tensor.dtype == weight.tensor.dtype

    def _parts(self, data: Node) -> list[Node]:
        """Return what is concatenated along the inputs of a matmul."""
        if is_joined(data) and data.name == "concatenate" and _is_last(data.attrs.axis, data):
            fields = data.operands[0]
            if all(_is_matrix(each) for each in fields.operands):
                self.ops += [data, fields]
                return fields.operands
        return [data]


def first_of_slice(node: Node, axis: int) -> int | None:
    """Return where a strided slice begins if it is a range of an axis, and all of the others."""
    first = 0
    data = node.operands[0].tensor.dims
    parts = dict(sliced(node.attrs, len(data)))
    for k, part in parts.items():
        begin = part.start or 0
        if part.step not in (None, 1) or begin < 0:
            return None
        if k == axis:
            first = begin
        elif begin or data[k] != node.tensor.dims[k]:
            return None
    return first


def position_of(node: Node) -> tuple[Node, int] | None:
    """Return which tensor a matrix is a position of along its first axis, and which position."""
    dims = _matrix_dims(getattr(node.type, "dims", ()))
    row = node
    while is_op(row, "squeeze", "reshape"):
        row = row.operands[0]
        if row.tensor.dims != (1, *dims):
            return None
    source, index = None, None
    if row.tensor.dims == (1, *dims) and row.kind == FIELD and row.operands[0].name == "split":
        split = row.operands[0]
        source, index = split.operands[0], row.attrs.index
        is_first = split.attrs.axis in (0, -len(source.tensor.dims))
        source = source if is_first and len(split.results) == source.tensor.dims[0] else None
    elif row.tensor.dims == (1, *dims) and is_op(row, "strided_slice"):
        source, index = row.operands[0], first_of_slice(row, 0)
    elif row is node and row.name == "take" and row.kind == CALL:
        source, index = _taken(row)
    if source is None or index is None or source.tensor.dims[1:] != dims:
        return None
    return unreversed(source, index)


def is_reverse_of_steps(node: Node) -> bool:
    """Whether a node reverses a tensor along its first axis."""
    if node.name not in REVERSES or node.kind != CALL:
        return False
    axis, dims = attribute(node.attrs, "axis", None), node.tensor.dims
    return axis is not None and isinstance(dims[0], int) and int(axis) % len(dims) == 0


def unreversed(source: Node, index: int) -> tuple[Node, int]:
    """Return the tensor that a tensor, perhaps, reverses, and the position there."""
    while is_reverse_of_steps(source):
        source, index = source.operands[0], source.tensor.dims[0] - 1 - index
    return source, index


def _taken(node: Node) -> tuple[Node | None, int | None]:
    """Return which position of which tensor a `take` reads, if it is one."""
    data, indices = node.operands
    if not indices.is_constant or indices.tensor.dims != () or node.attrs.axis != 0:
        return None, None
    index, size = int(indices.value), data.tensor.dims[0]
    return (data, index) if isinstance(size, int) and 0 <= index < size else (None, None)


def is_joined(node: Node) -> bool:
    """Whether a node puts several together."""
    return is_op(node, "concatenate", "stack") and node.operands[0].kind == TUPLE


def is_same(node: Node, other: Node) -> bool:
    """Whether two nodes are one, or constants of the same value."""
    are_constant = node.is_constant and other.is_constant
    return node is other or (are_constant and np.array_equal(node.value, other.value))


def _is_last(axis: int, node: Node) -> bool:
    # Of a tuple, the axis is that of its fields.
    dims = (node.type if isinstance(node.type, Tensor) else node.type[0]).dims
    return int(axis) in (-1, len(dims) - 1)


def _matrix_dims(dims: tuple) -> tuple:
    """Return dimensions without a first one that is 1 of a tensor of rank 3."""
    return dims[1:] if len(dims) == 3 and dims[0] == 1 else dims


def _is_matrix(node: Node) -> bool:
    """Whether a node is a matrix of a known number of columns, or has a dimension of 1 before."""
    dims = _matrix_dims(getattr(node.type, "dims", ()))
    return len(dims) == 2 and isinstance(dims[1], int)


def _is_addend(operand: Node, result: Node) -> bool:
    """Whether an operand of a sum has all columns of the result."""
    dims, wanted = _matrix_dims(operand.tensor.dims), _matrix_dims(result.tensor.dims)
    if operand.is_constant:
        return len(dims) <= len(wanted) and dims[-1:] == wanted[-1:]
    return dims == wanted


class Step(NamedTuple):
    """A step of a layer.

    Parameters
    ----------
    name : str
        The layer.
    h, c : Node
        The states that it computes; c is h for all but an LSTM.
    last_h, last_c : Node | None
        Those that it reads, if what follows the gates tells.
    gates : list[Gate]
        The gates in the order of the layer's weights.
    reset_gate : Gate | None
        The product of the state that the reset gate of a GRU is multiplied by; None if it is
        multiplied by the state.
    reset_state : Node | None
        The product of the reset gate and what that is.
    activation : str
        Of an RNN, as the layer names it.
    ops : list[Node]
        The nodes from the gates to the states.
    """

    name: str
    h: Node
    c: Node
    last_h: Node | None
    last_c: Node | None
    gates: list[Gate]
    reset_gate: Gate | None = None
    reset_state: Node | None = None
    activation: str = ""
    ops: list[Node] = []

    @property
    def inner(self) -> set[Node]:
        """All nodes of the step but for the states."""
        gates = [*self.gates, *([self.reset_gate] if self.reset_gate is not None else [])]
        ops = {op for gate in gates for op in gate.ops}
        return (ops | set(self.ops)) - {self.h, self.c}


def read_step(h: Node) -> Iterator[Step]:
    """Yield what a node may be the state h of."""
    if not h.is_call or not _is_matrix(h):
        return
    if h.name == "multiply":
        yield from _lstm(h)
    elif h.name == "add":
        yield from _gru(h)
    elif h.name in RNN_ACTIVATIONS:
        gate = Gate(h.operands[0])
        if any(product.weight is not None for product in gate.products):
            activation = RNN_ACTIVATIONS[h.name]
            yield Step(RNN, h, h, None, None, [gate], activation=activation, ops=[h])


def _lstm(h: Node) -> Iterator[Step]:
    """Read o * tanh(f * c + i * g)."""
    for o, tanh in orders(h, "multiply"):
        if not (is_op(o, "sigmoid") and is_op(tanh, "tanh")):
            continue
        c = tanh.operands[0]
        for kept, added in orders(c, "add"):
            for i, g in orders(added, "multiply"):
                for f, last_c in orders(kept, "multiply"):
                    if is_op(i, "sigmoid") and is_op(g, "tanh") and is_op(f, "sigmoid"):
                        gates = [Gate(each.operands[0]) for each in (i, f, g, o)]
                        ops = [tanh, kept, added, i, f, g, o]
                        yield Step(LSTM, h, c, None, last_c, gates, ops=ops)


def _gru(h: Node) -> Iterator[Step]:
    """Read u * (h - n) + n, or u * h + (1 - u) * n."""
    for left, right in orders(h, "add"):
        for u, other in orders(left, "multiply"):
            if not is_op(u, "sigmoid"):
                continue
            if is_op(other, "subtract") and other.operands[1] is right:
                yield from _candidate(h, other.operands[0], u, right, [left, other])
            for rest, n in orders(right, "multiply"):
                if is_op(rest, "subtract") and rest.operands[1] is u and _is_one(rest.operands[0]):
                    yield from _candidate(h, other, u, n, [left, right, rest])


def _is_one(node: Node) -> bool:
    return node.is_constant and bool(np.all(node.value == 1))


def _candidate(h: Node, last_h: Node, u: Node, n: Node, ops: list[Node]) -> Iterator[Step]:
    """Read the candidate n of a GRU, with the reset gate before or after the matmul."""
    if not is_op(n, "tanh"):
        return
    gate = Gate(n.operands[0])
    for product in gate.products:
        for r, reset in orders(product.operand, "multiply"):
            if not is_op(r, "sigmoid"):
                continue
            is_linear = product.weight is None
            is_whole = product.rows == slice(0, gate.width)
            if not (is_whole if is_linear else is_same(reset, last_h)):
                continue
            gates = [Gate(u.operands[0]), Gate(r.operands[0]), gate]
            ops = [*ops, u, n, r, product.operand]
            reset_gate = Gate(reset) if is_linear else None
            yield Step(GRU, h, h, last_h, None, gates, reset_gate, product.operand, "", ops)
            return
