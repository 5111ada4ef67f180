# SPDX-License-Identifier: Apache-2.0
"""The time from the start of a process to its first answer, beside other runtimes.

Each sample is a fresh process, stage by stage: the interpreter's start, the imports, loading or
compiling the model, and the first run. The runtimes take turns. Files are in the page cache.
"""

import contextlib
import dataclasses
import datetime
import functools
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
from scripts.files import write_between
from scripts.layout import ROOT, Layout, PluginLayout
from scripts.runner import tail
from scripts.setup.variables import variables

FORMAT = "dnnl-bench-first-1"
# Networks of the tests, and parts of the names of models of packages.
MODELS = "cls,mobilenet_v2,bert,nudenet,silero_vad_16k_sequence"
MOST_ROUNDS = 7
PATH = ROOT / "docs" / "recipes.md"
MARKS = ("<!-- ./dev.py bench --first --write -->\n", "<!-- until here -->\n")

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


@dataclasses.dataclass
class Model:
    """A model as a file, with its inputs in another.

    Attributes
    ----------
    name, title : str
        What a command line and a table call it.
    paths : dict of str to str
        The files; see `first_worker.main`.
    constants : dict of str to number
        Values of inputs that are compiled as constants.
    """

    name: str
    title: str
    paths: dict
    constants: dict = dataclasses.field(default_factory=dict)

    @classmethod
    def write(cls, name, title, onnx, inputs, folder, constants=()):
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
        return cls(name, title, {"onnx": os.path.abspath(onnx), **paths}, dict(constants))


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
    words = runtime, model.paths, threads, model.constants
    return _ask(runtime, "main", time.monotonic(), *words)


def _answers(runtime, model, threads, count):
    return [answer(runtime, model, threads) for _ in range(count)]


def sample(runtimes, model, threads, repeat, note=lambda *told: None):
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
        Is told what runs; see `Console.note`.

    Returns
    -------
    figures : dict of str to list of dict
        By runtime, what `answer` returns of each process.
    reasons : dict of str to str
        By runtime why it is not there.
    """
    samplers, reasons = {}, {}
    for name in runtimes:
        note(f"prepare {TITLES[name]}")
        try:
            if name in first_worker.EXPORTS:
                _ask(name, "export", name, model.paths, model.constants)
            # Files come into the page cache, and two runtimes fill their caches.
            answer(name, model, threads)
        except NoAnswer as error:
            reasons[name] = str(error)
        else:
            samplers[name] = functools.partial(_answers, name, model, threads)
    turns = measure.take_turns(samplers, repeat, rounds=repeat, note=note)
    return {name: sum(each, []) for name, each in turns.items()}, reasons


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
    conditions = f"{measure.host()['cpu']}, {args.threads} threads, medians of {rounds} processes"
    print(f"\n{conditions}")
    print(f"{note}\n" if note else "")
    print("\n".join([render(measured), *_reasons(measured)]))
    if args.write:
        date = f"{datetime.date.today()}, {conditions}"
        write_between(PATH, MARKS, markdown(measured, f"{date}; {note}" if note else date))
    measure.save(args, FORMAT, rounds=rounds, note=note, rows=measured)
    return 0
