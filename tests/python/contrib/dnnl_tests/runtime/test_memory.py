# SPDX-License-Identifier: Apache-2.0
"""Memory: constants are there once, in the file or packed, and a run allocates nothing."""

import gc
import os
import pathlib
import platform
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from dnnl_tests.isolated import isolated
from dnnl_tests.marks import json_only
from dnnl_tests.reference import RTOL

pytestmark = json_only

WIDTH = 512
ATTRS = {"kernel_size": (3, 3), "channels": WIDTH, "padding": 1}
X = np.random.default_rng(0).standard_normal((1, WIDTH, 7, 7)).astype("float32")


def weights(layers, seed=1):
    """Weights of 3x3 convolutions, 9.4 MB each."""
    rng = np.random.default_rng(seed)
    scale = np.float32(np.sqrt(2 / (9 * WIDTH)))
    shape = (WIDTH, WIDTH, 3, 3)
    return [rng.standard_normal(shape, dtype="float32") * scale for _ in range(layers)]


def convolutions(values):
    """A chain of convolutions and relus, partitioned and built."""
    x = expr = relay.var("x", shape=X.shape)
    for value in values:
        expr = relay.nn.conv2d(expr, relay.const(value), **ATTRS)
        expr = relay.nn.relu(expr)
    mod = tvm.IRModule.from_expr(relay.Function([x], expr))
    return testing.build(dnnl.partition_for_dnnl(mod))


def expected(values):
    """The same chain without oneDNN, and without TVM's convolutions by Winograd."""
    expr = relay.var("x", shape=X.shape)
    params = {}
    for i, value in enumerate(values):
        params[f"w{i}"] = value
        weight = relay.var(f"w{i}", shape=value.shape)
        expr = relay.nn.relu(relay.nn.conv2d(expr, weight, **ATTRS))
    return testing.run(tvm.IRModule.from_expr(expr), {"x": X}, params, opt_level=2)


def exported(values, path):
    """The path of the exported chain."""
    testing.export(convolutions(values), str(path))
    return str(path)


def loaded(path):
    """A runner of a library, one partition of which runs on oneDNN."""
    runner = testing.Runner(tvm.runtime.load_module(path), "graph")
    assert len(testing.dnnl_modules(runner)) == 1
    return runner


def const_loader(runner):
    """The one const loader of a runner."""
    (loader,) = [m for m in testing.imported_modules(runner) if m.type_key == "const_loader"]
    return loader


def resident_megabytes():
    """The memory that this process has now, mapped files included."""
    with open("/proc/self/status", encoding="ascii") as status:
        (line,) = [line for line in status if line.startswith("VmRSS")]
    return int(line.split()[1]) / 1e3


def growth(small, large):
    """Load and run a small library, then a large one; the megabytes that the large one adds."""
    kept = [loaded(small)]
    kept[0]({"x": X})
    before = resident_megabytes()
    kept.append(loaded(large))
    kept[1]({"x": X})
    return resident_megabytes() - before


def test_loaded_constants_are_in_memory_once(tmp_path):
    """TVM's own const loader makes it three times: mapped, copied and packed."""
    layers = weights(8)
    small = exported(layers[:1], tmp_path / "small.so")
    large = exported(layers[1:], tmp_path / "large.so")
    megabytes = sum(value.nbytes for value in layers[1:]) / 1e6
    assert isolated(growth, small, large) < 1.2 * megabytes


def test_a_loaded_library_gives_right_numbers_and_its_constants(tmp_path):
    layers = weights(3)
    runner = loaded(exported(layers, tmp_path / "model.so"))
    loader = const_loader(runner)
    for _ in range(2):
        constants = loader.get_function("get_const_var_ndarray")()
        sums = sorted(float(value.numpy().sum()) for value in constants.values())
        np.testing.assert_allclose(sums, sorted(float(value.sum()) for value in layers), rtol=1e-6)
        # Once more after the run, when the copies that oneDNN was given are gone.
        testing.assert_close(runner({"x": X}), expected(layers), RTOL)


def test_the_file_may_go_after_loading(tmp_path):
    layers = weights(2)
    path = exported(layers, tmp_path / "model.so")
    runner = loaded(path)
    shutil.rmtree(tmp_path)
    gc.collect()
    testing.assert_close(runner({"x": X}), expected(layers), RTOL)


def test_libraries_that_differ_in_one_number_only(tmp_path):
    """Names, shapes and all but one number are the same: each library has constants of its own."""
    one = weights(2)
    other = [value.copy() for value in one]
    other[1][100, 200, 1, 1] += 100
    paths = [exported(one, tmp_path / "one.so"), exported(other, tmp_path / "other.so")]
    runners = [loaded(path) for path in paths]
    for runner, layers in zip(reversed(runners), [other, one]):
        testing.assert_close(runner({"x": X}), expected(layers), RTOL)


def plan(runner):
    """The one plan of a runner that was run."""
    (only,) = testing.plans(runner)
    return only


def assert_packed_once(only, layers):
    """Each weight is there once; oneDNN fills blocks up, on CPUs with AVX2 by 3 % here."""
    total = sum(value.nbytes for value in layers)
    assert total <= only <= 1.05 * total


def test_equal_constants_of_two_modules_are_packed_once(tmp_path):
    same, own = weights(2), weights(1, seed=2)
    first = loaded(exported(same, tmp_path / "first.so"))
    first({"x": X})
    second = loaded(exported(same + own, tmp_path / "second.so"))
    testing.assert_close(second({"x": X}), expected(same + own), RTOL)
    total = plan(first)["constant_bytes"]
    assert_packed_once(total, same)
    assert plan(first)["constant_bytes_shared"] == 0
    assert_packed_once(plan(second)["constant_bytes"], same + own)
    assert plan(second)["constant_bytes_shared"] == total
    # What is shared outlives the module that packed it.
    del first
    gc.collect()
    testing.assert_close(second({"x": X}), expected(same + own), RTOL)


def test_constants_in_a_module_that_was_not_exported():
    """TVM's own const loader hands them in."""
    layers = weights(2)
    runner = testing.Runner(convolutions(layers))
    testing.assert_close(runner({"x": X}), expected(layers), RTOL)
    assert_packed_once(plan(runner)["constant_bytes"], layers)


SOURCE = pathlib.Path(__file__).with_name("count_allocations.c")
COMPILER = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")

CODE = """
import ctypes, sys
import numpy as np, tvm
from tvm import relay
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

counter = ctypes.CDLL(None)
x = relay.var("x", shape=(1, 16, 28, 28))
weight = relay.const(np.ones((16, 16, 3, 3), "float32"))
y = relay.nn.relu(relay.nn.conv2d(x, weight, channels=16, kernel_size=(3, 3), padding=(1, 1)))
pools = [relay.nn.max_pool2d(y, (2, 2), (2, 2)), relay.nn.avg_pool2d(y, (2, 2), (2, 2))]
y = relay.concatenate(pools, 1)
mod = dnnl.partition_for_dnnl(tvm.IRModule.from_expr(relay.nn.softmax(y, 1)))
runner = testing.Runner(testing.build(mod))

def count(runs):
    counter.count_start(sys.argv[1].encode())
    for _ in range(runs):
        runner.invoke()
    return counter.count_stop()

runner.set_inputs({"x": np.ones((1, 16, 28, 28), "float32")})
print(count(1), count(50))
"""


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc" or not COMPILER, reason="needs glibc and a C compiler"
)
@pytest.mark.skipif(
    "TVM_HOME" in os.environ, reason="our code cannot be told from TVM's own in its libtvm.so"
)
def test_a_run_allocates_nothing(tmp_path):
    library = tmp_path / "count.so"
    subprocess.run([COMPILER, "-O1", "-shared", "-fPIC", SOURCE, "-o", library], check=True)
    done = subprocess.run(
        [sys.executable, "-c", CODE, "libtvm_dnnl"],
        env={**os.environ, "LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    first, later = map(int, done.stdout.split())
    # The first run builds the plan: this shows that allocations are seen.
    assert first > 20
    assert later == 0
