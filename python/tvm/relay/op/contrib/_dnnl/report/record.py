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
"""What a partitioning run leaves on the module for the report: one JSON text, an attribute."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field

import tvm
from tvm import relay

from ..ir.dataflow_graph import op_calls
from ..ir.relay_view import op_name

ATTR = "dnnl_partition_record"


def _by_op(func: relay.Function) -> dict[str, list[relay.Call]]:
    """Return the calls of a function by Relay op, in the order of evaluation."""
    calls: dict[str, list[relay.Call]] = {}
    for call in op_calls(func):
        calls.setdefault(op_name(call), []).append(call)
    return calls


@dataclass
class Record:
    """What partition_for_dnnl knew and the partitioned module does not show.

    Parameters
    ----------
    folded : Counter
        Ops by name that were folded into others or removed before the partitioning.
    stayed : dict[str, dict[str, list[str | None]]]
        By function and op: for each call of the op, in order, why it was not offloaded although
        oneDNN could run it, or None. No pass keeps the identity of a call or an attribute of ours;
        what they keep is the order.
    excluded : list[str]
        The option `exclude`.
    failures : dict[str, str]
        By function: why it was left as it was.
    in_float32 : Counter
        By op and reason: the ops between 8-bit tensors that run in float32.
    """

    folded: Counter = field(default_factory=Counter)
    stayed: dict[str, dict[str, list[str | None]]] = field(default_factory=dict)
    excluded: list[str] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    in_float32: Counter = field(default_factory=Counter)

    def stay(self, name: str, func: relay.Function, reasons: dict[relay.Call, str]) -> None:
        """Note why calls of the function `name`, which has become `func`, were not offloaded."""
        ops = {op: [reasons.get(call) for call in calls] for op, calls in _by_op(func).items()}
        self.stayed[name] = {op: texts for op, texts in ops.items() if any(texts)}

    def reasons(self, name: str, func: relay.Function) -> dict[relay.Call, str]:
        """Return what `stay` noted of a function.

        Of an op that has not as many calls as then, nothing is known: a pass has changed them.
        """
        texts, reasons = self.stayed.get(name, {}), {}
        for op, calls in _by_op(func).items() if texts else ():
            if len(texts.get(op, ())) == len(calls):
                reasons.update((call, text) for call, text in zip(calls, texts[op]) if text)
        return reasons

    def attach(self, mod: tvm.IRModule) -> tvm.IRModule:
        """Return a copy of `mod` with this record."""
        return mod.with_attr(ATTR, tvm.runtime.String(json.dumps(vars(self), sort_keys=True)))

    @staticmethod
    def of(mod: tvm.IRModule) -> Record | None:
        """Read the record of a module; None if it has none."""
        text = mod.get_attr(ATTR)
        if text is None:
            return None
        fields = json.loads(str(text))
        counters = {name: Counter(fields[name]) for name in ("folded", "in_float32")}
        return Record(**{**fields, **counters})
