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
"""The benchmark of the plug-in on libraries whose batch or length is open.

Beside it are Relay's library with the same dimensions open, onnxruntime and OpenVINO.
"""

import os
import tempfile

import onnx
from dnnl_tests.models import workloads
from tvm.testing import dnnl as testing

from scripts.bench import common, measure, open_dims, peers, relax
from scripts.bench.relax_worker import Worker
from scripts.layout import PluginLayout

TITLES = [
    "shape",
    "precision",
    "ops on\noneDNN",
    "parti-\ntions",
    "difference\nto Relay",
    "first run,\nms",
    "static load and\nfirst run, ms",
    "Relax\nms",
]
WARMUP = 3


def _sampler(runtime, i, x):
    def sample(repeat):
        return [runtime.time(i, x) for _ in range(WARMUP + repeat)][WARMUP:]

    return sample


def _ours(worker, inputs):
    def sample(repeat):
        return worker.ask("sample", relax.OURS, inputs, repeat, WARMUP)

    return sample


def _rows(network, case, names, repeat, worker, note):
    """Return the figures of each shape; a precision that there is not raises NotMeasured."""
    model, inputs = open_dims.prepared(network, case)
    data = model.graph.input[0].name
    relay = open_dims.Ours(model, inputs, False, case.own_precision)
    ready, reasons = open_dims.peers_of(case, model, names)
    runtimes = {"dnnl": relay, **ready}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        onnx.save(model, path)
        cpu = relax.host_cpu()
        facts = worker.ask("load", relax.OURS, path, {}, cpu, case.own_precision)
        first = worker.ask("first", relax.OURS, [{data: x} for x in inputs])
        static_first = []
        for x in inputs:
            worker.ask("load", "static", path, {data: x.shape}, cpu, case.own_precision)
            static_first += worker.ask("first", "static", [{data: x}])
    rows, samplers = [], {}
    for i, x in enumerate(inputs):
        named = {data: x}
        outputs = worker.ask("run", relax.OURS, named)
        difference = testing.difference(outputs, relay.runners[i](named)).relative
        row = {"shape": list(x.shape), "difference": difference, **facts}
        row.update(first_ms=1e3 * first[i], static_first_ms=1e3 * static_first[i])
        rows.append({**row, "reasons": reasons})
        samplers[relax.OURS, i] = _ours(worker, named)
        samplers.update(((name, i), _sampler(each, i, x)) for name, each in runtimes.items())
    rounds = measure.take_turns(samplers, repeat, note=note)
    for (name, i), samples in rounds.items():
        rows[i][f"{name}_ms"] = measure.Timing.of(sum(samples, [])).median
        if name != relax.OURS:
            rows[i][f"{name}_ratio"] = measure.ratio(rounds[relax.OURS, i], samples)
    return rows


def _cells(row, title, names):
    cells = [f"{title} {'x'.join(map(str, row.get('shape', ())))}".strip(), row["precision"]]
    if "relax_ms" not in row:
        return [*cells, "-"]
    cells += [f"{row['offloaded']}/{row['total']}", str(row["partitions"])]
    cells += [f"{row['difference']:.1e}", f"{row['first_ms']:.0f}", f"{row['static_first_ms']:.0f}"]
    cells.append(common.digits(row["relax_ms"]))
    return cells + relax.beside(row, names)


def compare(networks, precisions, names, args, console):
    """Measure networks; return the titles and rows of a table, and rows for JSON."""
    cells, rows = [], []
    names = ["dnnl", *(name for name in names if name in open_dims.PEERS)]
    titles = TITLES + relax.titles_beside(names)
    for network in networks:
        for precision in precisions:
            case = peers.Case(workloads.WORKLOADS[network.name], args.threads, precision)
            step = console.step(f"{network.name}, {precision}: prepare and measure")
            with step, Worker(PluginLayout()) as worker:
                try:
                    measured = _rows(network, case, names, args.repeat, worker, console.note)
                except peers.NotMeasured as error:
                    measured = [{"reasons": {relax.OURS: str(error)}}]
            measured = [{"model": network.name, "precision": precision, **row} for row in measured]
            rows += measured
            for number, row in enumerate(measured):
                line = _cells(row, "" if number else network.title, names)
                cells.append(line + [""] * (len(titles) - len(line)))
    return titles, cells, rows
