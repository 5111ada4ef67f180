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
from collections.abc import Callable, Iterator

from tvm import relay

from ..ir.dataflow_graph import DataflowGraph, Rewritten, TypedFunction, with_attrs
from ..ir.relay_view import op_name, view_of
from ..policy.op_spec import Rules
from ..policy.rules.conv import SPATIAL
from ..policy.tensors import ints
from .driver import Match, rewrite


def fold_pad(function: TypedFunction, rules: Rules) -> Rewritten:
    """Fold pads into the convolutions and pools that read them."""
    return rewrite(function, rules, _find)


def _find(graph: DataflowGraph, rules: Rules, calls_of: Callable) -> Iterator[Match]:
    for i in calls_of(*rules.with_field("padding")):
        pad, *others = graph.operands[i]
        if graph.ops[pad] == "nn.pad":
            build = _fold(graph.nodes[i], graph.nodes[pad], rules)
            if build is not None:
                # The pad stays where something else uses it.
                yield Match([i], [graph.operands[pad][0], *others], build, folded=[pad])


def _pad_value(pad: relay.Call) -> float | None:
    """Return what a pad puts around its data, if that is a known constant."""
    value = pad.args[1]
    if str(pad.attrs.pad_mode) != "constant" or not isinstance(value, relay.Constant):
        return None
    return float(value.data.numpy().reshape(()))


def _is_neutral(pad: relay.Call, kind: str, rules: Rules) -> bool:
    """Whether the values that are padded are those that the call would pad with."""
    value = _pad_value(pad)
    if value is None:
        return False
    if kind != "lowest":
        return value == 0.0
    return value == -math.inf or (value <= 0.0 and rules.is_not_negative(view_of(pad.args[0])))


def _padding(pad: relay.Call, call: relay.Call, kind: str) -> list[int] | None:
    """Return the padding of the call and the pad together; None if it cannot be one padding."""
    attrs = call.attrs
    layout = str(attrs.data_layout if "data_layout" in attrs.keys() else attrs.layout)
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


def _fold(call: relay.Call, pad: relay.Call, rules: Rules) -> Callable[..., relay.Call] | None:
    """Return what makes a call of other arguments, with the padding of both; None to leave it."""
    kind = rules.ops[op_name(call)].padding
    padding = _padding(pad, call, kind) if _is_neutral(pad, kind, rules) else None
    if padding is None:
        return None
    attrs = {"padding": padding}
    if kind == "average":
        attrs["count_include_pad"] = True
    return lambda *args: with_attrs(call, args, **attrs)
