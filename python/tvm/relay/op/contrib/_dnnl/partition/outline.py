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
from collections.abc import Container

import tvm
from tvm import relay, tir

from ..ir.dataflow_graph import Graph, edges, inlined, is_composite, op_calls
from ..policy.op_spec import Rules
from ..policy.tensors import COMPILER, op_name
from ..report.record import Record
from .edge_views import trimmed
from .prune import why_prune
from .regions import Regions

_AT_THE_EDGE = "left out: a view at the edge of a partition"


class Partition:
    """A region on its way to become a function.

    Parameters
    ----------
    name : str
        The name of the function.
    regions : Regions
        The regions of the function that it comes from.
    members : list[int]
        The region.
    num_threads : int | None
        How many threads the function is to run on, if it was said.
    """

    def __init__(
        self, name: str, regions: Regions, members: list[int], num_threads: int | None = None
    ):
        graph = regions.graph
        self.var = relay.GlobalVar(name)
        self.inputs = regions.inputs(members)
        params = [
            relay.var(f"{name}_i{k}", graph.nodes[i].checked_type)
            for k, i in enumerate(self.inputs)
        ]
        inside: dict[int, relay.Expr] = dict(zip(self.inputs, params))
        for i in members:
            inside[i] = graph.remake(i, inside)
        # The runtime returns tensors, no tuple in a tuple: an output that is a tuple becomes one
        # output for each of its fields.
        self._fields: dict[int, list[tuple[int, int | None]]] = {}
        self._position: dict[tuple[int, int | None], int] = {}
        results, types = [], []
        for i in regions.outputs(members):
            expr, type_ = graph.nodes[i], graph.nodes[i].checked_type
            if isinstance(expr, relay.TupleGetItem):
                found = [(graph.children[i][0], expr.index, type_)]
            elif isinstance(type_, relay.TupleType):
                found = [(i, index, field) for index, field in enumerate(type_.fields)]
            else:
                found = [(i, None, type_)]
            self._fields[i] = [(source, index) for source, index, _ in found]
            for source, index, field in found:
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
            "global_symbol": tvm.runtime.String(name),
            "Compiler": tvm.runtime.String(COMPILER),
            "Primitive": tir.IntImm("int32", 1),
            "Inline": tir.IntImm("int32", 1),
        }
        if num_threads is not None:
            # Of src/relay/backend/contrib/dnnl/options.h, for the codegens.
            attrs["dnnl_num_threads"] = tir.IntImm("int32", num_threads)
        for key, value in attrs.items():
            func = func.with_attr(key, value)
        self.func = func
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


def cut(mod: tvm.IRModule, name: str, rules: Rules, record: Record) -> tvm.IRModule:
    """Move what oneDNN runs of the function `name` into new functions of `mod`, which is changed.

    TVM's AnnotateTarget, MergeCompilerRegions and PartitionGraph do this for functions that are
    nothing but data flow. Their regions take in tuples and may not meet a let, a reference or a
    nested tuple, and they work on a whole module, other compilers' functions included.
    """
    graph = Graph(mod[name])
    composites = {i for i, expr in enumerate(graph.nodes) if is_composite(expr)}
    regions = Regions(graph, _supported(graph, composites, rules))
    prefix = re.sub(r"\W", "_", f"tvmgen_{rules.options.mod_name}_{COMPILER}_{name}")
    taken = {var.name_hint for var in mod.functions}
    names = (f"{prefix}_{number}" for number in itertools.count())
    partitions: dict[int, Partition] = {}
    reasons: dict[int, str] = {}
    stayed: dict[relay.Call, str] = {}
    for members in regions.members:
        calls = [call for i in members for call in _calls(graph.nodes[i], i in composites)]
        reason = why_prune(calls, rules)
        if reason is None:
            if rules.options.prune:
                kept = trimmed(graph, members, rules)
                reasons.update(dict.fromkeys(set(members).difference(kept), _AT_THE_EDGE))
                members = kept
            free = next(name for name in names if name not in taken)
            partition = Partition(free, regions, members, rules.options.num_threads)
            partitions.update((i, partition) for i in members)
        else:
            reasons.update(dict.fromkeys(members, reason))

    def needs(i):
        return partitions[i].inputs if i in partitions else graph.children[i]

    def build(i, done):
        expr = graph.nodes[i]
        if i in partitions:
            return partitions[i].result(i, expr, done)
        if i in composites:
            operands = [done[child] for child in graph.children[i][1:]]
            result = inlined(expr, operands)
            if i in reasons:
                stayed.update((call, reasons[i]) for call in _calls_above(result, operands))
            return result
        if isinstance(expr, relay.TupleGetItem):
            source = done[graph.children[i][0]]
            if isinstance(source, relay.Tuple):
                return source.fields[expr.index]
        result = graph.remake(i, done)
        if i in reasons and isinstance(result, relay.Call):
            stayed[result] = reasons[i]
        return result

    func = graph.rebuild(needs, build)
    for partition in dict.fromkeys(partitions.values()):
        mod[partition.var] = partition.func
    mod[name] = func
    record.stay(name, func, stayed)
    return mod


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
            stack.extend(child for child, _ in edges(expr))
    return calls


def _calls(expr: relay.Expr, composite: bool) -> list[relay.Call]:
    """Return the calls of Relay ops that a member of a region stands for."""
    if isinstance(expr, relay.Call):
        return op_calls(expr.op.body) if composite else [expr]
    return []


def _supported(graph: Graph, composites: Container[int], rules: Rules):
    """Return the predicate that tells what oneDNN computes, for Regions."""
    known = [False] * len(graph.nodes)

    def is_accepted(i: int) -> bool:
        expr = graph.nodes[i]
        return op_name(expr) in rules.ops and rules.refusal(expr) is None

    def supported(i: int) -> bool:
        expr = graph.nodes[i]
        if isinstance(expr, relay.TupleGetItem):
            return known[graph.children[i][0]]
        if isinstance(expr, relay.Tuple):
            # What a call takes goes where the call goes, or both stay.
            known[i] = bool(graph.users[i]) and all(
                is_accepted(user) and graph.scope[user] == graph.scope[i] for user in graph.users[i]
            )
        else:
            fields = [c for c in graph.children[i] if isinstance(graph.nodes[c], relay.Tuple)]
            accepted = i in composites or is_accepted(i)
            known[i] = accepted and all(known[field] for field in fields)
        return known[i]

    return supported
