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

from functools import partial

import tvm
from tvm import relax
from tvm.contrib.onednn.policy.op_spec import Rules
from tvm.contrib.onednn.policy.padding import with_pad

from .graph import RelaxGraph, view_of
from .mutators import BindingMutator, replaced
from .ops import ROWS
from .reading import Unread, op_name, with_attrs


def fold_pad(mod: tvm.IRModule, func: relax.Function, rules: Rules) -> relax.Function:
    """Return a function with pads in the padding of the convolutions and pools behind them.

    Parameters
    ----------
    mod : tvm.IRModule
        The module that the function is of.
    func : relax.Function
        The function.
    rules : Rules
        The policy.
    """
    graph = RelaxGraph(func, rules.options.exclude)
    names, values = rules.with_field("padding"), {}
    for i in (i for i, name in enumerate(graph.ops) if name in names):
        pad = graph.operands[i][0]
        if graph.ops[pad] != "nn.pad" or graph.scope[pad] != graph.scope[i]:
            continue
        is_not_negative = rules.is_not_negative(graph.views[graph.operands[pad][0]])
        kind = rules.ops[graph.ops[i]].padding
        attrs = with_pad(graph.views[i], graph.views[pad], kind, is_not_negative)
        if attrs is not None:
            values[graph.nodes[i]] = partial(_padded, rules, attrs)
    return replaced(mod, func, values)


def _padded(rules: Rules, attrs: dict, mutator: BindingMutator, call: relax.Call) -> relax.Call:
    """Return a call that pads itself, if oneDNN runs that."""
    pad, others = mutator.bound(call.args[0]), call.args[1:]
    padded = with_attrs(relax.Call(call.op, [pad.args[0], *others], call.attrs), **attrs)
    padded = mutator.builder_.normalize(padded)
    try:
        view = view_of(padded, ROWS[op_name(call)](padded))
    except Unread:
        return call
    return padded if rules.refusal(view) is None else call
