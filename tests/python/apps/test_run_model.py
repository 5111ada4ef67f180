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
"""Builds the sample that runs models without Python, and runs it."""

import os
import subprocess

import numpy as np
import pytest
import tvm
from tvm import relay
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


@pytest.fixture
def model(tmp_path):
    """Export a model of two inputs and two outputs; return its path, inputs and outputs."""
    random = np.random.default_rng(0)
    x, weight = (random.standard_normal(s, "float32") for s in ((1, 3, 8, 8), (4, 3, 3, 3)))
    index = np.array([2, 0], "int32")
    conv = relay.nn.conv2d(relay.var("x", shape=x.shape), relay.const(weight), padding=(1, 1))
    conv = relay.nn.relu(conv)
    rows = relay.take(conv, relay.var("index", shape=(2,), dtype="int32"), axis=1)
    mod = dnnl.partition_for_dnnl(tvm.IRModule.from_expr(relay.Tuple([conv, rows])))
    assert testing.offload(mod).partitions == 1
    lib, inputs = testing.build(mod, codegen="JSON"), {"x": x, "index": index}
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
    for words, error in (
        ([tmp_path / "none.so", tmp_path], "none.so"),
        ([path, tmp_path, "y=x.bin"], "y=x.bin is not like NAME=FILE"),
        ([path, tmp_path, f"x={tmp_path}/short.bin"], "has not 768 bytes"),
        ([path, tmp_path / "none"], "cannot write"),
    ):
        done = run(program, *words)
        assert done.returncode == 1 and error in done.stderr, done.stderr
    assert run(program).returncode == 2
