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
"""Runs one model on oneDNN and compares it with TVM without DNNL and with onnxruntime."""

import dataclasses

from dnnl_tests.models import workloads
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from scripts.bench import measure
from scripts.passes import shown

# Outputs of the models are probabilities; float32 sums in another order differ by far less.
TOLERANCE = 1e-4
# On a busy machine the timed runs could take minutes.
SECONDS = 10.0


@dataclasses.dataclass
class Result:
    """The results of running one model.

    Attributes
    ----------
    workload : dnnl_tests.models.workloads.Workload
        The model.
    inputs : dict of str to numpy.ndarray
        What it ran on.
    report : tvm.relay.op.contrib.dnnl.OffloadReport
        What runs on oneDNN.
    lib : GraphExecutorFactoryModule
        The compiled library.
    outputs, reference, onnx : list of numpy.ndarray
        Of oneDNN, of TVM without DNNL, of onnxruntime (None if the model is not an ONNX file).
    timing : scripts.bench.measure.Timing
        Of one run on oneDNN.
    """

    workload: workloads.Workload
    inputs: dict
    report: dnnl.OffloadReport
    lib: object
    outputs: list
    reference: list
    onnx: list
    timing: measure.Timing

    def differences(self):
        """Return the differences from TVM without DNNL, and from onnxruntime or None."""
        from_onnx = testing.difference(self.outputs, self.onnx) if self.onnx else None
        return testing.difference(self.outputs, self.reference), from_onnx

    def problems(self):
        """Return what is wrong with the result as a list of sentences."""
        problems = []
        title = self.workload.title
        if not self.report.offloaded:
            problems.append(f"{title}: nothing ran on oneDNN")
        peers = ("TVM without DNNL", "onnxruntime")
        for peer, diff in zip(peers, self.differences()):
            if diff and not diff.relative <= TOLERANCE:
                problems.append(
                    f"{title}: differs from {peer} by {diff.relative:.1e} of the largest"
                )
        return problems


def run(workload, inputs, repeat, console):
    """Compile a model with DNNL and without, run both, and time the first.

    Parameters
    ----------
    workload : dnnl_tests.models.workloads.Workload
        The model.
    inputs : dict of str to numpy.ndarray
        Its inputs.
    repeat : int
        How many runs are timed.
    console : scripts.console.Console
        Shows the steps.

    Returns
    -------
    Result
        All that was seen.
    """
    name = workload.name
    with console.step(f"{name}: import"):
        mod, params = workload.load()
    with console.step(f"{name}: partition for oneDNN"), shown(console):
        partitioned = dnnl.partition_for_dnnl(mod, params)
        report = dnnl.offload_report(partitioned)
    with console.step(f"{name}: compile with DNNL"), shown(console):
        lib = testing.build(partitioned, params)
    with console.step(f"{name}: run {repeat} times"):
        runner = testing.Runner(lib)
        outputs = runner(inputs)
        timing = measure.Timing.of(measure.sample(runner.invoke, repeat, budget=SECONDS))
    with console.step(f"{name}: compile and run without DNNL"), shown(console):
        # Level 1 fuses ops. More would take longer to compile; nobody times this one.
        reference = testing.run(mod, inputs, params, opt_level=1)
    onnx = None
    if workload.onnx_path:
        with console.step(f"{name}: run on onnxruntime"):
            session = workloads.onnx_session(workload.onnx_path())
            onnx = session.run(None, inputs)
    return Result(workload, inputs, report, lib, outputs, reference, onnx, timing)
