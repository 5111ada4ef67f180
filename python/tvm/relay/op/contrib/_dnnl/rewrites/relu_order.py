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
"""Lets a relu and the rounding before it change places, so that its reader has 8 bits to read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from tvm import relay
from tvm.contrib.onednn.policy.op_spec import Rules
from tvm.contrib.onednn.policy.quantized import goes_before_rounding

from ..ir.dataflow_graph import DataflowGraph, Rewritten, TypedFunction
from .driver import Match, rewrite


def move_relu_first(function: TypedFunction, rules: Rules) -> Rewritten:
    """Turn a relu behind a quantize and its dequantize into one before them."""
    return rewrite(function, rules, _find_relus)


def _find_relus(graph: DataflowGraph, rules: Rules, calls_of: Callable) -> Iterator[Match]:
    for relu in calls_of("nn.relu"):
        if goes_before_rounding(graph, rules, relu):
            (real,) = graph.operands[relu]
            bits = graph.operands[real][0]
            operands = [*graph.operands[bits], *graph.operands[real][1:]]
            calls = [graph.nodes[bits], graph.nodes[real]]
            yield Match([bits, real, relu], operands, partial(_rounded, calls))


def _rounded(calls: list[relay.Call], data: relay.Expr, *parameters: relay.Expr) -> relay.Call:
    """Round the relu of data as `calls`, a quantize and a dequantize, do."""
    quantized, real = calls
    args = [relay.nn.relu(data), *parameters[:2]]
    bits = relay.Call(quantized.op, args, quantized.attrs, quantized.type_args, quantized.span)
    return relay.Call(real.op, [bits, *parameters[2:]], real.attrs, real.type_args, real.span)
