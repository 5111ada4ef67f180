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
"""Which ops of a module run on oneDNN, and why the others do not."""

from __future__ import annotations

import json
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from ..ops.quantize import DEQUANTIZE, QUANTIZE
from ..ops.tensors import COMPILER, known_product
from .page import to_html

UNPARTITIONED = "can be offloaded; the module is not partitioned"
LEFT = "can be offloaded, but was in no partition"

# So many sources are in a line of the table; the JSON and the page have all.
MAX_SOURCES = 2
# So many of the ops that stayed on TVM are in the line of the summary.
MAX_LEFT = 4

# The parts of a reason that differ from op to op: numbers, open dimensions, and shapes of either.
_NUMBERS = re.compile(r"\((?:[0-9?]+,? ?)*\)|[0-9]+|\?")


@dataclass
class Node:
    """An op, a composite, an input or an output of a module.

    Parameters
    ----------
    kind : str
        "dnnl" for what oneDNN runs, "tvm" for what TVM runs, "input" or "output".
    name : str
        The Relay op, the composite, or the name of the input.
    function : str
        The function of the module that has it.
    ops : list[str]
        What it computes, in order: several names for a composite.
    details : str
        The attributes that tell one use of an op from another, for people.
    shape : str
        Of the result, with its type if that is not float32.
    partition : str | None
        For "dnnl": the name of the partition.
    reason : str | None
        For "tvm": why oneDNN does not run it.
    inputs : list[int]
        The nodes whose results it reads. Constants are left out.
    sources : list[str]
        The names that it had in the model that TVM imported, such as nodes of an ONNX file. The
        importer notes them where the PassContext has `relay.frontend.fill_span`.
    model_ops : list[str]
        The ops of the model that it stands for: as `ops`, but the several of a formula such as
        gelu, which is one of `ops` where oneDNN runs it.
    """

    kind: str
    name: str
    function: str
    ops: list[str] = field(default_factory=list)
    details: str = ""
    shape: str = ""
    partition: str | None = None
    reason: str | None = None
    inputs: list[int] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    model_ops: list[str] = field(default_factory=list)


def tensor_text(shape: Sequence[int | None], dtype: str) -> str:
    """Write a type for people: "1x64x56x56", and its data type if that is not float32."""
    text = "x".join("?" if size is None else str(size) for size in shape) or "scalar"
    return text if dtype == "float32" else f"{text} {dtype}"


def scales_text(shapes: Iterable[Sequence[int | None]]) -> str:
    """Say what kind of scales an op in 8 bits has, by the shapes of all of them."""
    is_per_channel = any(known_product(shape) != 1 for shape in shapes)
    return "a scale for each channel" if is_per_channel else "one scale for each tensor"


@dataclass
class OffloadReport:
    """How the ops of a module are divided between oneDNN and TVM.

    Parameters
    ----------
    ops : Counter[str]
        By Relay op: how many there are in the module, those in composites included.
    offloaded_ops : Counter[str]
        By Relay op: how many of them are in a partition.
    reasons : dict[str, Counter[str]]
        By Relay op: why some stayed on TVM, and how many for each reason.
    composites : Counter[str]
        By name: the composites in all partitions.
    in_8_bits : Counter[str]
        By kind of scale: the composites that read integers in 8 bits.
    in_float32 : Counter[str]
        By Relay op and reason: the ops of 8-bit tensors and weights that run in float32, those of
        types that the CPU lacks, and the recurrent layers whose weights stay so with `precision`.
    partitions : int
        The number of functions that oneDNN runs.
    folded : Counter[str]
        By Relay op: how many the partitioner folded into others or removed. They are in no other
        number.
    failures : dict[str, str]
        By function: why it, or an op of it, was left as it was.
    unrolled : list[str]
        The recurrent layers of an ONNX model that were imported as the ops of their steps, each
        with the reason.
    nodes : list[Node]
        The module as a graph: each op, where it runs, what it reads and, if it stayed, why.
    next_step : str
        How to compile the module, if that is easily forgotten.
    verified : str
        What `compile` compared the results with; empty if it did not.
    """

    ops: Counter[str] = field(default_factory=Counter)
    offloaded_ops: Counter[str] = field(default_factory=Counter)
    reasons: dict[str, Counter[str]] = field(default_factory=dict)
    composites: Counter[str] = field(default_factory=Counter)
    in_8_bits: Counter[str] = field(default_factory=Counter)
    in_float32: Counter[str] = field(default_factory=Counter)
    partitions: int = 0
    folded: Counter[str] = field(default_factory=Counter)
    failures: dict[str, str] = field(default_factory=dict)
    unrolled: list[str] = field(default_factory=list)
    next_step: str = ""
    verified: str = ""
    nodes: list[Node] = field(default_factory=list, repr=False)
    to_html = to_html

    def add(self, nodes: Iterable[Node]) -> None:
        """Add nodes, which count what they read from the first of them on, and count their ops."""
        first = len(self.nodes)
        for node in nodes:
            node.inputs = [first + i for i in node.inputs]
            self.nodes.append(node)
            self.ops.update(node.model_ops)
            if node.kind == "dnnl":
                self.offloaded_ops.update(node.model_ops)
                if node.name.startswith(f"{COMPILER}."):
                    self.composites[node.name] += 1
            elif node.kind == "tvm":
                for name in node.model_ops:
                    self.reasons.setdefault(name, Counter())[node.reason or ""] += 1

    @property
    def calls(self) -> dict[str, int]:
        """The name that `ops` had; deprecated."""
        warnings.warn("OffloadReport.calls is now .ops", DeprecationWarning, stacklevel=2)
        return self.ops

    @property
    def total(self) -> int:
        """How many Relay ops the module has."""
        return sum(self.ops.values())

    @property
    def offloaded(self) -> int:
        """How many of them oneDNN runs."""
        return sum(self.offloaded_ops.values())

    @property
    def _left(self) -> dict[str, int]:
        """By Relay op: how many TVM runs, of those of which it runs any."""
        return Counter(self.ops) - Counter(self.offloaded_ops)

    @property
    def summary(self) -> str:
        """One line that says how much runs on oneDNN."""
        text = f"{self.offloaded} of {self.total} ops run on oneDNN"
        if self.partitions:
            text += f", in {_count(self.partitions)}"
        left = self._left
        names = sorted(left, key=lambda name: (-left[name], name))
        if len(names) > MAX_LEFT:
            names[MAX_LEFT:] = ["..."]
        return text + (f"; on TVM: {', '.join(names)}" if names else "")

    def to_dict(self) -> dict:
        """Return the report as plain dicts, lists, strings and numbers."""
        return {
            "total": self.total,
            "offloaded": self.offloaded,
            "partitions": self.partitions,
            "ops": {
                name: {
                    "ops": self.ops[name],
                    # The name that this had; for who reads the JSON.
                    "calls": self.ops[name],
                    "offloaded": self.offloaded_ops.get(name, 0),
                    "reasons": dict(self.reasons.get(name, {})),
                }
                for name in sorted(self.ops)
            },
            "composites": dict(sorted(self.composites.items())),
            "in_8_bits": dict(sorted(self.in_8_bits.items())),
            "in_float32": dict(sorted(self.in_float32.items())),
            "folded": dict(sorted(self.folded.items())),
            "failures": dict(sorted(self.failures.items())),
            "unrolled": list(self.unrolled),
            "verified": self.verified,
        }

    def to_json(self) -> str:
        """Return the report as a JSON text: what `to_dict` has, and the nodes."""
        nodes = [{"id": i, **asdict(node)} for i, node in enumerate(self.nodes)]
        return json.dumps({**self.to_dict(), "nodes": nodes}, indent=1)

    def _sources(self) -> dict[tuple[str, str | None], dict[str, None]]:
        """Return the sources of what stayed on TVM, in order, by op and reason."""
        sources: dict[tuple[str, str | None], dict[str, None]] = {}
        for node in self.nodes:
            for name in node.ops if node.kind == "tvm" else ():
                sources.setdefault((name, node.reason), {}).update(dict.fromkeys(node.sources))
        return sources

    def __str__(self) -> str:
        sources = self._sources()
        rows: list[tuple[str, object, object, str]] = [
            ("op", "count", "oneDNN", "why the others stayed on TVM")
        ]
        for name in sorted(self.ops, key=lambda name: (-self.ops[name], name)):
            reasons = self.reasons.get(name, Counter())
            of_reason = {why: [*sources.get((name, why), ())] for why in reasons}
            texts = _grouped(reasons, of_reason) or [""]
            rows.append((name, self.ops[name], self.offloaded_ops.get(name, 0), texts[0]))
            rows.extend(("", "", "", text) for text in texts[1:])
        rows.append(("total", self.total, self.offloaded, f"in {_count(self.partitions)}"))
        width = [max(len(str(row[i])) for row in rows) for i in range(3)]
        lines = [
            f"{row[0]:<{width[0]}}  {row[1]:>{width[1]}}  {row[2]:>{width[2]}}  {row[3]}".rstrip()
            for row in rows
        ]
        rule = "-" * max(len(line) for line in lines)
        lines = [lines[0], rule, *lines[1:-1], rule, lines[-1]]
        named = (
            ("composites", self.composites),
            ("composites in 8 bits", self.in_8_bits),
            ("folded", self.folded),
        )
        for title, counts in named:
            if counts:
                items = (f"{count} x {name}" for name, count in sorted(counts.items()))
                lines.append(f"{title}: {', '.join(items)}")
        for text, count in sorted(self.in_float32.items()):
            lines.append(f"in float32: {count} x {text}")
        left = [name for name in self._left if _is_quantized(name)]
        if left and self.partitions:
            items = (f"{self._left[name]} x {name}" for name in sorted(left))
            lines.append(
                f"quantized ops that stay on TVM: {', '.join(items)}. Others between them run in "
                "float32; docs/int8.md describes the quantization that oneDNN supports"
            )
        lines.extend(f"unrolled: {text}" for text in self.unrolled)
        lines.extend(f"function {name}: {text}" for name, text in sorted(self.failures.items()))
        if self.verified:
            lines.append(f"verified: {self.verified}")
        if self.next_step:
            lines.append(f"next: {self.next_step}")
        return "\n".join(lines)


def _is_quantized(name: str) -> bool:
    """Whether an op is one of QNN, or one of Relax that is read as such."""
    return name.startswith("qnn.") or f"qnn.{name}" in (QUANTIZE, DEQUANTIZE)


def _grouped(reasons: Mapping[str, int], sources: Mapping[str, list[str]]) -> list[str]:
    """Return a line for each reason, those that differ in shapes or numbers only in one.

    `sources` has, by reason, what the ops were in the imported model; a line names the first ones.
    """
    groups: dict[str, Counter] = {}
    for reason, count in reasons.items():
        groups.setdefault(_NUMBERS.sub("#", reason), Counter())[reason] += count
    lines = []
    for group in sorted(groups.values(), key=lambda group: -sum(group.values())):
        others = f"; {len(group) - 1} more like this" if len(group) > 1 else ""
        names = list(dict.fromkeys(name for reason in group for name in sources[reason]))
        if len(names) > MAX_SOURCES:
            names[MAX_SOURCES:] = [f"{len(names) - MAX_SOURCES} more"]
        where = f" ({', '.join(names)})" if names else ""
        lines.append(f"{sum(group.values())} x {group.most_common(1)[0][0]}{others}{where}")
    return lines


def _count(partitions: int) -> str:
    return "1 partition" if partitions == 1 else f"{partitions} partitions"
