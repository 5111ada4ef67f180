# SPDX-License-Identifier: Apache-2.0
"""Builds the sample that runs models without Python, and runs it."""

import os
import shutil
import subprocess

import numpy as np
import pytest
import tvm
from dnnl_tests.reference import rand
from tvm import relay
from tvm.driver import tvmc
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from scripts.layout import ROOT, Layout
from scripts.setup.variables import tvm_home

APP = ROOT / "apps" / "run_model"


@pytest.fixture(scope="module")
def program():
    """Build the sample; return its path. Nothing is compiled if nothing has changed."""
    folder = Layout().build / "run_model"
    home = tvm_home() or Layout().tvm
    configure = ["cmake", "-G", "Ninja", "-S", APP, "-B", folder, f"-DTVM_HOME={home}"]
    for command in (configure, ["cmake", "--build", folder]):
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "warning:" not in done.stdout
    return folder / "run_model"


def run(*command, cwd=None, **environ):
    environ = {**os.environ, **environ}
    words = list(map(str, command))
    return subprocess.run(words, capture_output=True, text=True, cwd=cwd, env=environ)


@pytest.fixture(params=["graph", "aot"])
def model(request, tmp_path):
    """Export a model of two inputs and two outputs; return its path, inputs and outputs."""
    random = np.random.default_rng(0)
    x, weight = (random.standard_normal(s, "float32") for s in ((1, 3, 8, 8), (4, 3, 3, 3)))
    index = np.array([2, 0], "int32")
    conv = relay.nn.conv2d(relay.var("x", shape=x.shape), relay.const(weight), padding=(1, 1))
    conv = relay.nn.relu(conv)
    rows = relay.take(conv, relay.var("index", shape=(2,), dtype="int32"), axis=1)
    mod = dnnl.partition_for_dnnl(tvm.IRModule.from_expr(relay.Tuple([conv, rows])))
    assert testing.offload(mod).partitions == 1
    lib = testing.build(mod, codegen="JSON", executor=request.param)
    inputs = {"x": x, "index": index}
    lib.export_library(str(tmp_path / "model.so"))
    for name, value in inputs.items():
        value.tofile(tmp_path / f"{name}.bin")
    return tmp_path / "model.so", testing.Runner(lib)(inputs)


def test_it_gives_what_python_gives(program, model):
    path, expected = model
    folder = path.parent
    words = [path.name, ".", "x=x.bin", "index=index.bin"]
    # Nothing but what the linker has noted leads it to the libraries.
    done = run(program, *words, cwd=folder, LD_LIBRARY_PATH="", PYTHONPATH="")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("2 outputs in ")
    for i, value in enumerate(expected):
        got = np.fromfile(folder / f"output_{i}.bin", "float32").reshape(value.shape)
        np.testing.assert_array_equal(got, value)


def test_mistakes_are_errors(program, model, tmp_path):
    path, _ = model
    (tmp_path / "short.bin").write_bytes(b"1234")
    x, index = (f"{name}={tmp_path}/{name}.bin" for name in ("x", "index"))
    for words, error in (
        ([tmp_path / "none.so", tmp_path], "none.so"),
        ([path, tmp_path, "x.bin"], "x.bin is not like NAME=FILE"),
        ([path, tmp_path, x, index, "y=x.bin"], "the model has no input y, but"),
        ([path, tmp_path, x, index, x], "x is given twice"),
        ([path, tmp_path, x], "these inputs have no file: index"),
        ([path, tmp_path, f"x={tmp_path}/short.bin", index], "has not 768 bytes"),
        ([path, tmp_path / "none", x, index], "cannot write"),
    ):
        assert_fails(run(program, *words), error)
    assert run(program).returncode == 2


def assert_fails(done, *errors):
    assert done.returncode == 1, (done.returncode, done.stderr)
    for error in ("error: ", *errors):
        assert error in done.stderr, done.stderr


def test_a_package_of_tvmc(program, tmp_path):
    """Its library has no executor: the graph and the weights are files beside it."""
    x, weight = rand(1, 3, 8, 8), rand(4, 3, 3, 3, seed=1)
    params = [relay.var(n, shape=v.shape) for n, v in (("x", x), ("w", weight))]
    attrs = {"channels": 4, "kernel_size": (3, 3), "padding": (1, 1)}
    conv = relay.nn.relu(relay.nn.conv2d(*params, **attrs))
    model = tvmc.model.TVMCModel(
        tvm.IRModule.from_expr(relay.Function(params, relay.atan(conv))),
        {"w": tvm.nd.array(weight)},
    )
    expected = testing.run(model.mod, {"x": x}, model.params)
    path = tmp_path / "package.tar"
    with tvm.transform.PassContext(config={"relay.ext.dnnl.codegen": "JSON"}):
        tvmc.compile(model, target=f"dnnl, {testing.host_target()}", package_path=str(path))
    assert_fails(run(program, path, tmp_path), "is a package: unpack it with tar -xf")
    shutil.unpack_archive(path, tmp_path)
    x.tofile(tmp_path / "x.bin")
    library = tmp_path / "mod.so"
    assert testing.dnnl_modules(tvm.runtime.load_module(str(library)))
    done = run(program, library, tmp_path, f"x={tmp_path}/x.bin")
    assert done.returncode == 0, done.stderr
    got = np.fromfile(tmp_path / "output_0.bin", "float32").reshape(expected[0].shape)
    testing.assert_close([got], expected)
    (tmp_path / "mod.params").unlink()
    assert_fails(run(program, library, tmp_path), "has no executor", "mod.params must be")


def test_other_libraries_are_errors(program, tmp_path):
    """Those of Relax have a name of tvm-ffi's; other ones may have any."""
    for name, remedy in (
        ("__tvm_ffi__library_bin", "is a library of Relax: configure this sample with TVM_HOME"),
        ("other", "has no executor"),
    ):
        source, library = tmp_path / "library.c", tmp_path / f"{name}.so"
        source.write_text(f"const char {name}[8];")
        subprocess.run(["gcc", "-shared", "-fPIC", source, "-o", library], check=True)
        assert_fails(run(program, library, tmp_path), remedy)
