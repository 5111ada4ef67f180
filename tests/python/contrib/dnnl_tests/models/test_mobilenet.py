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
"""MobileNet end to end on oneDNN: what runs there, the numbers, both executors, a new process."""

import numpy as np
import pytest
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from dnnl_tests.marks import json_only, nightly_after
from dnnl_tests.models import workloads

pytestmark = pytest.mark.slow

RTOL = 1e-4
MUST_OFFLOAD = ("nn.conv2d", "nn.batch_norm", "nn.relu", "nn.dense")


class MobileNet:
    """The model partitioned, its inputs, and its outputs without DNNL."""

    def __init__(self):
        workload = workloads.WORKLOADS["mobilenet"]
        mod, self.params = workload.load()
        self.original = testing.offload(mod).host_ops
        self.inputs = workload.inputs()
        self.reference = testing.run(mod, self.inputs, self.params, opt_level=1)
        self.partitioned = dnnl.partition_for_dnnl(mod, self.params)
        self._libs = {}

    def lib(self, executor):
        """Compile with DNNL, once for each executor."""
        if executor not in self._libs:
            self._libs[executor] = testing.build(self.partitioned, self.params, executor=executor)
        return self._libs[executor]


@pytest.fixture(scope="module")
def mobilenet():
    return MobileNet()


def test_reference_is_worth_comparing(mobilenet):
    # Weights that let activations fade give 1000 equal outputs, and any difference hides.
    (output,) = mobilenet.reference
    assert np.isfinite(output).all()
    assert output.max() > 3 * output.mean()
    assert np.unique(output).size > 900


def test_all_heavy_ops_run_on_dnnl(mobilenet):
    report = dnnl.offload_report(mobilenet.partitioned)
    offload = testing.offload(mobilenet.partitioned)
    for op in MUST_OFFLOAD:
        assert mobilenet.original[op] > 0
        # A batch_norm is folded into the convolution before it, or offloaded.
        gone = report.folded.get(op, 0) if op == "nn.batch_norm" else 0
        assert report.offloaded_ops.get(op, 0) + gone == mobilenet.original[op]
        assert op not in report.reasons
        assert offload.ops[op] == report.offloaded_ops.get(op, 0)
        assert not offload.host_ops[op]
    assert offload.composites["dnnl.conv2d_bias_relu"] == mobilenet.original["nn.conv2d"]
    assert offload.partitions == report.partitions
    # What is between two partitions crosses between TVM and oneDNN: at most pooling may.
    assert 1 <= offload.partitions <= 2


@pytest.mark.parametrize("executor", nightly_after(1, ["graph", "vm"]))
def test_numbers_agree(mobilenet, executor):
    runner = testing.Runner(mobilenet.lib(executor))
    testing.assert_close(runner(mobilenet.inputs), mobilenet.reference, RTOL)
    # A second run and another input: nothing of the first may stick.
    other = {k: -v for k, v in mobilenet.inputs.items()}
    assert testing.difference(runner(other), mobilenet.reference).relative > RTOL
    testing.assert_close(runner(mobilenet.inputs), mobilenet.reference, RTOL)


@json_only
def test_plan_keeps_blocked_layouts_and_fuses(mobilenet):
    runner = testing.Runner(mobilenet.lib("graph"))
    runner(mobilenet.inputs)
    plans = testing.plans(runner)
    assert len(plans) == testing.offload(mobilenet.partitioned).partitions
    primitives = [primitive for plan in plans for primitive in plan["primitives"]]
    convolutions = [p for p in primitives if p["kind"] == "convolution"]
    assert len(convolutions) == mobilenet.original["nn.conv2d"]
    for primitive in convolutions:
        assert "eltwise_relu" in primitive["post_ops"], primitive
        assert not primitive["reference"], primitive
    # Fused: no relu or addition of its own.
    assert not [p for p in primitives if p["kind"] in ("eltwise", "binary")]
    # One in, one out, and where oneDNN's choices change; not one for each convolution.
    reorders = [p for p in primitives if p["kind"] == "reorder"]
    assert len(reorders) < len(convolutions) / 2, reorders
    # Intermediates share the arena.
    assert all(plan["arena_bytes"] <= plan["arena_bytes_unshared"] for plan in plans)


@pytest.mark.parametrize("executor", nightly_after(1, ["graph", "vm"]))
def test_exported_library_runs_in_a_new_process(mobilenet, executor, tmp_path):
    lib = mobilenet.lib(executor)
    path = tmp_path / "mobilenet.so"
    testing.export(lib, path)
    outputs = testing.run_in_new_process(path, mobilenet.inputs, executor=executor)
    testing.assert_close(outputs, mobilenet.reference, RTOL)


def test_a_process_that_fails_says_why(tmp_path):
    path = tmp_path / "broken.so"
    path.write_bytes(b"not a library")
    with pytest.raises(RuntimeError, match="broken.so"):
        testing.run_in_new_process(path, {})
