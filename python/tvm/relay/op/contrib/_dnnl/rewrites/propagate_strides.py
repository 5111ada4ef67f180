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
"""Computes only those spatial positions that strided 1x1 convolutions read.

In the pre-activated ResNet-50 this saves a tenth of the work. See `ReadPositions`. The driver of
rewrites accepts what has the type of what it replaces; here the shapes between several ops change,
all at once.
"""

from __future__ import annotations

from functools import partial

from tvm import relay
from tvm.contrib.onednn.policy.op_spec import Rules
from tvm.contrib.onednn.rewrites.read_positions import ReadPositions, Subsample

from ..ir.dataflow_graph import Rewritten, TypedFunction, with_attrs


def propagate_strides(function: TypedFunction, rules: Rules) -> Rewritten:
    """Have convolutions compute only what those that follow read."""
    graph = function.graph
    positions = ReadPositions(graph, rules)
    changes = [
        *((i, partial(_with_strides, new)) for i, new in positions.strides().items()),
        *((i, partial(_of_parts, parts)) for i, parts in positions.subsamples().items()),
    ]
    replacements = {i: (graph.operands[i], partial(build, graph.nodes[i])) for i, build in changes}
    return Rewritten(graph.replace(replacements))


def _with_strides(strides: list[int], call: relay.Call, *args: relay.Expr) -> relay.Call:
    return with_attrs(call, args, strides=strides)


def _of_parts(parts: list[Subsample | None], call: relay.Call, *args: relay.Expr) -> relay.Call:
    read = [arg if part is None else _subsampled(arg, part) for part, arg in zip(parts, args)]
    return relay.Call(call.op, read, call.attrs, call.type_args, call.span)


def _subsampled(data: relay.Expr, part: Subsample) -> relay.Expr:
    if part.is_dequantized:
        bits, *parameters = data.args
        bits = _subsampled(bits, part._replace(is_dequantized=False))
        return relay.Call(data.op, [bits, *parameters], data.attrs, data.type_args, data.span)
    return getattr(relay.nn, part.op)(data, **part.attrs)
