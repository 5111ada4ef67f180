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

A rewrite makes new nodes and replaces old ones by them. `Graph.sort` then drops what nothing reads
and numbers the rest anew. Until then a new node is not live, also where it is among the users of
its operands.

A node is never changed, but for its operands, when another node takes the place of one of them. So
a node that is still there computes what it was read from, and is written back as that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from .growth import Growth
from .node import CALL, FIELD, TUPLE, Node, Origin, constant, defined_in
from .op import attributes_of, has_row, infer
from .op_view import Tensor, Value


class Graph:
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
        # Whether nothing was edited since the last `sort`, and what `checkpoint` knows since then.
        self._is_sorted = False
        self._state: list | None = None
        self.growth = Growth()
        # What makes the nodes that are made now.
        self.rewrite: str | None = None

    # Reading.

    def append(self, node: Node, origin: Origin | None = None) -> Node:
        """Add a node that a reader has made; it returns the node."""
        self._is_sorted = False
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

    def closed_ops(self, node: Node) -> tuple[str, list[str], str | None] | None:
        """Return the title of an expression that is not looked into, the ops in it, and why.

        None for one that has no ops.
        """
        return None

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
        namespace: Any = SimpleNamespace(**attrs)
        if type_ is None:
            namespace = attributes_of(name, namespace)
            type_ = infer(name, [operand.type for operand in operands], namespace)
        return self._made(Node(CALL, name, operands, type_, namespace, like.scope), like)

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
        types = tuple(operand.tensor for operand in operands)
        return self._made(Node(TUPLE, None, operands, types, None, like.scope), like)

    def field_of(self, node: Node, index: int) -> Node:
        """Make the field of a tuple; of a tuple node, it is one of the operands."""
        if node.kind == TUPLE:
            return node.operands[index]
        attrs = SimpleNamespace(index=index)
        return self._made(Node(FIELD, None, [node], node.results[index], attrs, node.scope), node)

    def _made(self, node: Node, like: Node) -> Node:
        self._is_sorted = False
        for operand in node.operands:
            operand.users.append(node)
        node.like, node.made_by = like, self.rewrite
        return node

    def replace(self, old: Node, new: Node) -> None:
        """Let a node take the place of another for all that reads that, but not for itself.

        What the new node is computed from keeps reading the old one.
        """
        if old is new:
            return
        self._is_sorted = False
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
        origin, nodes = old.origin, [] if new.is_live or new.is_constant else defined_in(new)
        if origin is not None and len(origin.nodes) == 1 and nodes:
            origin.nodes = nodes
            for node in nodes:
                node.origin = origin
        self.replace(old, new)

    def fuse_into(self, old: Node, new: Node) -> None:
        """Let one call take the place of several, of which `old` is the last."""
        new.expansion = old
        self.replace(old, new)

    def unfuse(self, node: Node) -> bool:
        """Replace a call that stands for several ops with these; return whether it does.

        Ops that were read in float32 are followed by a cast if the call is in reduced precision.
        """
        result, known = node, {node}
        while result.expansion is not None:
            result = result.expansion
        if result is node or node.returns_tuple:
            return False
        stack, result._replaced_by = [result], None
        while stack:
            each = stack.pop()
            # It has left the graph, and with it the lists of users.
            each.operands = [operand.current for operand in each.operands]
            each.version += 1
            new = [operand for operand in each.operands if not operand.is_live]
            stack += [operand for operand in new if operand not in known]
            known.update(new)
        if result.tensor.dtype != node.tensor.dtype:
            result = self.call("cast", [result], node, dtype=node.tensor.dtype)
        self.replace(node, result)
        self.sort()
        return True

    def sort(self) -> None:
        """Drop the nodes that nothing reads, and number the others: operands first, else as before.

        Nodes that were made go right before the first that reads them.
        """
        if self._is_sorted:
            return
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
        self._is_sorted, self._state = True, None

    def checkpoint(self) -> Callable[[], None]:
        """Return what takes back all edits from now on."""
        if self._state is None or not self._is_sorted:
            self._state = [
                (
                    node,
                    list(node.operands),
                    list(node.users),
                    node._replaced_by,
                    node.origin.nodes if node.origin is not None else None,
                )
                for node in self.nodes
            ]
        state = self._state

        def restore():
            for node in self.nodes:
                node.index = None
            for node, operands, users, replaced_by, read_as in state:
                # A checkpoint may be restored several times.
                node.operands, node.users = list(operands), list(users)
                node._replaced_by = replaced_by
                if node.origin is not None:
                    node.origin.nodes = read_as
                node.version += 1
            self.nodes = [node for node, *_ in state]
            self._is_sorted = False
            self.sort()

        return restore

    def verify(self) -> None:
        """Raise an AssertionError that names the node if the graph is not sound."""
        for i, node in enumerate(self.nodes):
            assert node.index == i, f"{node} is not number {i}"
            assert node.current is node, f"{node} is read, but {node.current} is in its place"
            for operand in node.operands:
                assert operand.is_live and operand.number < i, f"{node} reads {operand} too early"
                assert operand.users.count(node) == node.operands.count(operand), (
                    f"{operand} does not know that {node} reads it"
                )
            for user in node.users:
                assert node in user.operands, f"{user} does not read {node}"
            if node.is_call and has_row(node.name):
                for value in node.results:
                    assert isinstance(value, Tensor), f"{node} computes {value}"
            if node.kind == FIELD:
                assert len(node.operands) == 1, f"{node} is a field of {node.operands}"


def _last_number(node: Node) -> int:
    """Return the number of a node; of a new one, the highest of what it is computed from."""
    last, seen, stack = -1, {node}, [node]
    while stack:
        each = stack.pop()
        if each.is_live:
            last = max(last, each.number)
            continue
        new = [operand for operand in each.operands if operand not in seen]
        seen.update(new)
        stack += new
    return last


def _readers_below(new: Node, old: Node, is_numbered: bool) -> set[Node]:
    """Return the nodes that `new` is computed from, itself included, and that may read `old`."""
    first = old.number if old.is_live and is_numbered else -1
    seen, stack = {new}, [new]
    while stack:
        for operand in stack.pop().operands:
            # A node with a smaller number does not read `old`.
            is_before = operand.is_live and operand.number < first
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
