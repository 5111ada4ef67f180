# SPDX-License-Identifier: Apache-2.0
"""The number of threads that oneDNN runs on."""

import ctypes
import os
import subprocess
import sys

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from dnnl_tests.marks import nightly_after
from dnnl_tests.reference import RTOL, conv2d, rand
from dnnl_tests.threads import on_threads

ATTRS = dict(kernel_size=(3, 3), channels=16, padding=(1, 1))
X, W = rand(1, 16, 28, 28), rand(16, 16, 3, 3, seed=1)


def partitioned():
    x = relay.var("x", shape=X.shape)
    expr = relay.nn.relu(relay.nn.conv2d(x, relay.const(W), **ATTRS))
    return dnnl.partition_for_dnnl(tvm.IRModule.from_expr(expr))


@pytest.fixture
def default_threads():
    yield dnnl.num_threads()
    dnnl.set_num_threads(0)


def test_the_number_is_set_and_taken_back(default_threads):
    assert default_threads >= 1
    dnnl.set_num_threads(3)
    assert dnnl.num_threads() == 3
    dnnl.set_num_threads(0)
    assert dnnl.num_threads() == default_threads


def test_a_number_that_is_none(default_threads):
    for number in (-1, 4097):
        match = f"must be positive, or 0 for the default, and at most 4096, but is {number}"
        with pytest.raises(tvm.TVMError, match=match):
            dnnl.set_num_threads(number)
    assert dnnl.num_threads() == default_threads


def test_what_others_tell_openmp_is_not_the_default(default_threads):
    """TVM's kernels do: after one with a single task OpenMP gives their thread one thread."""
    try:
        openmp = ctypes.CDLL("libgomp.so.1")
    except OSError:
        pytest.skip("there is no GNU OpenMP")
    before = openmp.omp_get_max_threads()
    openmp.omp_set_num_threads(default_threads + 1)
    try:
        assert dnnl.num_threads() == default_threads
    finally:
        openmp.omp_set_num_threads(before)


@pytest.mark.parametrize("built", [1, 4])
@pytest.mark.parametrize("later", [1, 4])
def test_a_plan_keeps_the_number_it_was_built_with(default_threads, built, later):
    """On more threads than it was built for a primitive would write outside of its workspace."""
    dnnl.set_num_threads(built)
    runner = testing.Runner(testing.build(partitioned()))
    expected = [np.maximum(conv2d(X, W, ATTRS), 0)]
    testing.assert_close(runner({"x": X}), expected, RTOL)
    dnnl.set_num_threads(later)
    testing.assert_close(runner({"x": X}), expected, RTOL)


@pytest.mark.parametrize("size, threads", [(7, 1), (28, 2)])
def test_a_small_primitive_runs_on_one_thread(default_threads, size, threads):
    """To wake other threads would take longer than what they have to do."""
    dnnl.set_num_threads(2)
    x = relay.var("x", shape=(1, 16, size, size))
    expr = relay.nn.max_pool2d(relay.nn.conv2d(x, relay.const(W), **ATTRS), (2, 2))
    mod = dnnl.partition_for_dnnl(tvm.IRModule.from_expr(expr))
    runner = testing.Runner(testing.build(mod))
    runner({"x": rand(1, 16, size, size)})
    (plan,) = testing.plans(runner)
    conv = next(step for step in plan["primitives"] if step["kind"] == "convolution")
    pool = next(step for step in plan["primitives"] if step["kind"] == "pooling")
    assert conv["threads"] == threads and pool["threads"] == 1


def test_other_threads_run_the_plan_too(default_threads):
    """OpenMP's number of threads is each thread's own."""
    dnnl.set_num_threads(2)
    lib = testing.build(partitioned())
    expected = [np.maximum(conv2d(X, W, ATTRS), 0)]
    runners = [testing.Runner(lib) for _ in range(3)]
    for output in on_threads(lambda i: runners[i]({"x": X}), len(runners)):
        testing.assert_close(output, expected, RTOL)


def environment_says(value, variable="TVM_DNNL_NUM_THREADS"):
    """Return what a new process prints that asks for the number of threads."""
    code = "from tvm.relay.op.contrib import dnnl; print(dnnl.num_threads())"
    environ = {**os.environ, variable: value}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False
    )
    return done.stdout.strip(), done.stderr


def test_the_environment():
    assert environment_says("5")[0] == "5"


@pytest.mark.parametrize("value", nightly_after(2, ["many", "0", "-2", "1.5", "4097"]))
def test_an_environment_that_makes_no_sense(value):
    _, error = environment_says(value)
    text = f'TVM_DNNL_NUM_THREADS must be a number of threads from 1 to 4096, but is "{value}"'
    assert text in error


def test_a_switch_is_0_or_1():
    _, error = environment_says("off", "TVM_DNNL_TEAM")
    assert 'TVM_DNNL_TEAM must be 0 or 1, but is "off"' in error


FORK = """
import os, signal, sys
import numpy as np, tvm
from tvm.testing import dnnl as testing

path, source, result, codegen = sys.argv[1:]
x = np.load(source)
runner = testing.Runner(tvm.runtime.load_module(path), "graph")
y = runner({"x": x})[0]

def work():
    for _ in range(3):
        assert (runner({"x": x})[0] == y).all()
    # What is loaded in the child, too.
    other = testing.Runner(tvm.runtime.load_module(path), "graph")
    assert (other({"x": x})[0] == y).all()
    if codegen == "JSON":
        assert testing.primitives(other, "profile_primitives", 2)

def forked(task):
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    code = 1
    signal.alarm(60)  # A hang becomes a signal.
    try:
        task()
        code = 0
    finally:
        os._exit(code)

def work_and_fork_again():
    work()
    assert forked(work) == 0

assert forked(work_and_fork_again) == 0
work()
np.save(result, y)
"""


def test_a_forked_process_runs_what_its_parent_loaded(tmp_path):
    """GNU's OpenMP would wait for threads that are not there."""
    path, source = str(tmp_path / "model.so"), str(tmp_path / "in.npy")
    testing.export(testing.build(partitioned()), path)
    np.save(source, X)
    command = [sys.executable, "-c", FORK, path, source, str(tmp_path / "y.npy")]
    environ = dict(os.environ, OMP_NUM_THREADS="2")
    done = subprocess.run(
        [*command, dnnl.dnnl_codegen()], capture_output=True, text=True, env=environ, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    expected = np.maximum(conv2d(X, W, ATTRS), 0)
    testing.assert_close([np.load(tmp_path / "y.npy")], [expected], RTOL)
