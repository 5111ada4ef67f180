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
"""A node of the graph: the call of an op, or something that calls read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from .dim import is_same
from .numpy_types import rounded
from .op import row_of
from .op_view import NoTensor, OpView, Tensor, Value, tensor_of

CALL, TUPLE, FIELD, CONSTANT, INPUT, NATIVE = (
    "call",
    "tuple",
    "field",
    "constant",
    "input",
    "native",
)
# A tensor that may be empty is followed through so many ops.
_MAX_DEPTH = 64


class Origin:
    """What one or several nodes were read from.

    Parameters
    ----------
    native : Any
        The expression of the IR, as its reader and writer know it.
    operands : Sequence[Node]
        The nodes that it read, in the order of `native`.
    """

    def __init__(self, native: Any, operands: Sequence[Node] = ()):
        self.native, self.operands = native, list(operands)
        # All that it was read as, the last of which is its result.
        self.nodes: list[Node] = []

    @property
    def is_intact(self) -> bool:
        """Whether all of its nodes are there, and only the last is read by others."""
        own = set(self.nodes)
        return all(node.is_live for node in self.nodes) and all(
            own.issuperset(node.users) for node in self.nodes[:-1]
        )


class Node(OpView):
    """A value of a graph: the call of an op, or something that calls read.

    Parameters
    ----------
    kind : str
        "call" of an op; "tuple" of the operands; "field" ``attrs.index`` of a tuple; "constant";
        "input"; or "native" for an expression of the IR that is no call of an op.
    name : str | None
        The op of a call, by the table's name where it has one.
    operands : Sequence[Node]
        What it is computed from. Those of a call are tensors, or tuples of tensors, in the table's
        order.
    type_ : Value | Callable[[], Value]
        What it computes, or what tells that when it is asked for.
    attrs : SimpleNamespace | Callable[[], SimpleNamespace] | None
        The attributes of a call by the table's names, as plain Python values; or what reads them.
    scope : int
        See `Graph`.

    Attributes
    ----------
    users : list[Node]
        The nodes that read it, once for each time.
    origin : Origin | None
        What it was read from.
    expansion : Node | None
        The result of the nodes that it stands for, if it is one op for several. They are no longer
        in the graph, and are written in its place where it stays on TVM.
    template : Node | None
        A node of the same op and attributes, with other operands, that was read.
    unsupported : str | None
        Why a call has no counterpart in the table.
    compute_type : Callable[[], Value] | None
        Tells the type when it is asked for, if it has not been.
    rounded : Node | None
        Of a constant of reduced precision: the one that it rounds, which is not in the graph.
    index : int | None
        Its number; None for a node that is not in the graph.
    """

    def __init__(  # pylint: disable=super-init-not-called
        self,
        kind: str,
        name: str | None,
        operands: Sequence[Node],
        type_: Value | Callable[[], Value],
        attrs: SimpleNamespace | Callable[[], SimpleNamespace] | None = None,
        scope: int = 0,
    ):
        self.kind, self.scope = kind, scope
        # None for what no rule is asked about.
        self.name: Any = name
        self.operands: list[Node] = list(operands)
        self._attrs = attrs
        self.compute_type: Callable[[], Value] | None = None
        # What an IR knows is asked for when it is needed.
        self._type: Value = NoTensor("unknown")
        if callable(type_):
            self.compute_type = type_
        else:
            self._type = type_
        self._arg_names: Sequence[str] = ()
        self.users: list[Node] = []
        self.origin: Origin | None = None
        self.expansion: Node | None = None
        self.template: Node | None = None
        self.unsupported: str | None = None
        self.rounded: Node | None = None
        self.index: int | None = None
        # Counts the changes of the operands.
        self.version = 0
        # What it was made in the place of.
        self.like: Node | None = None
        # The rewrite that made it.
        self.made_by: str | None = None
        # Kept though nothing reads it.
        self.is_pinned = False
        self._replaced_by: Node | None = None

    @property
    def type(self) -> Value:
        """What the node computes."""
        if self.compute_type is not None:
            self._type, self.compute_type = self.compute_type(), None
        return self._type

    @property
    def tensor(self) -> Tensor:
        """The tensor that the node computes.

        Raises
        ------
        TypeError
            It computes a tuple, or nothing that the table knows.
        """
        return tensor_of(self.type)

    def _declared(self, given: object) -> object:
        return super()._declared(given) if self.is_call else given

    @property
    def args(self) -> list[Value]:
        """What the operands compute; only a tuple node is given as a tuple of tensors."""
        return [
            (
                NoTensor("TupleType")
                if operand.returns_tuple and operand.kind != TUPLE
                else operand.type
            )
            for operand in self.operands
        ]

    @property
    def results(self) -> tuple[Value, ...]:
        """What the node computes, one by one."""
        return self.type if isinstance(self.type, tuple) else (self.type,)

    @property
    def returns_tuple(self) -> bool:
        """Whether the node computes a tuple, perhaps of one tensor."""
        return isinstance(self.type, tuple)

    @property
    def arg_names(self) -> list[str]:
        """What messages call each operand."""
        known = self._arg_names[: len(self.operands)]
        return [*known, *(f"argument {i}" for i in range(len(known), len(self.operands)))]

    @arg_names.setter
    def arg_names(self, names: Sequence[str]) -> None:
        self._arg_names = names

    @property
    def is_call(self) -> bool:
        """Whether it is a call of an op that was read as the table has it."""
        return self.kind == CALL and self.unsupported is None

    @property
    def is_constant(self) -> bool:
        """Whether its value is known."""
        return self.kind == CONSTANT

    @property
    def is_fixed(self) -> bool:
        """Whether it is no input of a partition that reads it, as a constant."""
        return self.is_constant

    @property
    def calls(self) -> list[OpView]:
        """The call that it is, if it is one; of a composite, the calls in it."""
        return [self] if self.is_call else []

    @property
    def number(self) -> int:
        """Its number in the graph.

        Raises
        ------
        ValueError
            It is not in the graph.
        """
        if self.index is None:
            raise ValueError(f"{self} is not in the graph")
        return self.index

    @property
    def is_live(self) -> bool:
        """Whether it is in the graph."""
        return self.index is not None

    def is_filled(self, k: int, axis: int) -> bool | None:
        """Whether tensor `k` that a call reads, in a tuple or alone, has elements along an axis.

        A cache of keys has none before the first token. A matmul or a convolution is taken to read
        some, as nothing is left of a model that does not.
        """
        data = self.operands[0]
        data = data.operands[k] if data.kind == TUPLE else data
        if not data.is_call and data.kind not in (TUPLE, FIELD):
            return None
        return _is_computed(data, _MAX_DEPTH)

    @property
    def value(self) -> np.ndarray:
        """The value of a constant."""
        value = self.tensor.value
        if value is None:
            raise ValueError(f"{self} is no constant")
        return value

    @property
    def current(self) -> Node:
        """The node that stands in the place of this one now: itself if none does."""
        node = self
        while node._replaced_by is not None:
            node = node._replaced_by
        return node

    def __repr__(self):
        number = "?" if self.index is None else self.index
        return f"%{number} = {self.name or self.kind}({', '.join(map(_number, self.operands))})"


def _number(node: Node) -> str:
    return f"%{node.index}"


def _is_computed(node: Node, depth: int) -> bool:
    """Whether a tensor is computed by a matmul or convolution, and ops that keep its elements."""
    if depth == 0 or node.kind in (INPUT, NATIVE, CONSTANT):
        return False
    if node.kind in (TUPLE, FIELD):
        return any(_is_computed(operand, depth - 1) for operand in node.operands)
    spec = row_of(node.name) if node.is_call else None
    if spec is None:
        return False
    if spec.heavy:
        return True
    if spec.moves:
        # A slice of an open size is not of the table if it may be empty.
        return _is_computed(node.operands[0], depth - 1)
    return any(
        len(operand.tensor.dims) == len(node.tensor.dims)
        and all(map(is_same, operand.tensor.dims, node.tensor.dims))
        and _is_computed(operand, depth - 1)
        for operand in node.operands
    )


def constant(values: np.ndarray, dtype: str | None = None) -> Node:
    """Make a constant; floating-point values are rounded to the nearest of `dtype` if given."""
    values = np.asarray(values)
    if dtype is not None:
        values = rounded(values, dtype)
    type_ = Tensor(values.shape, dtype or str(values.dtype), values)
    return Node(CONSTANT, None, [], type_)


def defined_in(new: Node) -> list[Node]:
    """Return the calls that a new node is computed from and that are as new, itself the last."""
    order: list[Node] = []
    seen = {new}

    def visit(node):
        for operand in node.operands:
            if operand not in seen and not operand.is_live and operand.kind != CONSTANT:
                seen.add(operand)
                visit(operand)
        order.append(node)

    visit(new)
    return order
