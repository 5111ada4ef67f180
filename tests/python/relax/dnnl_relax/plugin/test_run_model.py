# SPDX-License-Identifier: Apache-2.0
"""Builds the sample that runs models of Relax without Python, and runs it."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import tvm
import tvm_dnnl
from tvm import relax
from tvm.relax import op

from dnnl_relax.modules import const, module, rand, var
from scripts.layout import ROOT

pytestmark = pytest.mark.skipif(not shutil.which("cmake"), reason="CMake is not installed")


@pytest.fixture(scope="module")
def program():
    """Build the sample; return its path. Nothing is compiled if nothing has changed."""
    home = Path(tvm.__file__).parent
    folder = ROOT / "build" / "run_model" / hashlib.sha256(str(home).encode()).hexdigest()[:8]
    options = {"TVM_HOME": home, "TVM_DNNL": Path(tvm_dnnl._built_with.__file__).parent}
    definitions = [f"-D{name}={path}" for name, path in options.items()]
    source = ROOT / "apps" / "run_model"
    ninja = ["-G", "Ninja"] if shutil.which("ninja") else []
    configure = ["cmake", *ninja, "-S", source, "-B", folder, *definitions]
    for command in (configure, ["cmake", "--build", folder]):
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "warning:" not in done.stdout
    return folder / "run_model"


def model():
    """Return a module of an open batch, two inputs, and a tuple in a tuple."""

    def build(builder, x, y):
        conv = builder.emit(op.nn.relu(builder.emit(op.nn.conv2d(x, const(4, 3, 3, 3), padding=1))))
        pair = relax.Tuple([builder.emit(op.atan(y)), builder.emit(op.add(y, y))])
        return builder.emit(relax.Tuple([conv, pair]))

    return module(build, var("x", "n", 3, 8, 8), var("y", 5, dtype="float64"))


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    mod = tvm_dnnl.partition_for_dnnl(model())
    assert tvm_dnnl.offload_report(mod).partitions == 1
    path = tmp_path_factory.mktemp("relax") / "model.so"
    compiled = tvm.compile(relax.transform.RunCodegen()(mod), target="llvm")
    tvm_dnnl.export_library(compiled, path)
    return path


def started(*words, cwd):
    # Nothing but what the linker has noted leads it to the libraries.
    environ = {**os.environ, "LD_LIBRARY_PATH": "", "PYTHONPATH": ""}
    words = list(map(str, words))
    return subprocess.run(words, capture_output=True, text=True, cwd=cwd, env=environ)


@pytest.mark.parametrize("batch", [1, 3])
def test_it_gives_what_python_gives(batch, program, library, tmp_path):
    x, y = rand(batch, 3, 8, 8), rand(5, dtype="float64")
    x.tofile(tmp_path / "x.bin")
    y.tofile(tmp_path / "y.bin")
    words = ["y=y.bin:float64:5", f"x=x.bin:float32:{batch},3,8,8"]
    done = started(program, library, ".", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == f"./output_0.bin: float32 {batch} 4 8 8"
    assert lines[1] == "./output_1.bin: float64 5" and lines[3].startswith("3 outputs in ")
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(library)), tvm.cpu())
    conv, pair = machine["main"](tvm.runtime.tensor(x), tvm.runtime.tensor(y))
    for i, expected in enumerate((conv, *pair)):
        got = np.fromfile(tmp_path / f"output_{i}.bin", str(expected.dtype))
        np.testing.assert_array_equal(got, expected.numpy().ravel())
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    reference = np.einsum("nchwij,ocij->nohw", windows, rand(4, 3, 3, 3, seed=1)).clip(0)
    np.testing.assert_allclose(conv.numpy(), reference, rtol=1e-5, atol=1e-6)


def test_mistakes_are_errors(program, library, tmp_path):
    np.zeros(5).tofile(tmp_path / "y.bin")
    np.zeros((1, 3, 8, 8), "float32").tofile(tmp_path / "x.bin")
    (tmp_path / "other.c").write_text("const int other = 1;")
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "other.c", "-o", "other.so"], cwd=tmp_path, check=True
    )
    x, y = "x=x.bin:float32:1,3,8,8", "y=y.bin:float64:5"
    for words, error in (
        (["none.so", "."], "none.so"),
        (["other.so", "."], "other.so is no library of Relax. What relay.build or tvmc makes"),
        ([library, ".", y], "these inputs have no file: x"),
        ([library, ".", x, y, "z=x.bin:float32:1"], "the model has no input z, but x, y"),
        ([library, ".", "x=x.bin", y], "x=x.bin is not like NAME=FILE:TYPE:SHAPE"),
        ([library, ".", "x=x.bin:float32:1,3,8,", y], "has not"),
        ([library, ".", "x=x.bin:float32:1,,8,8", y], "1,,8,8 is not a shape"),
        ([library, ".", "x=x.bin:float32:1,3,8,n", y], "1,3,8,n is not a shape"),
        ([library, ".", "x=x.bin:real:1,3,8,8", y], "real"),
        ([library, ".", "x=x.bin:float32:3,8,8", y], "expect Tensor with ndim 4"),
        ([library, ".", "x=x.bin:int32:1,3,8,8", y], "int32"),
        ([library, "none", x, y], "cannot write none/output_0.bin"),
    ):
        done = started(program, *words, cwd=tmp_path)
        assert done.returncode == 1, (words, done.returncode, done.stderr)
        assert done.stderr.startswith("error: ") and error in done.stderr, (words, done.stderr)
