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
"""Folds per-channel scales and shifts into the preceding convolution or matmul.

These are those of a batch_norm, and constants that are one number or one for each channel. What
they make of a weight and a bias is computed in double precision and rounded once, so the results
may differ in the last bits. Where nothing is multiplied, all is left as it is.

A batch_norm with nothing to be folded into becomes one factor and one summand of each channel,
unless oneDNN's own kernel is better: with float32 and the channels first it takes three to ten
times as long, with the channels last a summand is not fused.
"""

from __future__ import annotations

import numpy as np

from ..ir.graph import Graph
from ..ir.match import is_field, is_op
from ..ir.node import FIELD, Node
from ..ir.numpy_types import along, rounded
from ..ops.rules import Rules
from .scale_walk import Affine, ScaleWalk, affine_of


def fold_scale(graph: Graph, rules: Rules) -> list[Node]:
    """Fold batch norms and constants into weights and biases.

    Returns
    -------
    folded : list[Node]
        What is folded: all but one addition, which is the bias.
    """
    names, folded = rules.with_field("scaled_weight"), []
    for node in graph.nodes:
        if not is_op(node, *names):
            continue
        weight = node.operands[1]
        if not weight.is_constant or weight.tensor.dtype != node.tensor.dtype:
            continue
        if rules.refusal(node) is None:
            folded += _fold(graph, rules, node)
    for node in graph.nodes:
        affine = None if node in folded else affine_of(node, rules)
        if affine is not None and _is_better_written_out(node, rules):
            if _write_out(graph, rules, node, affine):
                folded.append(node)
    return folded


def _fold(graph: Graph, rules: Rules, root: Node) -> list[Node]:
    """Fold the longest chain of ops into a root; return the folded ops."""
    dtype, last = root.tensor.dtype, None
    for each in ScaleWalk(root, rules).matches():
        values = (value for value in (each.weight, each.bias) if value is not None)
        constants = [rounded(value, dtype) for value in values]
        if all(np.isfinite(value.astype("float64")).all() for value in constants):
            last = each, constants
    if last is None:
        return []
    each, (weight, *bias) = last
    new = graph.with_operands(root, [root.operands[0], graph.constant(weight)], root.type)
    if bias:
        new = graph.call("add", [new, graph.constant(bias[0])], root, root.type)
        if rules.refusal(new) is not None:
            return []
    graph.replace(each.ops[-1], new)
    return each.gone


def _is_better_written_out(node: Node, rules: Rules) -> bool:
    data = node.operands[0].tensor
    if rules.refusal(node) is not None:
        return True
    if not all(is_field(user, 0) for user in node.users):
        return False
    return data.dtype == "float32" and node.attrs.axis % len(data.shape) == 1


def _write_out(graph: Graph, rules: Rules, node: Node, affine: Affine) -> bool:
    """Replace the first result of a batch_norm with a multiply and an add, if possible."""
    data, *statistics = node.operands
    rank, dtype = len(data.tensor.dims), data.tensor.dtype
    scale, shift = (rounded(along(each, affine.axis, rank), dtype) for each in affine[1:])
    if not all(np.isfinite(each.astype("float64")).all() for each in (scale, shift)):
        return False
    product = graph.call("multiply", [data, graph.constant(scale)], node)
    result = graph.call("add", [product, graph.constant(shift)], node)
    if rules.excludes(product.name, result.name):
        return False
    for user in list(node.users):
        if user.kind == FIELD:
            graph.replace(user, [result, *statistics[2:]][user.attrs.index])
    return True
