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
"""Folds a pad into the padding of the convolution or pool that follows it, where that is exact.

The padding of a convolution is zeros. That of a maximum pool never wins against a value of the
data, and that of an average pool is zeros that either count or do not.
"""

from __future__ import annotations

import math

from ..ir.graph import Graph
from ..ir.match import is_op
from ..ir.node import Node
from ..ir.op_view import OpView
from ..ops.rules import Rules
from ..ops.tensors import ints, known_product
from ..ops.windows import SPATIAL


def fold_pad(graph: Graph, rules: Rules) -> list[Node]:
    """Fold pads into the convolutions and pools that read them, where oneDNN supports it.

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
        if not is_op(pad, "nn.pad") or pad.scope != node.scope:
            continue
        if rules.excludes(pad.name):
            continue
        data = pad.operands[0]
        is_not_negative = data.is_call and rules.is_not_negative(data)
        attrs = _with_pad(node, pad, rules.ops[node.name].padding, is_not_negative)
        if attrs is not None:
            padded = graph.with_attrs(node, [data, *others], **attrs)
            if rules.refusal(padded) is None:
                graph.replace(node, padded)
                folded.append(pad)
    return folded


def _with_pad(call: OpView, pad: OpView, kind: str, is_not_negative: bool) -> dict | None:
    """Return the attributes that change when a call reads the data of the pad.

    Parameters
    ----------
    call, pad : OpView
        A convolution or a pool, and the pad that it reads.
    kind : str
        What the call pads with, see `OpSchema.padding`.
    is_not_negative : bool
        Whether no element of the pad's data is below zero.

    Returns
    -------
    attrs : dict | None
        None if the call cannot pad as both do.
    """
    padding = _padding(pad, call, kind) if _is_neutral(pad, kind, is_not_negative) else None
    if padding is None:
        return None
    return {"padding": padding, **({"count_include_pad": True} if kind == "average" else {})}


def _is_neutral(pad: OpView, kind: str, is_not_negative: bool) -> bool:
    """Whether the pad's value equals the padding value of the call."""
    value = pad.args[1]
    is_known = value.is_constant and known_product(value.shape) == 1
    if not is_known or pad.attrs.pad_mode != "constant":
        return False
    number = float(value.value.reshape(()))
    if kind != "lowest":
        return number == 0.0
    return number == -math.inf or (number <= 0.0 and is_not_negative)


def _padding(pad: OpView, call: OpView, kind: str) -> list[int] | None:
    """Return the padding of the call and the pad together; None if it cannot be one padding."""
    attrs = call.attrs
    layout = attrs.data_layout if kind == "zero" else attrs.layout
    letters = SPATIAL[5 - len(layout) :]
    own = ints(attrs.padding)
    widths = [ints(width) for width in pad.attrs.pad_width]
    if own is None or None in widths or len(widths) != len(layout):
        return None
    if any(min(width) < 0 for width in widths):
        return None
    if any(any(width) for letter, width in zip(layout, widths) if letter not in letters):
        return None
    own = own * (2 * len(letters) // len(own))
    # A pool that does not count its own padding counts what was padded before.
    if kind == "average" and any(own) and not attrs.count_include_pad:
        return None
    spatial = [widths[layout.index(letter)] for letter in letters]
    sides = [width[0] for width in spatial] + [width[1] for width in spatial]
    return [a + b for a, b in zip(own, sides)]
