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
"""Which regions are not worth a call into the runtime."""

from __future__ import annotations

from ..ir.op_view import OpView
from ..ops.rules import Rules
from ..ops.tensors import result_elements

# A region without a heavy op only moves memory. TVM fuses such ops into their neighbours, which
# costs nothing there; a call into the runtime breaks that fusion.
#
# Measured with ops on their own, best of many runs in microseconds, oneDNN and TVM, one thread:
#
# results                   4096         16384          65536          262144
# relu                  2.3    2.0     3.4    3.1     7.9    7.4    40.0    40.3
# add, multiply, relu   2.8    6.2     4.2   20.1     9.9   17.7   101.9   142.6
# tanh                  3.5   29.3     8.0  108.5    24.3  432.3    95.0  1862.8
# softmax               5.9   16.5    17.1   61.1    61.2  227.7   257.5   982.7
# layer_norm            3.1    8.7     5.5   30.9    13.9  117.7    54.3   495.4
# mean                  4.7    3.2    12.5    8.0    43.5   26.6   173.1   100.0
# max_pool              3.4    2.5     7.4    2.2    26.0    4.3   116.4    12.0
#
# So pools and reductions count nothing, functions such as tanh from about a thousand results on,
# and the rest from what does not fit into the nearest cache, where it loses nothing.
LIGHT_ELEMENTS = 1 << 16
# Elements that are added to one result. TVM adds them one by one, which is less exact, and slower:
# 485 us for 64 rows of 4096, oneDNN 140.
LONG_SUM = 4096


def why_prune(calls: list[OpView], rules: Rules) -> str | None:
    """Say why a region stays on TVM; None to make it a partition.

    Parameters
    ----------
    calls : list[OpView]
        The calls of ops in the region.
    rules : Rules
        The rules, which tell the heavy ops.
    """
    if not calls:
        return "pruned: no ops"
    if not rules.options.prune or any(rules.is_heavy(call.name) for call in calls):
        return None
    computed = [call for call in calls if not rules.moves(call.name)]
    if not computed:
        return "pruned: it only moves data"
    elements = sum(rules.cost_weight(call.name) * result_elements(call) for call in computed)
    if elements >= LIGHT_ELEMENTS:
        return None
    if any(rules.flops(call) >= LONG_SUM * result_elements(call) for call in computed):
        return None
    if elements == 0:
        return "pruned: pools, reductions and resizes are no faster without a heavy op"
    return f"pruned: too small to be faster: cost of {elements} elements, below {LIGHT_ELEMENTS}"
