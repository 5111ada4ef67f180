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
"""Fuses the guards that exporters write after a softmax for rows without a finite score.

Such a row of a softmax is NaN. A guard makes it zero, in one of two forms:

- ``where(isnan(s), 0, s)`` for ``s = softmax(x)``, as ONNX exporters write it, which is
  `dnnl.nan_safe_softmax`;
- ``where(not any(x != -inf), 0, softmax(x))``, as PyTorch decomposes an attention with a mask,
  which is `dnnl.masked_softmax`. Rows with NaN stay NaN.

Whether a row has a finite score depends on the inputs, so a guard is not removed. It costs nothing
when fused, because a softmax looks for rows of NaN anyway.
"""

from __future__ import annotations

import math

import numpy as np

from ..ir.graph import Graph
from ..ir.match import closed_group, is_named
from ..ir.node import CALL, Node
from ..ops.attrs import attribute
from ..ops.rules import Rules

NAN_SAFE, MASKED = "dnnl.nan_safe_softmax", "dnnl.masked_softmax"


def fuse_softmax_guards(graph: Graph, rules: Rules) -> None:
    """Fuse each softmax along the last axis with its guard."""
    for node in graph.nodes:
        guard = _guard_of(node) if is_named(node, "where") else None
        if guard is None:
            continue
        name, softmax = guard
        (data,) = softmax.operands
        if not data.is_live or softmax.tensor.dims != node.tensor.dims:
            continue
        group = closed_group(node, [data])
        if group is None:
            continue
        names = [each.name.removeprefix("relax.") for each in group if each.name]
        new = graph.call(name, [data], node, node.type)
        if not rules.excludes(name, *names) and rules.refusal(new) is None:
            graph.fuse_into(node, new)


def _guard_of(node: Node) -> tuple[str, Node] | None:
    """Match a guard; return the name of the fused op and the softmax."""
    if len(node.operands) != 3:
        return None
    condition, zero, softmax = node.operands
    if not is_named(softmax, "nn.softmax") or not softmax.is_call or not filled_value(zero) == 0.0:
        return None
    rank = len(softmax.tensor.dims)
    if softmax.attrs.axis % rank != rank - 1:
        return None
    if is_named(condition, "isnan") and condition.operands == [softmax]:
        return NAN_SAFE, softmax
    return (MASKED, softmax) if _is_masked(condition, softmax.operands[0]) else None


def filled_value(node: Node) -> float | None:
    """Return the value of all elements of a tensor; None if unknown."""
    name = node.name.removeprefix("relax.") if node.kind == CALL else None
    if name in ("zeros", "zeros_like"):
        return 0.0
    if name in ("full", "full_like"):
        node = node.operands[-1]
    if not node.is_constant or node.value.size == 0:
        return None
    first = node.value.flat[0]
    return float(first) if np.all(node.value == first) else None


def _is_masked(condition: Node, scores: Node) -> bool:
    """Whether a condition is true for the rows of scores that are -inf alone."""
    finite = condition.operands[0] if is_named(condition, "logical_not") else None
    is_finite = _any_of_rows(finite) if finite is not None else None
    if is_finite is None or not is_named(is_finite, "logical_not"):
        return False
    (equal,) = is_finite.operands
    return (
        is_named(equal, "equal")
        and equal.operands[0] is scores
        and filled_value(equal.operands[1]) == -math.inf
    )


def _any_of_rows(node: Node) -> Node | None:
    """Return the operand of an `any` over rows."""
    if is_named(node, "any"):
        return node.operands[0] if _is_of_rows(node) else None
    # TVM's maximum does not support truths, so its importer of PyTorch casts them to int8.
    casts = [node]
    if (
        is_named(node, "cast")
        and is_named(node.operands[0], "max")
        and _is_of_rows(node.operands[0])
    ):
        casts.append(node.operands[0].operands[0])
    if len(casts) < 2 or not is_named(casts[1], "cast"):
        return None
    types = (node.tensor.dtype, casts[1].tensor.dtype, casts[1].operands[0].tensor.dtype)
    return casts[1].operands[0] if types == ("bool", "int8", "bool") else None


def _is_of_rows(node: Node) -> bool:
    """Whether a reduction is along the last axis, which it keeps."""
    attrs, rank = node.attrs, len(node.operands[0].tensor.dims)
    axes = attrs.axis if isinstance(attrs.axis, (list, tuple)) else [attrs.axis]
    is_last = [axis is not None and int(axis) % rank == rank - 1 for axis in axes] == [True]
    return is_last and attrs.keepdims and not attribute(attrs, "exclude", False)
