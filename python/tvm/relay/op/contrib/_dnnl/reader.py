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
"""Reads a function of Relay as a graph of nodes."""

from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace

from tvm import ir, relay, runtime, tir
from tvm.contrib.onednn.graph.dim import Dim, Size
from tvm.contrib.onednn.graph.graph import (
    CALL,
    CONSTANT,
    FIELD,
    INPUT,
    NATIVE,
    TUPLE,
    Graph,
    Node,
    Origin,
)
from tvm.contrib.onednn.graph.infer import has_inference, infer
from tvm.contrib.onednn.policy.op_spec import EXCLUDED
from tvm.contrib.onednn.policy.op_view import NoTensor, OpView, Tensor, Value
from tvm.contrib.onednn.policy.tensors import COMPILER

from .ir.dataflow_graph import DataflowGraph, is_composite, op_calls
from .ir.relay_view import arg_names, callee_name, dims, has_shape_function, value_of, view_of

# What an op that the options exclude is called, so that no rewrite takes it for one of the table.
_EXCLUDED = "excluded."


class RelayNode(Node):
    """A node that was read from Relay, of which what is asked for is read, once."""

    @property
    def has_shape_function(self) -> bool:
        """Whether TVM's VM can tell the shape of the result."""
        return self.name.startswith(f"{COMPILER}.") or has_shape_function(self.name)


class RelayGraph(Graph):
    """The graph of an expression of Relay.

    Parameters
    ----------
    root : relay.Expr
        The expression, such as a function; it gets the last number.
    excluded : Collection[str]
        Ops that are not read.
    """

    def __init__(self, root: relay.Expr, excluded: Collection[str] = ()):
        super().__init__()
        self._excluded = excluded
        read = DataflowGraph(root)
        for i, expr in enumerate(read.nodes):
            operands = [self.nodes[k] for k in read.operands[i]]
            node = self._node(expr, operands, read.scope[i])
            self.append(node, Origin(expr, operands))

    def _node(self, expr: relay.Expr, operands: list[Node], scope: int) -> Node:
        if isinstance(expr, relay.Constant):
            return RelayNode(CONSTANT, None, operands, value_of(expr), None, scope)
        if isinstance(expr, relay.Tuple):
            return RelayNode(TUPLE, None, operands, lambda: value_of(expr), None, scope)
        if isinstance(expr, relay.TupleGetItem):
            attrs = SimpleNamespace(index=int(expr.index))
            return RelayNode(FIELD, None, operands, lambda: value_of(expr), attrs, scope)
        if isinstance(expr, relay.Var):
            return RelayNode(INPUT, None, operands, lambda: value_of(expr), None, scope)
        name = callee_name(expr)
        if name is None:
            return RelayNode(NATIVE, None, operands, lambda: value_of(expr), None, scope)
        is_excluded = name in self._excluded
        name = f"{_EXCLUDED}{name}" if is_excluded else name
        node = RelayNode(CALL, name, operands, None, lambda: attributes(expr.attrs), scope)
        node._type = lambda: self._type_of(node, expr)
        node.unread = EXCLUDED if is_excluded else None
        if not is_excluded and not name.startswith(f"{COMPILER}."):
            node.arg_names = arg_names(name)
        return node

    def _type_of(self, node: Node, expr: relay.Call) -> Value:
        """Return what a call computes, with a size for each open dimension."""
        value = value_of(expr)
        values = value if isinstance(value, tuple) else (value,)
        if all(None not in getattr(each, "dims", ()) for each in values):
            return value
        inferred: tuple = (None,) * len(values)
        if has_inference(node.name):
            try:
                inferred = infer(node.name, node.args, node.attrs)
            # What no rule accepts may lack what the inference relies on.
            except Exception:  # pylint: disable=broad-except
                pass
        inferred = inferred if isinstance(inferred, tuple) else (inferred,)
        typed = tuple(_named(each, also, id(node)) for each, also in zip(values, inferred))
        return typed if isinstance(value, tuple) else typed[0]

    def title(self, node: Node) -> str:
        """Return what Relay calls an op, or an input."""
        if node.kind == INPUT:
            return str(node.origin.native.name_hint)
        return str(node.name).removeprefix(_EXCLUDED)

    def is_fixed(self, i: int) -> bool:
        """Whether a node is a constant or a function: no input of a partition."""
        node = self.nodes[i]
        is_function = node.kind == NATIVE and isinstance(node.origin.native, relay.Function)
        return node.kind == CONSTANT or is_function

    def calls(self, i: int) -> list[OpView]:
        """Return the call that a node is, or the calls in a composite."""
        node = self.nodes[i]
        native = node.origin.native if node.origin is not None else None
        if native is not None and is_composite(native):
            return [view_of(call) for call in op_calls(native.op.body)]
        return [node] if node.is_call else []


def _named(value: Value, inferred: Value | None, key) -> Value:
    """Return a tensor with the sizes that are inferred, or symbols, for open dimensions."""
    if isinstance(value, NoTensor):
        return value
    known = getattr(inferred, "dims", None)
    if known is None or len(known) != len(value.dims):
        known = (None,) * len(value.dims)
    sizes: list[Size] = []
    for axis, (size, also) in enumerate(zip(value.dims, known)):
        if size is None:
            size = also if isinstance(also, Dim) else Dim.symbol((key, axis))
        sizes.append(size)
    return Tensor(tuple(sizes), value.dtype)


def attributes(attrs: ir.Attrs | None) -> SimpleNamespace:
    """Return the attributes of a call as plain Python values."""
    if attrs is None or not hasattr(attrs, "keys"):
        return SimpleNamespace()
    return SimpleNamespace(**{str(key): plain(attrs[key]) for key in attrs.keys()})


def plain(value):
    """Return an attribute as Python's own text, number, None or list; others as they are."""
    if isinstance(value, (tir.IntImm, tir.FloatImm)):
        return value.value
    if isinstance(value, (str, runtime.String)):
        return str(value)
    if isinstance(value, (ir.Array, list, tuple)):
        return [plain(each) for each in value]
    return value


__all__ = ["RelayGraph", "RelayNode", "attributes", "dims", "plain"]
