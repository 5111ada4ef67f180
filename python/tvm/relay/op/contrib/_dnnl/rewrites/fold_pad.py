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
"""Folds a pad into the padding of what follows it, see `policy/padding.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tvm import relay
from tvm.contrib.onednn.policy.op_spec import Rules
from tvm.contrib.onednn.policy.padding import with_pad

from ..ir.dataflow_graph import DataflowGraph, Rewritten, TypedFunction, with_attrs
from .driver import Match, rewrite


def fold_pad(function: TypedFunction, rules: Rules) -> Rewritten:
    """Fold pads into the convolutions and pools that read them."""
    return rewrite(function, rules, _find)


def _find(graph: DataflowGraph, rules: Rules, calls_of: Callable) -> Iterator[Match]:
    for i in calls_of(*rules.with_field("padding")):
        pad, *others = graph.operands[i]
        if graph.ops[pad] == "nn.pad":
            data, kind = graph.operands[pad][0], rules.ops[graph.ops[i]].padding
            is_not_negative = rules.is_not_negative(graph.views[data])
            attrs = with_pad(graph.views[i], graph.views[pad], kind, is_not_negative)
            if attrs is not None:
                # The pad stays where something else uses it.
                yield Match([i], [data, *others], _with(graph.nodes[i], attrs), folded=[pad])


def _with(call: relay.Call, attrs: dict) -> Callable[..., relay.Call]:
    """Return what makes a call of other arguments and some other attributes."""
    return lambda *args: with_attrs(call, args, **attrs)
