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
"""Stores the weights of large recurrent layers in bfloat16.

Data, states and sums stay in float32: rounding the state in each step would add up. A step of few
sequences takes as long as to read the weights, which are half as many bytes. Where the caches hold
them in float32, it takes up to 1.3 of the time, for the conversions: such layers stay as they are.
float16, which most CPUs convert slower, leaves layers in float32, too.
"""

from __future__ import annotations

from collections import Counter

import ml_dtypes
import numpy as np

from ..ir.graph import Graph
from ..ir.match import is_op
from ..ir.node import Node
from ..ir.op_view import tensor_of
from ..ops.recurrent import GATES
from ..ops.rules import Rules

# The weights of a direction, 2.4 MB in float32. Measured with 1 and 20 steps of one sequence,
# AVX-512 and a cache of 2 MB per core: 1.1 of the time of float32 with 0.5M weights, 0.8 with 0.8M
# and 0.4 with 2.1M.
FEWEST_WEIGHTS = 600_000

_LARGEST = float(ml_dtypes.finfo("bfloat16").max)


def narrow_layers(graph: Graph, rules: Rules) -> None:
    """Write the weights of large layers in bfloat16, if the options name it."""
    for node in graph.nodes:
        if not _is_wide(node) or _why_not(node, rules):
            continue
        narrow = [graph.constant(each.value, "bfloat16") for each in node.operands[1:3]]
        operands = [node.operands[0], *narrow, *node.operands[3:]]
        new = graph.call(node.name, operands, node, node.type, **vars(node.attrs))
        if rules.refusal(new) is None:
            graph.replace(node, new)


def layers_in_float32(graph: Graph, rules: Rules) -> Counter:
    """Count the layers whose weights stay in float32, by op and reason, for the report."""
    layers = (node for node in graph.nodes if _is_wide(node) and rules.refusal(node) is None)
    reasons = ((node.name, _why_not(node, rules)) for node in layers)
    return Counter(f"{name}: {reason}" for name, reason in reasons if reason)


def _is_wide(node: Node) -> bool:
    """Whether a node is a float32 layer with constant float32 weights."""
    if not is_op(node, *GATES) or tensor_of(node.results[0]).dtype != "float32":
        return False
    weights = node.operands[1:3]
    return all(each.is_constant and each.tensor.dtype == "float32" for each in weights)


def _why_not(node: Node, rules: Rules) -> str | None:
    """Return the reason that the weights of a layer stay in float32."""
    precision, weights = rules.options.precision, node.operands[1:3]
    if precision != "bfloat16":
        return f"recurrent layers have no {precision}"
    count = sum(each.value[0].size for each in weights)
    if count < FEWEST_WEIGHTS:
        return f"{count} weights, with fewer than {FEWEST_WEIGHTS} bfloat16 is slower"
    return None if all(_is_held(each.value) for each in weights) else "bfloat16 has no such weights"


def _is_held(values: np.ndarray) -> bool:
    """Whether rounding overflows no element."""
    return bool((np.abs(values[np.isfinite(values)]) <= _LARGEST).all())
