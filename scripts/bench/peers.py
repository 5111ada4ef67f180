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
"""What the benchmark compares: one row of a table for each backend.

A backend prepares a workload and gives back a function that takes a number of runs and returns
samples in seconds. To add a peer, write such a function and add its row.
"""

import dataclasses
import functools
from collections.abc import Callable

from dnnl_tests.models import workloads
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from scripts.bench import measure


class Case:
    """One workload on its way through the backends; what they share is made once.

    Parameters
    ----------
    workload : dnnl_tests.models.workloads.Workload
        The model.
    threads : int
        Threads for one run.
    """

    def __init__(self, workload, threads):
        self.workload = workload
        self.threads = threads
        self.inputs = workload.inputs()

    @functools.cached_property
    def partitioned(self):
        """The module partitioned for oneDNN, and the parameters."""
        mod, params = self.workload.load()
        return dnnl.partition_for_dnnl(mod, params), params

    @functools.cached_property
    def runner(self):
        """The module compiled with DNNL, after its first run."""
        runner = testing.Runner(testing.build(*self.partitioned))
        runner(self.inputs)
        return runner


def prepare_dnnl(case):
    """Run the whole model on TVM with DNNL."""
    return functools.partial(measure.sample, case.runner.invoke)


def prepare_limit(case):
    """Run each oneDNN primitive of the model alone and hot, and add up their medians.

    What TVM's own kernels add is not in it, nor what calling them and moving data between the
    primitives costs.
    """

    def sample(repeat):
        primitives = testing.primitives(case.runner, "measure_primitives", repeat)
        return [sum(primitive["microseconds"] for primitive in primitives) * 1e-6]

    return sample


def prepare_onnxruntime(case):
    """Run the same model from its ONNX file, if it has one."""
    if case.workload.onnx_path is None:
        return None
    session = workloads.onnx_session(case.workload.onnx_path(), case.threads)
    return functools.partial(measure.sample, lambda: session.run(None, case.inputs))


def prepare_openvino(case):
    """Run the same model from its ONNX file with OpenVINO, one request at a time, in float32."""
    if case.workload.onnx_path is None:
        return None
    # Imported here: importing it takes a second, and only this backend needs it.
    import openvino

    core = openvino.Core()
    model = core.read_model(case.workload.onnx_path())
    model.reshape({name: value.shape for name, value in case.inputs.items()})
    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": case.threads,
    }
    request = core.compile_model(model, "CPU", settings).create_infer_request()
    return functools.partial(measure.sample, lambda: request.infer(case.inputs, share_inputs=True))


def prepare_tvm(case):
    """Run the whole model on TVM without DNNL."""
    runner = testing.Runner(testing.build(*case.workload.load()))
    runner(case.inputs)
    return functools.partial(measure.sample, runner.invoke)


@dataclasses.dataclass(frozen=True)
class Backend:
    """A row of the table.

    Attributes
    ----------
    name : str
        What the command line calls it.
    title : str
        The title of its column.
    prepare : callable
        Takes a Case; returns the sampling function, or None if it cannot run the workload.
    by_default : bool
        Whether it is measured when none is named.
    """

    name: str
    title: str
    prepare: Callable
    by_default: bool = True


OURS = "dnnl"
_ROWS = (
    Backend(OURS, "DNNL", prepare_dnnl),
    Backend("limit", "primitives alone", prepare_limit),
    Backend("onnxruntime", "onnxruntime", prepare_onnxruntime),
    Backend("openvino", "OpenVINO", prepare_openvino),
    Backend("tvm", "TVM without DNNL", prepare_tvm, by_default=False),
)
BACKENDS = {row.name: row for row in _ROWS}
