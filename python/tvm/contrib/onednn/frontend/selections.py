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
"""Writes nodes that select elements so that TVM selects the same ones."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np

from .node_info import Decomposition, NodeInfo


def _non_max_suppression(node: NodeInfo):
    """Raise the threshold of the overlap, which TVM drops, too, and scores of at most -1.

    Without a threshold, each score counts. Negative ones become larger than -1/2 in their order.
    """
    threshold, score, nodes, scores = node.value(3), node.value(4), "", "x1"
    if threshold is None or threshold.size != 1:
        return None
    constants = dict(raised=np.nextafter(threshold, threshold + 1))
    if not node.has(4) or (score is not None and (score < 0).any()):
        nodes = """zero = Sub(half, half) soft = Softsign(x1) negative = Mul(soft, half)
        is_negative = Less(x1, zero) scores = Where(is_negative, negative, x1) """
        lowest = -0.75 if score is None else 0.5 * score.item() / (1 - max(score.item(), -1e30))
        constants["half"], constants["score"] = np.full((), 0.5, "f4"), np.full(1, lowest, "f4")
        scores = "scores"
    most, least = "x2" if node.has(2) else "", "score" if nodes else "x4"
    center = node.attrs.get("center_point_box", 0)
    operands = f"x0, {scores}, {most}, raised, {least}"
    nodes += f"y0 = NonMaxSuppression <center_point_box = {center}> ({operands})"
    return node.body(nodes, **constants)


def _index_of_extremum(op: str, node: NodeInfo):
    """Bound the index, which TVM finds nowhere if all elements are infinite, lowest or NaN.

    The lowest number of uint8 is 0.
    """
    if node.opset < 9 or not node.has_type(0):
        return None
    is_last = node.attrs.get("select_last_index", 0)
    bound = node.shape(0)[node.attrs.get("axis", 0)] if is_last else 1
    if bound is None:
        return None
    attrs = ", ".join(f"{name} = {value}" for name, value in node.attrs.items())
    nodes = f"index = {op} <{attrs}> (x0)" if attrs else f"index = {op} (x0)"
    nodes += " is_outside = Less(index, zero)"
    if is_last:
        nodes = nodes.replace("is_outside", "is_before")
        nodes += " is_after = Less(bound, index) is_outside = Or(is_before, is_after)"
    nodes += " y0 = Where(is_outside, bound, index)"
    return node.body(nodes, bound=np.array(bound - 1), zero=np.array(0))


SELECTIONS: Mapping[tuple[str, str], Decomposition] = {
    **{("", op): functools.partial(_index_of_extremum, op) for op in ("ArgMax", "ArgMin")},
    ("", "NonMaxSuppression"): _non_max_suppression,
}
