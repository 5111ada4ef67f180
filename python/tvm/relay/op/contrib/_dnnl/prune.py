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

from tvm import relay

from .options import Options
from .spec import SpecTable
from .tensors import op_name, result_elements

# A region without a heavy op only moves memory. TVM fuses such ops into their neighbours, which
# costs nothing there; a call into the runtime costs microseconds and breaks that fusion. Below
# this many results (256 KiB of float32, which stay in the cache) there is nothing to gain.
LIGHT_ELEMENTS = 1 << 16


def why_prune(calls: list[relay.Call], table: SpecTable, options: Options) -> str | None:
    """Say why a region stays on TVM; None to make it a partition.

    Parameters
    ----------
    calls : list[relay.Call]
        The calls of Relay ops in the region.
    table : SpecTable
        The policy, which tells the heavy ops.
    options : Options
        Of the run.
    """
    if not calls:
        return "pruned: no op"
    if not options.prune or any(table.is_heavy(op_name(call)) for call in calls):
        return None
    computed = [call for call in calls if not table.moves(op_name(call))]
    if not computed:
        return "pruned: nothing to compute, elements are only moved"
    elements = sum(result_elements(call) for call in computed)
    if elements >= LIGHT_ELEMENTS:
        return None
    return f"pruned: no heavy op and {elements} elements, fewer than {LIGHT_ELEMENTS}"
