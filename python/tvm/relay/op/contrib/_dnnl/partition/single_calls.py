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
"""Keeps a partition from being called twice after TVM has simplified what is around it.

TVM's SimplifyExpr turns x + x into 2 * x and makes x anew on the way, with all that it is computed
from. Whatever else uses the old x then has a partition called twice, for which TVM's Inline has an
internal error. So the pass is run here: it finds nothing more to do later.
"""

from __future__ import annotations

from collections import Counter

import tvm
from tvm import relay
from tvm.contrib.onednn.ops.rules import Rules
from tvm.relay import transform

from ..ir.dataflow_graph import DataflowGraph, Rewritten, TypedFunction, is_partition
from ..ir.relay_view import op_name


def _partition_calls(graph: DataflowGraph, names: set[str]) -> Counter:
    """Count the calls of each partition."""
    return Counter(filter(None, (_callee(expr, names) for expr in graph.nodes)))


def _callee(expr: relay.Expr, names: set[str]) -> str | None:
    """Return the partition that an expression calls, or None."""
    if isinstance(expr, relay.Call) and isinstance(expr.op, relay.GlobalVar):
        return expr.op.name_hint if expr.op.name_hint in names else None
    return None


def _is_doubled(expr: relay.Expr) -> bool:
    """Tell if an expression is x + x, or becomes it when TVM has merged equal expressions."""
    if op_name(expr) != "add":
        return False
    left, right = expr.args
    if left.same_as(right):
        return True
    name = op_name(left)
    return name is not None and name == op_name(right) and tvm.ir.structural_equal(left, right)


def keep_calls_single(function: TypedFunction, rules: Rules) -> Rewritten:
    """Rewrite a function so that TVM does not call its partitions twice."""
    mod, graph = function.mod, function.graph
    names = {var.name_hint for var, func in mod.functions.items() if is_partition(func)}
    called = _partition_calls(graph, names)
    names = {callee for callee, count in called.items() if count == 1}
    # The pass takes for ever on some modules, so it is not run for nothing.
    if not names or not any(_is_doubled(expr) for expr in graph.nodes):
        return Rewritten(function.func)
    graph = DataflowGraph(transform.SimplifyExpr()(mod)[function.name])
    if max(_partition_calls(graph, names).values()) == 1:
        return Rewritten(function.func)
    first: dict[str, relay.Expr] = {}

    def build(i, done):
        callee = _callee(graph.nodes[i], names)
        if callee is None:
            return graph.remake(i, done)
        return first.setdefault(callee, graph.remake(i, done))

    return Rewritten(graph.rebuild(lambda i: graph.operands[i], build))
