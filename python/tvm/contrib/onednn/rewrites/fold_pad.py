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
"""Folds a pad into the padding of what follows it, see `policy/padding.py`."""

from __future__ import annotations

from ..graph.graph import Graph
from ..graph.node import Node
from ..policy.op_spec import Rules
from ..policy.padding import with_pad


def fold_pad(graph: Graph, rules: Rules) -> list[Node]:
    """Let convolutions and pools do the padding of the pads that they read, where oneDNN can.

    Returns
    -------
    folded : list[Node]
        The pads.
    """
    names, folded = rules.with_field("padding"), []
    for node in graph.nodes:
        if not node.is_call or node.name not in names:
            continue
        pad, *others = node.operands
        if pad.name != "nn.pad" or not pad.is_call or pad.scope != node.scope:
            continue
        if rules.excludes(pad.name):
            continue
        data = pad.operands[0]
        is_not_negative = data.is_call and rules.is_not_negative(data)
        attrs = with_pad(node, pad, rules.ops[node.name].padding, is_not_negative)
        if attrs is not None:
            padded = graph.with_attrs(node, [data, *others], **attrs)
            if rules.refusal(padded) is None:
                graph.replace(node, padded)
                folded.append(pad)
    return folded
