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
"""A Relay function as a graph of numbers, to be read and rebuilt without recursion.

A call into TVM costs microseconds, reading one argument takes several, and even hashing an
expression takes one. So a function is read once, into a graph of plain numbers.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import NamedTuple

import tvm
from tvm import ir, relay
from tvm.contrib.onednn.ops.tensors import COMPILER
from tvm.contrib.onednn.report.record import Record
from tvm.relay import expr as relay_expr
from tvm.relay import function as relay_function
from tvm.relay.analysis import post_order_visit

from .relay_view import callee_name, op_name

# Functions with one of these attributes are single units to whoever made them.
OPAQUE = ("Composite", "Compiler", "Primitive", "Extern")

# Marks what TVM is to compute by itself; it is no op of the model.
STOP_FUSION = "annotation.stop_fusion"


def has_attr(func: relay.Function, key: str) -> bool:
    """Whether a function has an attribute."""
    return func.attrs is not None and key in func.attrs


def is_opaque(expr) -> bool:
    """Whether `expr` is a function that is not to be looked into."""
    return isinstance(expr, relay.Function) and any(has_attr(expr, key) for key in OPAQUE)


def why_opaque(func: relay.Function) -> str:
    """Say why the ops of a function that is not to be looked into stay on TVM."""
    if has_attr(func, "Compiler"):
        return f"left to the compiler '{func.attrs['Compiler']}'"
    return f"in a function marked '{next(key for key in OPAQUE if has_attr(func, key))}'"


def is_composite(expr: relay.Expr) -> bool:
    """Whether `expr` calls a composite of oneDNN."""
    return (callee_name(expr) or "").startswith(f"{COMPILER}.")


def is_partition(func) -> bool:
    """Whether a function of a module is a partition of oneDNN."""
    return (
        isinstance(func, relay.Function)
        and has_attr(func, "Compiler")
        and str(func.attrs["Compiler"]) == COMPILER
    )


def edges(expr: relay.Expr) -> list[tuple[relay.Expr, bool]]:
    """Return the operands of an expression in the order of evaluation.

    The function that a call calls is one of them unless it stands for an op.

    Returns
    -------
    operands : list[tuple[relay.Expr, bool]]
        Each operand, and whether it is evaluated only when control gets there, perhaps with
        variables that are bound nowhere else: a branch, or the body of a function or a let.
    """
    if isinstance(expr, relay.Call):
        callee = [] if isinstance(expr.op, ir.Op) or is_opaque(expr.op) else [(expr.op, False)]
        return callee + [(arg, False) for arg in expr.args]
    if isinstance(expr, relay.Tuple):
        return [(field, False) for field in expr.fields]
    if isinstance(expr, relay.TupleGetItem):
        return [(expr.tuple_value, False)]
    if isinstance(expr, relay.Let):
        return [(expr.value, False), (expr.body, True)]
    if isinstance(expr, relay.If):
        return [(expr.cond, False), (expr.true_branch, True), (expr.false_branch, True)]
    if isinstance(expr, relay.Function):
        return [] if is_opaque(expr) else [(expr.body, True)]
    if isinstance(expr, relay.Match):
        return [(expr.data, False)] + [(clause.rhs, True) for clause in expr.clauses]
    if isinstance(expr, relay.RefCreate):
        return [(expr.value, False)]
    if isinstance(expr, relay.RefRead):
        return [(expr.ref, False)]
    if isinstance(expr, relay.RefWrite):
        return [(expr.ref, False), (expr.value, False)]
    return []


def with_operands(expr: relay.Expr, new: list[relay.Expr]) -> relay.Expr:
    """Return `expr` with other operands, given in the order of `edges`."""
    if isinstance(expr, relay.Call):
        args = new[len(new) - len(expr.args) :]
        callee = new[0] if len(new) > len(args) else expr.op
        return relay_expr.CallWithFields(expr, callee, args)
    if isinstance(expr, relay.Tuple):
        return relay_expr.TupleWithFields(expr, new)
    if isinstance(expr, relay.TupleGetItem):
        return relay_expr.TupleGetItemWithFields(expr, new[0])
    if isinstance(expr, relay.Let):
        return relay_expr.LetWithFields(expr, expr.var, *new)
    if isinstance(expr, relay.If):
        return relay_expr.IfWithFields(expr, *new)
    if isinstance(expr, relay.Function):
        return relay_function.FunctionWithFields(expr, list(expr.params), new[0])
    if isinstance(expr, relay.Match):
        clauses = [relay.Clause(clause.lhs, rhs) for clause, rhs in zip(expr.clauses, new[1:])]
        return relay.Match(new[0], clauses, expr.complete)
    if isinstance(expr, relay.RefCreate):
        return relay_expr.RefCreateWithFields(expr, *new)
    if isinstance(expr, relay.RefRead):
        return relay_expr.RefReadWithFields(expr, *new)
    return relay_expr.RefWriteWithFields(expr, *new)


def with_attrs(call: relay.Call, args: Sequence[relay.Expr], **changes) -> relay.Call:
    """Return a call of a function of `relay.nn` with other arguments and some other attributes."""
    make = getattr(relay.nn, op_name(call).split(".")[1])
    names = inspect.signature(make).parameters
    attrs = {str(name): call.attrs[name] for name in call.attrs.keys() if str(name) in names}
    return make(*args, **{**attrs, **changes})


def inlined(call: relay.Call) -> relay.Expr:
    """Return what the call of a composite computes, without the composite."""
    return relay.bind(call.op.body, dict(zip(call.op.params, call.args)))


def op_calls(root: relay.Expr) -> list[relay.Call]:
    """Return all calls of Relay ops in an expression, those in closures and composites too."""
    calls: list[relay.Call] = []

    def visit(expr):
        if op_name(expr):
            calls.append(expr)

    post_order_visit(root, visit)
    return calls


class DataflowGraph:
    """An expression and all that it is computed from, numbered so that operands come first.

    Parameters
    ----------
    root : relay.Expr
        The expression; it gets the last number.

    Attributes
    ----------
    nodes : list[relay.Expr]
        The expressions by number.
    operands : list[list[int]]
        What each is computed from, in the order of `edges`.
    scope : list[int]
        When each is evaluated, see `tvm.contrib.onednn.ir.graph.Graph`: 0 is the root's. What
        several scopes share is in the innermost that holds them all.
    """

    def __init__(self, root: relay.Expr):
        self.nodes: list[relay.Expr] = []
        self.operands: list[list[int]] = []
        self._inner: list[list[bool]] = []
        # Expressions are told apart by their address: the list keeps them alive.
        number: dict[int, int | None] = {root.handle.value: None}
        stack = [(root, below := edges(root), iter(below))]
        while stack:
            expr, below, rest = stack[-1]
            for operand, _ in rest:
                if operand.handle.value not in number:
                    number[operand.handle.value] = None
                    its_own = edges(operand)
                    stack.append((operand, its_own, iter(its_own)))
                    break
            else:
                stack.pop()
                number[expr.handle.value] = len(self.nodes)
                self.nodes.append(expr)
                self.operands.append([number[operand.handle.value] for operand, _ in below])
                self._inner.append([inner for _, inner in below])
        self.scope = self._scopes()

    def _scopes(self) -> list[int]:
        parent, depth = [0], [0]
        scope: list[int | None] = [None] * len(self.nodes)
        scope[-1] = 0
        for i in reversed(range(len(self.nodes))):
            for operand, inner in zip(self.operands[i], self._inner[i]):
                own = scope[i]
                if inner:
                    parent.append(own)
                    depth.append(depth[own] + 1)
                    own = len(parent) - 1
                other = own if scope[operand] is None else scope[operand]
                while own != other:
                    if depth[own] >= depth[other]:
                        own = parent[own]
                    else:
                        other = parent[other]
                scope[operand] = own
        return scope

    def rebuild(
        self,
        needs: Callable[[int], list[int]],
        build: Callable[[int, dict[int, relay.Expr]], relay.Expr],
    ) -> relay.Expr:
        """Build the root anew.

        Parameters
        ----------
        needs : Callable
            Tells what must be built before an expression.
        build : Callable
            Builds an expression; its second argument has all that was built so far.
        """
        done: dict[int, relay.Expr] = {}
        root = len(self.nodes) - 1
        stack = [root]
        while stack:
            i = stack[-1]
            missing = [] if i in done else [need for need in needs(i) if need not in done]
            if missing:
                # The last pushed is built first: keep the order of evaluation.
                stack.extend(reversed(missing))
                continue
            if i not in done:
                done[i] = build(i, done)
            stack.pop()
        return done[root]

    def replace(
        self, replacements: dict[int, tuple[list[int], Callable[..., relay.Expr]]]
    ) -> relay.Expr:
        """Build the root anew with others in the place of some expressions.

        Parameters
        ----------
        replacements : dict[int, tuple[list[int], Callable]]
            For each that is replaced: the operands of its replacement, by number, and the function
            that builds it from what these have become.

        Returns
        -------
        root : relay.Expr
            The same where nothing is replaced.
        """
        if not replacements:
            return self.nodes[-1]

        def needs(i):
            return replacements[i][0] if i in replacements else self.operands[i]

        def build(i, done):
            if i not in replacements:
                return self.remake(i, done)
            operands, build_one = replacements[i]
            return build_one(*(done[operand] for operand in operands))

        return self.rebuild(needs, build)

    def remake(self, i: int, done: dict[int, relay.Expr]) -> relay.Expr:
        """Return an expression of what its operands have become; the same if they are the same."""
        operands = [done.get(operand, self.nodes[operand]) for operand in self.operands[i]]
        if all(new is self.nodes[old] for new, old in zip(operands, self.operands[i])):
            return self.nodes[i]
        return with_operands(self.nodes[i], operands)


class TypedFunction:
    """A function of a module that has types: what each step of the pipeline gets."""

    def __init__(self, mod: tvm.IRModule, name: str):
        self.mod, self.name = mod, name
        self.func: relay.Function = mod[name]

    @functools.cached_property
    def graph(self) -> DataflowGraph:
        """The function as a graph, which is read once for all steps that change nothing."""
        return DataflowGraph(self.func)


class Rewritten(NamedTuple):
    """A function as a step of the pipeline returns it.

    Parameters
    ----------
    func : relay.Function
        The function; the same where nothing was rewritten.
    partitions : dict[relay.GlobalVar, relay.Function]
        New functions of the module.
    record : Record | None
        What was decided, for the report.
    typed : TypedFunction | None
        The function in a module with the new ones, if types are inferred already.
    """

    func: relay.Function
    partitions: dict[relay.GlobalVar, relay.Function] = {}
    record: Record | None = None
    typed: TypedFunction | None = None
