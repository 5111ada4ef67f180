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

import dataclasses
import functools
import json
import os
import statistics
import subprocess
import time
from pathlib import Path

import numpy as np

from scripts.bench import first_worker, measure
from scripts.layout import ROOT, Layout, PluginLayout
from scripts.runner import tail
from scripts.setup.variables import variables

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
