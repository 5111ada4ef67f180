# SPDX-License-Identifier: Apache-2.0
"""docs/examples/ray_workers.py, and with a worker that dies while it serves."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import tvm
from dnnl_tests.relay import const, conv, module, partition, var
from tvm import relay
from tvm.relay.op.contrib import dnnl

ray = pytest.importorskip("ray", reason="`pip install ray` brings it, nothing here does")

EXAMPLES = pathlib.Path(__file__).parents[3] / "docs" / "examples"
SHAPE = (1, 8, 6, 6)
COUNT = 20


@pytest.fixture
def model(tmp_path, monkeypatch):
    """Export a model of one partition; return its path."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    path = str(tmp_path / "model.so")
    mod = partition(module(relay.nn.relu(conv(var("x", *SHAPE)) + const(8, 1, 1))))
    assert dnnl.offload_report(mod).partitions == 1
    with tvm.transform.PassContext(opt_level=3):
        relay.build(mod, dnnl.host_target()).export_library(path)
    return path


def test_the_example(model):
    command = [sys.executable, EXAMPLES / "ray_workers.py", model, "x", "1,8,6,6"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "2 workers gave the same 8 results as this process" in done.stdout


def test_a_worker_that_dies_loses_no_request(model, monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import ray_workers  # pylint: disable=import-outside-toplevel,import-error

    class Slow(ray_workers.Model):
        def infer(self, name, request):
            time.sleep(0.2)
            return super().infer(name, request), os.getpid()

    monkeypatch.setattr(ray_workers, "Model", Slow)
    requests = list(np.random.default_rng(0).standard_normal((COUNT, *SHAPE), "float32"))
    paths = os.pathsep.join([str(EXAMPLES), *filter(None, [os.environ.get("PYTHONPATH")])])
    environ = {"env_vars": {"PYTHONPATH": paths}}
    ray.init(num_cpus=2, include_dashboard=False, runtime_env=environ)
    try:
        both = ray_workers.workers(model)
        futures = [both[i % 2].infer.remote("x", request) for i, request in enumerate(requests)]
        _, victim = ray.get(futures[0], timeout=200)
        left = len(ray.wait(futures, num_returns=COUNT, timeout=0)[1])
        os.kill(victim, signal.SIGKILL)
        results = ray.get(futures, timeout=200)
    finally:
        ray.shutdown()
    assert left > 0, "all was done before"
    monkeypatch.undo()
    local = ray_workers.Model(model)
    expected = [local.infer("x", request) for request in requests]
    np.testing.assert_array_equal([result for result, _ in results], expected)
    assert len({pid for _, pid in results} - {victim}) >= 2
