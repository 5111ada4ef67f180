# SPDX-License-Identifier: Apache-2.0
"""docs/examples/dask_workers.py, with a worker that dies while it serves."""

import os
import pathlib
import signal
import sys
import time

import cloudpickle
import numpy as np
import pytest
import tvm
from dnnl_tests.relay import const, conv, module, partition, var
from tvm import relay
from tvm.relay.op.contrib import dnnl

distributed = pytest.importorskip("distributed", reason="comes with ./dev.py docs")

EXAMPLES = pathlib.Path(__file__).parents[3] / "docs" / "examples"
SHAPE = (1, 8, 6, 6)
COUNT = 20


@pytest.fixture
def example(monkeypatch):
    """Return the example's module, which workers find, too."""
    path = os.pathsep.join([str(EXAMPLES), *filter(None, [os.environ.get("PYTHONPATH")])])
    monkeypatch.setenv("PYTHONPATH", path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import dask_workers  # pylint: disable=import-outside-toplevel,import-error

    return dask_workers


def serve(path, request):
    """Run a request in a worker; return the result, and which process did it."""
    import dask_workers  # pylint: disable=import-outside-toplevel,import-error

    time.sleep(0.2)
    return dask_workers.infer(path, "x", request), os.getpid()


def test_a_worker_that_dies_loses_no_request(example, tmp_path):
    path = str(tmp_path / "model.so")
    mod = partition(module(relay.nn.relu(conv(var("x", *SHAPE)) + const(8, 1, 1))))
    with tvm.transform.PassContext(opt_level=3):
        relay.build(mod, dnnl.host_target()).export_library(path)
    requests = list(np.random.default_rng(0).standard_normal((COUNT, *SHAPE), "float32"))
    # Workers cannot import this file.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        futures = [client.submit(serve, path, request) for request in requests]
        _, victim = futures[0].result(timeout=120)
        left = sum(not future.done() for future in futures)
        os.kill(victim, signal.SIGKILL)
        results = client.gather(futures)
    assert left > 0, "all was done before"
    expected = [example.infer(path, "x", request) for request in requests]
    np.testing.assert_array_equal([result for result, _ in results], expected)
    # What the dead one had done and nobody had fetched is done again, by others.
    assert len({pid for _, pid in results} - {victim}) >= 1
