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
"""Reads a function of Relax as a graph of nodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import tvm
from tvm import relax
from tvm.contrib.onednn.ir.graph import Graph
from tvm.contrib.onednn.ir.node import CALL, CONSTANT, FIELD, INPUT, NATIVE, TUPLE, Node, Origin
from tvm.contrib.onednn.ir.numpy_types import UndefinedResult
from tvm.contrib.onednn.ir.op_view import NoTensor, Tensor, Value
from tvm.contrib.onednn.ops.evaluate import evaluate
from tvm.contrib.onednn.ops.rules import EXCLUDED
from tvm.contrib.onednn.ops.table import TABLE
from tvm.contrib.onednn.ops.tensors import MOST_FILLED

from .ops import ROWS
from .read_op import attributes
from .reading import (
    ExprDict,
    UnsupportedOp,
    constant_of,
    elements,
    is_constant,
    number,
    op_name,
    short_name,
    sizes,
)
from .tir_ops import read_tir
from .types import value_from

# The names of operands in messages, where the op has names for them.
_ARG_NAMES = {
    **{f"nn.conv{n}d{kind}": ("data", "weight") for n in (1, 2, 3) for kind in ("", "_transpose")},
    "nn.matmul": ("data", "weight"),
    "nn.batch_matmul": ("x", "y"),
    "nn.layer_norm": ("data", "gamma", "beta"),
    "where": ("condition", "x", "y"),
}
_BINARY = ("lhs", "rhs")


# Expressions with bindings of their own, which are not looked into.
_INSIDE = {relax.If: "in a branch of an if", relax.Function: "in a function inside another"}


class Native(NamedTuple):
    """What a node was read from.

    Parameters
    ----------
    value : relax.Expr
        The expression.
    leaves : list[relax.Expr]
        The variables and constants that it reads, in the order of `Origin.operands`.
    binding : relax.Binding | None
        What binds it to a variable, if something does.
    """

    value: relax.Expr
    leaves: list[relax.Expr]
    binding: relax.Binding | None = None


class RelaxGraph(Graph):
    """The graph of a function, with what its writer must know of it.

    Parameters
    ----------
    mod : tvm.IRModule
        The module, for the functions of TIR that are called.
    func : relax.Function
        A function in A-normal form.
    excluded : Collection[str]
        Ops of Relax, without "relax.", that are not read.

    Attributes
    ----------
    blocks : list[tuple[bool, list[int]]]
        The blocks of bindings: whether each is one of data flow, and the scopes in it, in order.
    unreadable : list[tuple[str, Exception]]
        The ops whose row raised, with what it raised.
    """

    def __init__(self, mod: tvm.IRModule, func: relax.Function, excluded: Collection[str] = ()):
        super().__init__()
        self.func, self.blocks = func, []
        self.unreadable: list[tuple[str, Exception]] = []
        self._mod, self._excluded = mod, excluded
        self._nodes = ExprDict()
        for param in func.params:
            node = Node(INPUT, None, [], value_from(param), None, 0)
            node.is_pinned = True
            self._nodes[param] = self.append(node, Origin(Native(param, [])))
        scope = 0
        for block in func.body.blocks:
            is_dataflow, scopes = isinstance(block, relax.DataflowBlock), []
            scope += is_dataflow
            for binding in block.bindings:
                scope += not is_dataflow
                self._nodes[binding.var] = self._bind(binding, scope, is_dataflow)
                scopes += [] if scope in scopes else [scope]
            self.blocks.append((is_dataflow, scopes))
        self._native(func.body.body, scope + 1)
        for node in self.nodes:
            # A partition returns tensors, no tuple that is read as a whole.
            if node.is_call and node.returns_tuple and any(u.kind != FIELD for u in node.users):
                self._leave(node, "the results are read as one tuple")

    def title(self, node: Node) -> str:
        """Return what Relax calls an op, or an input."""
        native = node.origin.native.value if node.origin is not None else None
        if isinstance(native, relax.Var):
            return native.name
        name = (
            short_name(native)
            if len(node.origin.nodes if native is not None else "") == 1
            else None
        )
        if name is not None and name != "call_tir":
            return name
        if node.name is None:
            return getattr(getattr(native, "op", None), "name_hint", type(native).__name__.lower())
        return name_in_relax(node.name)

    def closed_ops(self, node: Node) -> tuple[str, list[str], str] | None:
        """Return the title of an expression that is not looked into, the ops in it, and why."""
        value = node.origin.native.value
        if type(value) not in _INSIDE:
            return None
        return type(value).__name__.lower(), ops_of(value), _INSIDE[type(value)]

    def _bind(self, binding: relax.Binding, scope: int, is_dataflow: bool) -> Node:
        value = binding.value
        if not isinstance(binding, relax.VarBinding):
            # A MatchCast makes symbols known, which others read without reading it.
            return self._native(value, scope, binding, is_pinned=True)
        if not isinstance(value, relax.Call):
            if isinstance(value, relax.Var):
                return self._nodes[value]
            if is_constant(value):
                return self._operand(value, scope)
            if isinstance(value, (relax.Tuple, relax.TupleGetItem)):
                return self._structure(value, scope, binding)
        elif op_name(value) is not None:
            known = known_value(value)
            if known is not None:
                return self._operand(constant_of(known, str(value.ty.dtype)), scope)
            node = self._call(value, scope, binding)
            node.is_pinned = not is_dataflow and not node.is_call
            return node
        return self._native(value, scope, binding, is_pinned=not is_dataflow)

    def _structure(self, value, scope: int, binding=None) -> Node:
        """Read a tuple, or a field of one."""
        if isinstance(value, relax.Tuple):
            node = Node(TUPLE, None, self._operands(value.fields, scope), value_from(value))
        else:
            attrs = SimpleNamespace(index=int(value.index))
            of = self._operand(value.tuple_value, scope)
            if of.kind == TUPLE:
                return of.operands[attrs.index]
            node = Node(FIELD, None, [of], value_from(value), attrs)
        node.scope = scope
        return self._read_from(node, value, binding)

    def _call(self, call: relax.Call, scope: int, binding: relax.Binding) -> Node:
        name, given = op_name(call), call
        given_args = elements(call.args)
        args = [self._constant_or(arg) for arg in given_args]
        if any(new is not arg for new, arg in zip(args, given_args)):
            call = relax.Call(call.op, args, call.attrs, call.ty_args, ret_ty=call.ty)
        try:
            if short_name(call) in self._excluded:
                raise UnsupportedOp(EXCLUDED)
            if name == "relax.call_tir":
                read = read_tir(self._mod, call, self._excluded)
            elif name in ROWS:
                read = ROWS[name](call)
            else:
                raise UnsupportedOp("no rule for this op")
            operands = self._operands(read.operands, scope)
            type_ = value_from(call)
            _check_types(operands, type_)
        except UnsupportedOp as error:
            node = self._unsupported(call, scope, error)
        # A row that cannot cope with a call costs that call alone.
        except Exception as error:  # pylint: disable=broad-except
            self.unreadable.append((short_name(call), error))
            node = self._unsupported(call, scope, UnsupportedOp(f"reading it failed: {error}"))
        else:
            attrs = SimpleNamespace(**read.attrs)
            node = Node(CALL, read.name, operands, type_, attrs, scope)
            names = _ARG_NAMES.get(read.name, _BINARY if len(operands) == 2 else ("data",))
            node.arg_names = names if len(names) == len(operands) else ()
        return self._read_from(node, given, binding, given_args)

    def _constant_or(self, arg: relax.Expr) -> relax.Expr:
        """Return the constant that a variable is known to be, or the argument."""
        node = self._nodes.get(arg)
        return node.origin.native.value if node is not None and node.is_constant else arg

    def _unsupported(self, call: relax.Call, scope: int, error: UnsupportedOp) -> Node:
        """Read a call that has no counterpart in the table, under its own name."""
        name = op_name(call) if op_name(call) in ROWS else short_name(call)
        args = [
            self._operand(arg, scope)
            for arg in call.args
            if isinstance(arg, (relax.Var, relax.Tuple)) or is_constant(arg)
        ]
        attrs = getattr(error, "attrs", None)
        attrs = SimpleNamespace(**attrs) if attrs is not None else lambda: attributes(call)
        node = Node(CALL, name, args, value_from(call), attrs, scope)
        node.unsupported = str(error)
        return node

    def _leave(self, node: Node, reason: str) -> None:
        """Let a call be one that has no counterpart in the table."""
        name = op_name(node.origin.native.value)
        node.name = name if name in ROWS else name.removeprefix("relax.")
        node.unsupported = reason

    def _native(self, value, scope: int, binding=None, is_pinned: bool = False) -> Node:
        """Read an expression that is no call of an op."""
        typed = binding.var if isinstance(binding, relax.MatchCast) else value
        operands = [
            self._nodes[var] for var in relax.analysis.free_vars(value) if var in self._nodes
        ]
        node = Node(NATIVE, None, operands, value_from(typed), None, scope)
        node.is_pinned = is_pinned
        return self._read_from(node, value, binding)

    def _read_from(self, node: Node, value, binding, args=None) -> Node:
        # To iterate over an array of TVM takes long: arguments that are known are passed.
        parts = [value] if args is None else args
        leaves = [leaf for part in parts for leaf in _leaves(part) if leaf in self._nodes]
        operands = [self._nodes[leaf] for leaf in leaves]
        return self.append(node, Origin(Native(value, leaves, binding), operands))

    def _operands(self, exprs, scope: int) -> list[Node]:
        return [self._operand(expr, scope) for expr in exprs]

    def _operand(self, expr, scope: int) -> Node:
        """Return the node of an argument, which is a variable, a constant, or of such."""
        if isinstance(expr, (relax.Tuple, relax.TupleGetItem)):
            return self._structure(expr, scope)
        if expr not in self._nodes:
            type_ = value_from(expr)
            kind = CONSTANT if isinstance(type_, Tensor) and type_.is_constant else NATIVE
            node = Node(kind, None, [], type_, None, 0 if kind == CONSTANT else scope)
            self._nodes[expr] = self.append(node, Origin(Native(expr, [])))
        return self._nodes[expr]


def ops_of(expr: relax.Expr) -> list[str]:
    """Return the ops of a function, those in functions inside it included, or of an if."""
    names: list[str] = []

    def visit(each):
        if short_name(each) is not None:
            names.append(short_name(each))

    relax.analysis.post_order_visit(expr, visit)
    return names


def name_in_relax(name: str) -> str:
    """Return the op of Relax, without "relax.", that one of the table is written as."""
    if name not in TABLE:
        return name.removeprefix("relax.")
    return _NAMES.get(name) or next(iter(TABLE[name].relax_ops), name)


# Where the first op that is read as one of the table is not the one that it is written as.
_NAMES = {"nn.leaky_relu": "nn.leakyrelu", "image.resize1d": "image.resize1d"}


def _leaves(value) -> Iterator[relax.Expr]:
    """Yield the variables and constants that an expression reads."""
    if isinstance(value, relax.Var) or is_constant(value):
        yield value
    elif isinstance(value, relax.Call):
        if not isinstance(value.op, tvm.ir.Op) and isinstance(value.op, relax.Var):
            yield value.op
        for arg in elements(value.args):
            yield from _leaves(arg)
    elif isinstance(value, relax.Tuple):
        for field in value.fields:
            yield from _leaves(field)
    elif isinstance(value, relax.TupleGetItem):
        yield from _leaves(value.tuple_value)
    else:
        yield from relax.analysis.free_vars(value)


# Ops whose values `known_value` returns.
_FILLED = {f"relax.{name}{like}" for name in ("zeros", "ones") for like in ("", "_like")}
_KNOWN = {*_FILLED, "relax.arange", "relax.shape_to_tensor"}


def known_value(call: relax.Call) -> np.ndarray | None:
    """Return the value of a call that depends on shapes alone, such as a range."""
    name = op_name(call)
    if name not in _KNOWN or not isinstance(call.ty, relax.TensorType):
        return None
    shape = sizes(call.ty)
    if shape is None or None in shape or math.prod(shape) > MOST_FILLED:
        return None
    if name in _FILLED:
        return np.full(shape, float(name.startswith("relax.ones")))
    if name == "relax.arange":
        ends = [number(arg) for arg in call.args]
        return None if None in ends else np.arange(*ends)
    if name == "relax.shape_to_tensor":
        dims = call.args[0].ty.values
        known = [None] if dims is None else [number(dim) for dim in dims]
        return None if None in known else np.array(known)
    return None


def constant_results(build: Callable[[relax.BlockBuilder], relax.Expr]) -> list | None:
    """Return the values of what a function without parameters returns, one for each field.

    Parameters
    ----------
    build : Callable
        Emits the function's ops by a builder, and returns what it returns.

    Returns
    -------
    values : list[numpy.ndarray] | None
        None if an op has no numpy definition, or no result for these values.
    """
    builder = relax.BlockBuilder()
    with builder.function("main", []):
        with builder.dataflow():
            result = builder.emit_output(build(builder))
        builder.emit_func_output(result)
    mod = builder.get()
    try:
        (value,) = evaluate(RelaxGraph(mod, mod["main"]), [])
    except (ValueError, UndefinedResult):
        return None
    return value if isinstance(value, list) else [value]


def _check_types(operands: list[Node], type_: Value) -> None:
    """Raise UnsupportedOp where a tensor's shape is not known."""
    for operand in operands:
        if isinstance(operand.type, tuple) and operand.kind != TUPLE:
            raise UnsupportedOp("the tuple of tensors is the result of another call")
    for value in (*(operand.type for operand in operands), type_):
        for tensor in value if isinstance(value, tuple) else (value,):
            if isinstance(tensor, NoTensor):
                raise UnsupportedOp(f"one of its tensors is {tensor.kind}")
