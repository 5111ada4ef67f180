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
"""Has TVM compute the ops of constants that numpy does not know.

TVM compiles a function for each op that it folds; `fold_constants` evaluates the others.
"""

from __future__ import annotations

import tvm
from tvm import relay
from tvm.contrib.onednn.ops.evaluate import has_definition
from tvm.contrib.onednn.ops.rules import Rules
from tvm.relay import transform

from ..ir.dataflow_graph import DataflowGraph, Rewritten, TypedFunction, with_operands
from ..ir.evaluate import constant_result
from ..ir.relay_view import op_name


def fold_other_constants(function: TypedFunction, rules: Rules) -> Rewritten:
    """Fold the ops of constants that have no numpy definition; what they read is folded for that.

    What TVM cannot compile stays: it has no code for some ops of bfloat16.
    """
    graph = function.graph
    others = _others(graph)
    needed = set(others)
    for i in reversed(range(len(graph.nodes))):
        if i in needed:
            needed.update(graph.operands[i])
    values: dict[int, relay.Expr | None] = {}
    for i in sorted(needed):
        operands = [values[k] for k in graph.operands[i]]
        values[i] = (
            None if any(each is None for each in operands) else _value(graph.nodes[i], operands)
        )
    replacements = {i: ([], lambda value=values[i]: value) for i in others if values[i] is not None}
    return Rewritten(graph.replace(replacements))


def _others(graph: DataflowGraph) -> list[int]:
    """Return the numbers of the ops of constants that have no numpy definition."""
    is_known: list[bool] = []
    others = []
    for i, expr in enumerate(graph.nodes):
        name, operands = op_name(expr), graph.operands[i]
        is_structure = isinstance(expr, (relay.Tuple, relay.TupleGetItem))
        is_computed = name is not None and not name.startswith("qnn.")
        is_of_known = bool(operands) and all(is_known[k] for k in operands)
        is_known.append(
            isinstance(expr, relay.Constant) or (is_of_known and (is_structure or is_computed))
        )
        if is_known[i] and is_computed and not has_definition(name):
            others.append(i)
    return others


def _value(expr: relay.Expr, operands: list[relay.Expr]) -> relay.Expr | None:
    """Return the value of an expression of constants, None if neither numpy nor TVM gives one."""
    if isinstance(expr, relay.Constant):
        return expr
    if isinstance(expr, relay.Tuple):
        return relay.Tuple(operands)
    if isinstance(expr, relay.TupleGetItem):
        return operands[0].fields[expr.index]
    call = with_operands(expr, operands)
    value = constant_result(call)
    if value is not None:
        return value
    try:
        value = transform.FoldConstantExpr(call, tvm.IRModule())
    except tvm.TVMError:
        return None
    return None if isinstance(value, relay.Call) else value
