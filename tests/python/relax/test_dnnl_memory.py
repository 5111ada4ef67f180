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
"""How often a library's constants are in memory: once, in the file or as oneDNN packed them."""

import gc
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tvm
import tvm_dnnl
import tvm_ffi
from dnnl_modules import compiled, module, partitions, run, var
from tvm import relax
from tvm.relax import op

WIDTH = 512
SHAPE = (1, WIDTH, 7, 7)
X = np.random.default_rng(0).standard_normal(SHAPE).astype("float32")


def weights(layers, seed=1):
    """Weights of 3x3 convolutions, 9.4 MB each."""
    rng = np.random.default_rng(seed)
    scale = np.float32(np.sqrt(2 / (9 * WIDTH)))
    shape = (WIDTH, WIDTH, 3, 3)
    return [rng.standard_normal(shape, dtype="float32") * scale for _ in range(layers)]


def convolutions(values, apart=False):
    """A chain of convolutions with relus, or with what stays on TVM between them."""

    def build(builder, x):
        for value in values:
            x = builder.emit(op.nn.conv2d(x, relax.const(value), padding=1))
            x = builder.emit(op.sin(x) if apart else op.nn.relu(x))
        return x

    return module(build, var("x", *SHAPE))


def exported(mod, path):
    tvm.compile(compiled(tvm_dnnl.partition_for_dnnl(mod)), target="llvm").export_library(str(path))
    return path


def imported(loaded, kind):
    """Return the modules of a kind that a library has."""
    found = [loaded] if loaded.kind == kind else []
    return found + [each for one in loaded.imports for each in imported(one, kind)]


def called(loaded):
    machine = relax.VirtualMachine(loaded, tvm.cpu())
    return machine["main"](tvm.runtime.tensor(X)).numpy()


def resident_megabytes():
    """The memory that this process has now, mapped files included."""
    (line,) = [each for each in Path("/proc/self/status").open() if each.startswith("VmRSS")]
    return int(line.split()[1]) / 1e3


def growth(small, large):
    """Load and run a small library, then a large one; the megabytes that the large one adds."""
    kept = [tvm.runtime.load_module(small)]
    called(kept[0])
    before = resident_megabytes()
    kept.append(tvm.runtime.load_module(large))
    called(kept[1])
    return resident_megabytes() - before


@pytest.mark.parametrize("apart", [False, True], ids=["one-partition", "many"])
def test_loaded_constants_are_in_memory_once(tmp_path, apart):
    """TVM's own const loader makes it three times: mapped, copied and packed."""
    layers = weights(8)
    small = exported(convolutions(layers[:1], apart), tmp_path / "small.so")
    large = exported(convolutions(layers[1:], apart), tmp_path / "large.so")
    megabytes = sum(value.nbytes for value in layers[1:]) / 1e6
    program = "import sys, test_dnnl_memory; print(test_dnnl_memory.growth(*sys.argv[1:]))"
    paths = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-c", program, small, large],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 1.2 * megabytes


def test_a_loaded_library_gives_right_numbers_and_its_constants(tmp_path):
    layers = weights(3)
    mod = convolutions(layers, apart=True)
    assert partitions(tvm_dnnl.partition_for_dnnl(mod)) == 3
    loaded = tvm.runtime.load_module(str(exported(mod, tmp_path / "model.so")))
    (loader,) = imported(loaded, "const_loader")
    (expected,) = run(mod, X)
    for _ in range(2):
        constants = loader["get_const_var_tensor"]()
        found = sorted(float(value.numpy().sum()) for value in constants.values())
        np.testing.assert_allclose(found, sorted(float(value.sum()) for value in layers), rtol=1e-6)
        # Once more after the run, when the copies that oneDNN was given are gone.
        np.testing.assert_allclose(called(loaded), expected, rtol=1e-4, atol=1e-4)


def test_the_file_may_go_after_loading(tmp_path):
    mod = convolutions(weights(2))
    loaded = tvm.runtime.load_module(str(exported(mod, tmp_path / "model.so")))
    shutil.rmtree(tmp_path)
    gc.collect()
    (expected,) = run(mod, X)
    np.testing.assert_allclose(called(loaded), expected, rtol=1e-4, atol=1e-4)


def test_libraries_that_differ_in_one_number_only(tmp_path):
    """Names, shapes and all but one number are the same: each library has constants of its own."""
    one = weights(2)
    other = [value.copy() for value in one]
    other[1][100, 200, 1, 1] += 100
    mods = [convolutions(values) for values in (one, other)]
    paths = [exported(mod, tmp_path / f"{k}.so") for k, mod in enumerate(mods)]
    loaded = [tvm.runtime.load_module(str(path)) for path in paths]
    for mod, each in zip(mods, loaded):
        # The large weight makes large numbers in one channel.
        (expected,) = run(mod, X)
        np.testing.assert_allclose(called(each), expected, rtol=1e-4, atol=1e-3)


def test_constants_that_are_in_no_library():
    """TVM's own const loader reads them, and says what is wrong."""
    load = tvm_ffi.get_global_func("ffi.Module.load_from_bytes.const_loader")
    one = struct.pack("<Q", 1)
    name, symbol = one + b"a", one + b"f"
    values = np.arange(5.0)
    # Magic number, device, rank, type, shape, size.
    head = struct.pack("<QQiiiBBHqq", 0xDD5E40F096B4A13F, 0, 1, 0, 1, 2, 64, 1, 5, values.nbytes)
    stored = one + name + one + head + values.tobytes()
    stored += one + symbol + one + one + name
    (found,) = load(stored)["get_const_var_tensor"]().values()
    np.testing.assert_array_equal(found.numpy(), values)
    with pytest.raises(Exception, match="[Ii]nvalid|failed"):
        load(stored[:60])
