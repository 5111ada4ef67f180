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
"""A folder of compiled libraries: what makes another one, other processes, damaged files.

How a library is written as a whole, the tests of the Relay side show: the code is the same.
"""

import os

import numpy as np
import pytest
import tvm
import tvm_dnnl
from dnnl_modules import imported, module, rand, run, var
from tvm import relax
from tvm.contrib.onednn import cache
from tvm.relax import op

X = rand(2, 8)


def model(factor=1.0, alpha=0.1, batch="n"):
    weight = rand(8, 4, seed=1) * np.float32(factor)

    def build(builder, x):
        return op.nn.leakyrelu(builder.emit(op.matmul(x, relax.const(weight))), alpha)

    return module(build, var("x", batch, 8))


def cached(folder, mod=None, **options):
    return tvm_dnnl.cached_library(mod or model(), folder=folder, **{"target": "llvm", **options})


def called(path):
    machine = relax.VirtualMachine(tvm.runtime.load_module(path), tvm.cpu())
    return machine["main"](tvm.runtime.tensor(X)).numpy()


def test_a_library_is_made_once(tmp_path, monkeypatch):
    path = cached(tmp_path / "new")
    assert imported(tvm.runtime.load_module(path), "dnnl_json")
    np.testing.assert_allclose(called(path), run(model(), X)[0], rtol=1e-5, atol=1e-6)
    monkeypatch.setattr(tvm, "compile", None)
    assert cached(tmp_path / "new") == path
    assert [entry.name for entry in (tmp_path / "new").iterdir()] == [os.path.basename(path)]


def test_what_makes_another_library(tmp_path, monkeypatch):
    compiled = []
    monkeypatch.setattr(cache, "library", lambda folder, key, write: compiled.append(key))
    ways = [
        lambda: cached(tmp_path),
        lambda: cached(tmp_path, model(factor=1 + 2e-7)),
        lambda: cached(tmp_path, model(alpha=0.1 + 1e-9)),
        lambda: cached(tmp_path, model(batch=3)),
        lambda: cached(tmp_path, model().with_attr("a", 1)),
        lambda: cached(tmp_path, exclude=["nn.leakyrelu"]),
        lambda: cached(tmp_path, num_threads=1),
        lambda: cached(tmp_path, target="c"),
        lambda: cached(tmp_path, params={"w": tvm.runtime.tensor(X)}),
        lambda: cached(tmp_path, params={"w": tvm.runtime.tensor(-X)}),
    ]
    for way in ways:
        way()
    for context in ({"opt_level": 1}, {"disabled_pass": ["FuseOps"]}):
        with tvm.transform.PassContext(**context):
            cached(tmp_path)
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "SSE41")
    cached(tmp_path)
    monkeypatch.setattr(tvm, "__version__", "0.0")
    cached(tmp_path)
    assert len(set(compiled)) == len(compiled) == len(ways) + 4


def test_wrong_module():
    with pytest.raises(TypeError, match="mod must be a tvm.IRModule"):
        cached("nowhere", "text")
    assert not os.path.exists("nowhere")


@pytest.mark.parametrize("name", ["lib0.o", "devc.o"])
def test_an_object_file_on_a_full_disk_is_an_error(name, tmp_path):
    """LLVM would end the process."""
    workspace, path = tmp_path / "workspace", tmp_path / "a.so"
    workspace.mkdir()
    (workspace / name).symlink_to("/dev/full")
    path.write_text("old")
    write = tvm.runtime.Module.write_to_file
    partitioned = tvm_dnnl.partition_for_dnnl(model())
    compiled = tvm.compile(relax.transform.RunCodegen()(partitioned), target="llvm")
    with pytest.raises(OSError, match="No space left") as raised:
        tvm_dnnl.export_library(compiled, path, workspace_dir=str(workspace))
    assert raised.value.filename == str(workspace / name) and path.read_text() == "old"
    assert tvm.runtime.Module.write_to_file is write
    tvm_dnnl.export_library(compiled, path)
    np.testing.assert_allclose(called(path), run(model(), X)[0], rtol=1e-5, atol=1e-6)
