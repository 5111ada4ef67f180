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
from tvm.contrib.onednn.partition.fuse import Fused
from tvm.contrib.onednn.partition.regions import Regions
from tvm.contrib.onednn.partition.units import Choice, Units
from tvm.contrib.onednn.policy.op_spec import Rules
from tvm.contrib.onednn.policy.tensors import COMPILER

from ..ir.dataflow_graph import (
    DataflowGraph,
    Rewritten,
    TypedFunction,
    edges,
    inlined,
    is_composite,
)
from ..ir.relay_view import op_name


class Outliner(Units):
    """Builds the expressions of a typed function for oneDNN, or for TVM."""

    def for_onednn(self, i: int, done: dict[int, relay.Expr]) -> relay.Expr:
        """Build an expression as oneDNN runs it, of what its operands have become."""
        if i in self.fused:
            return _composite(self.fused[i], self.ops, done)
        return self.graph.remake(i, done)

    def for_tvm(self, i: int, done: dict[int, relay.Expr]) -> relay.Expr:
        """Build an expression as TVM runs it, of what its operands have become."""
        graph, dequantized = self.ops, self.fused[i].dequantized if i in self.fused else []
        for k in (*dequantized, *self.chain(i)):
            expr = graph.nodes[k]
            done[k] = graph.remake(k, done)
            if isinstance(expr, relay.TupleGetItem):
                values = done[graph.operands[k][0]]
                if isinstance(values, relay.Tuple):
                    done[k] = values.fields[expr.index]
            elif is_composite(expr):
                done[k] = inlined(done[k])
        return done[i]


def _composite(fused: Fused, graph: DataflowGraph, done: dict[int, relay.Expr]) -> relay.Call:
    """Return the call of a composite, of what its operands have become."""
    params: list[relay.Var] = []
    args: list[relay.Expr] = []
    inside: dict[int, relay.Expr] = {}
    for number in (*fused.dequantized, *fused.chain):
        for i in graph.operands[number]:
            if i not in inside:
                inside[i] = relay.var(f"FunctionVar_{len(params)}", graph.nodes[i].checked_type)
                params.append(inside[i])
                args.append(done.get(i, graph.nodes[i]))
        inside[number] = graph.remake(number, inside)
    last = fused.chain[-1]
    func = relay.Function(params, inside[last], graph.nodes[last].checked_type)
    ops = "".join(f"{graph.ops[i]}_" for i in fused.chain if graph.ops[i])
    attrs = {
        "PartitionedFromPattern": ops,
        "Composite": fused.name,
        "Primitive": tir.IntImm("int32", 0),
        # The codegens read it: src/relay/backend/contrib/dnnl/composite.h.
        "dnnl_bias": tir.IntImm("int32", fused.bias),
    }
    return relay.Call(func.with_attr(attrs), args)


class Partition:
    """A region on its way to become a function.

    Parameters
    ----------
    name : str
        The name of the function.
    units : Outliner
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
        units: Outliner,
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
            # The codegens read it: src/relay/backend/contrib/dnnl/options.h.
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
    units = Outliner(function.graph, rules)
    graph, choice = units.graph, Choice(units)
    reasons = choice.reasons
    prefix = re.sub(r"\W", "_", f"tvmgen_{options.mod_name}_{COMPILER}_{function.name}")
    used = {var.name_hint for var in function.mod.functions}
    names = (f"{prefix}_{number}" for number in itertools.count())
    partitions: dict[int, Partition] = {}
    stayed: dict[relay.Call, str] = {}
    for members in choice.partitions:
        free = next(name for name in names if name not in used)
        partition = Partition(free, units, choice.regions, members, options.num_threads)
        partitions.update((i, partition) for i in members)

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
