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
"""Lets a dequantize and the reshape before it change places, so that more is fused.

Importers write a matmul of three dimensions as a dense between two reshapes. After
`move_in_int8` the second is between a quantize and its dequantize, which fusion wants together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from tvm import relay
from tvm.contrib.onednn.partition.fuse import find_reshaped_bits
from tvm.contrib.onednn.policy.op_spec import Rules
from tvm.relay.qnn.op import dequantize

from ..ir.dataflow_graph import DataflowGraph, Rewritten, TypedFunction
from ..rewrites.driver import Match, rewrite


def move_dequantize_first(function: TypedFunction, rules: Rules) -> Rewritten:
    """Turn a dequantize of a reshape of a quantize into a reshape of real numbers."""
    return rewrite(function, rules, _find_reshapes)


def _find_reshapes(graph: DataflowGraph, rules: Rules, calls_of: Callable) -> Iterator[Match]:
    for reshape, i in find_reshaped_bits(graph, rules):
        operands = [*graph.operands[reshape], *graph.operands[i][1:]]
        yield Match([reshape, i], operands, partial(_reshaped, graph.nodes[reshape]))


def _reshaped(
    reshape: relay.Call, data: relay.Expr, scale: relay.Expr, zero_point: relay.Expr
) -> relay.Call:
    """Dequantize what `reshape` reads, and reshape the real numbers as it does."""
    real = dequantize(data, scale, zero_point)
    return relay.Call(reshape.op, [real], reshape.attrs, reshape.type_args, reshape.span)
