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
import json
import tempfile
from pathlib import Path

from scripts import options, table
from scripts.bench import first_worker, measure, rows
from scripts.bench.first import PEERS, TITLES, Model, rows_of, sample
from scripts.console import Console
from scripts.errors import SetupError
from scripts.files import write_atomically
from scripts.layout import Layout

FORMAT = "dnnl-bench-first-1"
# Networks of the tests, and parts of the names of models of packages.
MODELS = "cls,mobilenet_v2,bert,nudenet,silero_vad_16k_sequence"
MOST_ROUNDS = 7
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
    print(f"\n{host['cpu']}, {args.threads} threads, medians of {rounds} processes")
    print(f"{note}\n" if note else "")
    print(render(measured))
    for row in measured:
        if "reason" in row:
            print(f"{row['title']}, {TITLES[row['runtime']]}: {row['reason']}")
    if args.json:
        content = {"format": FORMAT, "host": host, "threads": args.threads}
        content.update(rounds=rounds, note=note, rows=measured)
        write_atomically(args.json, json.dumps(content, indent=1) + "\n")
    return 0
