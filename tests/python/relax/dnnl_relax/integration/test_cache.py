# SPDX-License-Identifier: Apache-2.0
"""A folder of compiled libraries: what makes another one, other processes, damaged files.

How a library is written as a whole, the tests of the Relay side show: the code is the same.
"""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
import pytest
import tvm
import tvm_dnnl
from onnx import TensorProto, helper, numpy_helper
from tvm import relax
from tvm.contrib.onednn import cache
from tvm.relax import op
from tvm.support import cc
from tvm_dnnl._dnnl import cached as cached_models
from tvm_dnnl._dnnl import verification

from dnnl_relax.modules import imported, module, rand, run, var

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


@pytest.mark.parametrize("name", ["lib0.o", "imports.bin"])
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


def onnx_file(path, factor=1.0, external=False):
    """Write leakyrelu(x @ w) with an open batch."""
    weight = rand(8, 4, seed=1) * np.float32(factor)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        helper.make_node("LeakyRelu", ["y"], ["z"], alpha=0.1),
    ]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size])
        for name, size in (("x", 8), ("z", 4))
    ]
    weights = [numpy_helper.from_array(weight, "w")]
    graph = helper.make_graph(nodes, "model", ends[:1], ends[1:], weights)
    opset = [helper.make_opsetid("", 17)]
    proto = helper.make_model(graph, opset_imports=opset, ir_version=8)
    more = {"save_as_external_data": True, "size_threshold": 0, "location": "w"} if external else {}
    onnx.save(proto, path, **more)
    return path


def cached_file(tmp_path, path=None, **options):
    path = path or onnx_file(tmp_path / "model.onnx")
    options = {"prune": False, "target": "llvm", **options}
    return tvm_dnnl.cached_model(path, folder=tmp_path / "cache", **options)


def test_a_file_is_compiled_once(tmp_path, monkeypatch):
    expected = run(model(), X)[0]
    np.testing.assert_allclose(cached_file(tmp_path)(X), expected, rtol=1e-5, atol=1e-6)
    monkeypatch.setattr(tvm, "compile", None)
    np.testing.assert_allclose(cached_file(tmp_path)(X), expected, rtol=1e-5, atol=1e-6)


def test_what_makes_another_library_of_a_file(tmp_path, monkeypatch):
    keys = []
    monkeypatch.setattr(cached_models, "cached_file", lambda folder, key, write: keys.append(key))
    monkeypatch.setattr(cached_models, "load_model", lambda path: None)
    other = onnx_file(tmp_path / "other.onnx", factor=1 + 2e-7)
    for given in ({}, {"target": None}, {"num_threads": 1}, {"exclude": ["matmul"]}):
        cached_file(tmp_path, **given)
    for given in ({"shape": {"x": (2, 8)}}, {"shape": {"n": 2}}, {"path": other}):
        cached_file(tmp_path, **given)
    for context in ({"opt_level": 1}, {"config": {"tirx.disable_vectorize": True}}):
        with tvm.transform.PassContext(**context):
            cached_file(tmp_path)
    monkeypatch.setenv("DNNL_MAX_CPU_ISA", "AVX2")
    cached_file(tmp_path)
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "SSE41")
    cached_file(tmp_path)
    monkeypatch.setattr(cached_models, "versions", lambda: ["0.0"])
    cached_file(tmp_path)
    assert None not in keys and len(set(keys)) == len(keys) == 12
    cached_file(tmp_path)
    assert keys[-1] == keys[-2]


def test_a_file_with_external_data(tmp_path):
    """The weights in the other file are part of the key."""
    results = []
    for factor in (1.0, 2.0, 1.0):
        path = onnx_file(tmp_path / "model.onnx", factor, external=True)
        results.append(cached_file(tmp_path, path)(X))
    np.testing.assert_allclose(results[1], 2 * results[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(results[2], results[0])
    assert len(list((tmp_path / "cache").iterdir())) == 2


IN_ASCII = """
import sys, numpy as np, tvm_dnnl

path, folder, library = sys.argv[1:]
tvm_dnnl.compile(path, prune=False).export_library(library)
for model in (tvm_dnnl.load_model(library), tvm_dnnl.cached_model(path, folder=folder)):
    print(model(np.ones((2, 8), "float32")).shape)
"""


def test_names_that_the_locale_cannot_encode(tmp_path):
    """Python reads them as bytes; C++ has them in UTF-8."""
    folder = tmp_path / "d\u00e4ta"
    folder.mkdir()
    onnx_file(folder / "model.onnx", external=True)
    paths = [str(folder / name) for name in ("model.onnx", "cache", "model.so")]
    done = subprocess.run(
        [sys.executable, "-X", "utf8=0", "-c", IN_ASCII, *paths],
        env={**os.environ, "LC_ALL": "C"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 2


@pytest.mark.parametrize("external", [False, True])
def test_a_file_that_is_verified(external, tmp_path, monkeypatch):
    """It is verified where it is compiled, and has a key of its own."""
    path, verified = onnx_file(tmp_path / "model.onnx", external=external), []
    monkeypatch.setattr(verification, "verify", lambda *args: verified.append(args) or "")
    for verify in (False, True, True):
        got = cached_file(tmp_path, path, verify=verify)(X)
        np.testing.assert_allclose(got, run(model(), X)[0], rtol=1e-5, atol=1e-6)
    assert len(verified) == 1
    assert len(list((tmp_path / "cache").iterdir())) == 2


def test_a_file_with_an_input_that_is_constant(tmp_path):
    """The value is part of the key."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
        g (float[n, 8] x, float[1] factor) => (float[n, 8] y) { y = Mul(x, factor) }"""
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    for factor in (2.0, 3.0, 2.0):
        model = cached_file(tmp_path, path, constants={"factor": factor})
        np.testing.assert_array_equal(model(X), X * np.float32(factor))
    assert len(list((tmp_path / "cache").iterdir())) == 2


def test_a_file_that_is_not_compiled(tmp_path):
    with pytest.raises(FileNotFoundError, match="none.onnx"):
        cached_file(tmp_path, tmp_path / "none.onnx")
    with pytest.raises(ValueError, match="the model has no input 'y'; its inputs are x of rank 2"):
        cached_file(tmp_path, shape={"y": (1, 8)})
    assert not list((tmp_path / "cache").iterdir())


def test_a_library_that_another_process_makes_meanwhile(tmp_path, monkeypatch):
    """It stays: this process may have loaded it."""
    with monkeypatch.context() as patch:
        patch.setattr(cache, "_find", lambda *args: None)
        (tmp_path / "cache").mkdir()
        first = cached_file(tmp_path)
        (path,) = (tmp_path / "cache").glob("*.so")
        inode = path.stat().st_ino
        second = cached_file(tmp_path)
    assert path.stat().st_ino == inode
    np.testing.assert_array_equal(first(X), second(X))
    np.testing.assert_array_equal(first(X), cached_file(tmp_path)(X))


def test_threads_that_want_the_same_library(tmp_path, monkeypatch):
    onnx_file(tmp_path / "model.onnx")
    compiled, compile_ = [], tvm.compile
    monkeypatch.setattr(
        tvm, "compile", lambda *args, **kw: compiled.append(1) or compile_(*args, **kw)
    )
    with ThreadPoolExecutor(4) as pool:
        path = tmp_path / "model.onnx"
        results = list(pool.map(lambda _: cached_file(tmp_path, path)(X), range(4)))
    assert len(compiled) == 1
    for each in results:
        np.testing.assert_array_equal(each, results[0])


@pytest.mark.parametrize("export", ["export_library", "cached_model"])
@pytest.mark.parametrize(
    "named, reason", [("", "PATH has none of"), ("ccache g++", "CXX names 'ccache g[+][+]'")]
)
def test_without_a_compiler(export, named, reason, tmp_path, monkeypatch):
    path = onnx_file(tmp_path / "model.onnx")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CXX", named)
    monkeypatch.delenv("CC", raising=False)
    # TVM looks for it when it is imported, too. Of a partition alone, it asks it for the target.
    monkeypatch.setattr(cc.create_shared, "get_target_triple", lambda: None)
    options = {"shape": {"x": (2, 8)}, "prune": False}
    with pytest.raises(RuntimeError, match=rf"a C[+][+] compiler, and {reason}.*install one"):
        if export == "cached_model":
            cached_file(tmp_path, path, **options)
        else:
            tvm_dnnl.compile(path, **options).export_library(tmp_path / "model.so")
    assert not list(tmp_path.rglob("*.so"))
