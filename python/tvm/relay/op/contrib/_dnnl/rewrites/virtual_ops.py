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
"""Virtual ops: functions of oneDNN that Relay writes as several ops.

Where a formula is found, its ops become the body of a function that stands for one op, whose name
is that of the composite; its parameters are attributes. TVM can still run it, by its body.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tvm import relay, tir
from tvm.contrib.onednn.policy.op_spec import Rules
from tvm.contrib.onednn.rewrites.formulas import ROOTS, FormulaReader
from tvm.runtime import String

from ..ir.dataflow_graph import DataflowGraph, Rewritten, TypedFunction, inlined, is_composite
from .driver import Match, rewrite


def wrap_formulas(function: TypedFunction, rules: Rules) -> Rewritten:
    """Put the ops of each formula that oneDNN has an op for into the function of a virtual op."""
    return rewrite(function, rules, _find)


def unwrap_virtual_ops(function: TypedFunction, rules: Rules) -> Rewritten:
    """Put the body of each virtual op into its place, if a step has failed that should have."""
    graph = function.graph
    composites = [i for i, expr in enumerate(graph.nodes) if is_composite(expr)]

    def unwrap(i):
        return lambda *args: inlined(relay.Call(graph.nodes[i].op, args))

    return Rewritten(graph.replace({i: (graph.operands[i], unwrap(i)) for i in composites}))


def _find(graph: DataflowGraph, rules: Rules, calls_of: Callable) -> Iterator[Match]:
    reader = FormulaReader(graph)
    # The last op comes first: a formula may be part of a larger one.
    for root in calls_of(*ROOTS):
        for formula in reader.formulas(root):
            yield from virtual_op(graph, formula.name, formula.attrs, root, [formula.data])


def virtual_op(
    graph: DataflowGraph, name: str, attrs: dict[str, float], root: int, operands: list[int]
) -> Iterator[Match]:
    """Yield the virtual op that may replace what is computed between `operands` and `root`.

    Parameters
    ----------
    graph : DataflowGraph
        A typed function.
    name : str
        The op.
    attrs : dict[str, float]
        Its parameters.
    root : int
        The last op of those that it stands for.
    operands : list[int]
        Its operands, which become the parameters of the function; the data first.
    """
    group = graph.closed_group(root, operands)
    type_ = graph.nodes[root].checked_type
    # A constant with more dimensions than the data would add them to the result.
    if group is None or type_ != graph.nodes[operands[0]].checked_type:
        return
    params = {
        i: relay.var("data" if k == 0 else f"data{k}", graph.nodes[i].checked_type)
        for k, i in enumerate(operands)
    }
    body = dict(params)
    for i in group:
        body[i] = graph.remake(i, body)
    func = relay.Function(list(params.values()), body[root], type_)
    ops = "".join(f"{graph.ops[i]}_" for i in group)
    # Patterns of TVM do not look into functions that have the second.
    func = func.with_attr({"Composite": String(name), "PartitionedFromPattern": String(ops)})
    func = func.with_attr({key: tir.FloatImm("float64", value) for key, value in attrs.items()})
    span = graph.nodes[root].span
    yield Match(group, operands, lambda *args: relay.Call(func, args, span=span))
