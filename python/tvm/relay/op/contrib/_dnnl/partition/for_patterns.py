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
"""Writes what is fused to ops of 8 bits in the one way that the patterns of the table match."""

from __future__ import annotations

from collections import ChainMap

from tvm import relay
from tvm.contrib.onednn.ops.quantize import DEQUANTIZE
from tvm.contrib.onednn.ops.rules import Rules
from tvm.contrib.onednn.partition.fuse import find_fused

from ..ir.dataflow_graph import Rewritten, TypedFunction
from ..reader import RelayGraph


def write_for_patterns(function: TypedFunction, rules: Rules) -> Rewritten:
    """Give each user a dequantize of its own, and put what a residual is added to first.

    A composite of TVM's MergeComposite holds nothing that others use, and of two operands of an
    `add` that a pattern matches it takes the first, whichever oneDNN can add the other to.
    """
    graph = function.graph
    nodes = RelayGraph(function.func, read=graph)
    if all(node.name != DEQUANTIZE for node in nodes.nodes):
        return Rewritten(function.func)
    pairs = (pair for each in find_fused(nodes, rules) for pair in zip(each.chain, each.chain[1:]))
    swapped = {i.index for k, i in pairs if i.name == "add" and i.operands[0] is not k}

    def build(i, done):
        own = {
            k: _copy(done[k])
            for k in graph.operands[i]
            if nodes.nodes[k].name == DEQUANTIZE and len(nodes.nodes[k].users) > 1
        }
        expr = graph.remake(i, ChainMap(own, done))
        return relay.add(*reversed(expr.args)) if i in swapped else expr

    return Rewritten(graph.rebuild(lambda i: graph.operands[i], build))


def _copy(call: relay.Call) -> relay.Call:
    return relay.Call(call.op, call.args, call.attrs, call.type_args, call.span)
