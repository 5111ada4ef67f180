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
"""Expressions of Relay for the nodes of a graph."""

from __future__ import annotations

from collections.abc import Collection

from tvm import relay, tir
from tvm.contrib.onednn.ir.node import CONSTANT, FIELD, TUPLE, Node, Origin
from tvm.contrib.onednn.ir.op_view import Tensor, Value
from tvm.contrib.onednn.ops.recurrent import GATES
from tvm.contrib.onednn.ops.tensors import COMPILER
from tvm.contrib.onednn.rewrites.attention_ops import ATTENTION, attention_ops
from tvm.runtime import String

from .ir.constants import to_constant
from .ir.dataflow_graph import edges, inlined, is_composite, with_operands
from .ir.relay_view import native_attrs, op_name
from .recurrent import layer_call
from .write_ops import written


class Body:
    """Expressions of Relay for nodes.

    Parameters
    ----------
    known : dict[Node, relay.Expr] | None
        What nodes are known by.
    is_for_onednn : bool
        Whether a formula is written as one op, a virtual one, and not as the ops that it is of.
    offloaded : Collection[Node]
        What is in partitions.
    is_as_rewritten : bool
        Whether an expression that was read as several nodes is written as these.
    """

    def __init__(
        self,
        known: dict[Node, relay.Expr] | None = None,
        is_for_onednn: bool = False,
        offloaded: Collection[Node] = (),
        is_as_rewritten: bool = False,
    ):
        self.known: dict[Node, relay.Expr] = {} if known is None else known
        self._is_for_onednn, self._offloaded = is_for_onednn, offloaded
        self._is_as_rewritten = is_as_rewritten

    def read(self, node: Node) -> relay.Expr:
        """Return what a node is known by; write it if it is not known yet."""
        node = node.current
        if node not in self.known:
            self.known[node] = self.value(node)
        return self.known[node]

    def value(self, node: Node) -> relay.Expr:
        """Return the expression that computes a node, of what its operands are known by."""
        origin = node.origin
        if self.is_written_as_read(node):
            expr = _of_operands(origin, [self.read(operand) for operand in origin.operands])
            # TVM cannot look into what someone has made for oneDNN.
            is_left = is_composite(expr) and not self._is_for_onednn
            return inlined(expr) if is_left else expr
        if node.kind == CONSTANT:
            return to_constant(node.value, node.type.dtype)
        if node.kind == FIELD:
            values = self.read(node.operands[0])
            is_made = isinstance(values, relay.Tuple)
            index = node.attrs.index
            return values.fields[index] if is_made else relay.TupleGetItem(values, index)
        if node.kind == TUPLE:
            return relay.Tuple([self.read(operand) for operand in node.operands])
        if node.expansion is not None or node.name in (ATTENTION, *GATES):
            return self._formula(node)
        args = [self.read(operand) for operand in node.operands]
        template = node.template.origin.native if node.template is not None else None
        # It may have been read as another op, with other operands.
        if op_name(template) == node.name:
            return relay.Call(template.op, args, template.attrs, template.type_args, template.span)
        return _with_span(written(node, args), node)

    def is_written_as_read(self, node: Node) -> bool:
        """Whether the expression that a node was read from may be written as it was."""
        origin = node.origin
        if origin is None or node is not origin.nodes[-1]:
            return False
        if self._is_for_onednn:
            # One node may stand for another op of the same operands, as a comparison for `isnan`.
            is_same_op = op_name(origin.native) in (node.name, None)
            own = set(node.operands)
            is_alone = len(origin.nodes) == 1 and all(o.current in own for o in origin.operands)
            # A rewrite may have given it other attributes.
            return is_same_op and is_alone and node.like is None
        if len(origin.nodes) == 1:
            return True
        if self._is_as_rewritten or not origin.is_intact:
            return False
        return not any(node in self._offloaded for node in origin.nodes)

    def _formula(self, node: Node) -> relay.Expr:
        """Write one op that stands for several."""
        if not self._is_for_onednn:
            return self._expanded(node)
        args = [self.read(operand) for operand in node.operands]
        if not node.name.startswith(f"{COMPILER}."):
            return _with_span(written(node, args), node)
        return relay.Call(_virtual(node), args, span=span_of(node))

    def _expanded(self, node: Node) -> relay.Expr:
        """Write the ops that a node stands for, in the type that these have."""
        inner = node.expansion
        if inner is None:
            args = [self.read(operand) for operand in node.operands]
            if node.name in GATES:
                return layer_call(node.name, args, vars(node.attrs))
            inputs, inner = attention_ops(node)
            return Body(dict(zip(inputs, args))).value(inner)
        is_same_op = inner.name == node.name and len(inner.operands) == len(node.operands)
        if not is_same_op or inner.type.dtype == node.type.dtype:
            return self.value(inner)
        known = dict(self.known)
        for old, new in zip(inner.operands, node.operands):
            known[old.current] = known[old] = relay.cast(self.read(new), old.type.dtype)
        value = Body(known, offloaded=self._offloaded).value(inner)
        return relay.cast(value, node.type.dtype)


def _of_operands(origin: Origin, operands: list[relay.Expr]) -> relay.Expr:
    """Return the expression that a node was read from, of other operands; the same if they are."""
    expr = origin.native
    old = [operand for operand, _ in edges(expr)]
    if all(new.same_as(before) for new, before in zip(operands, old)):
        return expr
    if isinstance(expr, relay.TupleGetItem) and isinstance(operands[0], relay.Tuple):
        return operands[0].fields[expr.index]
    return with_operands(expr, operands)


def span_of(node: Node | None):
    """Return where a node comes from, in the model that was imported."""
    while node is not None:
        if node.origin is not None:
            return getattr(node.origin.native, "span", None)
        node = node.like or node.expansion
    return None


def _with_span(expr: relay.Expr, node: Node) -> relay.Expr:
    span = span_of(node)
    if span is None or not isinstance(expr, relay.Call):
        return expr
    return relay.Call(expr.op, expr.args, expr.attrs, expr.type_args, span)


def type_from(value: Value):
    """Return the type in Relay of what a node computes, which is no native one."""
    if isinstance(value, tuple):
        return relay.TupleType([type_from(field) for field in value])
    assert isinstance(value, Tensor), value
    return relay.TensorType([relay.Any() if s is None else s for s in value.shape], value.dtype)


def type_of(node: Node):
    """Return the type in Relay of a node."""
    is_read = node.origin is not None and node is node.origin.nodes[-1]
    known = getattr(node.origin.native, "_checked_type_", None) if is_read else None
    is_known = known is not None and not _is_more_precise(node.type, known)
    return known if is_known else type_from(node.type)


def _is_more_precise(value: Value, type_) -> bool:
    """Whether more sizes are known of what a node computes than TVM knows."""
    if not isinstance(value, Tensor) or not isinstance(type_, relay.TensorType):
        return False
    return value.shape.count(None) < sum(isinstance(dim, tir.Any) for dim in type_.shape)


def _virtual(node: Node) -> relay.Function:
    """Return the function that stands for one op, with its attributes."""
    params = [
        relay.var("data" if k == 0 else f"data{k}", type_of(operand))
        for k, operand in enumerate(node.operands)
    ]
    body = Body(dict(zip((operand.current for operand in node.operands), params)))
    func = relay.Function(params, body._expanded(node), type_from(node.type))
    group = [] if node.expansion is None else _group(node.expansion, set(node.operands))
    names = "".join(f"{each.name}_" for each in group if each.name)
    # Patterns of TVM do not look into functions that have the second.
    func = func.with_attr({"Composite": String(node.name), "PartitionedFromPattern": String(names)})
    return func.with_attr(native_attrs(vars(node.attrs)))


def _group(root: Node, inputs: set[Node]) -> list[Node]:
    """Return what is computed between some nodes and a root, operands first."""
    order, seen = [], set(inputs)

    def visit(node):
        for operand in node.operands:
            if operand not in seen and operand.current not in seen:
                seen.add(operand)
                visit(operand)
        order.append(node)

    visit(root)
    return order
