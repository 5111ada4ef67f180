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
"""Tells which operands an op reads in 8 bits: their dequantize becomes a part of its kernel."""

from __future__ import annotations

from collections import Counter

import numpy as np

from ..ir.numbered import Graph
from ..ir.op_view import OpView
from .quantize import DEQUANTIZE, QUANTIZE, is_per_tensor, is_weight, parameters
from .rules import Rules
from .schema import OpSchema
from .tensors import EIGHT_BITS


def is_dequantized(graph: Graph, rules: Rules, i: int, user: int) -> bool:
    """Whether an operand of `user` is a dequantize that a kernel can do as it reads."""
    if graph.ops[i] != DEQUANTIZE or graph.scope[i] != graph.scope[user]:
        return False
    call = graph.views[i]
    return rules.refusal(call) is None and is_per_tensor(call)


def dequantized_operands(graph: Graph, rules: Rules, root: int) -> list[int] | None:
    """Return which operands of an op its kernel dequantizes; None if it reads floats."""
    spec, operands = rules.ops[graph.ops[root]], graph.operands[root]
    if spec.reads_int8 is None:
        return None
    if spec.name == DEQUANTIZE:
        return []
    if spec.reads_int8 in ("constant weight", "weight"):
        data, weight = operands
        is_read = is_dequantized(graph, rules, data, root) and _is_weight(
            graph, rules, weight, root
        )
        return [data, weight] if is_read else None
    read = [i for i in dict.fromkeys(operands) if not graph.is_fixed(i)]
    return read if read and all(is_dequantized(graph, rules, i, root) for i in read) else None


def _is_weight(graph: Graph, rules: Rules, i: int, root: int) -> bool:
    if graph.ops[i] != DEQUANTIZE or rules.refusal(graph.views[i]) is not None:
        return False
    spec = rules.ops[graph.ops[root]]
    if is_weight(graph.views[i], spec.weight_axis(graph.views[root])):
        return True
    return spec.reads_int8 == "weight" and is_dequantized(graph, rules, i, root)


def reads_weight(graph: Graph, rules: Rules, i: int, user: int) -> bool:
    """Whether `user` multiplies by the operand `i` in 8 bits."""
    spec = rules.ops.get(graph.ops[user])
    if spec is None or spec.weight_axis is None or rules.refusal(graph.views[user]) is not None:
        return False
    return graph.operands[user][0] != i and i in (dequantized_operands(graph, rules, user) or ())


def weights_in_float32(graph: Graph, rules: Rules) -> Counter:
    """Count the ops that multiply an 8-bit tensor by an 8-bit weight, but in float32.

    Returns
    -------
    Counter
        By op and reason, a text for the report.
    """
    texts: Counter = Counter()
    for user, name in enumerate(graph.ops):
        spec = rules.ops.get(name)
        if spec is None or spec.weight_axis is None or rules.refusal(graph.views[user]):
            continue
        data, i = graph.operands[user]
        if not is_dequantized(graph, rules, data, user) or reads_weight(graph, rules, i, user):
            continue
        if graph.ops[i] == DEQUANTIZE and graph.views[i].args[0].dtype in EIGHT_BITS:
            reason = _why_no_weight(graph.views[i], spec)
            texts.update([f"{name}: {reason}"] if reason else [])
    return texts


def _why_no_weight(weight: OpView, spec: OpSchema) -> str | None:
    """Say what of a dequantized weight keeps an op from reading it in 8 bits, if it does."""
    names = ("the weight", "the scale of the weight", "the zero point of the weight")
    unknown = [name for name, arg in zip(names, weight.args) if not arg.is_constant]
    if unknown and spec.reads_int8 == "constant weight":
        return f"{unknown[0]} is not constant"
    if unknown:
        is_one = is_per_tensor(weight)
        return None if is_one else f"{unknown[0]} is not constant, and there are several scales"
    if weight.args[2].value.any():
        return "the weight minus its zero point does not fit into int8"
    return "the scales of the weight are not along the axis of the output channels"


def goes_before_rounding(graph: Graph, rules: Rules, relu: int) -> bool:
    """Whether a relu of what is rounded had better be rounded itself, for its readers' sake.

    That is the same: zero is one of the numbers that 8 bits stand for, and rounding moves none
    across it.
    """
    (real,) = graph.operands[relu]
    if graph.ops[real] != DEQUANTIZE or graph.users[real] != [relu]:
        return False
    bits = graph.operands[real][0]
    if graph.ops[bits] != QUANTIZE or graph.users[bits] != [real]:
        return False
    known = parameters(*graph.views[real].args[1:])
    if known is None or parameters(*graph.views[bits].args[1:]) != known:
        return False
    limits = np.iinfo(graph.views[bits].result.dtype)
    if not limits.min <= known[1] <= limits.max:
        return False
    # Ops that can be fused are fused to the relu either way.
    readers = (rules.ops.get(graph.ops[user]) for user in graph.users[relu])
    return any(row is not None and row.post is None for row in readers)
