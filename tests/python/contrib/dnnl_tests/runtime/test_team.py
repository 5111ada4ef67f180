# SPDX-License-Identifier: Apache-2.0
"""Parallel regions run on teams of the backend, with the outputs of OpenMP's own threads."""

import os
import platform
import subprocess
import sys

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from dnnl_tests.reference import RTOL, conv2d, rand

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="teams are for x86-64 Linux"
)

ATTRS = dict(kernel_size=(3, 3), channels=16, padding=(1, 1))
X, W = rand(1, 16, 28, 28), rand(16, 16, 3, 3, seed=1)

RUN = """
import glob, sys
import numpy as np, tvm
from tvm.testing import dnnl as testing

path, source, result = sys.argv[1:]
runner = testing.Runner(tvm.runtime.load_module(path), "graph")
for _ in range(50):
    y = runner({"x": np.load(source)})[0]
np.save(result, y)
names = [open(name).read().strip() for name in glob.glob("/proc/self/task/*/comm")]
print(names.count("dnnl-team"))
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Return the paths of a library of a convolution and a cumsum, which stays on TVM, and of X."""
    folder = tmp_path_factory.mktemp("team")
    x = relay.var("x", shape=X.shape)
    y = relay.nn.relu(relay.nn.conv2d(x, relay.const(W), **ATTRS))
    mod = dnnl.partition_for_dnnl(tvm.IRModule.from_expr(relay.cumsum(y, axis=1)))
    testing.export(testing.build(mod), str(folder / "model.so"))
    np.save(folder / "x.npy", X)
    return folder


def run(folder, environ):
    """Return the output in a new process, and how many threads of teams it has."""
    result = folder / "y.npy"
    names = [str(folder / name) for name in ("model.so", "x.npy")]
    environ = {**os.environ, "OMP_NUM_THREADS": "3", "TVM_NUM_THREADS": "1", **environ}
    done = subprocess.run(
        [sys.executable, "-c", RUN, *names, str(result)],
        capture_output=True,
        text=True,
        env=environ,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return np.load(result), int(done.stdout)


@pytest.fixture(scope="module")
def with_team(model):
    """Return what `run` returns with the default environment."""
    return run(model, {})


def test_a_run_has_a_team(with_team):
    output, workers = with_team
    assert workers == 2
    expected = np.cumsum(np.maximum(conv2d(X, W, ATTRS), 0), axis=1)
    testing.assert_close([output], [expected], RTOL)


@pytest.mark.parametrize(
    "environ",
    [{"TVM_DNNL_TEAM": "0"}, {"OMP_WAIT_POLICY": "passive"}, {"OMP_PROC_BIND": "false"}],
    ids=str,
)
def test_openmp_keeps_what_is_left_to_it(model, with_team, environ):
    """On its threads the same work is divided in the same way, so no bit is another."""
    output, workers = run(model, environ)
    assert workers == 0
    assert output.tobytes() == with_team[0].tobytes()
