# SPDX-License-Identifier: Apache-2.0
"""A report as a page that needs no other file: numbers, reasons and the drawn graph."""

from __future__ import annotations

import html
import json
from collections import Counter

from .drawing import partitions_of, svg, title_of
from .template import PAGE


def _rows(node) -> list[tuple[str, str]]:
    """Return what the page tells of a node when it is clicked."""
    where = {"dnnl": "oneDNN", "tvm": "TVM"}.get(node.kind, "")
    rows = [
        (node.kind if not where else "computes", title_of(node)),
        ("runs on", where),
        ("composite", node.name if len(node.ops) > 1 else ""),
        ("partition", node.partition),
        ("attributes", node.details),
        ("result", node.shape),
        ("why not on oneDNN", node.reason),
        ("in the imported model", ", ".join(node.sources)),
        ("in function", node.function),
    ]
    return [(name, value) for name, value in rows if value]


def _table(title: str, header: tuple[str, str], rows: list[tuple[object, str]]) -> str:
    """Write a table of numbers and texts, the latter as HTML."""
    if not rows:
        return ""
    body = "".join(f'<tr><td>{text}</td><td class="n">{number}</td></tr>' for number, text in rows)
    head = f'<tr><th>{header[0]}</th><th class="n">{header[1]}</th></tr>'
    return f"<h2>{html.escape(title)}</h2><table>{head}{body}</table>"


def _stayed(report) -> list[tuple[object, str]]:
    """Return the ops that stayed on TVM, the most frequent first."""
    counts = Counter(
        {
            (name, reason): count
            for name, reasons in report.reasons.items()
            for reason, count in reasons.items()
        }
    )
    return [
        (count, f"<b>{html.escape(name)}</b>: {html.escape(reason)}")
        for (name, reason), count in counts.most_common()
    ]


def _milliseconds(microseconds: float) -> str:
    return f"{microseconds / 1e3:.3f}"


def _times_of_partitions(profile) -> dict[str, float]:
    """Return the microseconds of each partition, by name."""
    times: Counter[str] = Counter()
    for row in profile["primitives"] if profile else ():
        times[row["node"].partition(", ")[0]] += row["microseconds"]
    return times


def _times_of_ops(profile) -> list[tuple[object, str]]:
    """Return the milliseconds of each kind of op, with what is fused to it, the slowest first."""
    if not profile:
        return []
    times, counts = Counter(), Counter()
    for row in profile["primitives"]:
        times[row["op"]] += row["microseconds"]
        counts[row["op"]] += 1
    total = sum(times.values())
    return [
        (
            f"{_milliseconds(time)}<br>{time / total:.0%}",
            f"<b>{html.escape(op)}</b><br>{counts[op]} of {len(profile['primitives'])} primitives",
        )
        for op, time in times.most_common()
    ]


def _primitives(profile) -> list[tuple[object, str]]:
    """Return the milliseconds of the primitives, the slowest first."""
    if not profile:
        return []
    rows = sorted(profile["primitives"], key=lambda row: -row["microseconds"])
    total = sum(row["microseconds"] for row in rows)
    return [
        (
            f"{_milliseconds(row['microseconds'])}<br>{row['microseconds'] / total:.0%}",
            f"<b>{html.escape(' + '.join([row['op'], *row['post_ops']]))}</b><br>"
            f"{html.escape(row['node'].rpartition(', ')[2])}: {html.escape(row['impl'])}",
        )
        for row in rows
    ]


def _errors(errors) -> list[tuple[object, str]]:
    """Return the errors of ops."""
    return [
        (number, f"<b>{html.escape(op)}</b><br>{html.escape(text)}") for number, op, text in errors
    ]


def _tables(report, profile, changes, errors) -> str:
    boxes = Counter(node.partition for node in report.nodes if node.partition)
    times = _times_of_partitions(profile)
    partitions = [
        (
            f"{boxes[name]}<br>{_milliseconds(times[name])} ms" if times else boxes[name],
            f'<a href="#partition{i}" data-partition="partition{i}">partition {i + 1}</a>'
            f"<br>{html.escape(name)}",
        )
        for i, name in enumerate(partitions_of(report.nodes))
    ]

    def counted(numbers):
        return [(count, html.escape(name)) for name, count in Counter(numbers).most_common()]

    failures = [
        ("", f"<b>{html.escape(n)}</b>: {html.escape(t)}") for n, t in report.failures.items()
    ]
    changed = [(f"{old} &rarr; {new}", html.escape(name)) for name, old, new in changes]
    return "\n".join(
        [
            _table("Changes", ("count of", "before &rarr; now"), changed),
            _table("Error of each op", ("op, the worst first", "relative"), _errors(errors)),
            _table("Why ops stayed on TVM", ("op and reason", "count"), _stayed(report)),
            _table("Unchanged", ("function and reason", ""), failures),
            _table("Partitions", ("in order", "boxes"), partitions),
            _table("Time by op", ("op, with what is fused to it", "ms"), _times_of_ops(profile)),
            _table("Time by primitive", ("primitive", "ms"), _primitives(profile)),
            _table("Fused", ("composite", "count"), counted(report.composites)),
            _table("Folded into constants or removed", ("op", "count"), counted(report.folded)),
        ]
    )


def _list(nodes) -> str:
    """Write a table of all ops, a row each."""
    numbers = {name: i + 1 for i, name in enumerate(partitions_of(nodes))}
    head = ("op", "runs on", "result", "attributes", "name in the model", "why not on oneDNN")
    rows = []
    for i, node in enumerate(nodes):
        if node.kind not in ("dnnl", "tvm"):
            continue
        where = f"oneDNN, partition {numbers[node.partition]}" if node.partition else "TVM"
        names = ", ".join(node.sources)
        cells = (title_of(node), where, node.shape, node.details, names, node.reason or "")
        text = "".join(f"<td>{html.escape(cell)}</td>" for cell in cells)
        rows.append(f'<tr data-node="{i}" tabindex="0">{text}</tr>')
    titles = "".join(f"<th><button>{each}</button></th>" for each in head)
    return f"<table><thead><tr>{titles}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def make_page(report, title: str, facts=(), profile=None, changes=(), errors=()) -> str:
    """Write the page; see :py:meth:`tvm.relay.op.contrib.dnnl.OffloadReport.to_html`."""
    total, offloaded = report.total, report.offloaded
    percent = 100 * offloaded / total if total else 0
    ops = "op" if total == 1 else "ops"
    parts = "partition" if report.partitions == 1 else "partitions"
    data = json.dumps([_rows(node) for node in report.nodes])
    return PAGE.substitute(
        title=html.escape(title),
        summary=f"<b>{offloaded}</b> of {total} {ops} ({percent:.0f}%) run on oneDNN, in "
        f"<b>{report.partitions}</b> {parts}",
        percent=f"{percent:.1f}",
        facts=html.escape(" · ".join(facts)),
        tables=_tables(report, profile, changes, errors),
        list=_list(report.nodes),
        drawing=svg(report.nodes),
        # Nothing in the data may end the element that holds it.
        nodes=data.replace("<", "\\u003c"),
    )
