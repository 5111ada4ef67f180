# SPDX-License-Identifier: Apache-2.0
"""Results as rows, one for each model, shape, precision and runtime: for JSON, tables and plots."""

import dataclasses

from scripts import table
from scripts.bench import measure

DEFAULT_MARK = " *"


def digits(figure):
    """Format a figure with three digits that count."""
    return f"{figure:.0f}" if figure >= 100 else f"{figure:#.3g}"


def _figure(key, style=None):
    """Return a function that formats a figure of a row."""
    return lambda row: format(row[key], style) if style else digits(row[key])


# The columns of figures by their titles, each a function of a row. A table has those for which a
# row has the figures.
COLUMNS = {
    "ops on\noneDNN": lambda row: "{offloaded}/{total}".format(**row),
    "parti-\ntions": _figure("partitions", "d"),
    "partition\ns": _figure("partition_s"),
    "compile\ns": _figure("compile_s"),
    "export\ns": _figure("export_s"),
    "library\nMB": _figure("library_mb"),
    "load\nms": _figure("load_ms"),
    "first run\nms": _figure("first_ms"),
    "runs per\nsecond": _figure("runs_per_second"),
    "median\nms": _figure("median_ms"),
    "10%..90%": lambda row: f"{digits(row['low_ms'])}..{digits(row['high_ms'])}",
    "time, ours /\ntheirs": _figure("ratio", ".2f"),
    "90%, ours /\ntheirs": _figure("high_ratio", ".2f"),
    "of its\nfloat32": _figure("float32_ratio", ".2f"),
    "cosine": _figure("cosine", ".5f"),
    "largest\nerror": _figure("error", ".1e"),
    "same\ntop-1": _figure("top1", ".1%"),
    "peak memory\nMB": _figure("peak_mb"),
    "after the\nfirst run MB": _figure("resident_mb"),
    "weights\nMB": _figure("weights_mb"),
}


def timed(row, rounds):
    """Add the figures of samples to a row."""
    timing = measure.Timing.of(sum(rounds, []))
    row.update(median_ms=timing.median, low_ms=timing.low, high_ms=timing.high)
    row["samples"] = timing.count


def rows_of(results, ours, with_high=False):
    """Return a row for each result of `peers.measure_cases`.

    The others are compared with the backend `ours`, and if `with_high` by the 90th percentile, too.
    """
    rounds = {_place(result): result["rounds"] for result in results if "rounds" in result}
    rows = []
    for result in results:
        case, name, facts = result["case"], result["backend"].name, result.get("facts", {})
        row = {"model": case.original.name, "precision": case.precision, "backend": name, **facts}
        rows.append(row)
        if "reason" in result:
            row["reason"] = result["reason"]
            continue
        timed(row, result["rounds"])
        row["is_default"] = result["is_default"]
        mine = rounds.get(_place(result, backend=ours))
        if name != ours and mine:
            row["ratio"] = measure.ratio(mine, result["rounds"])
            if with_high:
                row["high_ratio"] = measure.Timing.of(sum(mine, [])).high / row["high_ms"]
        base = rounds.get(_place(result, precision="float32"))
        if case.precision != "float32" and base:
            row["float32_ratio"] = measure.ratio(result["rounds"], base)
        if result["accuracy"]:
            figures = dataclasses.asdict(result["accuracy"])
            row.update((key, figure) for key, figure in figures.items() if figure is not None)
    return rows


def _place(result, precision=None, backend=None):
    """Return what a result is of; another precision or backend gives that to compare it with."""
    case = result["case"]
    shape = tuple(result.get("facts", {}).get("shape", ()))
    name = backend or result["backend"].name
    return case.original.name, shape, precision or case.precision, name


def labels_of(results):
    """Return what people call each result: the model with its shape, the precision, the runtime."""
    labels = []
    for result in results:
        shape = "x".join(map(str, result.get("facts", {}).get("shape", ())))
        title = f"{result['case'].original.title} {shape}".rstrip()
        labels.append((title, result["case"].precision, result["backend"].title))
    return labels


def render(first, labels, rows):
    """Return the table of rows, whose first column has the title `first`."""
    measured = [row for row in rows if "reason" not in row]
    columns = [title for title in COLUMNS if any(_cell(title, row) for row in measured)]
    cells, last = [], None
    for (model, precision, runtime), row in zip(labels, rows):
        figures = [_cell(title, row) for title in columns]
        if "reason" in row:
            figures[:1] = "-"
        runtime += DEFAULT_MARK if row.get("is_default") else ""
        cells.append(["" if model == last else model, precision, runtime, *figures])
        last = model
    return table.render([first, "precision", "runtime", *columns], cells, left=3)


def _cell(title, row):
    try:
        return COLUMNS[title](row)
    except KeyError:
        return ""


def reasons(rows):
    """Return a line for each reason why a backend has no figure in a precision."""
    missing = {}
    for row in rows:
        if "reason" in row:
            key = row["backend"], row["precision"], row["reason"]
            missing.setdefault(key, []).append(row["model"])
    return [
        f"{backend}, {precision}: {reason} ({', '.join(models)})"
        for (backend, precision, reason), models in missing.items()
    ]
