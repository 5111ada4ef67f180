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
"""Libraries with open dimensions, called with one shape after the other.

Beside ours are our own libraries for one shape each, and onnxruntime and OpenVINO with the same
dimensions open. All take turns. In one's turn its shapes go round several times, of which the
first is not counted: the threads of the one before are still spinning then.
"""

import dataclasses
import os
import statistics
import tempfile
import time

import numpy as np

from scripts.bench.measure import forget_primitives, take_turns
from scripts.errors import SetupError

TITLES = [
    "shape",
    "precision",
    "ours\nms",
    "over a static\nlibrary, us",
    "ours /\nstatic",
    "onnxruntime\nms",
    "ours /\ntheirs",
    "OpenVINO\nms",
    "ours /\ntheirs",
    "first run,\nms",
    "static load and\nfirst run, ms",
]
# The names that --backends accepts; ours is always measured.
PEERS = ("onnxruntime", "openvino")


def _timed(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


class Ours:
    """One library with open dimensions, or one for each shape.

    Parameters
    ----------
    model : onnx.ModelProto
        The network.
    inputs : list of numpy.ndarray
        An input of each shape.
    is_static : bool
        Whether each shape has a library of its own.
    precision : str
        Of what is not quantized.
    """

    def __init__(self, model, inputs, is_static, precision):
        from tvm import relay
        from tvm.relay.op.contrib import dnnl
        from tvm.testing import dnnl as testing

        self.name = model.graph.input[0].name
        self.first, self.runners = [], []
        for i, x in enumerate(inputs):
            if is_static or i == 0:
                shape = {"shape": {self.name: x.shape}} if is_static else {}
                mod, params = relay.frontend.from_onnx(model, freeze_params=True, **shape)
                partitioned = dnnl.partition_for_dnnl(mod, params, precision=precision)
                runner, seconds = self._loaded(testing.build(partitioned, executor="vm"))
            begin = time.perf_counter()
            runner.set_inputs({self.name: x})
            runner.invoke()
            self.first.append(time.perf_counter() - begin + seconds)
            self.runners.append(runner)
            seconds = 0

    @staticmethod
    def _loaded(lib):
        """Export a library and load it; return what runs it, and the seconds that loading took.

        In the process that compiled it, LLVM would compile TVM's shape functions in the first run.
        """
        import tvm
        from tvm.testing import dnnl as testing

        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.so")
            testing.export(lib, path)
            forget_primitives()
            begin = time.perf_counter()
            runner = testing.Runner(tvm.runtime.load_module(path), "vm")
            return runner, time.perf_counter() - begin

    def time(self, i, x):
        """Run with the i-th input; return the seconds that it took."""
        self.runners[i].set_inputs({self.name: x})
        return _timed(self.runners[i].invoke)


class Peer:
    """Another runtime, of which `run` takes an input."""

    def __init__(self, run):
        self.run = run

    def time(self, i, x):
        """Run with the i-th input; return the seconds that it took."""
        return _timed(lambda: self.run(x))


def _onnxruntime(case, name):
    from dnnl_tests.models import workloads

    from scripts.bench import peers

    peers.check_onnxruntime(case)
    session = workloads.onnx_session(peers.onnx_path(case), case.threads)
    return Peer(lambda x: session.run(None, {name: x}))


def _openvino(case, name):
    from scripts.bench import peers

    request = peers.compile_openvino(case, "LATENCY", is_open=True)[0].create_infer_request()
    return Peer(lambda x: request.infer({name: x}, share_inputs=True))


def peers_of(case, model, names):
    """Return by name the runtimes that are ready, and why others are not."""
    import onnx

    from scripts.bench import peers

    ready, reasons = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        onnx.save(model, path)
        case.workload = dataclasses.replace(case.workload, onnx_path=lambda: path)
        for name, prepare in zip(PEERS, (_onnxruntime, _openvino)):
            if name in names:
                try:
                    ready[name] = prepare(case, model.graph.input[0].name)
                except peers.NotMeasured as error:
                    reasons[name] = str(error)
    return ready, reasons


def prepared(network, case):
    """Return a network in the precision of a case as an ONNX model, and an input of each shape.

    What oneDNN has no kernels for raises NotMeasured.
    """
    from dnnl_tests.models import int8, open_dims

    from scripts.bench import peers

    peers.check_onednn(case)
    model = network.model()
    if case.is_int8:
        activations = {suffix: name for name, suffix in int8.SUFFIXES.items()}[case.precision]
        model = open_dims.in_int8(network.name, activations)
    random = np.random.default_rng(0)
    return model, [random.uniform(-1, 1, shape).astype("float32") for shape in network.shapes]


def measure(network, precision, names, threads, repeat):
    """Measure a network in a precision.

    Parameters
    ----------
    network : dnnl_tests.models.open_dims.OpenNetwork
        The network.
    precision : str
        One of `options.PRECISIONS`.
    names : list of str
        Those of `PEERS` to measure, too.
    threads, repeat : int
        The threads of a run, and the runs of each shape.

    Returns
    -------
    list of dict
        For each shape: the median milliseconds of each runtime, of our first runs, and "reasons".
    """
    from dnnl_tests.models import workloads

    from scripts.bench import peers

    case = peers.Case(workloads.WORKLOADS[network.name], threads, precision)
    row = {"model": network.name, "precision": precision}
    try:
        model, inputs = prepared(network, case)
    except peers.NotMeasured as error:
        return [{**row, "reasons": {peers.OURS: str(error)}}]
    # A process starts its threads and reads oneDNN's code once: that is no library's time.
    Ours(model, inputs[:1], True, case.own_precision)
    ours, static = (Ours(model, inputs, each, case.own_precision) for each in (False, True))
    ready, reasons = peers_of(case, model, names)
    runtimes = {"dnnl": ours, "static": static, **ready}

    def sampler(runtime):
        def call():
            return [runtime.time(i, x) for i, x in enumerate(inputs)]

        return lambda count: [call() for _ in range(1 + count)][1:]

    turns = take_turns({name: sampler(each) for name, each in runtimes.items()}, repeat)
    seconds = {name: list(zip(*sum(rounds, []))) for name, rounds in turns.items()}
    rows = []
    for i, shape in enumerate(network.shapes):
        row = {**row, "shape": list(shape)}
        row.update((f"{name}_ms", 1e3 * statistics.median(s[i])) for name, s in seconds.items())
        row.update(first_ms=1e3 * ours.first[i], static_first_ms=1e3 * static.first[i])
        rows.append({**row, "reasons": reasons})
    return rows


def _cells(row, title):
    cells = [f"{title} {'x'.join(map(str, row.get('shape', ())))}".strip(), row["precision"]]
    if "dnnl_ms" not in row:
        return [*cells, "-", *[""] * (len(TITLES) - len(cells) - 1)]
    ours = row["dnnl_ms"]
    cells += [f"{ours:#.3g}", f"{1e3 * (ours - row['static_ms']):.0f}"]
    cells.append(f"{ours / row['static_ms']:.2f}")
    for name in PEERS:
        theirs = row.get(f"{name}_ms")
        cells += [f"{theirs:#.3g}", f"{ours / theirs:.2f}"] if theirs else ["-", ""]
    return [*cells, f"{row['first_ms']:.0f}", f"{row['static_first_ms']:.0f}"]


def chosen_peers(names, peers=PEERS, ours="dnnl", option="--open-dims"):
    """Return those of `peers` that --backends names, all if it is empty; raise for others."""
    known = (ours, *peers)
    for name in names:
        if name not in known:
            raise SetupError(f"{option} does not measure {name}", f"it does: {', '.join(known)}.")
    return [name for name in peers if not names or name in names]


def compare(networks, precisions, names, args, console):
    """Measure networks; return the titles and rows of a table, and rows for JSON."""
    cells, rows = [], []
    for network in networks:
        for precision in precisions:
            with console.step(f"{network.name}, {precision}: prepare and measure"):
                measured = measure(network, precision, names, args.threads, args.repeat)
            cells += [_cells(row, "" if k else network.title) for k, row in enumerate(measured)]
            rows += measured
    return TITLES, cells, rows
