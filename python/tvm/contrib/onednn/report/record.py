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
"""The decisions of partition_for_dnnl, which the partitioned module keeps for the report."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields

from ..failures import add_failure
from ..ops.rules import Rules
from ..ops.schema import OpSchema
from ..options import Options
from .describe import Description
from .offload_report import LEFT, UNPARTITIONED, Node, OffloadReport

# The attribute of a partitioned module that has its record as JSON text.
ATTR = "dnnl_partition_record"


@dataclass
class Record:
    """The decisions of one or several runs.

    Parameters
    ----------
    functions : dict[str, list[dict]]
        By function: the nodes of the report.
    in_8_bits : dict[str, dict[str, int]]
        By function and kind of scale: the composites that read integers in 8 bits.
    folded : Counter
        By op: how many were folded into others or removed.
    in_float32 : Counter
        By op and reason: the ops of 8-bit tensors and weights that run in float32, those of types
        that the CPU lacks, and the recurrent layers whose weights stay so with `precision`.
    failures : dict[str, str]
        By function: why it, or an op of it, was left as it was.
    excluded : list[str]
        The option `exclude`.
    unrolled : list[str]
        The recurrent layers that the importer unrolled, each with the reason.
    """

    functions: dict[str, list[dict]] = field(default_factory=dict)
    in_8_bits: dict[str, dict[str, int]] = field(default_factory=dict)
    folded: Counter = field(default_factory=Counter)
    in_float32: Counter = field(default_factory=Counter)
    failures: dict[str, str] = field(default_factory=dict)
    excluded: list[str] = field(default_factory=list)
    unrolled: list[str] = field(default_factory=list)

    def describe(self, function: Description) -> None:
        """Note where each op of a function runs, and why."""
        self.functions[function.function] = [vars(node) for node in function.nodes]
        self.in_8_bits[function.function] = dict(function.in_8_bits)

    def update(self, other: Record) -> None:
        """Add the record of what was decided later."""
        self.functions.update(other.functions)
        self.in_8_bits.update(other.in_8_bits)
        self.folded.update(other.folded)
        self.in_float32.update(other.in_float32)
        for name, text in other.failures.items():
            add_failure(self.failures, name, text)

    def to_json(self) -> str:
        """Return the record as the attribute of a module."""
        return json.dumps(vars(self), sort_keys=True)

    @staticmethod
    def of(mod) -> Record:
        """Return the record of a module of either IR; an empty one if it has none."""
        text = mod.get_attr(ATTR)
        known = {} if text is None else json.loads(str(text))
        names = {each.name for each in fields(Record)}
        # The record of another version may have more, or less.
        record = Record(**{name: value for name, value in known.items() if name in names})
        record.folded, record.in_float32 = Counter(record.folded), Counter(record.in_float32)
        return record


def make_report(
    record: Record,
    functions: Mapping,
    partitions: int,
    rows: Mapping[str, OpSchema],
    closed: Callable,
    described: Callable,
) -> OffloadReport:
    """Return the report of a module.

    Parameters
    ----------
    record : Record
        The record of the module.
    functions : Mapping
        Its functions by name, partitions left out.
    partitions : int
        How many partitions it has.
    rows : Mapping[str, OpSchema]
        The rules, for functions that have no record.
    closed : Callable
        Tells the ops of a function that is not looked into, and why; None for any other.
    described : Callable
        Returns the `Description` of a function that has no record, of the function, the arguments
        of `Description` after the graph, and its default reason.
    """
    rules = Rules(rows, Options(exclude=frozenset(record.excluded)))
    report = OffloadReport(partitions=partitions, failures=dict(record.failures))
    report.folded, report.in_float32 = record.folded, record.in_float32
    report.unrolled = record.unrolled
    for name, func in functions.items():
        if name in record.functions:
            report.add(Node(**node) for node in record.functions[name])
            report.in_8_bits.update(record.in_8_bits[name])
        elif (ops := closed(func)) is not None:
            names, reason = ops
            report.add([Node("tvm", name, name, names, reason=reason, model_ops=names)])
        else:
            default = record.failures.get(name, LEFT if partitions else UNPARTITIONED)
            seen = described(func, rules, name, default=default)
            report.add(seen.nodes)
            report.in_8_bits.update(seen.in_8_bits)
    return report
