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
"""The time from the start of a process to its first answer, beside other runtimes.

Each sample is a fresh process, stage by stage: the interpreter's start, the imports, loading or
compiling the model, and the first run. The runtimes take turns. Files are in the page cache.
"""

import contextlib
import dataclasses
import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

from scripts import options, table
from scripts.bench import first_worker, measure, rows
from scripts.console import Console
from scripts.errors import SetupError
from scripts.files import write_atomically
from scripts.layout import ROOT, Layout, PluginLayout
from scripts.runner import tail
from scripts.setup.variables import variables

FORMAT = "dnnl-bench-first-1"
# Networks of the tests, and parts of the names of models of packages.
MODELS = "cls,mobilenet_v2,bert,nudenet,silero_vad_16k_sequence"
MOST_ROUNDS = 7
# Seconds after which a process is stopped.
LIMIT = 120
# By runtime: what people call it.
TITLES = {
    "relax-library": "Relax, library",
    "relax-cache": "Relax, its cache",
    "relax-file": "Relax, ONNX file",
    "relay-library": "Relay, library",
    "relay-file": "Relay, ONNX file",
    "onnxruntime": "onnxruntime, ONNX file",
    "openvino": "OpenVINO, ONNX file",
    "openvino-cache": "OpenVINO, its cache",
}
# Those that the ratios are to.
PEERS = ("onnxruntime", "openvino")
_HEADER = [
    "model",
    "runtime",
    *(f"{name}\nms" for name in first_worker.STAGES),
    "total\nms",
    "CPU\nms",
    "peak\nMB",
    *(f"of {TITLES[name].split(',')[0]}'s\ntotal" for name in PEERS),
]


@dataclasses.dataclass
class Model:
    """A model as a file, with its inputs in another.

    Attributes
    ----------
    name, title : str
        What a command line and a table call it.
    paths : dict of str to str
        The files; see `first_worker.main`.
    """

    name: str
    title: str
    paths: dict

    @classmethod
    def write(cls, name, title, onnx, inputs, folder):
        """Write the inputs; return the model, whose other files will be in the same folder."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        np.savez(folder / "inputs.npz", **inputs)
        names = {
            "inputs": "inputs.npz",
            "relax-library": "relax.so",
            "relax-cache": "relax",
            "relay-library": "relay.so",
            "openvino-cache": "openvino",
        }
        paths = {key: str(folder / each) for key, each in names.items()}
        return cls(name, title, {"onnx": os.path.abspath(onnx), **paths})


class NoAnswer(Exception):
    """A runtime gives no answer for a model; the message says why."""


def _ask(runtime, *words, limit=LIMIT):
    """Return what a fresh process of a runtime prints."""
    layout = PluginLayout() if runtime.startswith("relax") else Layout()
    command = [str(layout.python), "-m", first_worker.__name__, json.dumps(words)]
    try:
        done = subprocess.run(
            command,
            env=variables(layout),
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=limit,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NoAnswer(f"takes more than {limit} s") from None
    if done.returncode:
        raise NoAnswer(tail(done.stderr, 1) or f"ends with code {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


def answer(runtime, model, threads):
    """Return the figures of one first answer; see `first_worker.main`."""
    return _ask(runtime, "main", time.monotonic(), runtime, model.paths, threads)


def sample(runtimes, model, threads, repeat, note=lambda text: None):
    """Measure first answers of a model.

    Parameters
    ----------
    runtimes : list of str
        The runtimes, which take turns.
    model : Model
        The model.
    threads : int
        Threads of a run.
    repeat : int
        Processes of each.
    note : callable
        Is told what runs.

    Returns
    -------
    figures : dict of str to list of dict
        By runtime, what `answer` returns of each process.
    reasons : dict of str to str
        By runtime why it is not there.
    """
    figures, reasons = {}, {}
    for name in runtimes:
        note(f"prepare {TITLES[name]}")
        try:
            if name in first_worker.EXPORTS:
                _ask(name, "export", name, model.paths)
            # Files come into the page cache, and two runtimes fill their caches.
            answer(name, model, threads)
        except NoAnswer as error:
            reasons[name] = str(error)
        else:
            figures[name] = []
    for turn in range(repeat):
        note(f"round {turn + 1} of {repeat}")
        for name in list(figures)[:: 1 if turn % 2 == 0 else -1]:
            figures[name].append(answer(name, model, threads))
    return figures, reasons


def rows_of(model, figures, reasons):
    """Return a row of medians for each runtime."""
    result = []
    for name in TITLES:
        row = {"model": model.name, "title": model.title, "runtime": name}
        if name in reasons:
            result.append({**row, "reason": reasons[name]})
        if name not in figures:
            continue
        turns = figures[name]
        for stage in first_worker.STAGES:
            row[stage] = _median(each["seconds"][stage] for each in turns)
            row[f"cpu {stage}"] = _median(each["cpu"][stage] for each in turns)
        totals = {
            key: [[sum(each["seconds"].values())] for each in turns]
            for key, turns in figures.items()
        }
        timing = measure.Timing.of(sum(totals[name], []))
        row.update(total=timing.median, low=timing.low, high=timing.high, samples=timing.count)
        row["cpu"] = _median(sum(each["cpu"].values()) for each in turns)
        row["peak_mb"] = max(each["peak_mb"] for each in turns)
        for peer in PEERS:
            if peer in totals and peer != name:
                row[f"of {peer}"] = measure.ratio(totals[name], totals[peer])
        result.append(row)
    return result


def _median(seconds):
    return 1e3 * statistics.median(seconds)


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
            yield Model.write(title, title, str(path), inputs, each)


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
