# SPDX-License-Identifier: Apache-2.0
"""Libraries with open dimensions, called with one shape after the other.

Beside ours are our own libraries for one shape each, and other runtimes with the same dimensions
open. All take turns. In one's turn its shapes go round several times, of which the first is not
counted: the threads of the one before are still spinning then.
"""

import dataclasses
import functools
import os
import tempfile
import time

import numpy as np
import onnx
import tvm
from dnnl_tests.models import accuracy, int8, open_dims, workloads
from tvm import relay
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from scripts.bench import measure, peers


class OpenCase(peers.Case):
    """A network with open dimensions in a precision. Its inputs are a list, one for each shape."""

    is_open = True

    def __init__(self, network, threads, precision="float32"):
        super().__init__(workloads.WORKLOADS[network.name], threads, precision)
        self.network = network
        self.original = dataclasses.replace(self.original, title=network.title)
        self.workload = dataclasses.replace(self.original, onnx_path=lambda: self.path)
        random = np.random.default_rng(0)
        self.inputs = [
            {self.name: random.uniform(-1, 1, shape).astype("float32")} for shape in network.shapes
        ]

    @property
    def name(self):
        """The name of the input."""
        return self.model.graph.input[0].name

    @functools.cached_property
    def model(self):
        """The network as an ONNX model in this precision."""
        if not self.is_int8:
            return self.network.model()
        suffixes = {suffix: name for name, suffix in int8.SUFFIXES.items()}
        return open_dims.in_int8(self.network.name, suffixes[self.precision])

    @functools.cached_property
    def path(self):
        """The file of the model."""
        self._folder = tempfile.TemporaryDirectory()
        path = os.path.join(self._folder.name, "model.onnx")
        onnx.save(self.model, path)
        return path

    @functools.cached_property
    def expected(self):
        """For each shape, onnxruntime's output in float32."""
        run = peers.prepare_onnxruntime(OpenCase(self.network, self.threads)).run
        return [run(each)[0] for each in self.inputs]

    def sampler(self, prepared):
        """Return a function that takes a number of rounds through the shapes and samples them."""
        if prepared.sample:
            return prepared.sample
        calls = [functools.partial(prepared.call, each) for each in self.inputs]
        return functools.partial(measure.sample_rounds, calls)

    def compared(self, prepared):
        """Return for each shape the accuracy of what is ready to run."""
        pairs = zip(self.inputs, self.expected)
        return [accuracy.Accuracy.of([prepared.run(x)[0]], [y], False) for x, y in pairs]

    def results(self, result):
        """Return a result for each shape."""
        if "reason" in result:
            return [result]
        results = []
        for i, shape in enumerate(self.network.shapes):
            facts = {name: facts[i] for name, facts in result["facts"].items()}
            each = {**result, "number": i, "facts": {**facts, "shape": list(shape)}}
            each["rounds"] = [[seconds[i] for seconds in turn] for turn in result["rounds"]]
            results.append({**each, "accuracy": result["accuracy"][i]})
        return results


def _loaded(case, shape):
    """Compile for a shape, or any; return what runs the library, and the seconds of its loading.

    In the process that compiled it, LLVM would compile TVM's shape functions in the first run.
    """
    mod, params = relay.frontend.from_onnx(case.model, shape=shape, freeze_params=True)
    partitioned = dnnl.partition_for_dnnl(mod, params, precision=case.own_precision)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.so")
        testing.export(testing.build(partitioned, executor="vm"), path)
        measure.forget_primitives()
        begin = time.perf_counter()
        runner = testing.Runner(tvm.runtime.load_module(path), "vm")
        return runner, time.perf_counter() - begin


def _first(runner, inputs):
    begin = time.perf_counter()
    runner.set_inputs(inputs)
    runner.invoke()
    return time.perf_counter() - begin


def prepare(case, is_static=False):
    """Run a library with open dimensions, or one for each shape."""
    peers.check_onednn(case)
    if not is_static:
        # A process starts its threads and reads oneDNN's code once: that is no library's time.
        _first(_loaded(case, {case.name: case.network.shapes[0]})[0], case.inputs[0])
    runners, first = {}, []
    for i, (shape, inputs) in enumerate(zip(case.network.shapes, case.inputs)):
        seconds = 0
        if is_static or i == 0:
            runner, seconds = _loaded(case, {case.name: shape} if is_static else None)
        first.append(1e3 * (seconds + _first(runner, inputs)))
        runners[shape] = runner

    def runner_of(inputs):
        return runners[inputs[case.name].shape]

    def run(inputs):
        return runner_of(inputs)(inputs)

    def sample(repeat):
        # The inputs are set before a run, whose time this is not.
        rounds = []
        for _ in range(1 + repeat):
            seconds = []
            for inputs in case.inputs:
                runner_of(inputs).set_inputs(inputs)
                seconds += measure.sample(runner_of(inputs).invoke, 1, warmup=0)
            rounds.append(seconds)
        return rounds[1:]

    return peers.Prepared(sample, run, facts={"first_ms": first})


STATIC = "static"
BACKENDS = {
    **{name: peers.BACKENDS[name] for name in ("onnxruntime", "openvino")},
    peers.OURS: peers.Backend(peers.OURS, "DNNL", prepare),
    STATIC: peers.Backend(STATIC, "DNNL, one shape", functools.partial(prepare, is_static=True)),
}
