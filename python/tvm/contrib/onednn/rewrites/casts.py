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
"""Makes calls in another floating-point type, and casts at their boundaries."""

from __future__ import annotations

from collections.abc import Collection

from ..ir.graph import Graph
from ..ir.match import is_op
from ..ir.node import FIELD, TUPLE, Node
from ..ir.op_view import Tensor, Value, tensor_of


class Casts:
    """Replaces calls by calls in another type; what else reads them reads casts back.

    Parameters
    ----------
    graph : Graph
        The function.
    old : Collection[str]
        The types that are replaced. Tensors of others stay as they are.
    new : str
        The type that they are replaced by.
    """

    def __init__(self, graph: Graph, old: Collection[str], new: str):
        self.graph, self.old, self._new = graph, old, new
        # By node and scope.
        self._known: dict[tuple[Node, int], Node] = {}

    def is_old(self, value: Value) -> bool:
        """Whether a value is of a type that is replaced, or a tuple that has such a tensor."""
        if isinstance(value, tuple):
            return any(map(self.is_old, value))
        return isinstance(value, Tensor) and value.dtype in self.old

    def type_of(self, value: Value) -> Value:
        """Return a type with the new element type."""
        if isinstance(value, tuple):
            return tuple(tensor_of(self.type_of(each)) for each in value)
        if not isinstance(value, Tensor) or not self.is_old(value):
            return value
        return Tensor(value.dims, self._new)

    def is_known(self, node: Node, scope: int) -> bool:
        """Whether a tensor is already there in the new type; of a tuple, one of them."""
        if node.kind == TUPLE:
            return any(self.is_known(each, scope) for each in node.operands)
        return (self._source(node, scope), scope) in self._known

    def read(self, node: Node, scope: int) -> Node:
        """Return an operand in the new type."""
        if node.kind == TUPLE:
            return self.graph.tuple([self.read(each, scope) for each in node.operands], node)
        if not self.is_old(node.type):
            return node
        node = self._source(node, scope)
        if (node, scope) not in self._known:
            self._known[node, scope] = self._converted(node, scope)
        return self._known[node, scope]

    def _converted(self, node: Node, scope: int) -> Node:
        """Return a tensor that nothing has read in the new type yet."""
        if node.is_constant:
            new = self.graph.constant(node.value, self._new)
            if self._new == "bfloat16":
                new.rounded = node
        else:
            new = self.graph.call("cast", [node], node, dtype=self._new)
            new.scope = scope
        return new

    def replace(self, node: Node, new: Node) -> None:
        """Let a call in the new type take the place of another."""
        if not node.returns_tuple:
            self._hand_over(node, new)
            return
        fields = [user for user in node.users if user.kind == FIELD]
        for field in fields:
            self._hand_over(field, self.graph.field_of(new, field.attrs.index))
        # Others read the tuple as a whole, or return it.
        if not fields or len(fields) < len(node.users):
            parts = [
                self._cast_back(self.graph.field_of(new, index), node, value)
                for index, value in enumerate(node.results)
            ]
            self.graph.replace(node, self.graph.tuple(parts, node))

    def _hand_over(self, node: Node, new: Node) -> None:
        if self.is_old(node.type):
            self._known[node, node.scope] = new
        self.graph.replace(node, self._cast_back(new, node, node.type))

    def _cast_back(self, new: Node, like: Node, value: Value) -> Node:
        """Return a tensor in the type that it had."""
        if not self.is_old(value):
            return new
        return self.graph.call("cast", [new], like, dtype=tensor_of(value).dtype)

    def _source(self, node: Node, scope: int) -> Node:
        """Return the tensor in the new type that a cast back to an old one reads."""
        like = node.like if is_op(node, "cast") else None
        return node if like is None or (like, scope) not in self._known else like
