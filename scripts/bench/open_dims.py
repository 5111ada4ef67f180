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
dimensions open. All take turns, and each calls its shapes in turn.
"""

import os
import statistics
import tempfile
import time

import numpy as np

TITLES = [
    "shape",
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


def _timed(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


class Ours:
    """One library with open dimensions, or one for each shape.

    Parameters
    ----------
    network : dnnl_tests.models.open_dims.OpenNetwork
        The network.
    inputs : list of numpy.ndarray
        An input of each shape.
    is_static : bool
        Whether each shape has a library of its own.
    """

    def __init__(self, network, inputs, is_static):
        from tvm import relay
        from tvm.relay.op.contrib import dnnl
        from tvm.testing import dnnl as testing

        model = network.model()
        self.name = model.graph.input[0].name
        self.first, self.runners = [], []
        for i, x in enumerate(inputs):
            if is_static or i == 0:
                shape = {"shape": {self.name: x.shape}} if is_static else {}
                mod, params = relay.frontend.from_onnx(model, freeze_params=True, **shape)
                lib = testing.build(dnnl.partition_for_dnnl(mod, params), executor="vm")
            begin = time.perf_counter()
            if is_static or i == 0:
                runner = testing.Runner(lib)
            runner.set_inputs({self.name: x})
            runner.invoke()
            self.first.append(time.perf_counter() - begin)
            self.runners.append(runner)

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


def _peers(network, threads):
    import onnx
    import openvino
    from dnnl_tests.models import workloads

    from scripts.bench import peers

    model = network.model()
    name = model.graph.input[0].name
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        onnx.save(model, path)
        session = workloads.onnx_session(path, threads)
        settings = peers.openvino_settings("LATENCY", threads, "f32")
        request = openvino.Core().compile_model(path, "CPU", settings).create_infer_request()
    return {
        "onnxruntime": Peer(lambda x: session.run(None, {name: x})),
        "openvino": Peer(lambda x: request.infer({name: x}, share_inputs=True)),
    }


def measure(network, threads, repeat):
    """Return by runtime and shape the median seconds, and the seconds of our first runs."""
    random = np.random.default_rng(0)
    inputs = [random.uniform(-1, 1, shape).astype("float32") for shape in network.shapes]
    ours, static = Ours(network, inputs, False), Ours(network, inputs, True)
    runtimes = {"dnnl": ours, "static": static, **_peers(network, threads)}
    seconds = {name: [[] for _ in inputs] for name in runtimes}
    # The first turns warm up.
    for turn in range(-3, repeat):
        for name, runtime in runtimes.items():
            for i, x in enumerate(inputs):
                took = runtime.time(i, x)
                if turn >= 0:
                    seconds[name][i].append(took)
    medians = {name: [statistics.median(s) for s in found] for name, found in seconds.items()}
    return medians, ours.first, static.first


def compare(networks, threads, repeat, console):
    """Measure networks; return the titles and rows of a table, and rows for JSON."""
    cells, rows = [], []
    for network in networks:
        with console.step(f"{network.name}: prepare and measure"):
            medians, first, static_first = measure(network, threads, repeat)
        for i, shape in enumerate(network.shapes):
            row = {"model": network.name, "shape": list(shape)}
            row.update((f"{runtime}_ms", 1e3 * found[i]) for runtime, found in medians.items())
            row.update(first_ms=1e3 * first[i], static_first_ms=1e3 * static_first[i])
            rows.append(row)
            ours = row["dnnl_ms"]
            cells.append(
                [
                    f"{network.title if i == 0 else ''} {'x'.join(map(str, shape))}".strip(),
                    f"{ours:#.3g}",
                    f"{1e3 * (ours - row['static_ms']):.0f}",
                    f"{ours / row['static_ms']:.2f}",
                    f"{row['onnxruntime_ms']:#.3g}",
                    f"{ours / row['onnxruntime_ms']:.2f}",
                    f"{row['openvino_ms']:#.3g}",
                    f"{ours / row['openvino_ms']:.2f}",
                    f"{row['first_ms']:.0f}",
                    f"{row['static_first_ms']:.0f}",
                ]
            )
    return TITLES, cells, rows
