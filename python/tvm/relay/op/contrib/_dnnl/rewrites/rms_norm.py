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
"""Finds x / sqrt(mean(x ** 2) + epsilon) * gamma along the last axis, which transformers have."""

from __future__ import annotations

from tvm import relay

from ..ir.dataflow_graph import Graph
from ..policy.op_spec import Rules
from ..policy.tensors import op_name
from .fold_layer_norm import LayerNormReader, Match
from .virtual_ops import caller, virtual_op

NAME = "dnnl.rms_norm"


class RMSNormReader(LayerNormReader):
    """Finds normalizations of data that is not centred."""

    def _centred(self, i: int) -> int | None:
        return i

    def read(self, root: int) -> Match | None:
        """Read the call `root`, with the factor in it if there is one."""
        return self._scaled(root)


def wrap_rms_norms(func: relay.Function, rules: Rules) -> relay.Function:
    """Put the calls of each normalization into the function of a virtual op.

    Parameters
    ----------
    func : relay.Function
        A typed function.
    rules : Rules
        The policy: its rule decides whether oneDNN runs the op.

    Returns
    -------
    func : relay.Function
        The same if nothing was found.
    """
    graph = Graph(func)
    reader = RMSNormReader(graph)
    found = {}
    taken: set[int] = set()
    # From the results to the inputs: with the factor before without.
    for root in reversed(range(len(graph.nodes))):
        if root in taken or op_name(graph.nodes[root]) not in ("multiply", "divide"):
            continue
        match = reader.read(root)
        calls = None if match is None else reader.inside(root, match)
        if calls is None or not taken.isdisjoint(calls):
            continue
        names = {NAME, *(op_name(graph.nodes[i]) for i in calls)}
        if graph.nodes[root].checked_type != graph.nodes[match.data].checked_type:
            continue
        operands = match.operands()
        wrapped = virtual_op(graph, NAME, {"epsilon": match.epsilon}, operands, calls)
        args = [graph.nodes[i] for i in operands]
        if rules.excludes(*names) or rules.ops[NAME].reason(relay.Call(wrapped, args)):
            continue
        found[root] = operands, caller(wrapped, graph.nodes[root].span)
        taken.update(calls)
    return graph.replace(found)
