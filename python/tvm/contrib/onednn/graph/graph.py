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
"""The graph that a function of Relay or Relax is read into, rewritten in, and written from.

A rewrite looks at the graph by numbers (`Graph.ops`, `Graph.operands`, `Graph.users`, ...), which
stay as they are while it edits, and edits nodes: it makes new ones and lets them take the place of
old ones. `Graph.sort` then drops what nothing reads and numbers the rest anew.

A node is never changed, but for its operands, when another node takes the place of one of them. So
a node that is still there computes what it was read from, and is written back as that.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from ..policy.graph import Graph as NumberedGraph
from ..policy.graph import users_of
from ..policy.op_view import NoTensor, OpView, Tensor, Value
from .dim import Dim, is_same
from .infer import has_inference, infer

CALL, TUPLE, FIELD, CONSTANT, INPUT, NATIVE = (
    "call",
    "tuple",
    "field",
    "constant",
    "input",
    "native",
)

# What a snapshot of the numbering is made of, see `Graph.sort`.
_NUMBERED = ("operands", "users", "scope", "ops", "views")


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
    unread : str | None
        Why a call has no counterpart in the table.
    compute_type : Callable[[], Value] | None
        Tells the type when it is asked for, if it has not been.
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
        self.kind, self.name, self.scope = kind, name, scope
        self.operands: list[Node] = list(operands)
        self._type, self._attrs = type_, attrs
        self.compute_type: Callable[[], Value] | None = None
        if callable(type_):
            self._type, self.compute_type = None, type_
        self._arg_names: Sequence[str] = ()
        self.users: list[Node] = []
        self.origin: Origin | None = None
        self.expansion: Node | None = None
        self.template: Node | None = None
        self.unread: str | None = None
        self.index: int | None = None
        # Counts the changes of the operands.
        self.version = 0
        # What it was made in the place of.
        self.like: Node | None = None
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
    def attrs(self) -> Any:
        """The attributes of a call."""
        if callable(self._attrs):
            self._attrs = self._attrs()
        return self._attrs

    @property
    def args(self) -> list[Value]:
        """What the operands compute; a tuple that is not made of tensors is none of them."""
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
        return self.kind == CALL and self.unread is None

    @property
    def is_constant(self) -> bool:
        """Whether its value is known."""
        return self.kind == CONSTANT

    @property
    def is_live(self) -> bool:
        """Whether it is in the graph."""
        return self.index is not None

    @property
    def value(self) -> np.ndarray:
        """The value of a constant."""
        return self.type.value

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


class Graph(NumberedGraph):
    """A function as nodes, numbered so that operands come first.

    The last node is what the function returns. Two nodes of the same scope are evaluated together
    or not at all, and see the same variables: a scope is a branch, the body of a function, or a
    block of bindings. Constants may be read in every scope.

    Attributes
    ----------
    nodes : list[Node]
        The nodes by number.
    """

    def __init__(self):
        self.nodes: list[Node] = []
        # Whether a node is computed from nodes with smaller numbers only, and from new ones.
        self._is_numbered = True

    # Reading.

    def append(self, node: Node, origin: Origin | None = None) -> Node:
        """Add a node that a reader has made; it returns the node."""
        node.index = len(self.nodes)
        self.nodes.append(node)
        for operand in node.operands:
            operand.users.append(node)
        if origin is not None:
            node.origin = origin
            origin.nodes.append(node)
        return node

    # What a reader knows of its IR; these are the table's names.

    def title(self, node: Node) -> str:
        """Return what the IR calls an op, or an input."""
        return str(node.name)

    def op_name(self, node: Node) -> str | None:
        """Return what the IR calls an op; None for what is no call."""
        return self.title(node) if node.kind == CALL else None

    def closed_ops(self, node: Node) -> tuple[str, list[str], str] | None:
        """Return the title of an expression that is not looked into, the ops in it, and why.

        None for one that has no ops.
        """
        return None

    # The numbered view, which stays as it is until the next `sort`.

    @functools.cached_property
    def operands(self) -> list[list[int]]:
        """The operands of each node, by number."""
        return [[operand.index for operand in node.operands] for node in self.nodes]

    @functools.cached_property
    def users(self) -> list[list[int]]:
        """What reads each node, in order, once for each time."""
        return users_of(self.operands)

    @functools.cached_property
    def scope(self) -> list[int]:
        """The scope of each node."""
        return [node.scope for node in self.nodes]

    @functools.cached_property
    def ops(self) -> list[str | None]:
        """The op of each call; None for what is no call."""
        return [node.name for node in self.nodes]

    @functools.cached_property
    def views(self) -> list[Node | None]:
        """Each call that was read, for the rules; None for other nodes."""
        return [node if node.is_call else None for node in self.nodes]

    def result(self, i: int) -> Value:
        """Return what a node computes."""
        return self.nodes[i].type

    def is_same_size(self, i: int, other: int, axis: int) -> bool:
        """Whether two tensors are of the same size along an axis in every run."""
        return is_same(*(self.nodes[k].type.dims[axis] for k in (i, other)))

    def is_fixed(self, i: int) -> bool:
        """Whether a node is a constant: no input of a partition."""
        return self.nodes[i].kind == CONSTANT

    def is_tuple(self, i: int) -> bool:
        """Whether a node makes a tuple of its operands."""
        return self.nodes[i].kind == TUPLE

    def field(self, i: int) -> int | None:
        """Return which field of a tuple a node is; None if it is none."""
        node = self.nodes[i]
        return node.attrs.index if node.kind == FIELD else None

    def scalar(self, i: int) -> float | None:
        """Return the value of a constant of one finite floating-point number, else None."""
        return scalar_of(self.nodes[i])

    # Editing.

    def constant(self, values: np.ndarray, dtype: str | None = None) -> Node:
        """Make a constant; its values are rounded to the nearest of `dtype` if that is given."""
        return constant(values, dtype)

    def call(
        self,
        name: str,
        operands: Sequence[Node],
        like: Node,
        type_: Value | None = None,
        **attrs,
    ) -> Node:
        """Make a call of an op of the table.

        Parameters
        ----------
        name : str
            The op.
        operands : Sequence[Node]
            Its operands.
        like : Node
            A node of the scope that it is to be in, of which it computes a part.
        type_ : Value | None
            What it computes; None to infer it.
        attrs
            All attributes of the op.
        """
        namespace = SimpleNamespace(**attrs)
        if type_ is None:
            type_ = infer(name, [operand.type for operand in operands], namespace)
        return _made(Node(CALL, name, operands, type_, namespace, like.scope), like)

    def with_attrs(self, node: Node, operands: Sequence[Node], **changes) -> Node:
        """Make a call as another one, with other operands and some other attributes."""
        return self.call(node.name, operands, node, **{**vars(node.attrs), **changes})

    def with_operands(
        self, node: Node, operands: Sequence[Node], type_: Value | None = None
    ) -> Node:
        """Make a call of the op of another one, with its attributes."""
        new = self.call(node.name, operands, node, type_, **vars(node.attrs))
        is_read = node.origin is not None and len(node.origin.nodes) == 1
        new.template = node if is_read else node.template
        new.expansion = node if node.expansion is not None else None
        new.arg_names = node._arg_names
        return new

    def tuple(self, operands: Sequence[Node], like: Node) -> Node:
        """Make a tuple of tensors."""
        types = tuple(operand.type for operand in operands)
        return _made(Node(TUPLE, None, operands, types, None, like.scope), like)

    def field_of(self, node: Node, index: int) -> Node:
        """Make the field of a tuple; of a tuple that is made of tensors, it is one of these."""
        if node.kind == TUPLE:
            return node.operands[index]
        attrs = SimpleNamespace(index=index)
        return _made(Node(FIELD, None, [node], node.type[index], attrs, node.scope), node)

    def replace(self, old: Node, new: Node) -> None:
        """Let a node take the place of another for all that reads that, but not for itself.

        What the new node is computed from keeps reading the old one.
        """
        if old is new:
            return
        kept = _readers_below(new, old, self._is_numbered)
        self._is_numbered &= _last_number(new) <= _last_number(old)
        for user in [user for user in old.users if user not in kept]:
            old.users.remove(user)
            user.operands = [new if operand is old else operand for operand in user.operands]
            new.users += [user] * (user.operands.count(new) - new.users.count(user))
            user.version += 1
        # What was read of the old node reads the new one, unless that would read itself.
        if not any(old in node.operands for node in kept):
            old._replaced_by = new

    def reread(self, old: Node, new: Node) -> None:
        """Let a call be read as another one, or as several that end in `new`.

        They keep its origin, so that they are written as it was where all of them stay on TVM.
        """
        origin, made = old.origin, [] if new.is_live or new.is_constant else made_below(new)
        if origin is not None and len(origin.nodes) == 1 and made:
            origin.nodes = made
            for node in made:
                node.origin = origin
        self.replace(old, new)

    def fuse_into(self, old: Node, new: Node) -> None:
        """Let one call take the place of several, of which `old` is the last."""
        new.expansion = old
        self.replace(old, new)

    def sort(self) -> None:
        """Drop the nodes that nothing reads, and number the others: operands first, else as before.

        Nodes that were made go right before the first that reads them.
        """
        for name in _NUMBERED:
            self.__dict__.pop(name, None)
        live = _reachable([node for node in self.nodes if node.is_pinned] + self.nodes[-1:])
        order: list[Node] = []
        for node in self.nodes:
            node.index = None
        done: set[Node] = set()
        for start in self.nodes:
            if start in live:
                _visit(start, done, order)
        for node in order:
            node.users = []
        self.nodes = order
        self._is_numbered = True
        for i, node in enumerate(order):
            node.index = i
            for operand in node.operands:
                operand.users.append(node)

    def checkpoint(self) -> Callable[[], None]:
        """Return what takes back all edits from now on."""
        state = [
            (node, list(node.operands), list(node.users), node._replaced_by) for node in self.nodes
        ]

        def restore():
            for node in self.nodes:
                node.index = None
            for node, operands, users, replaced_by in state:
                node.operands, node.users, node._replaced_by = operands, users, replaced_by
                node.version += 1
            self.nodes = [node for node, *_ in state]
            self.sort()

        return restore

    def verify(self) -> None:
        """Raise an AssertionError that names the node if the graph is not sound."""
        for i, node in enumerate(self.nodes):
            assert node.index == i, f"{node} is not number {i}"
            assert node.current is node, f"{node} is read, but {node.current} is in its place"
            for operand in node.operands:
                assert operand.is_live and operand.index < i, f"{node} reads {operand} too early"
                assert operand.users.count(node) == node.operands.count(
                    operand
                ), f"{operand} does not know that {node} reads it"
            for user in node.users:
                assert node in user.operands, f"{user} does not read {node}"
            if node.is_call and has_inference(node.name):
                for value in node.results:
                    assert isinstance(value, Tensor), f"{node} computes {value}"
            if node.kind == FIELD:
                assert len(node.operands) == 1, f"{node} is a field of {node.operands}"


def _made(node: Node, like: Node) -> Node:
    for operand in node.operands:
        operand.users.append(node)
    node.like = like
    return node


def made_below(new: Node) -> list[Node]:
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


def _last_number(node: Node) -> int:
    """Return the number of a node; of a new one, the highest of what it is computed from."""
    last, seen, stack = -1, {node}, [node]
    while stack:
        each = stack.pop()
        if each.is_live:
            last = max(last, each.index)
            continue
        new = [operand for operand in each.operands if operand not in seen]
        seen.update(new)
        stack += new
    return last


def _readers_below(new: Node, old: Node, is_numbered: bool) -> set[Node]:
    """Return the nodes that `new` is computed from, itself included, and that may read `old`."""
    first = old.index if old.is_live and is_numbered else -1
    seen, stack = {new}, [new]
    while stack:
        for operand in stack.pop().operands:
            # A node with a smaller number does not read `old`.
            is_before = operand.is_live and operand.index < first
            if operand is not old and operand not in seen and not is_before:
                seen.add(operand)
                stack.append(operand)
    return seen


def _reachable(roots: Iterable[Node]) -> set[Node]:
    live, stack = set(roots), list(roots)
    while stack:
        for operand in stack.pop().operands:
            if operand not in live:
                live.add(operand)
                stack.append(operand)
    return live


def _visit(start: Node, done: set[Node], order: list[Node]) -> None:
    """Append a node, and what it reads before it."""
    stack = [(start, iter(start.operands))] if start not in done else []
    done.add(start)
    while stack:
        node, rest = stack[-1]
        for operand in rest:
            if operand not in done:
                done.add(operand)
                stack.append((operand, iter(operand.operands)))
                break
        else:
            stack.pop()
            order.append(node)


def constant(values: np.ndarray, dtype: str | None = None) -> Node:
    """Make a constant; floating-point values are rounded to the nearest of `dtype` if given."""
    values = np.asarray(values)
    if dtype is not None:
        values = rounded(values, dtype)
    type_ = Tensor(values.shape, dtype or str(values.dtype), values)
    return Node(CONSTANT, None, [], type_)


def rounded(values: np.ndarray, dtype: str) -> np.ndarray:
    """Return values as a type has them."""
    if dtype == "bfloat16":
        import ml_dtypes

        # By way of float32, as oneDNN and TVM round.
        with np.errstate(over="ignore"):
            return values.astype("float32").astype(ml_dtypes.bfloat16)
    with np.errstate(over="ignore"):
        return values.astype(dtype)


def scalar_of(node: Node) -> float | None:
    """Return the value of a constant of one finite floating-point number, else None."""
    if node.kind != CONSTANT or math.prod(node.type.shape) != 1:
        return None
    if node.type.dtype not in ("float32", "float64", "float16", "bfloat16"):
        return None
    value = float(node.value.reshape(()))
    return value if math.isfinite(value) else None


def open_like(shape: Sequence[int | None], key: Any) -> tuple:
    """Return dimensions with a symbol of its own for each that is not known."""
    return tuple(
        Dim.symbol((key, axis)) if size is None else size for axis, size in enumerate(shape)
    )


__all__ = [
    "made_below",
    "CALL",
    "CONSTANT",
    "FIELD",
    "INPUT",
    "NATIVE",
    "TUPLE",
    "Graph",
    "NoTensor",
    "Node",
    "Origin",
    "constant",
    "open_like",
    "rounded",
    "scalar_of",
]
