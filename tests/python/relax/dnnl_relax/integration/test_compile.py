# SPDX-License-Identifier: Apache-2.0
"""`compile` and `load_model` of Relax."""

import contextlib
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import onnx
import pytest
import tvm
import tvm_dnnl
from dnnl_tests.onnx_models import onnx_model
from tvm import relax, tirx
from tvm.contrib.onednn import progress
from tvm.relax import op
from tvm_dnnl._dnnl import loaded

from dnnl_relax.modules import X4, compiled, composites, conv_bias_relu, module, rand, run, var

X = rand(2, 8)
IN_NEW_PROCESS = """
import sys
import numpy as np
import tvm
import tvm_dnnl
from tvm import relax

machine = relax.VirtualMachine(tvm.runtime.load_module(sys.argv[1]), tvm.cpu())
for path in sys.argv[2:]:
    np.save(path, machine["main"](tvm.runtime.tensor(np.load(path))).numpy())
"""


def dense(width=4, batch="n"):
    """Return a module with one matmul and an activation."""
    weight = relax.const(rand(8, width, seed=1))
    return module(
        lambda builder, x: op.nn.relu(builder.emit(op.matmul(x, weight))), var("x", batch, 8)
    )


def test_module_to_results_and_back_from_a_file(tmp_path):
    model = tvm_dnnl.compile(dense(), prune=False)
    assert (model.report.offloaded, model.report.partitions) == (2, 1)
    assert repr(model) == "CompiledModel(inputs: x, 2 of 2 ops on oneDNN in 1 partition)"
    expected = run(dense(), X)[0]
    np.testing.assert_allclose(model(X), expected, rtol=1e-5, atol=1e-6)
    model.export_library(tmp_path / "model.so")
    loaded = tvm_dnnl.load_model(tmp_path / "model.so")
    assert loaded.input_names == ["x"] and loaded.report is None
    np.testing.assert_array_equal(loaded(x=X), model(X))


def test_a_model_of_one_partition_needs_no_compiler(monkeypatch):
    """TVM would let g++ compile an empty C source for it."""
    (want,) = run(dense(), X)
    monkeypatch.setenv("PATH", "")
    for batch in (2, "n"):
        model = tvm_dnnl.compile(dense(batch=batch), prune=False)
        np.testing.assert_allclose(model(X), want, rtol=1e-5, atol=1e-6)


def test_threads_share_a_model():
    """Also in processes that are forked while threads run it."""
    model = tvm_dnnl.compile(dense(), prune=False)
    inputs = [rand(rows, 8, seed=rows) for rows in range(1, 5)]
    expected = [model(x) for x in inputs]

    def right(i, count=60):
        return all(np.array_equal(model(inputs[i]), expected[i]) for _ in range(count))

    with ThreadPoolExecutor(4) as pool:
        results = pool.map(right, range(4))
        children = []
        for _ in range(5):
            children.append(os.fork())
            if not children[-1]:
                with contextlib.suppress(BaseException):
                    os._exit(not right(0, 2))
                os._exit(2)
        assert all(results)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 5


def test_onnx_file_with_a_shape(tmp_path):
    nodes = ["y = MatMul(x, w)", "z = Relu(y)"]
    source = onnx_model(nodes, {"x": ["n", 8]}, {"w": rand(8, 4, seed=1)}, "yz")
    onnx.save(source, tmp_path / "model.onnx")
    model = tvm_dnnl.compile(
        tmp_path / "model.onnx", shape={"x": (2, 8)}, prune=False, target="llvm"
    )
    assert model.report.offloaded == 2
    y, z = model(X)
    np.testing.assert_allclose(y, X @ rand(8, 4, seed=1), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(z, np.maximum(y, 0))


def test_input_of_unknown_rank():
    """The error of TVM, "CodeGenVM cannot emit", names no input."""
    source = onnx_model(["y = Relu(x)"], {"x": (2, 3)})
    for value in (*source.graph.input, *source.graph.output):
        value.type.tensor_type.ClearField("shape")
    with pytest.raises(ValueError, match=r"no code for R.nn.relu\(x\): the number of dimensions"):
        tvm_dnnl.compile(source)
    x = rand(2, 3)
    model = tvm_dnnl.compile(source, shape={"x": (2, 3)}, prune=False)
    np.testing.assert_array_equal(model(x), np.maximum(x, 0))


@pytest.mark.parametrize("given, imported", [("x.1", "x_1"), ("0", "input_0")])
def test_inputs_may_have_the_names_of_the_file(given, imported):
    """The importer writes the name "x.1" as "x_1"."""
    renamed = onnx_model(["y = Relu(x)"], {"x": (2, 3)})
    renamed.graph.input[0].name = renamed.graph.node[0].input[0] = given
    x = rand(2, 3)
    with pytest.warns(UserWarning, match=f"Renaming name {given} to {imported}"):
        model = tvm_dnnl.compile(renamed)
    assert model.input_names == [imported]
    for name in (given, imported):
        np.testing.assert_array_equal(model(**{name: x}), np.maximum(x, 0))
    with pytest.raises(TypeError, match="there is no input x.2"):
        model(**{"x.2": x})


def test_a_partitioned_module_is_not_partitioned_again():
    mod = tvm_dnnl.partition_for_dnnl(dense(), prune=False)
    assert tvm_dnnl.compile(mod).report.offloaded == 2
    with pytest.raises(TypeError, match="precision: the module is partitioned already"):
        tvm_dnnl.compile(mod, precision="auto")
    with pytest.raises(TypeError, match="shape is for ONNX models"):
        tvm_dnnl.compile(mod, shape={"x": (2, 8)})


@pytest.mark.parametrize(
    "args, kwargs, message",
    [
        ((), {}, "input x is missing"),
        ((X, X), {}, "2 inputs are passed"),
        ((X,), {"x": X}, "x is passed twice"),
        ((X,), {"y": X}, "there is no input y"),
    ],
    ids=["missing", "too-many", "twice", "unknown"],
)
def test_wrong_inputs_are_named(args, kwargs, message):
    model = tvm_dnnl.compile(dense(), prune=False)
    with pytest.raises(TypeError, match=f"{message}; the inputs are: x"):
        model(*args, **kwargs)


@pytest.mark.parametrize("kind", ["compiled", "loaded"])
def test_inputs_of_other_types(kind, tmp_path):
    """The error names the input, what it is, and what is expected."""
    mod = module(
        lambda builder, x, z: op.add(builder.emit(op.matmul(x, relax.const(rand(8, 4)))), z),
        var("x", "n", 8),
        var("z", "n", 4),
    )
    model = tvm_dnnl.compile(mod, prune=False)
    if kind == "loaded":
        model.export_library(tmp_path / "model.so")
        model = tvm_dnnl.load_model(tmp_path / "model.so")
    x, z = rand(2, 8), rand(2, 4)
    for args, error, message in (
        ((rand(2, 7), z), ValueError, r"input x: shape \(2, 7\), but the model expects \(n, 8\)$"),
        ((rand(2), z), ValueError, r"input x: shape \(2,\), but the model expects \(n, 8\)$"),
        ((x, z.astype("float64")), TypeError, "input z: dtype float64, .* expects float32$"),
        ((x, rand(3, 4)), ValueError, r"input z: shape \(3, 4\), .* \(n, 4\), in which each name"),
    ):
        with pytest.raises(error, match=message):
            model(*args)
    assert model(x, z).shape == (2, 4)


def test_a_long_compilation_tells_how_far_it_is(tmp_path, monkeypatch, capsys):
    notes = []
    monkeypatch.delenv("TVM_DNNL_PROGRESS", raising=False)
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    monkeypatch.setattr(progress.Console, "note", lambda self, *told: notes.append(told))
    path = tmp_path / "model.onnx"
    onnx.save(onnx_model(["a = Relu(x)", "y = Sin(a)"], {"x": [2, 8]}, {}, "y"), path)
    with tvm.transform.PassContext():  # without the instruments of TVM's tests
        tvm_dnnl.compile(path).export_library(tmp_path / "model.so")
    assert ("import Sin", 2, 2) in notes and ("partition: simplify", 0, 0) in notes
    assert any("passes, now" in text for text, *_ in notes)
    lines = capsys.readouterr().err.splitlines()
    told = [line for line in lines if line.startswith("oneDNN: ")]
    assert told[0] == "oneDNN: compile model.onnx ..." and told[1].endswith("s  done")
    assert told[2] == "oneDNN: write model.so ..." and len(told) == 4


def test_memory_of_many_shapes_is_freed(monkeypatch):
    """The allocator that keeps memory for each size is replaced after some shapes."""
    allocators, make = [], loaded._virtual_machine

    def machine(library, allocator):
        allocators.append(allocator)
        return make(library, allocator)

    monkeypatch.setattr(loaded, "_virtual_machine", machine)
    model = tvm_dnnl.compile(dense(), prune=False)
    for batch in (*range(1, loaded.MOST_SHAPES + 1), 1, 2):
        model(rand(batch, 8))
    assert allocators == [loaded._POOLED]
    for batch in range(20, 25):
        x = rand(batch, 8)
        expected = np.maximum(x @ rand(8, 4, seed=1), 0)
        np.testing.assert_allclose(model(x), expected, rtol=1e-5, atol=1e-6)
    assert allocators == [loaded._POOLED, loaded._NAIVE]


ARRAYS = {
    "scalar": np.array(2.5, "float32"),
    "empty": np.zeros((0, 3), "int64"),
    "bool": np.array([True, False, True]),
    "uint8": np.arange(7, dtype="uint8"),
    "float16": np.arange(6, dtype="float16").reshape(2, 3),
    "bfloat16": np.arange(6).astype(ml_dtypes.bfloat16),
    "float64": np.arange(6, dtype="float64"),
    "transposed": np.arange(12, dtype="int32").reshape(3, 4).T,
    "strided": np.arange(12, dtype="float32")[1::3],
    "big-endian": np.arange(5, dtype=">f4"),
}


@pytest.mark.parametrize("array", ARRAYS.values(), ids=ARRAYS.keys())
def test_arrays_are_passed_as_they_are(array):
    tensor = loaded._tensor(array)
    assert tensor.data_ptr() % 64 == 0
    result = loaded._array(tensor)
    assert result.shape == array.shape and result.dtype == array.dtype.newbyteorder("=")
    np.testing.assert_array_equal(result, array)
    np.testing.assert_array_equal(tensor.numpy(), array)


def test_files_that_cannot_be_loaded(tmp_path):
    with pytest.raises(FileNotFoundError):
        tvm_dnnl.load_model(tmp_path / "none.so")
    nothing = tirx.PrimFunc([], tirx.Evaluate(0)).with_attr("global_symbol", "main")
    tvm.compile(nothing, target="llvm").export_library(tmp_path / "other.so")
    with pytest.raises(ValueError, match="is not a library of a Relax module"):
        tvm_dnnl.load_model(tmp_path / "other.so")


def test_compiling_without_run_codegen_is_explained():
    report = str(tvm_dnnl.offload_report(tvm_dnnl.partition_for_dnnl(dense(), prune=False)))
    assert report.endswith("next: relax.transform.RunCodegen(), then tvm.compile")
    assert "RunCodegen" not in str(tvm_dnnl.offload_report(dense()))
    assert "RunCodegen" not in str(tvm_dnnl.compile(dense(), prune=False).report)


def test_in_another_process(tmp_path):
    """It has no use for the code generator."""
    name, (_, *sizes), dtype = X4
    partitioned = tvm_dnnl.partition_for_dnnl(module(conv_bias_relu, (name, ("n", *sizes), dtype)))
    assert composites(partitioned) == {"dnnl.conv2d_bias_relu": 1}
    executable = tvm.compile(compiled(partitioned), target="llvm")
    executable.export_library(str(tmp_path / "model.so"))
    machine, expected = relax.VirtualMachine(executable, tvm.cpu()), {}
    for batch in (1, 3):
        x, path = rand(batch, *sizes, seed=batch), str(tmp_path / f"{batch}.npy")
        np.save(path, x)
        expected[path] = machine["main"](tvm.runtime.tensor(x)).numpy()
    command = [sys.executable, "-c", IN_NEW_PROCESS, str(tmp_path / "model.so"), *expected]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    for path, value in expected.items():
        np.testing.assert_array_equal(np.load(path), value)


@pytest.mark.parametrize("suffix", [".tflite", ".pt2"])
def test_a_file_that_is_not_what_its_name_says(suffix, tmp_path):
    path = tmp_path / f"model{suffix}"
    path.write_bytes(bytes(range(100)))
    with pytest.raises(ValueError, match=f"but its name ends with {suffix}: it is damaged"):
        tvm_dnnl.compile(path)


@pytest.mark.parametrize(
    "value, message",
    [
        ([["a"]], "list .dtype <U1. is not an array of numbers"),
        ([[1j]], "the dtype complex128 is not supported"),
        ([[1.0], [2.0, 3.0]], "the list cannot be read as an array: .*"),
    ],
    ids=["text", "complex", "ragged"],
)
def test_an_input_of_no_numbers_is_named(value, message):
    model = tvm_dnnl.compile(module(conv_bias_relu, X4))
    with pytest.raises(TypeError, match=f"input .*: {message}"):
        model(value)
