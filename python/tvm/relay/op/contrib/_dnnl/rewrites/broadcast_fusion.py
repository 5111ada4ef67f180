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
"""Keeps TVM from fusing an op with what it broadcasts, where the size is open.

TVM compiles `cast(mask) * x` of open dimensions into one function. It broadcasts an input of that
function whose size turns out to be 1, but not what the function computes by itself: there it reads
elements that are not the mask's, and the numbers are wrong. So what may be broadcast like that is
computed by a function of its own.
"""

from __future__ import annotations

from functools import partial

from tvm import relay
from tvm.contrib.onednn.ir.dim import Dim
from tvm.contrib.onednn.ir.node import Node
from tvm.contrib.onednn.ops.rules import Rules
from tvm.contrib.onednn.ops.table import BINARY, COMPARISONS

from ..ir.dataflow_graph import STOP_FUSION, DataflowGraph, Rewritten, TypedFunction, with_operands
from ..ir.relay_view import op_name, shape_of
from ..reader import RelayGraph

_NAMES = {*BINARY, *COMPARISONS, "floor_divide", "logical_and", "logical_or", "power", "where"}


def stop_broadcast_fusion(function: TypedFunction, rules: Rules) -> Rewritten:
    """Compute by itself what an op that stays on TVM may broadcast along an open dimension."""
    graph = function.graph
    is_open = [
        i
        for i, expr in enumerate(graph.nodes)
        if op_name(expr) in _NAMES and None in shape_of(expr)
    ]
    # It numbers what it reads as the graph does.
    nodes = RelayGraph(function.func).nodes if is_open else []
    alone = {operand for i in is_open for operand in _broadcast_operands(graph, nodes, i)}
    return Rewritten(
        graph.replace({k: (graph.operands[k], partial(_alone, graph.nodes[k])) for k in alone})
    )


def _broadcast_operands(graph: DataflowGraph, nodes: list[Node], i: int) -> list[int]:
    """Return the computed operands of an op that have an open size which may be 1 for another."""
    aligned = [nodes[k].type.dims[::-1] for k in graph.operands[i]]
    operands = []
    for k, own in zip(graph.operands[i], aligned):
        if op_name(graph.nodes[k]) in (None, STOP_FUSION):
            continue
        if any(
            isinstance(dim, Dim) and other[axis] not in (dim, 1)
            for axis, dim in enumerate(own)
            for other in aligned
            if axis < len(other)
        ):
            operands.append(k)
    return operands


def _alone(expr: relay.Expr, *operands: relay.Expr) -> relay.Expr:
    return relay.annotation.stop_fusion(with_operands(expr, list(operands)))
