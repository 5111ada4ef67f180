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
"""Removes reshapes that merge the leading axes of a dense layer's data and split them afterwards.

Exporters write a Gemm so, as its data has rank 2. If two of the axes are open, the second reshape
has no counterpart in oneDNN, and a dense layer needs neither.
"""

from __future__ import annotations

from ..ir.dim import is_same
from ..ir.graph import Graph
from ..ir.node import Node
from ..ops.rules import Rules
from .attention_scores import is_inside, is_same_shape

_RESHAPE = ("reshape", "relax.reshape")


def split_merged_rows(graph: Graph, rules: Rules) -> None:
    """Remove the reshapes around a dense layer and its bias."""
    for node in graph.nodes:
        if node.unsupported is None or node.name not in _RESHAPE:
            continue
        add, dense = _layer_of(node)
        if dense is None:
            continue
        merged, weight = dense.operands
        data = merged.operands[0]
        is_row = is_same(merged.tensor.dims[-1], data.tensor.dims[-1])
        is_split = is_same_shape(node.tensor.dims[:-1], data.tensor.dims[:-1])
        if not is_row or not is_split or not is_same(node.tensor.dims[-1], dense.tensor.dims[-1]):
            continue
        new = graph.with_operands(dense, [data, weight])
        if add is not None:
            new = graph.call("add", [new, *(x for x in add.operands if x is not dense)], add)
        if rules.refusal(new if add is None else new.operands[0]) is None:
            graph.replace(node, new)


def _layer_of(node: Node) -> tuple[Node | None, Node | None]:
    """Return the add of the bias, if any, and the dense layer that a reshape splits."""
    user, add, (data,) = node, None, node.operands[:1]
    if is_inside(data, user, "add"):
        layers = [each for each in data.operands if is_inside(each, data, "nn.dense")]
        biases = [each for each in data.operands if len(each.tensor.dims) == 1]
        if len(layers) != 1 or len(biases) != 1:
            return None, None
        user, add, data = data, data, layers[0]
    is_layer = is_inside(data, user, "nn.dense") and data.operands[0].name in _RESHAPE
    return (add, data) if is_layer else (None, None)
