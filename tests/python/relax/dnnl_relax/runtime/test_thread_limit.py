# SPDX-License-Identifier: Apache-2.0
"""Where the limits of the system allow no more threads, models run on those that there are."""

import os
import subprocess
import sys

import numpy as np
import pytest
import tvm_dnnl
from tvm import relax

from dnnl_relax.modules import module, rand, var

# Another user's, whose threads alone the limit counts. Files are opened before.
LIMITED = """
import os, resource, sys, threading
import numpy as np
import tvm_dnnl

x, path, out = np.load(sys.argv[2]), sys.argv[1], open(sys.argv[3], "wb")

def limit():
    if os.getuid() == 0:
        os.setgid(65534)
        os.setuid(65534 - os.getpid() % 1000)
    resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))

def run(model):
    try:
        np.save(out, model(x))
        out.flush()
    except Exception as error:
        print(error)
"""
# A thread of a server starts before the limit is reached, and runs a model after another one did.
BORROWING = """
tvm_dnnl.set_num_threads(2)
first, second = tvm_dnnl.load_model(path), tvm_dnnl.load_model(path)
if sys.argv[4] == "first":
    first(x)
elif sys.argv[4] == "both":
    first(x), second(x)
go = threading.Event()
thread = threading.Thread(target=lambda: (go.wait(), run(second)))
thread.start()
limit()
go.set()
thread.join()
second(x)
print("ran")
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Return the paths of a library, its input and a result, and the expected one."""
    folder = tmp_path_factory.mktemp("model")
    weight = rand(256, 512, seed=1)
    mod = module(lambda bb, x: relax.op.matmul(x, relax.const(weight)), var("x", "n", 256))
    compiled, x = tvm_dnnl.compile(mod), rand(64, 256)
    assert compiled.report.partitions == 1
    compiled.export_library(folder / "model.so")
    np.save(folder / "x.npy", x)
    paths = [str(folder / name) for name in ("model.so", "x.npy", "y.npy")]
    return paths, x @ weight


def run(program, paths, *args, **variables):
    """Run a program; return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", LIMITED + program, *paths, *args],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("before", ["both", "first", "none"])
def test_another_thread(model, before):
    """It shares the threads of the first one; if there are none, the model is planned for one."""
    paths, expected = model
    assert run(BORROWING, paths, before).endswith("ran\n")
    np.testing.assert_allclose(np.load(paths[2]), expected, rtol=1e-5, atol=1e-4)


def test_threads_of_openmp(model):
    """A plan for more threads than OpenMP can start is an error; OpenMP ends the process."""
    said = run(BORROWING.replace("second(x)\nprint", "print"), model[0], "both", TVM_DNNL_TEAM="0")
    assert "planned for 2 threads, which cannot be started" in said and "ulimit -u" in said


def test_more_threads_than_possible(model):
    said = run("run(tvm_dnnl.load_model(path))", model[0], OMP_NUM_THREADS="100000")
    assert 'OMP_NUM_THREADS must be a number of threads from 1 to 4096, but is "100000"' in said
