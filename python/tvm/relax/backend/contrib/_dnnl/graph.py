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
"""A function of Relax as fusion, regions and formulas see it: a graph of numbers."""

from __future__ import annotations

import math
from collections.abc import Collection

import numpy as np
import tvm_ffi
from tvm import relax
from tvm.contrib.onednn.policy.graph import Graph, users_of
from tvm.contrib.onednn.policy.op_spec import EXCLUDED
from tvm.contrib.onednn.policy.op_view import NoTensor, OpView, Tensor, Value

from .ops import ROWS
from .read_op import ReadOp
from .reading import (
    Unread,
    constant_of,
    dims,
    is_choice,
    is_constant,
    op_name,
    short_name,
    sizes,
    value_of,
)

# The names of operands in messages, where the op has names for them.
_ARG_NAMES = {
    **{f"nn.conv{n}d{kind}": ("data", "weight") for n in (1, 2, 3) for kind in ("", "_transpose")},
    "nn.matmul": ("data", "weight"),
    "nn.batch_matmul": ("x", "y"),
    "nn.layer_norm": ("data", "gamma", "beta"),
}
_BINARY = ("lhs", "rhs")


class RelaxGraph(Graph):
    """The bindings of a function, and what they read, numbered so that operands come first.

    Parameters
    ----------
    func : relax.Function
        A function in A-normal form.
    excluded : Collection[str]
        Ops of Relax, without "relax.", that are not read.

    Attributes
    ----------
    nodes : list
        The value of each binding; or a parameter, a constant or a tuple that one reads.
    bindings : list[relax.Binding | None]
        The binding of each value; None for what has none.
    reasons : dict[int, str]
        Why a call of an op that the table may have could not be read.
    """

    def __init__(self, func: relax.Function, excluded: Collection[str] = ()):
        self._excluded = excluded
        self.nodes, self.operands, self.scope = [], [], []
        self.bindings, self.ops, self.views = [], [], []
        self.reasons: dict[int, str] = {}
        self.read: dict[int, ReadOp] = {}
        self.groups: dict[int, list[int]] = {}
        self._numbers: dict = {}
        for param in func.params:
            self._add(param, [], 0)
        for scope, block in enumerate(func.body.blocks):
            is_pure = isinstance(block, relax.DataflowBlock)
            for binding in block.bindings:
                number = self._add_value(binding, scope if is_pure else -1 - len(self.nodes))
                self._numbers[binding.var] = number
        self._add(func.body.body, self._leaves(func.body.body), -1)
        self.users = users_of(self.operands)
        for i, view in enumerate(self.views):
            # A partition returns tensors, no tuple that is read as a whole.
            if view is not None and view.returns_tuple:
                if any(self.field(user) is None for user in self.users[i]):
                    self._leave(i, "the results are read as one tuple")

    def _add(self, node, operands, scope, binding=None, view: OpView | None = None) -> int:
        number = len(self.nodes)
        self.nodes.append(node)
        self.operands.append(operands)
        self.scope.append(scope)
        self.bindings.append(binding)
        self.ops.append(view.name if view else self._other_name(node))
        self.views.append(view)
        if not operands:
            self._numbers[node] = number
        return number

    def add_constant(self, values: np.ndarray, dtype: str) -> int:
        """Return the number of a constant that formulas are read with."""
        self.users.append([])
        return self._add(constant_of(values, dtype), [], 0)

    def _leave(self, i: int, reason: str) -> None:
        """Let a call be one that is not read."""
        self.ops[i], self.views[i] = self._other_name(self.nodes[i]), None
        self.reasons[i] = reason

    def _add_value(self, binding: relax.Binding, scope: int) -> int:
        value = binding.value
        if not isinstance(binding, relax.VarBinding):
            return self._add(value, self._leaves(value), -1 - len(self.nodes), binding)
        if isinstance(value, relax.Tuple):
            operands = [self._operand(field, scope) for field in value.fields]
            return self._add(value, operands, scope, binding)
        if op_name(value) not in ROWS:
            return self._add(value, self._leaves(value), scope, binding)
        try:
            if short_name(value) in self._excluded:
                raise Unread(EXCLUDED)
            read = ROWS[op_name(value)](value)
            view = view_of(value, read)
            operands = [self._operand(expr, scope) for expr in read.operands]
            for tensors, operand in zip(view.args, operands):
                if isinstance(tensors, tuple) and not self.is_tuple(operand):
                    raise Unread("the tensors are given as the result of another call")
        except Unread as error:
            number = self._add(value, self._leaves(value), scope, binding)
            self.reasons[number] = str(error)
            return number
        number = self._add(value, operands, scope, binding, view)
        self.read[number] = read
        return number

    def _operand(self, expr, scope: int) -> int:
        if isinstance(expr, relax.Tuple):
            return self._add(expr, [self._operand(field, scope) for field in expr.fields], scope)
        if expr not in self._numbers:
            # A constant, or what is no tensor.
            return self._add(expr, [], scope)
        return self._numbers[expr]

    def _leaves(self, value) -> list[int]:
        """Return what an expression of any kind reads; for a call, its tensors in order."""
        if op_name(value) is not None:
            args = [arg for arg in value.args if isinstance(arg, relax.Var) or is_constant(arg)]
            if not any(isinstance(arg, relax.Tuple) for arg in value.args):
                return [self._operand(arg, 0) for arg in args]
        if isinstance(value, relax.TupleGetItem):
            return [self._operand(value.tuple_value, 0)]
        read = (self._numbers.get(var) for var in relax.analysis.all_vars(value))
        return list(dict.fromkeys(number for number in read if number is not None))

    @staticmethod
    def _other_name(node) -> str | None:
        """Return the name of an op that has no row, as formulas call it."""
        name = op_name(node)
        return name if name in ROWS else short_name(node)

    def with_groups(self, groups: dict[int, tuple[list[int], ReadOp]]) -> RelaxGraph:
        """Return this graph with some groups of expressions as one call each, of a virtual op.

        Parameters
        ----------
        groups : dict[int, tuple[list[int], ReadOp]]
            By number of the last: the whole group, and what it is read as, its operands by number.
        """
        graph = self.contracted(group for group, _ in groups.values())
        graph.ops, graph.views = list(self.ops), list(self.views)
        graph.read, graph.groups = dict(self.read), {**self.groups}
        for i, (group, read) in groups.items():
            graph.operands[i] = list(read.operands)
            graph.ops[i], graph.read[i] = read.name, read
            graph.views[i] = self.view(i, read)
            graph.groups[i] = group
            for k in group[:-1]:
                # A result that is read outside as well stays a call of its own.
                if not graph.operands[k]:
                    graph.ops[k] = graph.views[k] = None
        graph.users = users_of(graph.operands)
        return graph

    def view(self, i: int, read: ReadOp) -> OpView:
        """Return the view of an op that computes what expression `i` does."""
        args = [self.result(operand) for operand in read.operands]
        return OpView(read.name, args, (self.result(i),), read.namespace)

    def members(self, i: int) -> list[int]:
        """Return the expressions that a number stands for."""
        return self.groups.get(i, [i])

    def calls(self, i: int) -> list[OpView]:
        """Return the calls of ops that an expression stands for."""
        return [] if self.views[i] is None else [self.views[i]]

    def result(self, i: int) -> Value:
        """Return what an expression of any kind computes."""
        return value_from(self._typed(i))

    def _typed(self, i: int):
        """Return what has the type of an expression: of a match_cast, its variable."""
        binding = self.bindings[i]
        return binding.var if isinstance(binding, relax.MatchCast) else self.nodes[i]

    def is_same_size(self, i: int, other: int, axis: int) -> bool:
        """Whether two sizes are the same expression: Relax keeps them in their simplest form."""
        left, right = (dims(self._typed(k))[axis] for k in (i, other))
        return tvm_ffi.structural_equal(left, right)

    def is_fixed(self, i: int) -> bool:
        """Whether an expression is a constant: no input of a partition."""
        return is_constant(self.nodes[i])

    def is_tuple(self, i: int) -> bool:
        """Whether an expression makes a tuple of its operands."""
        return isinstance(self.nodes[i], relax.Tuple)

    def field(self, i: int) -> int | None:
        """Return which field of a tuple an expression is; None if it is none."""
        node = self.nodes[i]
        return int(node.index) if isinstance(node, relax.TupleGetItem) else None

    def scalar(self, i: int) -> float | None:
        """Return the value of a constant of one finite real number, else None."""
        node = self.nodes[i]
        if not is_constant(node) or math.prod(sizes(node.ty)) != 1:
            return None
        value = value_of(node)
        if value.dtype.kind != "f" and str(value.dtype) != "bfloat16":
            return None
        number = float(value.reshape(()))
        return number if math.isfinite(number) else None


def substituted(expr, inside: dict):
    """Return an expression of what its operands have become."""
    if isinstance(expr, relax.Tuple):
        return relax.Tuple([substituted(field, inside) for field in expr.fields])
    if isinstance(expr, relax.TupleGetItem):
        return relax.TupleGetItem(substituted(expr.tuple_value, inside), expr.index)
    if isinstance(expr, relax.Call):
        args = [substituted(arg, inside) for arg in expr.args]
        return relax.Call(expr.op, args, expr.attrs, expr.ty_args, ret_ty=expr.ty)
    return inside[expr] if expr in inside else expr


def view_of(call: relax.Call, read: ReadOp) -> OpView:
    """Return a call as rules see it. Raise Unread where the shape of a tensor is not known."""
    names = _ARG_NAMES.get(read.name, _BINARY if len(read.operands) == 2 else ("data",))
    is_tuple = isinstance(call.ty, relax.TupleType)
    args, results = [value_from(expr) for expr in read.operands], value_from(call)
    results = results if is_tuple else (results,)
    for value in (*args, *results):
        for tensor in value if isinstance(value, tuple) else (value,):
            if isinstance(tensor, NoTensor):
                raise Unread(f"one of its tensors is {tensor.kind}")
    return OpView(
        read.name,
        args,
        results,
        read.namespace,
        names if len(names) == len(read.operands) else None,
        is_tuple,
    )


def value_from(expr) -> Value:
    """Return a tensor, or tensors, as rules see them."""
    if isinstance(expr, relax.Tuple):
        return tuple(value_from(field) for field in expr.fields)
    return _of_type(expr.ty, expr)


def _of_type(type_, expr=None) -> Value:
    if isinstance(type_, relax.TupleType):
        return tuple(_of_type(field) for field in type_.fields)
    if not isinstance(type_, relax.TensorType):
        return NoTensor(f"of {type(type_).__name__}")
    shape = sizes(type_)
    if shape is not None and any(map(is_choice, type_.shape.values)):
        return NoTensor("of one of two sizes, whose type TVM cannot copy")
    if shape is None or type_.dtype is None:
        return NoTensor("of unknown type" if type_.dtype is None else "of unknown shape")
    value = (lambda: value_of(expr)) if expr is not None and is_constant(expr) else None
    return Tensor(shape, str(type_.dtype), value)
