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
"""Folds a pad into the padding of the convolutions and pools that follow it, where that is exact.

The padding of a convolution is zeros. That of a maximum pool never wins against a value of the
data, and that of an average pool is zeros that either count or do not.
"""

from __future__ import annotations

import math

from tvm import relay
from tvm.relay import transform

from ..ir.dataflow_graph import Graph, with_attrs
from ..policy.op_spec import Rules
from ..policy.rules.conv import SPATIAL
from ..policy.tensors import ints, op_name

FOLDS = tuple(
    f"nn.{kind}{rank}d" for kind in ("conv", "max_pool", "avg_pool") for rank in (1, 2, 3)
)

# What these compute is never below zero.
_NOT_NEGATIVE = ("nn.relu", "sigmoid", "exp", "sqrt", "abs", "nn.softmax")


def _pad_value(pad: relay.Call) -> float | None:
    """Return what a pad puts around its data, if that is a known constant."""
    value = pad.args[1]
    if str(pad.attrs.pad_mode) != "constant" or not isinstance(value, relay.Constant):
        return None
    return float(value.data.numpy().reshape(()))


def _is_not_negative(data: relay.Expr) -> bool:
    if op_name(data) == "clip":
        return float(data.attrs.a_min) >= 0.0
    return op_name(data) in _NOT_NEGATIVE


def _is_neutral(pad: relay.Call, call: relay.Call) -> bool:
    """Whether the values that are padded are those that the call would pad with."""
    value = _pad_value(pad)
    if value is None:
        return False
    if "max_pool" not in op_name(call):
        return value == 0.0
    return value == -math.inf or (value <= 0.0 and _is_not_negative(pad.args[0]))


def _padding(pad: relay.Call, call: relay.Call) -> list[int] | None:
    """Return the padding of the call and the pad together; None if it cannot be one padding."""
    attrs = call.attrs
    layout = str(attrs.data_layout if "conv" in op_name(call) else attrs.layout)
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
    if "avg_pool" in op_name(call) and any(own) and not attrs.count_include_pad:
        return None
    found = [widths[layout.index(letter)] for letter in letters]
    sides = [width[0] for width in found] + [width[1] for width in found]
    return [a + b for a, b in zip(own, sides)]


def _folded(call: relay.Call, pad: relay.Call, data: relay.Expr, rules: Rules):
    """Return what stands for a call of a padded tensor; None to leave it."""
    padding = _padding(pad, call) if _is_neutral(pad, call) else None
    if padding is None:
        return None
    attrs = {"padding": padding}
    if "avg_pool" in op_name(call):
        attrs["count_include_pad"] = True
    # The rules need types, so they see the call with the data as it was.
    typed = with_attrs(call, [pad.args[0], *call.args[1:]], **attrs)
    if transform.InferTypeLocal(typed) != call.checked_type or rules.refusal(typed) is not None:
        return None
    return with_attrs(call, [data, *call.args[1:]], **attrs)


def fold_pad(func: relay.Function, rules: Rules) -> tuple[relay.Function, int]:
    """Fold pads into the convolutions and pools that oneDNN runs.

    Parameters
    ----------
    func : relay.Function
        A typed function.
    rules : Rules
        The policy: its rules decide whether oneDNN runs the result.

    Returns
    -------
    func : relay.Function
        The same where there is nothing to fold.
    folded : int
        How many pads have gone.
    """
    graph = Graph(func)
    calls = {}
    for i, call in enumerate(graph.nodes):
        if op_name(call) not in FOLDS:
            continue
        pad = graph.children[i][0]
        if op_name(graph.nodes[pad]) == "nn.pad":
            calls[i] = pad
    if not calls or rules.excludes("nn.pad"):
        return func, 0
    gone = set()

    def build(i, done):
        if i in calls:
            pad = calls[i]
            call = _folded(graph.nodes[i], graph.nodes[pad], done[graph.children[pad][0]], rules)
            if call is not None:
                gone.add(pad)
                return call
        return graph.remake(i, done)

    made = graph.rebuild(lambda i: graph.children[i], build)
    return made, sum(set(graph.users[pad]) <= set(calls) for pad in gone)
