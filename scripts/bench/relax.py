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
"""The benchmark of the plug-in for Relax, beside Relay and other runtimes.

Relax runs in a process of its own, see `relax_worker`; the others in this one. All take turns.
"""

import dataclasses

from tvm.testing import dnnl as testing

from scripts import options
from scripts.bench import common, measure, open_dims, peers
from scripts.bench.relax_worker import Worker
from scripts.errors import SetupError
from scripts.layout import PluginLayout

MODELS = ("mobilenet_v2", "resnet50", "bert", "vit")
OURS, ALONE = "relax", "relax-tvm"
# The other runtimes in their order, with their titles.
PEERS = {"dnnl": "Relay", "openvino": "OpenVINO", "onnxruntime": "onnxruntime"}
TITLES = [
    "batch 1",
    "precision",
    "ops on\noneDNN",
    "parti-\ntions",
    "cosine",
    "largest\nerror",
    "Relax\nms",
]


class Relax:
    """Models in the plug-in's process.

    Parameters
    ----------
    worker : Worker
        The process.

    Attributes
    ----------
    facts : dict of str to dict
        By precision: the ops, those on oneDNN, and the partitions.
    """

    def __init__(self, worker):
        self.worker, self.facts = worker, {}

    def _load(self, key, case, precision):
        shapes = {name: value.shape for name, value in case.inputs.items()}
        words = peers.onnx_path(case), shapes, host_cpu(), precision
        return self.worker.ask("load", key, *words)

    def prepare(self, case):
        """Compile a case with oneDNN."""
        peers.check_onednn(case)
        key = case.precision
        self.facts[key] = self._load(key, case, case.own_precision)

        def sample(repeat):
            return self.worker.ask("sample", key, case.inputs, repeat, 3)

        return peers.Prepared(sample, lambda inputs: self.worker.ask("run", key, inputs))

    def prepare_alone(self, case):
        """Compile a case with TVM's Relax alone, which is slow: it is run once in each turn."""
        peers.check_tvm(case)
        key = f"{case.precision} alone"
        self._load(key, case, None)
        return peers.Prepared(lambda repeat: self.worker.ask("sample", key, case.inputs, 1, 0))


def host_cpu():
    """Return the name of this CPU that Relay's LLVM compiles for, and Relax's knows, too."""
    return str(testing.host_target().attrs["mcpu"])


def titles_beside(names):
    """Return the titles of the columns of these other runtimes."""
    known = {**PEERS, ALONE: "TVM alone"}
    return [text for name in names for text in (f"{known[name]}\nms", "Relax /\ntheirs")]


def beside(row, names):
    """Return the cells of these other runtimes in a row for JSON."""
    cells = []
    for name in names:
        time, ratio = row.get(f"{name}_ms"), row.get(f"{name}_ratio")
        cells += [common.digits(time) if time else "-", f"{ratio:.2f}" if ratio else ""]
    return cells


def backends(relax, names):
    """Return ours and the others with these names as rows of `peers`."""
    own = {
        OURS: peers.Backend(OURS, "Relax", relax.prepare),
        ALONE: peers.Backend(ALONE, "TVM's Relax alone", relax.prepare_alone),
    }
    return [{**peers.BACKENDS, **own}[name] for name in (OURS, *names)]


def json_row(results, facts):
    """Return the figures of a model in a precision, ready for JSON.

    Parameters
    ----------
    results : list of dict
        Those of `peers.measure_workload` that are of this precision, ours first.
    facts : dict of str to int
        The ops, those on oneDNN, and the partitions.
    """
    ours, case = results[0], results[0]["case"]
    row = {"model": case.original.name, "precision": case.precision, **facts, "reasons": {}}
    for result in results:
        name = result["backend"].name
        if "reason" in result:
            row["reasons"][name] = result["reason"]
            continue
        timing = measure.Timing.of(sum(result["rounds"], []))
        row.update({f"{name}_ms": timing.median, f"{name}_samples": timing.count})
        row.update({f"{name}_low_ms": timing.low, f"{name}_high_ms": timing.high})
        if result is not ours and "rounds" in ours:
            row[f"{name}_ratio"] = measure.ratio(ours["rounds"], result["rounds"])
    return {**row, **dataclasses.asdict(ours["accuracy"])} if "accuracy" in ours else row


def table_row(row, title, names):
    """Return the cells of a `json_row`."""
    cells = [title, row["precision"], *[""] * (len(TITLES) - 3), "-"]
    if "relax_ms" in row:
        cells[2:4] = f"{row['offloaded']}/{row['total']}", str(row["partitions"])
        cells[4:] = f"{row['cosine']:.5f}", f"{row['error']:.1e}", common.digits(row["relax_ms"])
    return cells + beside(row, names)


def compare(workloads, precisions, names, args, console):
    """Measure workloads; return the titles and rows of a table, and rows for JSON."""
    cells, rows = [], []
    for workload in workloads:
        cases = [peers.Case(workload, args.threads, precision) for precision in precisions]
        with Worker(PluginLayout()) as worker:
            relax = Relax(worker)
            chosen = backends(relax, names)
            results = peers.measure_workload(cases, chosen, args.repeat, console)
        for number, case in enumerate(cases):
            mine = [result for result in results if result["case"] is case]
            rows.append(json_row(mine, relax.facts.get(case.precision, {})))
            cells.append(table_row(rows[-1], "" if number else workload.title, names))
    return TITLES + titles_beside(names), cells, rows


def versions():
    """Return the versions of TVM and oneDNN in the plug-in's environment."""
    with Worker(PluginLayout()) as worker:
        return worker.ask("versions")


def check(args):
    """Raise SetupError for options that do not go with --relax; return the names of the others."""
    if args.codegen or args.callers or args.plot:
        raise SetupError("--relax goes with neither --codegen, --callers nor --plot", "leave that.")
    if args.tvm_alone and args.open_dims:
        raise SetupError("--tvm-alone does not go with --open-dims", "leave that.")
    chosen = open_dims.chosen_peers(options.names(args.backends), tuple(PEERS), OURS, "--relax")
    return chosen + [ALONE] * args.tvm_alone
