# SPDX-License-Identifier: Apache-2.0
"""TFLite models: what the importer computes, converts itself or refuses."""

import numpy as np
import pytest
import tvm
import tvm_dnnl

tflite = pytest.importorskip("tflite")

from dnnl_tests.tflite_writer import Steps, Writer  # noqa: E402

from dnnl_relax.modules import rand  # noqa: E402


def compiled(data, tmp_path, **options):
    """Compile a model from its file, as a user does."""
    path = tmp_path / "model.tflite"
    path.write_bytes(data)
    return tvm_dnnl.compile(path, **options)


@pytest.mark.parametrize("scale", [0.02, [0.01, 0.02, 0.03]], ids=["one scale", "per channel"])
def test_weights_in_8_bits_of_an_op_in_float32(scale, tmp_path):
    """As in files of dynamic-range quantization, whose data are float32."""
    writer, x = Writer(), rand(4, 6)
    weight = np.random.default_rng(1).integers(-127, 128, (3, 6)).astype("int8")
    number = writer.constant(weight, "int8", Steps(scale))
    data, result, bias = writer.tensor((4, 6)), writer.tensor((4, 3)), writer.constant([1, 2, 3])
    writer.op("FULLY_CONNECTED", [data, number, bias], result, "FullyConnected")
    model = compiled(writer.model(data, result), tmp_path, verify=True)
    want = x @ (weight * np.reshape(np.float32(scale), (-1, 1))).T + [1, 2, 3]
    np.testing.assert_allclose(model(x), want, rtol=1e-5, atol=1e-6)
    assert model.report.composites == {"dnnl.dense_bias": 1}


def test_weights_in_float16(tmp_path):
    writer, x, weight = Writer(), rand(4, 6), rand(3, 6, seed=1).astype("float16")
    half, number = writer.constant(weight, "float16"), writer.tensor((3, 6))
    data, result = writer.tensor((4, 6)), writer.tensor((4, 3))
    writer.op("DEQUANTIZE", [half], number)
    writer.op("FULLY_CONNECTED", [data, number, -1], result, "FullyConnected")
    model = compiled(writer.model(data, result), tmp_path)
    np.testing.assert_allclose(model(x), x @ weight.T.astype("float32"), rtol=1e-5)
    assert model.report.composites == {"dnnl.dense": 1}


@pytest.mark.parametrize("rows", [1, 5])
def test_shapes_that_the_model_computes(rows, tmp_path):
    """The file has the shapes of one row, as exporters write for an unknown size."""
    writer, x = Writer(), rand(rows, 6)
    data, shape = writer.tensor((1, 6)), writer.tensor((2,), "int32")
    writer.op("SHAPE", [data], shape, "Shape")
    begin, end, stride = (writer.constant([value], "int32") for value in (0, 1, 1))
    first, target = writer.tensor((), "int32"), writer.tensor((3,), "int32")
    writer.op("STRIDED_SLICE", [shape, begin, end, stride], first, "StridedSlice", ShrinkAxisMask=1)
    sizes = [writer.constant(np.int32(value), "int32") for value in (2, 3)]
    writer.op("PACK", [first, *sizes], target, "Pack", ValuesCount=3)
    result, squared = writer.tensor((1, 2, 3)), writer.tensor((1, 2, 3))
    writer.op("RESHAPE", [data, target], result)
    writer.op("MUL", [result, result], squared, "Mul")
    model = compiled(writer.model(data, squared), tmp_path, shape={"t0": (rows, 6)}, prune=False)
    np.testing.assert_allclose(model(x), (x * x).reshape(rows, 2, 3), rtol=1e-6)
    assert model.report.partitions == 1


@pytest.mark.parametrize("given", [(1, 8), (4, 8), (4, 5), (3, 11)], ids=str)
def test_transform(given, tmp_path):
    """RFFT2D, also of zeros that follow the data, and of a part of it.

    The cast of a complex tensor is its real part, the squeeze counts without parts.
    """
    writer, x, rows = Writer(), rand(1, *given), 1 if given[0] == 1 else 4
    data, length = writer.tensor(x.shape), writer.constant([rows, 8], "int32")
    transformed = writer.tensor((1, rows, 5), "complex64")
    writer.op("RFFT2D", [data, length], transformed)
    squeezed, real = writer.tensor((rows, 5), "complex64"), writer.tensor((rows, 5))
    writer.op("SQUEEZE", [transformed], squeezed, "Squeeze")
    writer.op("CAST", [squeezed], real, "Cast", OutDataType=tflite.TensorType.FLOAT32)
    model = compiled(writer.model(data, real), tmp_path)
    want = np.fft.rfft2(x.astype("float64"), (rows, 8))[0].real
    # Sums of 32 products, whose terms are up to 1.
    np.testing.assert_allclose(np.reshape(model(x), want.shape), want, atol=1e-5)


@pytest.mark.parametrize(
    "name, shapes, by",
    [
        ("SELECT", [(3,), (3, 3), (3, 3)], (3, 1)),
        ("SELECT", [(2, 3), (2, 3), (2, 3)], (2, 3)),
        ("SELECT", [(), (2, 3), (2, 3)], ()),
        ("SELECT_V2", [(3,), (2, 3), (2, 1)], (3,)),
        ("SELECT_V2", [(2, 1, 1), (3,), ()], (2, 1, 1)),
    ],
    ids=str,
)
def test_selection(name, shapes, by, tmp_path):
    """SELECT of a vector selects rows, SELECT_V2 broadcasts."""
    writer, values = Writer(), [rand(*shape, seed=k) for k, shape in enumerate(shapes)]
    values[0] = values[0] > 0
    want = np.where(values[0].reshape(by), *values[1:])
    types = ["bool", "float32", "float32"]
    inputs = [writer.tensor(*each) for each in zip(shapes, types)]
    result = writer.tensor(want.shape)
    writer.op(name, inputs, result)
    model = compiled(writer.model(inputs, result), tmp_path, prune=False)
    np.testing.assert_array_equal(model(*values), want)
    assert model.report.offloaded_ops["where"] == 1


@pytest.mark.parametrize("is_transposed", [False, True])
def test_matmul_by_one_matrix(is_transposed, tmp_path):
    writer, x, weight = Writer(), rand(2, 3, 4, 6), rand(6, 5, seed=1)
    given = weight.T if is_transposed else weight
    data, number, result = (
        writer.tensor(x.shape),
        writer.constant(given),
        writer.tensor((2, 3, 4, 5)),
    )
    writer.op("BATCH_MATMUL", [data, number], result, "BatchMatMul", AdjY=is_transposed)
    model = compiled(writer.model(data, result), tmp_path)
    np.testing.assert_allclose(model(x), x @ weight, rtol=1e-5, atol=1e-6)
    assert model.report.partitions == 1


def _moved(writer, last):
    data = writer.tensor((2, 3), "int8", Steps(0.5, -3))
    padded = writer.tensor((4, 3), "int8", Steps(0.5, -3))
    writer.op("PAD", [data, writer.constant([[1, 1], [0, 0]], "int32")], padded, "Pad")
    begin, end, stride = (writer.constant(each, "int32") for each in ([0, 1], [4, 3], [2, 1]))
    result = writer.tensor((2, 2), "int8", last)
    writer.op("STRIDED_SLICE", [padded, begin, end, stride], result, "StridedSlice")
    return writer.model(data, result)


def test_moves_in_8_bits(tmp_path):
    """They stay in 8 bits; a border is the zero point."""
    x = np.arange(-3, 3, dtype="int8").reshape(2, 3)
    got = compiled(_moved(Writer(), Steps(0.5, -3)), tmp_path)(x)
    want = np.pad(x, ((1, 1), (0, 0)), constant_values=-3)[::2, 1:]
    assert got.dtype == "int8" and (got == want).all()


def test_moves_between_scales_are_refused():
    message = "STRIDED_SLICE: moves elements between different scales or zero points"
    with pytest.raises(tvm.error.OpNotImplemented, match=message):
        tvm_dnnl.from_tflite(_moved(Writer(), Steps(0.25, -3)))


def test_branch_is_a_partition_of_its_own_function():
    """A private function that calls a partition, as TVM's importer makes of IF."""
    builder = tvm.relax.BlockBuilder()
    weight = tvm.relax.const(rand(6, 3, seed=1))
    inner = tvm.relax.Var("y", tvm.relax.TensorType((4, 6), "float32"))
    with builder.function("branch", [inner], private=True):
        with builder.dataflow():
            output = builder.emit_output(tvm.relax.op.nn.relu(tvm.relax.op.matmul(inner, weight)))
        branch = builder.emit_func_output(output)
    data = tvm.relax.Var("x", tvm.relax.TensorType((4, 6), "float32"))
    with builder.function("main", [data]):
        with builder.dataflow():
            output = builder.emit_output(tvm.relax.Call(branch, [data]))
        builder.emit_func_output(output)
    model, x = tvm_dnnl.compile(builder.get(), prune=False), rand(4, 6)
    want = np.maximum(x @ rand(6, 3, seed=1), 0)
    np.testing.assert_allclose(model(x), want, rtol=1e-5, atol=1e-6)
    assert model.report.composites == {"dnnl.dense_relu": 1}


def _custom(writer, data, result):
    writer.op("Landmarks", [data], result)
    return "Landmarks (custom): no converter"


def _variable(writer, data, result):
    writer.op("VAR_HANDLE", [], writer.tensor((), "int32"), "VarHandle")
    writer.op("ABS", [data], result, "Abs")
    return "VAR_HANDLE: a state that the model keeps between runs has to be its input and output"


def _unknown_operand(writer, data, result):
    sizes = writer.tensor((1,), "int32")
    writer.op("CAST", [data], sizes, "Cast", OutDataType=tflite.TensorType.INT32)
    begin, stride = writer.constant([0], "int32"), writer.constant([1], "int32")
    writer.op("STRIDED_SLICE", [data, begin, sizes, stride], result, "StridedSlice")
    return "operator 1 STRIDED_SLICE (t1): an operand must be constant, but depends on the inputs"


@pytest.mark.parametrize("write", [_custom, _variable, _unknown_operand])
def test_refused_operator(write):
    writer = Writer()
    data, result = writer.tensor((1,)), writer.tensor((1,))
    message = write(writer, data, result)
    with pytest.raises((tvm.error.OpNotImplemented, ValueError)) as error:
        tvm_dnnl.from_tflite(writer.model(data, result))
    assert message in str(error.value)


def _abs_model():
    writer = Writer()
    data, result = writer.tensor((2, 3)), writer.tensor((2, 3))
    writer.op("ABS", [data], result, "Abs")
    return writer.model(data, result)


@pytest.mark.parametrize(
    "shape, message",
    [
        ({"y": (2, 3)}, "shape: the model has no input 'y'; its inputs are t0"),
        ({"t0": (2,)}, "t0 has 2 dimensions, which must be numbers"),
        ({"t0": (2, "n")}, "t0 has 2 dimensions, which must be numbers"),
    ],
)
def test_wrong_shape(shape, message):
    with pytest.raises(ValueError, match=message):
        tvm_dnnl.from_tflite(_abs_model(), shape)


def test_damaged_files(tmp_path):
    """Any byte may be wrong, or the end may be missing: an error, or a model, and no crash."""
    data, path = _abs_model(), tmp_path / "model.tflite"
    for length in range(0, len(data), 7):
        path.write_bytes(data[:length])
        _import(path)
    for position in range(len(data)):
        path.write_bytes(data[:position] + bytes([data[position] ^ 0xFF]) + data[position + 1 :])
        _import(path)


def _import(path):
    try:
        tvm_dnnl.from_tflite(path)
    except (ValueError, tvm.error.OpNotImplemented) as error:
        assert str(error)


def test_other_file(tmp_path):
    path = tmp_path / "model.tflite"
    path.write_bytes(b"something else")
    with pytest.raises(ValueError, match="model.tflite is not a TFLite model"):
        tvm_dnnl.from_tflite(path)
    with pytest.raises(TypeError, match="constants is for ONNX models"):
        compiled(_abs_model(), tmp_path, constants={"t0": 1})
