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
"""The command that measures first answers: the models that are chosen, and its table."""

import contextlib
import datetime
import json
import statistics
import tempfile
from pathlib import Path

from scripts import options, table
from scripts.bench import first_worker, measure, rows
from scripts.bench.first import PEERS, TITLES, Model, rows_of, sample
from scripts.console import Console
from scripts.errors import SetupError
from scripts.files import write_atomically, write_between
from scripts.layout import ROOT, Layout

FORMAT = "dnnl-bench-first-1"
# Networks of the tests, and parts of the names of models of packages.
MODELS = "cls,mobilenet_v2,bert,nudenet,silero_vad_16k_sequence"
MOST_ROUNDS = 7
PATH = ROOT / "docs" / "recipes.md"
MARKS = ("<!-- ./dev.py bench --first --write -->\n", "<!-- until here -->\n")
# The runtime that the ratios of the docs are to.
_PEER = "openvino"
_HEADER = [
    "model",
    "runtime",
    *(f"{name}\nms" for name in first_worker.STAGES),
    "total\nms",
    "CPU\nms",
    "peak\nMB",
    *(f"of {TITLES[name].split(',')[0]}'s\ntotal" for name in PEERS),
]


def render(measured):
    """Return the table of rows."""
    cells, last = [], None
    for row in measured:
        first = "" if row["title"] == last else row["title"]
        last = row["title"]
        if "reason" in row:
            cells.append([first, TITLES[row["runtime"]], *"-" * (len(_HEADER) - 2)])
            continue
        columns = [*first_worker.STAGES, "total", "cpu", "peak_mb"]
        ratios = [f"{row[key]:.2f}" if key in row else "" for key in map("of {}".format, PEERS)]
        figures = [rows.digits(row[key]) for key in columns]
        cells.append([first, TITLES[row["runtime"]], *figures, *ratios])
    return table.render(_HEADER, cells, left=2)


def markdown(measured, conditions):
    """Return the table for the docs: a row for each runtime, and a column for each model."""
    titles = list(dict.fromkeys(row["title"] for row in measured))
    lines = []
    for runtime, name in TITLES.items():
        rows_by_model = {row["title"]: row for row in measured if row["runtime"] == runtime}
        answered = [row for row in rows_by_model.values() if "reason" not in row]
        cells = [_cell(rows_by_model.get(title)) for title in titles]
        if answered:
            cells.append(rows.digits(statistics.median(row["import"] for row in answered)))
            cells += (
                rows.digits(max(row[key] for row in answered)) for key in ("load", "cpu", "peak_mb")
            )
        lines.append([name, *cells, *([] if answered else ["-"] * 4)])
    more = ("import", "longest load", "longest CPU time", "peak MB")
    reasons = "".join(f"\n{line}\n" for line in _reasons(measured))
    return f"{conditions}:\n\n{table.markdown(('process', *titles, *more), lines)}{reasons}"


def _cell(row):
    """Return the time of a runtime for a model, with its ratio to the peer's."""
    if row is None or "reason" in row:
        return "-"
    ratio = f" ({row[f'of {_PEER}']:.2f})" if f"of {_PEER}" in row else ""
    return f"{rows.digits(row['total'])}{ratio}"


def _reasons(measured):
    """Yield why there is no answer, for each runtime and model without one."""
    for row in measured:
        if "reason" in row:
            yield f"{row['title']}, {TITLES[row['runtime']]}: {row['reason']}"


def _chosen(args, folder):
    """Yield the models that the user named, with their inputs."""
    from dnnl_tests.models import workloads

    from scripts.bench import packages, peers

    if args.model:
        workload = peers.own_workload(args.model, args.shape)
        yield Model.write(args.model, workload.title, args.model, workload.inputs(), folder / "own")
        return
    place = Layout().build / "models"
    known = {packages.named(path.relative_to(place)): path for path in place.rglob("*.onnx")}
    for name in options.names(args.models or MODELS):
        if name in workloads.WORKLOADS:
            each = workloads.WORKLOADS[name]
            yield Model.write(name, each.title, each.onnx_path(), each.inputs(), folder / name)
            continue
        titles = sorted(title for title in known if name in title)
        if not titles:
            raise SetupError(
                f"--models: there is no model {name!r}",
                f"name one of {', '.join(workloads.WORKLOADS)}, or a part of: {', '.join(known)}.",
            )
        for title in titles:
            path = known[title]
            shapes = packages.shapes_of(path.relative_to(place))
            inputs = packages.inputs_of(peers.own_workload(str(path), shapes).model)
            each = folder / title.replace("/", "-").replace(": ", "-")
            constants = packages.constants_of(path)
            yield Model.write(title, title, str(path), inputs, each, constants)


def main(args):
    """Run the benchmark; return the exit code."""
    if args.write and (args.model or args.models or args.backends):
        raise SetupError(
            "the table of the docs has all rows", "omit the model, --models and --backends."
        )
    console, note = Console(), measure.busy_note()
    chosen = options.choose("backends", args.backends, {name: name for name in TITLES})
    rounds, measured = min(args.repeat, MOST_ROUNDS), []
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="first-"))
        for model in _chosen(args, Path(folder)):
            with console.step(model.title):
                results = sample(chosen, model, args.threads, rounds, console.note)
            measured += rows_of(model, *results)
    host = measure.host()
    conditions = f"{host['cpu']}, {args.threads} threads, medians of {rounds} processes"
    print(f"\n{conditions}")
    print(f"{note}\n" if note else "")
    print("\n".join([render(measured), *_reasons(measured)]))
    if args.write:
        date = f"{datetime.date.today()}, {conditions}"
        write_between(PATH, MARKS, markdown(measured, f"{date}; {note}" if note else date))
    if args.json:
        content = {"format": FORMAT, "host": host, "threads": args.threads}
        content.update(rounds=rounds, note=note, rows=measured)
        write_atomically(args.json, json.dumps(content, indent=1) + "\n")
    return 0
