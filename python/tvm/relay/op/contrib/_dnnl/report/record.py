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
"""The notes of a partitioning run for the report: JSON text in an attribute of the module."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field

import tvm
from tvm import relay

from ..ir.dataflow_graph import DataflowGraph, TypedFunction
from .identity import Identity, identify, same_ops

ATTR = "dnnl_partition_record"


@dataclass
class Record:
    """Facts that partition_for_dnnl knew and the partitioned module does not show.

    Parameters
    ----------
    folded : Counter
        Ops by name that were folded into others or removed before the partitioning.
    stayed : dict[str, list[tuple[Identity, str | None]]]
        By function: its ops in order, and why each was not offloaded although oneDNN could run it,
        or None. Ops are left out of whose name none has a reason.
    excluded : list[str]
        The option `exclude`.
    failures : dict[str, str]
        By function: why it, or an op of it, was left as it was.
    in_float32 : Counter
        By op and reason: the ops between 8-bit tensors that run in float32.
    """

    folded: Counter = field(default_factory=Counter)
    stayed: dict[str, list[tuple[Identity, str | None]]] = field(default_factory=dict)
    excluded: list[str] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    in_float32: Counter = field(default_factory=Counter)

    def stay(
        self, function: TypedFunction, untyped: relay.Function, reasons: dict[relay.Call, str]
    ) -> None:
        """Note why calls were not offloaded: those of a function before it got its types."""
        if not reasons:
            self.stayed[function.name] = []
            return
        texts = [reasons.get(expr) for expr in DataflowGraph(untyped).nodes]
        ops = [(op, texts[i]) for i, op in identify(function.graph).items()]
        names = {op.name for op, text in ops if text is not None}
        self.stayed[function.name] = [(op, text) for op, text in ops if op.name in names]

    def reasons(self, name: str, graph: DataflowGraph) -> dict[int, str]:
        """Return what `stay` noted of a function, by number in the graph that it has now.

        Of ops that a pass has changed so that it is not clear which is which, nothing is known.
        """
        noted = self.stayed.get(name)
        if not noted:
            return {}
        ops = identify(graph)
        numbers = list(ops)
        same = same_ops([op for op, _ in noted], list(ops.values()))
        texts = {numbers[now]: noted[before][1] for now, before in same.items()}
        return {i: text for i, text in texts.items() if text is not None}

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
        for name in ("folded", "in_float32"):
            fields[name] = Counter(fields[name])
        for noted in fields["stayed"].values():
            noted[:] = ((Identity(*identity), text) for identity, text in noted)
        return Record(**fields)
