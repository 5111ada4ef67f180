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

from ..ir.graph import Graph
from ..ir.match import is_op
from ..ir.node import Node
from ..ir.op_view import OpView, tensor_of
from .quantize import DEQUANTIZE, QUANTIZE, is_per_tensor, is_weight, parameters
from .rules import Rules
from .schema import OpSchema
from .tensors import EIGHT_BITS


def is_dequantized(node: Node, user: Node, rules: Rules) -> bool:
    """Whether an operand of `user` is a dequantize that a kernel can do as it reads."""
    if not is_op(node, DEQUANTIZE) or node.scope != user.scope:
        return False
    return rules.refusal(node) is None and is_per_tensor(node)


def dequantized_operands(root: Node, rules: Rules) -> list[Node] | None:
    """Return which operands of an op its kernel dequantizes; None if it reads floats."""
    spec, operands = rules.ops[root.name], root.operands
    if spec.reads_int8 is None:
        return None
    if spec.name == DEQUANTIZE:
        return []
    if spec.reads_int8 in ("constant weight", "weight"):
        data, weight = operands
        is_read = is_dequantized(data, root, rules) and _is_weight(weight, root, rules)
        return [data, weight] if is_read else None
    read = [node for node in dict.fromkeys(operands) if not node.is_fixed]
    return read if read and all(is_dequantized(node, root, rules) for node in read) else None


def _is_weight(node: Node, root: Node, rules: Rules) -> bool:
    if not is_op(node, DEQUANTIZE) or rules.refusal(node) is not None:
        return False
    spec = rules.ops[root.name]
    if spec.weight_axis is not None and is_weight(node, spec.weight_axis(root)):
        return True
    return spec.reads_int8 == "weight" and is_dequantized(node, root, rules)


def reads_weight(node: Node, user: Node, rules: Rules) -> bool:
    """Whether `user` multiplies by the operand `node` in 8 bits."""
    spec = rules.ops.get(user.name)
    if spec is None or spec.weight_axis is None or rules.refusal(user) is not None:
        return False
    return user.operands[0] is not node and node in (dequantized_operands(user, rules) or ())


def weights_in_float32(graph: Graph, rules: Rules) -> Counter:
    """Count the ops that multiply an 8-bit tensor by an 8-bit weight, but in float32.

    Returns
    -------
    Counter
        By op and reason, a text for the report.
    """
    texts: Counter = Counter()
    for user in graph.nodes:
        spec = rules.ops.get(user.name) if user.is_call else None
        if spec is None or spec.weight_axis is None or rules.refusal(user):
            continue
        data, weight = user.operands
        if not is_dequantized(data, user, rules) or reads_weight(weight, user, rules):
            continue
        if is_op(weight, DEQUANTIZE) and tensor_of(weight.args[0]).dtype in EIGHT_BITS:
            reason = _why_no_weight(weight, spec)
            texts.update([f"{user.name} between 8-bit tensors: {reason}"] if reason else [])
    return texts


def _why_no_weight(weight: OpView, spec: OpSchema) -> str | None:
    """Say what of a dequantized weight keeps an op from reading it in 8 bits, if it does."""
    names = ("the weight", "the scale of the weight", "the zero point of the weight")
    unknown = [name for name, arg in zip(names, weight.args) if not tensor_of(arg).is_constant]
    if unknown and spec.reads_int8 == "constant weight":
        return f"{unknown[0]} is not constant"
    if unknown:
        is_one = is_per_tensor(weight)
        return None if is_one else f"{unknown[0]} is not constant, and there are several scales"
    zero = tensor_of(weight.args[2]).value
    if zero is not None and zero.any():
        return "the weight minus its zero point does not fit into int8"
    return "the scales of the weight are not along the axis of the output channels"


def goes_before_rounding(relu: Node, rules: Rules) -> bool:
    """Whether to move a relu before the preceding quantize so that its consumers read int8.

    That is the same: zero is one of the numbers that 8 bits stand for, and rounding moves none
    across it.
    """
    (dequantized,) = relu.operands
    if not is_op(dequantized, DEQUANTIZE) or dequantized.users != [relu]:
        return False
    bits = dequantized.operands[0]
    if not is_op(bits, QUANTIZE) or bits.users != [dequantized]:
        return False
    known = parameters(*(operand.tensor for operand in dequantized.operands[1:]))
    if known is None or parameters(*(operand.tensor for operand in bits.operands[1:])) != known:
        return False
    limits = np.iinfo(tensor_of(bits.result).dtype)
    if not limits.min <= known[1] <= limits.max:
        return False
    # Ops that can be fused are fused to the relu either way.
    readers = (rules.ops.get(user.name) for user in relu.users)
    return any(row is not None and row.post is None for row in readers)
