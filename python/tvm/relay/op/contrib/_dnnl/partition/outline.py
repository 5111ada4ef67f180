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
"""Moving regions of a function into functions of their own, which the code generator compiles."""

from __future__ import annotations

import itertools
import re

from tvm import relay, tir

from ..ir.dataflow_graph import (
    DataflowGraph,
    Rewritten,
    TypedFunction,
    edges,
    inlined,
    is_composite,
    op_calls,
)
from ..policy.op_spec import Rules
from ..policy.tensors import COMPILER, op_name
from .edge_views import trimmed
from .fuse import Fused, find_fused
from .prune import why_prune
from .regions import Regions

_AT_THE_EDGE = "left out: a view at the edge of a partition"


class Units:
    """The graph of a function in which each op with what is fused to it is one expression.

    Parameters
    ----------
    graph : DataflowGraph
        The typed function.
    rules : Rules
        The policy.

    Attributes
    ----------
    graph : DataflowGraph
        The function; what is fused is there under the number of its last op.
    """

    def __init__(self, graph: DataflowGraph, rules: Rules):
        self._ops = graph
        self._fused: dict[int, Fused] = {each.chain[-1]: each for each in find_fused(graph, rules)}
        groups = [[*each.dequantized, *each.chain] for each in self._fused.values()]
        self.graph = graph.contracted(groups)
        # What others use as well stays an expression of its own.
        inside = {i for group in groups for i in group[:-1]}
        self._inside = {i for i in inside if not self.graph.operands[i]}
        self._rules = rules
        self._is_supported = [False] * len(graph.nodes)

    def is_supported(self, i: int) -> bool:
        """Whether oneDNN computes an expression; asked operands first."""
        graph, known = self.graph, self._is_supported
        expr = graph.nodes[i]
        if i in self._inside:
            return False
        if isinstance(expr, relay.TupleGetItem):
            known[i] = known[graph.operands[i][0]]
        elif isinstance(expr, relay.Tuple):
            # What a call gets goes where the call goes, or both stay.
            known[i] = bool(graph.users[i]) and all(
                self._is_accepted(user) and graph.scope[user] == graph.scope[i]
                for user in graph.users[i]
            )
        else:
            fields = [k for k in graph.operands[i] if isinstance(graph.nodes[k], relay.Tuple)]
            known[i] = self._is_accepted(i) and all(known[field] for field in fields)
        return known[i]

    def _is_accepted(self, i: int) -> bool:
        expr = self.graph.nodes[i]
        if i in self._fused or is_composite(expr):
            return True
        return self.graph.ops[i] in self._rules.ops and self._rules.refusal(expr) is None

    def _chain(self, i: int) -> list[int]:
        return self._fused[i].chain if i in self._fused else [i]

    def calls(self, i: int) -> list[relay.Call]:
        """Return the calls of Relay ops that an expression stands for."""
        calls: list[relay.Call] = []
        for expr in (self._ops.nodes[k] for k in self._chain(i)):
            if is_composite(expr):
                calls += op_calls(expr.op.body)
            elif isinstance(expr, relay.Call):
                calls.append(expr)
        return calls

    def for_onednn(self, i: int, done: dict[int, relay.Expr]) -> relay.Expr:
        """Build an expression as oneDNN runs it, of what its operands have become."""
        return self._fused[i].build(done) if i in self._fused else self.graph.remake(i, done)

    def for_tvm(self, i: int, done: dict[int, relay.Expr]) -> relay.Expr:
        """Build an expression as TVM runs it, of what its operands have become."""
        dequantized = self._fused[i].dequantized if i in self._fused else []
        for k in (*dequantized, *self._chain(i)):
            expr = self._ops.nodes[k]
            done[k] = self._ops.remake(k, done)
            if isinstance(expr, relay.TupleGetItem):
                values = done[self._ops.operands[k][0]]
                if isinstance(values, relay.Tuple):
                    done[k] = values.fields[expr.index]
            elif is_composite(expr):
                done[k] = inlined(done[k])
        return done[i]


class Partition:
    """A region on its way to become a function.

    Parameters
    ----------
    name : str
        The name of the function.
    units : Units
        The function that it comes from.
    regions : Regions
        The regions of that function.
    members : list[int]
        The region.
    num_threads : int | None
        How many threads the function is to run on, if it was said.
    """

    def __init__(
        self,
        name: str,
        units: Units,
        regions: Regions,
        members: list[int],
        num_threads: int | None = None,
    ):
        graph = units.graph
        self.var = relay.GlobalVar(name)
        self.inputs = regions.inputs(members)
        params = [
            relay.var(f"{name}_i{k}", graph.nodes[i].checked_type)
            for k, i in enumerate(self.inputs)
        ]
        inside: dict[int, relay.Expr] = dict(zip(self.inputs, params))
        for i in members:
            inside[i] = units.for_onednn(i, inside)
        # The runtime returns tensors, no tuple in a tuple: an output that is a tuple becomes one
        # output for each of its fields.
        self._fields: dict[int, list[tuple[int, int | None]]] = {}
        self._position: dict[tuple[int, int | None], int] = {}
        results, types = [], []
        for i in regions.outputs(members):
            expr, type_ = graph.nodes[i], graph.nodes[i].checked_type
            if isinstance(expr, relay.TupleGetItem):
                tensors = [(graph.operands[i][0], expr.index, type_)]
            elif isinstance(type_, relay.TupleType):
                tensors = [(i, index, field) for index, field in enumerate(type_.fields)]
            else:
                tensors = [(i, None, type_)]
            self._fields[i] = [(source, index) for source, index, _ in tensors]
            for source, index, field in tensors:
                if (source, index) not in self._position:
                    self._position[source, index] = len(results)
                    value = inside[source]
                    results.append(value if index is None else relay.TupleGetItem(value, index))
                    types.append(field)
        if len(results) == 1:
            func = relay.Function(params, results[0], types[0])
        else:
            func = relay.Function(params, relay.Tuple(results), relay.TupleType(types))
        attrs = {
            "global_symbol": name,
            "Compiler": COMPILER,
            "Primitive": tir.IntImm("int32", 1),
            "Inline": tir.IntImm("int32", 1),
        }
        if num_threads is not None:
            # Of src/relay/backend/contrib/dnnl/options.h, for the codegens.
            attrs["dnnl_num_threads"] = tir.IntImm("int32", num_threads)
        self.func = func.with_attr(attrs)
        self._call: relay.Call | None = None

    def result(self, i: int, expr: relay.Expr, done: dict[int, relay.Expr]) -> relay.Expr:
        """Return what stands for an output of the region outside.

        Parameters
        ----------
        i : int
            The number of the output.
        expr : relay.Expr
            The output.
        done : dict[int, relay.Expr]
            What stands for the region's inputs.
        """
        if self._call is None:
            self._call = relay.Call(self.var, [done[arg] for arg in self.inputs])
        values = [
            (
                self._call
                if len(self._position) == 1
                else relay.TupleGetItem(self._call, self._position[field])
            )
            for field in self._fields[i]
        ]
        return relay.Tuple(values) if isinstance(expr.checked_type, relay.TupleType) else values[0]


def offload(function: TypedFunction, rules: Rules) -> Rewritten:
    """Move what oneDNN runs of a function into new functions.

    TVM's AnnotateTarget, MergeCompilerRegions and PartitionGraph do this for functions that are
    nothing but data flow. Their regions may hold tuples and may not meet a let, a reference or a
    nested tuple, and they work on a whole module, other compilers' functions included.
    """
    options = rules.options
    units = Units(function.graph, rules)
    graph = units.graph
    regions = Regions(graph, units.is_supported)
    prefix = re.sub(r"\W", "_", f"tvmgen_{options.mod_name}_{COMPILER}_{function.name}")
    used = {var.name_hint for var in function.mod.functions}
    names = (f"{prefix}_{number}" for number in itertools.count())
    partitions: dict[int, Partition] = {}
    reasons: dict[int, str] = {}
    stayed: dict[relay.Call, str] = {}
    for members in regions.members:
        calls = [call for i in members for call in units.calls(i)]
        reason = why_prune(calls, rules)
        if reason is None:
            if options.prune:
                kept = trimmed(graph, members, rules)
                reasons.update(dict.fromkeys(set(members).difference(kept), _AT_THE_EDGE))
                members = kept
            free = next(name for name in names if name not in used)
            partition = Partition(free, units, regions, members, options.num_threads)
            partitions.update((i, partition) for i in members)
        else:
            reasons.update(dict.fromkeys(members, reason))

    def needs(i):
        return partitions[i].inputs if i in partitions else graph.operands[i]

    def build(i, done):
        if i in partitions:
            return partitions[i].result(i, graph.nodes[i], done)
        result = units.for_tvm(i, done)
        if i in reasons:
            operands = [done[operand] for operand in graph.operands[i]]
            stayed.update((call, reasons[i]) for call in _calls_above(result, operands))
        return result

    func = graph.rebuild(needs, build)
    functions = {each.var: each.func for each in partitions.values()}
    return Rewritten(func, partitions=functions, stayed=stayed)


def _calls_above(expr: relay.Expr, operands: list[relay.Expr]) -> list[relay.Call]:
    """Return the calls of Relay ops between an expression and what it is computed from."""
    seen = {operand.handle.value for operand in operands}
    calls, stack = [], [expr]
    while stack:
        expr = stack.pop()
        if expr.handle.value not in seen:
            seen.add(expr.handle.value)
            if op_name(expr):
                calls.append(expr)
            stack.extend(operand for operand, _ in edges(expr))
    return calls
