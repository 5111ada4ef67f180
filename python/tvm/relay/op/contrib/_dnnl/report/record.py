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

ATTR = "dnnl_partition_record"


@dataclass
class Record:
    """What partition_for_dnnl knew and the partitioned module does not show.

    Parameters
    ----------
    folded : Counter
        Calls by op name that were folded into others or removed before the partitioning.
    pruned : dict[str, Counter]
        By reason: calls by op name that were in a partition that went back to TVM.
    excluded : list[str]
        The option `exclude`.
    failures : dict[str, str]
        By function: why it was left as it was.
    """

    folded: Counter = field(default_factory=Counter)
    pruned: dict[str, Counter] = field(default_factory=dict)
    excluded: list[str] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)

    def prune(self, reason: str, calls: Counter) -> None:
        """Note that the calls of a partition went back to TVM."""
        if calls:
            self.pruned.setdefault(reason, Counter()).update(calls)

    def attach(self, mod: tvm.IRModule) -> tvm.IRModule:
        """Return `mod` with this record, merged with what an earlier run left there."""
        earlier = Record.of(mod)
        if earlier is not None:
            self.folded.update(earlier.folded)
            self.failures = {**earlier.failures, **self.failures}
        text = json.dumps(
            {
                "folded": self.folded,
                "pruned": self.pruned,
                "excluded": sorted(self.excluded),
                "failures": self.failures,
            },
            sort_keys=True,
        )
        return mod.with_attr(ATTR, tvm.runtime.String(text))

    @staticmethod
    def of(mod: tvm.IRModule):
        """Read the record of a module; None if it has none."""
        text = mod.get_attr(ATTR)
        if text is None:
            return None
        fields = json.loads(str(text))
        return Record(
            Counter(fields["folded"]),
            {reason: Counter(calls) for reason, calls in fields["pruned"].items()},
            fields["excluded"],
            fields["failures"],
        )
