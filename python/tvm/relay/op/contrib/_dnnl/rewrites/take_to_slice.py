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
"""A `take` of one constant index, such as that of the first token, becomes a slice.

oneDNN has no look-up, but a part of a tensor with constant bounds is a view of its memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from tvm import relay
from tvm.contrib.onednn.policy.op_spec import Rules

from ..ir.dataflow_graph import DataflowGraph, Rewritten, TypedFunction
from ..ir.relay_view import shape_of
from .driver import Match, rewrite


def take_to_slice(function: TypedFunction, rules: Rules) -> Rewritten:
    """Write a `take` of one constant index as a slice and a reshape."""
    return rewrite(function, rules, _find)


def _find(graph: DataflowGraph, rules: Rules, calls_of: Callable) -> Iterator[Match]:
    for i in calls_of("take"):
        position = _axis_and_index(graph.nodes[i])
        if position is not None:
            rank = len(shape_of(graph.nodes[i].args[0]))
            build = partial(_slice, shape_of(graph.nodes[i]), rank, *position)
            yield Match([i], graph.operands[i][:1], build)


def _axis_and_index(call: relay.Call) -> tuple[int, int] | None:
    """Return the axis and the index of a `take` of one element, if they are known and in range."""
    data, indices = call.args
    attrs = call.attrs
    if not isinstance(indices, relay.Constant) or attrs.axis is None or int(attrs.batch_dims):
        return None
    index, shape = indices.data.numpy(), shape_of(data)
    if index.size != 1 or (None in shape and index.ndim > 1):
        return None
    axis = int(attrs.axis) % len(shape)
    # A negative index depends on the mode; these mean the same in each. Where the size
    # is open, there is one element at least.
    if not 0 <= int(index.item()) < (shape[axis] or 1):
        return None
    return axis, int(index.item())


def _slice(
    shape: tuple[int | None, ...], rank: int, axis: int, index: int, data: relay.Expr
) -> relay.Call:
    part = relay.strided_slice(data, [index], [index + 1], [1], axes=[axis])
    if None not in shape:
        return relay.reshape(part, shape)
    return part if len(shape) == rank else relay.squeeze(part, [axis])
