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

from collections.abc import Collection, Mapping
from types import SimpleNamespace

from tvm import relay
from tvm.contrib.onednn.ir.dim import Dim, Size
from tvm.contrib.onednn.ir.graph import Graph
from tvm.contrib.onednn.ir.node import CALL, CONSTANT, FIELD, INPUT, NATIVE, TUPLE, Node, Origin
from tvm.contrib.onednn.ir.op import has_row, infer
from tvm.contrib.onednn.ir.op_view import NoTensor, OpView, Tensor, Value
from tvm.contrib.onednn.ops.rules import EXCLUDED
from tvm.contrib.onednn.ops.shape_values import ShapeValues
from tvm.contrib.onednn.ops.tensors import COMPILER

from .ir.dataflow_graph import (
    STOP_FUSION,
    DataflowGraph,
    is_composite,
    is_opaque,
    op_calls,
    why_opaque,
)
from .ir.relay_view import (
    arg_names,
    callee_name,
    callee_of,
    has_shape_function,
    op_name,
    plain_attrs,
    value_of,
    value_of_type,
    view_of,
)
from .recurrent import layer_attrs, layer_name

# What an op that the options exclude is called, so that no rewrite takes it for one of the table.
_EXCLUDED = "excluded."


class RelayNode(Node):
    """A node that was read from Relay, of which what is asked for is read, once."""

    @property
    def has_shape_function(self) -> bool:
        """Whether TVM's VM can tell the shape of the result."""
        return self.name.startswith(f"{COMPILER}.") or has_shape_function(self.name)

    @property
    def is_fixed(self) -> bool:
        """Whether it is no input of a partition that reads it: a constant or a function."""
        is_function = self.kind == NATIVE and isinstance(self.origin.native, relay.Function)
        return self.kind == CONSTANT or is_function

    @property
    def calls(self) -> list[OpView]:
        """The call that it is, or the calls in a composite."""
        if self.kind == CALL and is_composite(self.origin.native):
            return [view_of(call) for call in op_calls(self.origin.native.op.body)]
        return super().calls


class RelayGraph(Graph):
    """The graph of an expression of Relay.

    Parameters
    ----------
    root : relay.Expr
        The expression, such as a function; it gets the last number.
    excluded : Collection[str]
        Ops that are not read.
    read : DataflowGraph | None
        The expression, if it has been read.
    bound : Mapping[relay.Var, relay.Constant] | None
        The values of variables.
    """

    def __init__(
        self,
        root: relay.Expr,
        excluded: Collection[str] = (),
        read: DataflowGraph | None = None,
        bound: Mapping[relay.Var, relay.Constant] | None = None,
    ):
        super().__init__()
        self._excluded, self._values = excluded, ShapeValues()
        read = DataflowGraph(root) if read is None else read
        for i, expr in enumerate(read.nodes):
            expr = bound.get(expr, expr) if bound else expr
            operands = [self.nodes[k] for k in read.operands[i]]
            node = self._node(expr, operands, read.scope[i])
            self.append(node, Origin(expr, operands))
            # Operands first, as each asks for theirs.
            assert node.type is not None

    def _node(self, expr: relay.Expr, operands: list[Node], scope: int) -> Node:
        if isinstance(expr, relay.Constant):
            return RelayNode(CONSTANT, None, operands, value_of(expr), None, scope)
        if isinstance(expr, relay.Tuple):
            types = [operand.type for operand in operands]
            return RelayNode(TUPLE, None, operands, tuple(types), None, scope)
        if isinstance(expr, relay.TupleGetItem):
            attrs, of = SimpleNamespace(index=int(expr.index)), operands[0]
            return RelayNode(FIELD, None, operands, lambda: of.type[attrs.index], attrs, scope)
        name = callee_name(expr)
        if name in (None, STOP_FUSION):
            kind = INPUT if isinstance(expr, relay.Var) else NATIVE
            node = RelayNode(kind, None, operands, None, None, scope)
            node.compute_type = lambda: self._typed(node, infers=False)
            return node
        layer = layer_name(expr)
        name = layer or name
        is_excluded = name in self._excluded
        name = f"{_EXCLUDED}{name}" if is_excluded else name
        attrs_of = layer_attrs if layer else plain_attrs
        node = RelayNode(CALL, name, operands, None, lambda: attrs_of(expr), scope)
        node.compute_type = lambda: self._typed(node, infers=True)
        if is_excluded:
            node.unsupported = EXCLUDED
        elif layer:
            pass
        elif op_name(expr):
            node.arg_names = arg_names(name)
        elif not is_composite(expr):
            node.unsupported = why_opaque(expr.op)
        return node

    def _typed(self, node: Node, infers: bool) -> Value:
        """Return what a node computes."""
        value = _types_of(node.origin.native)
        return _named(value, self._inferred(node, value) if infers else None, id(node))

    def _inferred(self, node: Node, value: Value) -> Value | None:
        """Return what is inferred of the result of a call where that is open."""
        values = value if isinstance(value, tuple) else (value,)
        if all(None not in getattr(each, "dims", ()) for each in values):
            return None
        try:
            if has_row(node.name):
                return infer(node.name, node.args, node.attrs)
            dims = self._values.infer(node)
        # What no rule accepts may lack what the inference relies on.
        except Exception:  # pylint: disable=broad-except
            return None
        return None if dims is None else Tensor(tuple(dims), values[0].dtype)

    def title(self, node: Node) -> str:
        """Return what Relay calls an op, or an input."""
        if node.kind == INPUT:
            return str(node.origin.native.name_hint)
        return str(node.name).removeprefix(_EXCLUDED)

    def closed_ops(self, node: Node) -> tuple[str, list[str], str | None] | None:
        """Return the title of a call that is not looked into, the ops in it, and why."""
        callee = callee_of(node.origin.native)
        if isinstance(callee, relay.GlobalVar):
            return callee.name_hint, [], None
        if is_opaque(callee):
            return "function", [op_name(call) for call in op_calls(callee.body)], why_opaque(callee)
        return None


def _types_of(expr: relay.Expr) -> Value:
    """Return what an expression computes: each tensor of a tuple."""
    type_ = expr.checked_type
    if isinstance(type_, relay.TupleType):
        return tuple(map(value_of_type, type_.fields))
    return value_of_type(type_)


def _named(value: Value, inferred: Value | None, key) -> Value:
    """Return what is computed with the sizes that are inferred, or symbols, where it is open."""
    if isinstance(value, tuple):
        known = inferred if isinstance(inferred, tuple) else (None,) * len(value)
        return tuple(
            _named(each, also, (key, k)) for k, (each, also) in enumerate(zip(value, known))
        )
    if isinstance(value, NoTensor) or None not in value.dims:
        return value
    dims = getattr(inferred, "dims", None)
    if dims is None or len(dims) != len(value.dims):
        dims = (None,) * len(value.dims)
    sizes: list[Size] = []
    for axis, (size, also) in enumerate(zip(value.dims, dims)):
        if size is None:
            size = Dim.symbol((key, axis)) if also is None else also
        sizes.append(size)
    return Tensor(tuple(sizes), value.dtype)
