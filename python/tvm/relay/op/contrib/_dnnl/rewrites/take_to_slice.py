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
"""Takes of one index that is known, such as that of the first token, become slices.

oneDNN has no look-up, but what is at a fixed place is a part of the memory of the whole.
"""

from __future__ import annotations

from functools import partial

from tvm import relay
from tvm.relay import transform

from ..ir.dataflow_graph import Graph
from ..policy.op_spec import Rules
from ..policy.tensors import op_name, shape_of


def _place(call: relay.Call) -> tuple[int, int] | None:
    """Return the axis and the index of a take of one element that is known and is there."""
    data, indices = call.args
    attrs = call.attrs
    if not isinstance(indices, relay.Constant) or attrs.axis is None or int(attrs.batch_dims):
        return None
    index, shape = indices.data.numpy(), shape_of(data)
    if index.size != 1 or None in shape:
        return None
    axis = int(attrs.axis) % len(shape)
    # What a negative index means depends on the mode; these mean the same in each.
    if not 0 <= int(index.item()) < shape[axis]:
        return None
    return axis, int(index.item())


def _slice(axis: int, index: int, data: relay.Expr) -> relay.Call:
    return relay.strided_slice(data, [index], [index + 1], [1], axes=[axis])


def _reshaped(shape: tuple[int, ...], axis: int, index: int, data: relay.Expr) -> relay.Call:
    return relay.reshape(_slice(axis, index, data), shape)


def _is_accepted(call: relay.Call, axis: int, index: int, rules: Rules) -> bool:
    """Whether oneDNN runs what would stand for a take."""
    part = _slice(axis, index, call.args[0])
    # The rules need types.
    transform.InferTypeLocal(part)
    result = relay.reshape(part, shape_of(call))
    transform.InferTypeLocal(result)
    return rules.refusal(part) is None and rules.refusal(result) is None


def slice_fixed_takes(func: relay.Function, rules: Rules) -> relay.Function:
    """Write takes of one known index as a slice and a reshape, where oneDNN runs both.

    Parameters
    ----------
    func : relay.Function
        A typed function.
    rules : Rules
        The policy.

    Returns
    -------
    func : relay.Function
        The same where there is no such take.
    """
    graph = Graph(func)
    made = {}
    for i, call in enumerate(graph.nodes):
        place = _place(call) if op_name(call) == "take" else None
        if place is not None and _is_accepted(call, *place, rules):
            made[i] = graph.children[i][:1], partial(_reshaped, shape_of(call), *place)
    return graph.replace(made)
