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
"""Replaces groups of ops by others that oneDNN runs: what the rewrites have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

import tvm
from tvm import relay
from tvm.contrib.onednn.policy.op_spec import Rules
from tvm.relay import transform

from ..ir.dataflow_graph import DataflowGraph, Rewritten, TypedFunction
from ..ir.relay_view import view_of


class Match(NamedTuple):
    """Ops that a rewrite can replace, by their numbers in the graph.

    Parameters
    ----------
    ops : list[int] | None
        What is replaced; the last is the one whose value is replaced. None where something else
        uses a part of it: then it stays.
    operands : list[int]
        The operands of the replacement.
    build : Callable[..., relay.Expr]
        Builds the replacement from what the operands have become. It is called once more before,
        with the operands as they are, for the rules to judge the replacement.
    folded : Collection[int]
        What the report lists as folded, unless something else uses it.
    """

    ops: list[int] | None
    operands: list[int]
    build: Callable[..., relay.Expr]
    folded: Collection[int] = ()


# From the graph, the rules and the expressions that call one of some ops, results first, without
# those that have been replaced.
Finder = Callable[[DataflowGraph, Rules, Callable[..., Iterator[int]]], Iterator[Match]]


def rewrite(function: TypedFunction, rules: Rules, find: Finder) -> Rewritten:
    """Replace what a finder yields, where no op in it is excluded and oneDNN runs what comes of it.

    Of matches that overlap the first is replaced. One of which no typed replacement can be built
    stays, and the others do not suffer for it.
    """
    graph = function.graph
    failures: dict[str, Exception] = {}
    replacements: dict[int, tuple[list[int], Callable[..., relay.Expr]]] = {}
    replaced: set[int] = set()
    folded: set[int] = set()

    def calls_of(*names: str) -> Iterator[int]:
        for i in reversed(range(len(graph.nodes))):
            if graph.ops[i] in names and i not in replaced:
                yield i

    for match in find(graph, rules, calls_of):
        if match.ops is None or not replaced.isdisjoint(match.ops):
            continue
        names = [*filter(None, (graph.ops[i] for i in (*match.folded, *match.ops)))]
        if rules.excludes(*names):
            continue
        try:
            is_accepted = _is_accepted(graph, match, rules)
        # TVM raises many classes of errors for types that do not fit. The pipeline reports them.
        except Exception as error:  # pylint: disable=broad-except
            failures.setdefault(names[-1], error)
            continue
        if not is_accepted:
            continue
        replacements[match.ops[-1]] = match.operands, match.build
        replaced.update(match.ops)
        folded.update(match.folded)
    gone = replaced | folded
    names = (graph.ops[i] for i in folded if i in replaced or gone.issuperset(graph.users[i]))
    gone_names = Counter(filter(None, names))
    return Rewritten(graph.replace(replacements), gone_names, failures=failures)


def _is_accepted(graph: DataflowGraph, match: Match, rules: Rules) -> bool:
    """Whether oneDNN runs a replacement, and its type is that of what it replaces."""
    params: list[relay.Var] = []
    operands: list[relay.Expr] = []
    for expr in (graph.nodes[i] for i in match.operands):
        if not isinstance(expr, relay.Constant):
            expr = relay.var("operand", expr.checked_type)
            params.append(expr)
        operands.append(expr)
    func = relay.Function(params, match.build(*operands))
    result = transform.InferType()(tvm.IRModule.from_expr(func))["main"].body
    stack = [result]
    while stack:
        expr = stack.pop()
        if isinstance(expr, relay.Tuple):
            stack.extend(expr.fields)
        elif isinstance(expr, relay.Call):
            # TVM computes a scalar, such as a zero point, for the op that has it as a parameter.
            if isinstance(expr.checked_type, relay.TensorType) and not expr.checked_type.shape:
                continue
            if rules.refusal(view_of(expr)) is not None:
                return False
            stack.extend(expr.args)
    return _is_same(result.checked_type, graph.nodes[match.ops[-1]].checked_type)


def _is_same(one: tvm.ir.Type, other: tvm.ir.Type) -> bool:
    """Whether two types are the same, sizes in 32 and in 64 bits too: importers mix the two."""
    if not (isinstance(one, relay.TensorType) and isinstance(other, relay.TensorType)):
        return one == other
    return (
        one.dtype == other.dtype
        and len(one.shape) == len(other.shape)
        and all(
            (
                int(a) == int(b)
                if isinstance(a, tvm.tir.IntImm) and isinstance(b, tvm.tir.IntImm)
                else tvm.ir.structural_equal(a, b)
            )
            for a, b in zip(one.shape, other.shape)
        )
    )
