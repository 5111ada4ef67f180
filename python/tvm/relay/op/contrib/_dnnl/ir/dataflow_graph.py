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
"""Walking and rebuilding Relay expressions without recursion, whatever they are made of.

A call into TVM costs microseconds, reading one argument takes several, and even hashing an
expression takes one. So a function is read once, into a graph of plain numbers.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence

from tvm import ir, relay
from tvm.relay import expr as relay_expr
from tvm.relay import function as relay_function
from tvm.relay.analysis import post_order_visit
from tvm.relay.expr_functor import ExprMutator

from ..policy.tensors import COMPILER, op_name

# Functions with one of these attributes are single units to whoever made them.
OPAQUE = ("Composite", "Compiler", "Primitive", "Extern")


def has_attr(func: relay.Function, key: str) -> bool:
    """Whether a function has an attribute."""
    return func.attrs is not None and key in func.attrs


def is_opaque(expr) -> bool:
    """Whether `expr` is a function that is not to be looked into."""
    return isinstance(expr, relay.Function) and any(has_attr(expr, key) for key in OPAQUE)


def is_composite(expr: relay.Expr) -> bool:
    """Whether `expr` calls a composite of oneDNN."""
    return (
        isinstance(expr, relay.Call)
        and isinstance(expr.op, relay.Function)
        and has_attr(expr.op, "Composite")
        and str(expr.op.attrs["Composite"]).startswith(f"{COMPILER}.")
    )


def is_partition(func) -> bool:
    """Whether a function of a module is a partition of oneDNN."""
    return (
        isinstance(func, relay.Function)
        and has_attr(func, "Compiler")
        and str(func.attrs["Compiler"]) == COMPILER
    )


def edges(expr: relay.Expr) -> list[tuple[relay.Expr, bool]]:
    """Return what an expression is made of, in the order of evaluation.

    Returns
    -------
    children : list[tuple[relay.Expr, bool]]
        Each child, and whether it is evaluated only when control gets there, perhaps with
        variables that are bound nowhere else: a branch, or the body of a function or a let.
    """
    if isinstance(expr, relay.Call):
        callee = [] if isinstance(expr.op, ir.Op) else [(expr.op, False)]
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


def with_children(expr: relay.Expr, new: list[relay.Expr]) -> relay.Expr:
    """Return `expr` made of other children, given in the order of `edges`."""
    if isinstance(expr, relay.Call):
        args = new[len(new) - len(expr.args) :]
        callee = expr.op if isinstance(expr.op, ir.Op) else new[0]
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


class _Inline(ExprMutator):
    """Replaces calls of composites by their bodies."""

    def visit_call(self, call):
        call = super().visit_call(call)
        if not is_composite(call):
            return call
        return self.visit(relay.bind(call.op.body, dict(zip(call.op.params, call.args))))

    def visit_function(self, fn):
        return fn


def inlined(call: relay.Call, args: list[relay.Expr]) -> relay.Expr:
    """Return what the call of a composite computes, without composites, of other arguments."""
    # The body is visited before it is given the arguments, which are not ours to look into.
    return relay.bind(_Inline().visit(call.op.body), dict(zip(call.op.params, args)))


def op_calls(root: relay.Expr) -> list[relay.Call]:
    """Return all calls of Relay ops in an expression, those in closures and composites too."""
    calls: list[relay.Call] = []

    def visit(expr):
        if op_name(expr):
            calls.append(expr)

    post_order_visit(root, visit)
    return calls


class Graph:
    """An expression and all that it is made of, numbered so that children come first.

    Parameters
    ----------
    root : relay.Expr
        The expression; it gets the last number.

    Attributes
    ----------
    nodes : list[relay.Expr]
        The expressions by number.
    children : list[list[int]]
        What each is made of, in the order of `edges`.
    users : list[list[int]]
        What is made of each.
    scope : list[int]
        When each is evaluated: two of the same scope are evaluated together or not at all, and
        see the same variables. What several scopes share is in the innermost that holds them all.
    """

    def __init__(self, root: relay.Expr):
        self.nodes: list[relay.Expr] = []
        self.children: list[list[int]] = []
        self._inner: list[list[bool]] = []
        # Expressions are told apart by their address: the list keeps them alive.
        number: dict[int, int | None] = {root.handle.value: None}
        stack = [(root, found := edges(root), iter(found))]
        while stack:
            expr, found, rest = stack[-1]
            for child, _ in rest:
                if child.handle.value not in number:
                    number[child.handle.value] = None
                    below = edges(child)
                    stack.append((child, below, iter(below)))
                    break
            else:
                stack.pop()
                number[expr.handle.value] = len(self.nodes)
                self.nodes.append(expr)
                self.children.append([number[child.handle.value] for child, _ in found])
                self._inner.append([inner for _, inner in found])
        self.users: list[list[int]] = [[] for _ in self.nodes]
        for i, children in enumerate(self.children):
            for child in children:
                self.users[child].append(i)
        self.scope = self._scopes()

    def _scopes(self) -> list[int]:
        """Find the scope of each expression: 0 is the root's."""
        parent, depth = [0], [0]
        scope: list[int | None] = [None] * len(self.nodes)
        scope[-1] = 0
        for i in reversed(range(len(self.nodes))):
            for child, inner in zip(self.children[i], self._inner[i]):
                found = scope[i]
                if inner:
                    parent.append(found)
                    depth.append(depth[found] + 1)
                    found = len(parent) - 1
                other = found if scope[child] is None else scope[child]
                while found != other:
                    if depth[found] >= depth[other]:
                        found = parent[found]
                    else:
                        other = parent[other]
                scope[child] = found
        return scope

    def rebuild(
        self,
        needs: Callable[[int], list[int]],
        build: Callable[[int, dict[int, relay.Expr]], relay.Expr],
    ) -> relay.Expr:
        """Make the root anew.

        Parameters
        ----------
        needs : Callable
            Tells what must be made before an expression.
        build : Callable
            Makes an expression; its second argument has all that was made so far.
        """
        done: dict[int, relay.Expr] = {}
        root = len(self.nodes) - 1
        stack = [root]
        while stack:
            i = stack[-1]
            missing = [] if i in done else [need for need in needs(i) if need not in done]
            if missing:
                # What is pushed last is made first: keep the order of evaluation.
                stack.extend(reversed(missing))
                continue
            if i not in done:
                done[i] = build(i, done)
            stack.pop()
        return done[root]

    def replace(self, made: dict[int, tuple[list[int], Callable[..., relay.Expr]]]) -> relay.Expr:
        """Make the root anew with others in the place of some expressions.

        Parameters
        ----------
        made : dict[int, tuple[list[int], Callable]]
            For each that is replaced: of which others its replacement is made, by number, and the
            function that makes it of what these have become.

        Returns
        -------
        root : relay.Expr
            The same where nothing is replaced.
        """
        if not made:
            return self.nodes[-1]

        def needs(i):
            return made[i][0] if i in made else self.children[i]

        def build(i, done):
            if i not in made:
                return self.remake(i, done)
            operands, make = made[i]
            return make(*(done[operand] for operand in operands))

        return self.rebuild(needs, build)

    def remake(self, i: int, done: dict[int, relay.Expr]) -> relay.Expr:
        """Make an expression of what was made of its children; the same if they are the same."""
        children = [done.get(child, self.nodes[child]) for child in self.children[i]]
        if all(new is self.nodes[old] for new, old in zip(children, self.children[i])):
            return self.nodes[i]
        return with_children(self.nodes[i], children)
