# SPDX-License-Identifier: Apache-2.0
"""`compile` and `load_model` of Relay, for each executor and codegen."""

import gc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
from tvm import relay
from tvm.contrib.onednn import progress
from tvm.ir.instrument import pass_instrument
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from dnnl_tests.marks import json_only
from dnnl_tests.onnx_models import onnx_model

X = np.random.default_rng(0).standard_normal((2, 8), "float32")


def dense(batch=2, width=4):
    """Return a module with one dense and an activation."""
    weight = np.random.default_rng(1).standard_normal((width, 8), "float32")
    out = relay.nn.dense(relay.var("x", shape=(batch, 8)), relay.const(weight))
    return tvm.IRModule.from_expr(relay.nn.relu(out))


def is_json():
    return dnnl.dnnl_codegen() == "JSON"


@pytest.mark.parametrize("batch", [2, None], ids=["graph", "vm"])
def test_module_to_results_and_back_from_a_file(batch, tmp_path):
    if batch is None and not is_json():
        pytest.skip("C source needs static shapes")
    mod = dense(relay.Any() if batch is None else batch)
    model = dnnl.compile(mod, prune=False)
    assert (model.report.offloaded, model.report.partitions) == (2, 1)
    (expected,) = testing.run(dense(), {"x": X})
    np.testing.assert_allclose(model(X), expected, rtol=1e-5, atol=1e-6)
    model.export_library(tmp_path / "model.so")
    loaded = dnnl.load_model(tmp_path / "model.so")
    assert loaded.input_names == ["x"] and loaded.report is None
    np.testing.assert_array_equal(loaded(x=X), model(X))


def test_threads_share_a_model():
    model = dnnl.compile(dense(), prune=False)
    inputs = [np.full((2, 8), factor, "float32") for factor in range(4)]
    expected = [model(x) for x in inputs]

    def right(i):
        return all(np.array_equal(model(inputs[i]), expected[i]) for _ in range(100))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(right, range(4)))


def test_a_long_compilation_tells_how_far_it_is(tmp_path, monkeypatch, capsys):
    notes = []
    monkeypatch.delenv("TVM_DNNL_PROGRESS", raising=False)
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    monkeypatch.setattr(progress.Console, "note", lambda self, *told: notes.append(told))
    path = tmp_path / "model.onnx"
    onnx.save(onnx_model(["a = Relu(x)", "y = Sin(a)"], {"x": [2, 8]}, {}, "y"), path)
    dnnl.compile(path, prune=False).export_library(tmp_path / "model.so")
    assert ("import Sin", 2, 2) in notes and ("partition: simplify", 0, 0) in notes
    assert any("passes, now FuseOps" in text for text, *_ in notes)
    lines = capsys.readouterr().err.splitlines()
    told = [line for line in lines if line.startswith("oneDNN: ")]
    assert told[0] == "oneDNN: compile model.onnx ..." and told[1].endswith("s  done")
    assert told[2] == "oneDNN: write model.so ..." and len(told) == 4


def test_passes_of_tvms_compiler_do_not_visit_partitions():
    """They infer types, which takes seconds for a network of convolutions."""
    ops = []

    @pass_instrument
    class Ops:
        def run_after_pass(self, mod, info):
            if info.name == "FuseOps":
                for func in mod.functions.values():
                    relay.analysis.post_order_visit(func, add)

    def add(expr):
        if isinstance(expr, relay.Call):
            ops.append(str(expr.op))

    x = relay.var("x", shape=(2, 8))
    weight = np.random.default_rng(1).standard_normal((4, 8), "float32")
    one = relay.nn.relu(relay.nn.dense(x, relay.const(weight)))
    two = relay.nn.dense(one, relay.const(weight[:, :4]))
    mod = tvm.IRModule.from_expr(relay.Tuple([one, two]))
    with tvm.transform.PassContext(opt_level=3, instruments=[Ops()]):
        model = dnnl.compile(mod, prune=False)
    assert ops and any("nn.dense" in op for op in ops) != is_json()
    wanted = np.maximum(X @ weight.T, 0)
    for result, expected in zip(model(X), [wanted, wanted @ weight[:, :4].T]):
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


def test_c_source_in_a_pass_context(tmp_path):
    config = {"relay.ext.dnnl.codegen": "C_SRC"}
    with tvm.transform.PassContext(opt_level=3, config=config):
        model = dnnl.compile(dense(), prune=False)
    assert testing.c_sources(model.library)
    (expected,) = testing.run(dense(), {"x": X})
    np.testing.assert_allclose(model(X), expected, rtol=1e-5, atol=1e-6)
    model.export_library(tmp_path / "model.so")
    np.testing.assert_array_equal(dnnl.load_model(tmp_path / "model.so")(X), model(X))


@pytest.mark.parametrize("as_file", [False, True], ids=["model", "file"])
def test_onnx_model_with_a_shape(as_file, tmp_path):
    weight = np.random.default_rng(1).standard_normal((8, 4), "float32")
    nodes = ["y = MatMul(x, w)", "z = Relu(y)"]
    source = onnx_model(nodes, {"x": ["n", 8]}, {"w": weight}, "yz")
    if as_file:
        onnx.save(source, tmp_path / "model.onnx")
        source = tmp_path / "model.onnx"
    model = dnnl.compile(source, shape={"x": (2, 8)}, prune=False)
    assert model.report.offloaded == 2
    y, z = model(X)
    np.testing.assert_allclose(y, X @ weight, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(z, np.maximum(y, 0))


@pytest.mark.parametrize(
    "value, error, message",
    [
        (X.astype("float64"), TypeError, "input x: dtype float64, but the model expects float32"),
        (X[:1], ValueError, r"input x: shape \(1, 8\), but the model expects \(2, 8\)"),
        (None, TypeError, "input x is missing; the inputs are: x"),
    ],
    ids=["dtype", "shape", "missing"],
)
def test_wrong_inputs_are_named(value, error, message):
    model = dnnl.compile(dense(), prune=False)
    with pytest.raises(error, match=message):
        model(**({} if value is None else {"x": value}))


def test_inputs_that_nothing_reads():
    x, y = relay.var("x", shape=(2, 8)), relay.var("y", shape=(2, 8))
    mod = tvm.IRModule.from_expr(relay.Function([y, x], relay.nn.relu(x)))
    model = dnnl.compile(mod, prune=False)
    assert model.input_names == ["y", "x"]
    np.testing.assert_array_equal(model(-X, X), np.maximum(X, 0))


def test_control_flow_runs_on_the_vm():
    x = relay.var("x", shape=(2, 8))
    largest = relay.max(x)
    body = relay.If(relay.greater(largest, relay.const(0.0)), relay.nn.relu(x), relay.negative(x))
    model = dnnl.compile(tvm.IRModule.from_expr(relay.Function([x], body)))
    np.testing.assert_array_equal(model(X), np.maximum(X, 0))
    np.testing.assert_array_equal(model(-abs(X)), abs(X))


def test_what_cannot_be_compiled_or_loaded(tmp_path):
    mod = dnnl.partition_for_dnnl(dense(), prune=False)
    with pytest.raises(TypeError, match="precision: the module is partitioned already"):
        dnnl.compile(mod, precision="auto")
    with pytest.raises(TypeError, match="shape is for ONNX models"):
        dnnl.compile(mod, shape={"x": (2, 8)})
    with pytest.raises(FileNotFoundError):
        dnnl.load_model(tmp_path / "none.so")


def test_a_replaced_file_is_not_mistaken_for_the_old_one(tmp_path):
    path = tmp_path / "model.so"
    dnnl.compile(dense(width=4)).export_library(path)
    old = dnnl.load_model(path)
    assert old(X).shape == (2, 4)
    dnnl.compile(dense(width=6)).export_library(path)
    new = dnnl.load_model(path)
    assert new(X).shape == (2, 6) and old(X).shape == (2, 4)


def test_a_dropped_model_is_freed(tmp_path):
    path = tmp_path / "model.so"
    dnnl.compile(dense(), prune=False).export_library(path)
    (tmp_path / "2af8dc9e68b1").hardlink_to(path)
    model = dnnl.load_model(tmp_path / "2af8dc9e68b1")
    result = model(X)
    assert "/2af8dc9e68b1\n" in Path("/proc/self/maps").read_text(encoding="utf-8")
    del model
    gc.collect()
    assert "/2af8dc9e68b1\n" not in Path("/proc/self/maps").read_text(encoding="utf-8")
    np.testing.assert_array_equal(dnnl.load_model(path)(X), result)


@json_only
@pytest.mark.parametrize("is_loaded", [False, True], ids=["compiled", "loaded"])
@pytest.mark.parametrize(
    "array, error, message",
    [
        (X.astype("float64"), TypeError, "input x: dtype float64, but the model expects float32"),
        (X[0], ValueError, r"input x: shape \(8,?\), but the model expects \(any, 8\)"),
        (X[:, :3], ValueError, r"input x: shape \(2, 3\), but the model expects \(any, 8\)"),
        (X.astype(str), TypeError, "input x: .*dtype <U"),
    ],
    ids=["dtype", "rank", "size", "text"],
)
def test_wrong_inputs_of_open_models_are_named(is_loaded, array, error, message, tmp_path):
    """The VM does not know the types of its inputs; the partition that reads one does."""
    weight = np.random.default_rng(1).standard_normal((8, 4), "float32")
    model = dnnl.compile(onnx_model(["y = MatMul(x, w)"], {"x": ["n", 8]}, {"w": weight}, "y"))
    if is_loaded:
        model.export_library(tmp_path / "model.so")
        model = dnnl.load_model(tmp_path / "model.so")
    with pytest.raises(error, match=message):
        model(array)
    assert model(X).shape == (2, 4)
