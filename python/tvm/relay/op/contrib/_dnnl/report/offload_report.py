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
"""Which calls of a module run on oneDNN, and why the others do not."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

import tvm
from tvm import relay
from tvm.relay import transform
from tvm.relay.analysis import post_order_visit

from ..ir.dataflow_graph import (
    OPAQUE,
    Graph,
    has_attr,
    is_composite,
    is_opaque,
    is_partition,
    op_calls,
)
from ..options import Options
from ..policy.op_spec import Rules, SpecTable
from ..policy.tensors import op_name
from .flow import Node, make_nodes
from .record import Record

_UNPARTITIONED = "can be offloaded; the module is not partitioned"
_LEFT = "can be offloaded, but was in no partition"


@dataclass
class OffloadReport:
    """How the op calls of a module are divided between oneDNN and TVM.

    Parameters
    ----------
    calls : dict[str, int]
        By Relay op: its calls in the module, those in composites included.
    taken : dict[str, int]
        By Relay op: those of them that are in a partition.
    reasons : dict[str, dict[str, int]]
        By Relay op: why calls stayed on TVM, and how many for each reason.
    composites : dict[str, int]
        By name: the composites in all partitions.
    partitions : int
        The number of functions that oneDNN runs.
    folded : dict[str, int]
        By Relay op: calls that the partitioner folded into others or removed. They are in no
        other number.
    failures : dict[str, str]
        By function: why it was left as it was.
    nodes : list[Node]
        The module as a graph: each call, where it runs, what it reads and, if it stayed, why.
    """

    calls: dict[str, int] = field(default_factory=Counter)
    taken: dict[str, int] = field(default_factory=Counter)
    reasons: dict[str, dict[str, int]] = field(default_factory=dict)
    composites: dict[str, int] = field(default_factory=Counter)
    partitions: int = 0
    folded: dict[str, int] = field(default_factory=Counter)
    failures: dict[str, str] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list, repr=False)

    @property
    def total(self) -> int:
        """The calls of Relay ops in the module."""
        return sum(self.calls.values())

    @property
    def offloaded(self) -> int:
        """The calls of Relay ops that oneDNN runs."""
        return sum(self.taken.values())

    def to_dict(self) -> dict:
        """Return the report as plain dicts, lists, strings and numbers."""
        return {
            "total": self.total,
            "offloaded": self.offloaded,
            "partitions": self.partitions,
            "ops": {
                name: {
                    "calls": self.calls[name],
                    "offloaded": self.taken.get(name, 0),
                    "reasons": dict(self.reasons.get(name, {})),
                }
                for name in sorted(self.calls)
            },
            "composites": dict(sorted(self.composites.items())),
            "folded": dict(sorted(self.folded.items())),
            "failures": dict(sorted(self.failures.items())),
        }

    def to_json(self) -> str:
        """Return the report as a JSON text: what `to_dict` has, and the nodes."""
        nodes = [{"id": i, **asdict(node)} for i, node in enumerate(self.nodes)]
        return json.dumps({**self.to_dict(), "nodes": nodes}, indent=1)

    def to_html(self, title: str = "What runs on oneDNN") -> str:
        """Return the report as a page with the graph drawn, which needs no other file.

        The layout is made by Graphviz: `pip install graphviz graphviz-pure`, or the package
        graphviz for Python and a `dot` program of your system.

        Parameters
        ----------
        title : str
            The heading of the page.

        Raises
        ------
        RuntimeError
            Graphviz is not installed, or failed.
        """
        from .page import make_page  # pylint: disable=import-outside-toplevel

        return make_page(self, title)

    def __str__(self) -> str:
        rows = [("op", "calls", "oneDNN", "why the others stayed on TVM")]
        for name in sorted(self.calls, key=lambda name: (-self.calls[name], name)):
            reasons = Counter(self.reasons.get(name, {})).most_common()
            texts = [f"{count} x {reason}" for reason, count in reasons] or [""]
            rows.append((name, self.calls[name], self.taken.get(name, 0), texts[0]))
            rows.extend(("", "", "", text) for text in texts[1:])
        rows.append(("total", self.total, self.offloaded, f"in {_count(self.partitions)}"))
        width = [max(len(str(row[i])) for row in rows) for i in range(3)]
        lines = [
            f"{row[0]:<{width[0]}}  {row[1]:>{width[1]}}  {row[2]:>{width[2]}}  {row[3]}".rstrip()
            for row in rows
        ]
        rule = "-" * max(len(line) for line in lines)
        lines = [lines[0], rule, *lines[1:-1], rule, lines[-1]]
        for title, counts in (("composites", self.composites), ("folded", self.folded)):
            if counts:
                items = (f"{count} x {name}" for name, count in sorted(counts.items()))
                lines.append(f"{title}: {', '.join(items)}")
        lines.extend(f"function {name}: {text}" for name, text in sorted(self.failures.items()))
        return "\n".join(lines)


def _count(partitions: int) -> str:
    return "1 partition" if partitions == 1 else f"{partitions} partitions"


def make_report(mod: tvm.IRModule, table: SpecTable) -> OffloadReport:
    """Compare a module with the policy; see :py:func:`tvm.relay.op.contrib.dnnl.offload_report`."""
    record = Record.of(mod)
    report = OffloadReport()
    if record is not None:
        report.folded, report.failures = record.folded, record.failures
    stayed: list[relay.Call] = []
    why: list[tuple[relay.Call, str]] = []
    mod = transform.InferType()(mod)
    for var, func in mod.functions.items():
        if not isinstance(func, relay.Function):
            continue
        calls = op_calls(func)
        report.calls.update(op_name(call) for call in calls)
        if is_partition(func):
            report.partitions += 1
            report.taken.update(op_name(call) for call in calls)
            report.composites.update(_composites(func))
            continue
        known = _known_reasons(func, report.failures.get(var.name_hint))
        why.extend((call, known[call]) for call in calls if call in known)
        stayed.extend(call for call in calls if call not in known)
    excluded = frozenset() if record is None else frozenset(record.excluded)
    rules = Rules(table, Options(exclude=excluded))
    why.extend(_explain(stayed, record, rules))
    for call, reason in why:
        report.reasons.setdefault(op_name(call), Counter())[reason] += 1
    report.nodes = make_nodes(mod, dict(why))
    return report


def _composites(func: relay.Function) -> list[str]:
    """Return the names of the composites in a partition."""
    return [
        str(expr.op.attrs["Composite"]) for expr in Graph(func.body).nodes if is_composite(expr)
    ]


def _known_reasons(func: relay.Function, failure: str | None) -> dict[relay.Call, str]:
    """Return the calls of a function that stayed for a reason that is not in the call itself."""
    found: dict[relay.Call, str] = {}

    def opaque(expr):
        if not is_opaque(expr):
            return
        if has_attr(expr, "Compiler"):
            reason = f"taken by the compiler '{expr.attrs['Compiler']}'"
        else:
            reason = f"in a function marked '{next(key for key in OPAQUE if has_attr(expr, key))}'"
        found.update((call, reason) for call in op_calls(expr.body))

    if failure is not None:
        found.update((call, failure) for call in op_calls(func))
    post_order_visit(func, opaque)
    return found


def _explain(
    stayed: list[relay.Call], record: Record | None, rules: Rules
) -> Iterator[tuple[relay.Call, str]]:
    """Yield a reason for each call that the partitioner could have taken."""
    pruned = {} if record is None else {why: Counter(n) for why, n in record.pruned.items()}
    for call in stayed:
        reason = rules.refusal(call)
        if reason is None:
            reason = _LEFT if record is not None else _UNPARTITIONED
            for why, counts in pruned.items():
                if counts[op_name(call)] > 0:
                    counts[op_name(call)] -= 1
                    reason = why
                    break
        yield call, reason
