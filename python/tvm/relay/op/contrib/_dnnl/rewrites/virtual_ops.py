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

Where a formula is found, its calls become the body of a function that stands for one op, with the
op's name and parameters as attributes. TVM can still run it, by its body.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import relay, tir
from tvm.runtime import String

from ..ir.dataflow_graph import Graph
from ..policy.op_spec import Rules
from ..policy.tensors import VIRTUAL_OP, op_name
from .formulas import Formula, FormulaReader


def wrap_virtual_ops(func: relay.Function, rules: Rules) -> relay.Function:
    """Put the calls of each formula that oneDNN has an op for into a function.

    Parameters
    ----------
    func : relay.Function
        The typed function.
    rules : Rules
        The policy: a virtual op without a row, or whose rule refuses it, is left as it is.

    Returns
    -------
    func : relay.Function
        The same if nothing was found.
    """
    graph = Graph(func)
    reader = FormulaReader(graph)
    found = {}
    taken: set[int] = set()
    # From the results to the inputs: a formula may be part of a larger one.
    for root in reversed(range(len(graph.nodes))):
        if root in taken:
            continue
        for formula in reader.formulas(root):
            calls = _calls(graph, root, formula.data)
            if calls is None or not taken.isdisjoint(calls):
                continue
            wrapped = virtual_op(graph, formula.name, formula.attrs, [formula.data], calls)
            if _is_accepted(graph, formula, calls, wrapped, rules):
                found[root] = [formula.data], caller(wrapped, graph.nodes[root].span)
                taken.update(calls)
                break
    return graph.replace(found)


def _calls(graph: Graph, root: int, data: int) -> list[int] | None:
    """Return the calls from `data` to `root`, the root last.

    Returns None where something else uses one of them, which would then be computed twice, or
    where they are not all evaluated together.
    """
    inside, stack = {root}, [root]
    while stack:
        for child in graph.children[stack.pop()]:
            if child in inside or child == data or isinstance(graph.nodes[child], relay.Constant):
                continue
            inside.add(child)
            stack.append(child)
    calls = sorted(inside)
    for i in calls:
        if graph.scope[i] != graph.scope[root]:
            return None
        if i != root and any(user not in inside for user in graph.users[i]):
            return None
    return calls


def virtual_op(
    graph: Graph, name: str, attrs: dict[str, float], operands: list[int], calls: list[int]
) -> relay.Function:
    """Make the function of a virtual op.

    Parameters
    ----------
    graph : Graph
        A typed function.
    name : str
        The op.
    attrs : dict[str, float]
        Its parameters.
    operands : list[int]
        Its operands by number, which become the parameters of the function.
    calls : list[int]
        What it stands for, in order.
    """
    params = {
        i: relay.var("data" if k == 0 else f"data{k}", graph.nodes[i].checked_type)
        for k, i in enumerate(operands)
    }
    body = dict(params)
    for i in calls:
        body[i] = graph.remake(i, body)
    type_ = graph.nodes[calls[-1]].checked_type
    func = relay.Function(list(params.values()), body[calls[-1]], type_)
    attrs = {
        "Composite": String(name),
        VIRTUAL_OP: String(name),
        # Patterns of TVM do not look into functions that have this.
        "PartitionedFromPattern": String("_".join(op_name(graph.nodes[i]) for i in calls) + "_"),
        **{key: tir.FloatImm("float64", value) for key, value in attrs.items()},
    }
    for key, value in attrs.items():
        func = func.with_attr(key, value)
    return func


def caller(func: relay.Function, span: relay.Span | None) -> Callable[..., relay.Call]:
    """Return a function that makes the call of a virtual op of its operands."""
    return lambda *operands: relay.Call(func, operands, span=span)


def _is_accepted(
    graph: Graph, formula: Formula, calls: list[int], wrapped: relay.Function, rules: Rules
) -> bool:
    data = graph.nodes[formula.data]
    # A constant with more dimensions than the data would add them to the result.
    if data.checked_type != graph.nodes[calls[-1]].checked_type:
        return False
    if rules.excludes(formula.name, *(op_name(graph.nodes[i]) for i in calls)):
        return False
    spec = rules.ops.get(formula.name)
    return spec is not None and spec.reason(relay.Call(wrapped, [data])) is None
