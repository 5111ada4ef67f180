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
"""Fuses dense layers of mixtures of experts, which multiply each row by the weights of all experts.

Importers write ``sum(where(mask, reshape(dense(x, weights)), 0))``: the weights of all experts are
one matrix, and the mask selects those of a row. `dnnl.expert_dense` computes only these.
"""

from __future__ import annotations

from ..ir.graph import Graph
from ..ir.match import closed_group, is_op, scalar_of
from ..ir.node import Node
from ..ops.rules import Rules

NAME = "dnnl.expert_dense"
# The sum, the selection, the reshape and the dense layer.
_OPS = 4


def fuse_experts(graph: Graph, rules: Rules) -> None:
    """Multiply each row by the weights of its experts only."""
    for node in graph.nodes:
        selected = _selected(node)
        if selected is None or rules.excludes(NAME, "sum", "where", "reshape", "nn.dense"):
            continue
        mask, dense, experts = selected
        data, weight = dense.operands
        group, rows = closed_group(node, [data, weight, mask], _OPS), mask.tensor.shape[0]
        # In reduced precision many rows are faster by all experts, which this op has in float32.
        is_many = rows is not None and rows >= experts
        if group is None or rules.options.precision != "float32" and is_many:
            continue
        weights = weight.value.reshape(experts, -1, weight.value.shape[1])
        new = graph.call(NAME, [data, graph.constant(weights), mask], node, node.type)
        if rules.refusal(new) is None:
            graph.fuse_into(node, new)


def _selected(node: Node) -> tuple[Node, Node, int] | None:
    """Return the mask of a sum of the products of all experts, their dense layer and number."""
    if not is_op(node, "sum") or node.attrs.keepdims or node.attrs.exclude:
        return None
    where = node.operands[0]
    if not is_op(where, "where") or list(node.attrs.axis or ()) != [1]:
        return None
    mask, split, other = where.operands
    if scalar_of(other) != 0.0 or not is_op(split, "reshape"):
        return None
    dense, sizes, chosen = split.operands[0], split.tensor.shape, mask.tensor.shape
    if not is_op(dense, "nn.dense") or not dense.operands[1].is_constant:
        return None
    if len(sizes) != 3 or len(dense.tensor.shape) != 2:
        return None
    # The last axis, that of the units of all experts, is split in two.
    experts, units = sizes[1:]
    if experts is None or units is None or experts * units != dense.tensor.shape[1]:
        return None
    return (mask, dense, experts) if chosen[1:] == (experts, 1) else None
