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
"""Expressions of Relax for the nodes of a graph."""

from __future__ import annotations

from collections.abc import Collection

from tvm import relax
from tvm.contrib.onednn.ir.node import CONSTANT, FIELD, INPUT, NATIVE, TUPLE, Node, Origin
from tvm.contrib.onednn.ir.op_view import Tensor, Value
from tvm.contrib.onednn.ops.recurrent import GATES
from tvm.contrib.onednn.rewrites.attention_ops import ATTENTION, attention_ops

from .reading import ExprDict, constant_of, elements, op_name
from .recurrent_tir import call_layer
from .write_ops import written

REDUCED = ("bfloat16", "float16")


class Body:
    """The bindings of a function that is being written.

    Parameters
    ----------
    builder : relax.BlockBuilder
        Infers the types of expressions, and has the module.
    known : dict[Node, relax.Expr]
        What nodes from outside are known by.
    is_closed : bool
        Whether nothing but `known` may be read from outside, constants neither.
    offloaded : Collection[Node]
        What is in partitions.
    variable : type
        The class of the variables: `relax.Var` outside of dataflow blocks.
    """

    def __init__(
        self,
        builder: relax.BlockBuilder,
        known: dict[Node, relax.Expr] | None = None,
        is_closed: bool = False,
        offloaded: Collection[Node] = (),
        variable: type = relax.DataflowVar,
    ):
        self._builder, self._is_closed = builder, is_closed
        self._offloaded, self._variable = offloaded, variable
        self.known: dict[Node, relax.Expr] = known or {}
        self.bindings: list[relax.Binding] = []

    def emit(self, value: relax.Expr, name: str = "lv") -> relax.Expr:
        """Bind an expression to a variable of its own."""
        value = self._builder.normalize(value)
        return self.bind(value, name, value.ty)

    def bind(self, value: relax.Expr, name: str, type_) -> relax.Expr:
        """Bind an expression of a known type to a variable of its own."""
        var = self._variable(name, type_)
        self.bindings.append(relax.VarBinding(var, value))
        return var

    def read(self, node: Node) -> relax.Expr:
        """Return what a node is known by; write it if it is not known yet."""
        node = node.current
        if node not in self.known:
            if node.kind == CONSTANT:
                self.known[node] = constant_from(node)
            elif node.kind == TUPLE:
                return relax.Tuple([self.read(operand) for operand in node.operands])
            elif self._is_closed and node.kind in (INPUT, NATIVE):
                raise ValueError(f"it reads {name_of(node)}, which is no operand of its kernel")
            elif node.kind == NATIVE and node.origin.native.binding is None:
                return node.origin.native.value
            else:
                self.known[node] = self.emit(self.value(node), name_of(node))
        return self.known[node]

    def value(self, node: Node) -> relax.Expr:
        """Return the expression that computes a node, of what its operands are known by."""
        native = self._native(node)
        if native is not None:
            return native
        if node.kind == FIELD:
            return relax.TupleGetItem(self.read(node.operands[0]), node.attrs.index)
        if node.kind == TUPLE:
            return relax.Tuple([self.read(operand) for operand in node.operands])
        if node.name in GATES and (self._is_closed or node.expansion is None):
            operands = [self.read(operand) for operand in node.operands]
            return call_layer(self._builder, node.name, operands, vars(node.attrs))
        if node.name == ATTENTION:
            inputs, result = attention_ops(node)
            self.known.update(zip(inputs, map(self.read, node.operands)))
            return self.value(result)
        if node.expansion is not None:
            return self._expanded(node)
        value = None if node.template is None else self._of_template(node)
        if value is None:
            value = written(node, [self.read(operand) for operand in node.operands], self.emit)
        if getattr(node.type, "dtype", None) not in REDUCED:
            return value
        try:
            return self._builder.normalize(value)
        # TVM infers the types of some ops, such as normalizations, for its "float" types only.
        except Exception:  # pylint: disable=broad-except
            return self._in_float32(node)

    def _in_float32(self, node: Node) -> relax.Expr:
        """Return an op of reduced precision as one of float32 between casts."""
        operands = [self.read(operand) for operand in node.operands]
        for k, operand in enumerate(node.operands):
            if getattr(operand.type, "dtype", None) in REDUCED:
                operands[k] = self.emit(relax.op.astype(operands[k], "float32"))
        value = self.emit(written(node, operands, self.emit))
        return relax.op.astype(value, node.type.dtype)

    def _native(self, node: Node) -> relax.Expr | None:
        """Return the expression that a node was read from, of what it reads now, if it is whole."""
        origin = node.origin
        if origin is None or node is not origin.nodes[-1]:
            return None
        if node.kind != NATIVE and isinstance(origin.native.binding, relax.MatchCast):
            # Bound, it has its type; the value alone has another.
            return None
        if len(origin.nodes) > 1 and not self.is_whole(origin):
            return None
        return self._substituted(origin, origin.operands)

    def is_whole(self, origin: Origin) -> bool:
        """Whether an expression that was read as several nodes may be written as it was."""
        if self._is_closed or not origin.is_intact:
            return False
        return not any(node in self._offloaded for node in origin.nodes)

    def _of_template(self, node: Node) -> relax.Expr | None:
        """Return the expression that the template of a node was read from, of other operands."""
        template = node.template
        new = dict(zip((o.current for o in _tensors(template)), _tensors(node)))
        # The template may have read operands that have been replaced since, before it went.
        new.update(zip(_tensors(template), _tensors(node)))
        origin = template.origin
        # A function of TIR has the types of its arguments in it.
        if op_name(origin.native.value) == "relax.call_tir" and _types(node) != _types(template):
            return None
        operands = [new.get(leaf, new.get(leaf.current)) for leaf in origin.operands]
        if None in operands or len(set(operands)) < len(set(_tensors(node))):
            return None
        expr = self._substituted(origin, operands)
        if isinstance(expr, relax.Call) and not _is_same_static(node.type, template.type):
            return relax.Call(expr.op, expr.args, expr.attrs, expr.ty_args)
        # TVM need not infer the type, which takes long for convolutions.
        return expr

    def _substituted(self, origin: Origin, operands: list[Node]) -> relax.Expr | None:
        if self._is_closed and not all(self._is_there(operand) for operand in operands):
            return None
        inside = ExprDict(zip(origin.native.leaves, map(self.read, operands)))
        return substituted(origin.native.value, inside)

    def _is_there(self, node: Node) -> bool:
        node = node.current
        if node.kind == TUPLE and node not in self.known:
            return all(map(self._is_there, node.operands))
        return node in self.known

    def _expanded(self, node: Node) -> relax.Expr:
        """Write the ops that a node stands for; in float32, if those are of another type."""
        before, inner = dict(self.known), node.expansion
        is_same_op = inner.name == node.name and len(inner.operands) == len(node.operands)
        if not is_same_op or inner.type.dtype == node.type.dtype:
            return self.value(inner)
        for old, new in zip(inner.operands, node.operands):
            self.known[old.current] = self.emit(relax.op.astype(self.read(new), old.type.dtype))
            self.known[old] = self.known[old.current]
        value = self.emit(self.value(inner))
        self.known = before
        return relax.op.astype(value, node.type.dtype)


def _types(node: Node) -> list[tuple]:
    """Return the shapes and data types of the tensors that a node reads and computes."""
    values = [*(each.type for each in _tensors(node)), *node.results]
    return [(each.dims, each.dtype) for each in values]


def _is_same_static(type_: Value, other: Value) -> bool:
    """Whether two types are tensors of one dtype and shape without open dimensions."""
    if not isinstance(type_, Tensor) or not isinstance(other, Tensor):
        return False
    return (type_.shape, type_.dtype) == (other.shape, other.dtype) and None not in type_.shape


def _tensors(node: Node) -> list[Node]:
    """Return the operands of a node, those in tuples one by one."""
    return [
        tensor
        for operand in node.operands
        for tensor in (operand.operands if operand.kind == TUPLE else [operand])
    ]


def name_of(node: Node) -> str:
    """Return what a node was called where it was read."""
    binding = node.origin.native.binding if node.origin is not None else None
    return "lv" if binding is None else binding.var.name


def constant_from(node: Node) -> relax.Expr:
    """Return the constant of a node."""
    if node.origin is not None:
        return node.origin.native.value
    return constant_of(node.value, node.type.dtype)


def substituted(expr, inside: ExprDict):
    """Return an expression of what its operands have become."""
    if expr in inside:
        return inside[expr]
    if isinstance(expr, relax.Call):
        args = [substituted(arg, inside) for arg in elements(expr.args)]
        op = inside.get(expr.op, expr.op)
        return relax.Call(op, args, expr.attrs, expr.ty_args, ret_ty=expr.ty)
    if isinstance(expr, relax.Tuple):
        return relax.Tuple([substituted(field, inside) for field in expr.fields])
    if isinstance(expr, relax.TupleGetItem):
        return relax.TupleGetItem(substituted(expr.tuple_value, inside), expr.index)
    return expr
