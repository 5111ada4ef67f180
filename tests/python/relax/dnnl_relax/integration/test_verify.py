# SPDX-License-Identifier: Apache-2.0
"""`verify` compares each op of a module with its numpy definition."""

from dataclasses import replace

import numpy as np
import pytest
import tvm_dnnl
from onnx import parser
from tvm import relax
from tvm.contrib.onednn.ops.table import TABLE
from tvm.relax import op

from dnnl_relax.modules import module, rand, var


def const(*shape, seed=0):
    return relax.const(rand(*shape, seed=seed))


def network(builder, x):
    """Ops with several results, one without a definition, and two partitions."""
    a = builder.emit(op.nn.conv2d(x, const(16, 3, 3, 3), padding=(1, 1)))
    b = builder.emit(op.nn.relu(a))
    c = builder.emit(op.mean(b, [2, 3]))
    d = builder.emit(op.cumsum(builder.emit(op.matmul(c, const(16, 8))), 1))
    parts = builder.emit(op.split(d, 2, 1))
    return relax.Tuple([builder.emit(op.matmul(parts[0], const(4, 4))), d])


def quantized(builder, x):
    scale, zero = relax.const(np.float32(0.05)), relax.const(np.int8(3))
    weight = relax.const(np.arange(-128, 128, dtype="int8").reshape(16, 16))
    narrow = builder.emit(op.quantize(x, scale, zero, out_dtype="int8"))
    left = builder.emit(op.dequantize(narrow, scale, zero, out_dtype="float32"))
    right = builder.emit(op.dequantize(weight, scale, zero, out_dtype="float32"))
    result = builder.emit(op.nn.relu(builder.emit(op.matmul(left, right))))
    return builder.emit(op.quantize(result, scale, zero, out_dtype="int8"))


def errors_by_op(result):
    return {each.op: each for each in result.ops}


@pytest.fixture
def wrong_relu(monkeypatch):
    """A definition that what is compiled differs from."""
    wrong = replace(TABLE["nn.relu"], numpy=lambda attrs, type_, x: abs(x))
    monkeypatch.setitem(TABLE, "nn.relu", wrong)


@pytest.mark.parametrize("batch", [2, "n"])
def test_right(batch):
    mod = module(network, var("x", batch, 3, 16, 16))
    result = tvm_dnnl.verify(mod, prune=False)
    assert result.framework == "numpy" and not result.wrong
    assert result.undefined == ["cumsum"] and "cumsum: 1 without a definition" in str(result)
    ops = errors_by_op(result)
    assert {"nn.conv2d", "nn.relu", "mean", "matmul", "split"} <= set(ops)
    assert 0 < ops["nn.conv2d"].error < 1e-5
    assert "avx" in ops["nn.conv2d"].kernel and "->" in ops["nn.conv2d"].layouts
    assert ops["nn.conv2d"].kernel in str(result)
    assert any(ops["nn.conv2d"].kernel in text for _, _, text in result.page_rows())
    assert result.page_rows()[-1][:2] == ("not compared", "cumsum")


def test_wrong(wrong_relu):
    mod = module(network, var("x", 2, 3, 16, 16))
    assert [each.op for each in tvm_dnnl.verify(mod, prune=False).wrong] == ["nn.relu"]
    mod = module(lambda builder, x: builder.emit(op.nn.relu(x)), var("x", 4, 16))
    with pytest.raises(tvm_dnnl.VerificationError, match=r"op that differs is \w+ \(nn.relu"):
        tvm_dnnl.compile(mod, verify=True, prune=False)


def test_8_bits():
    """They may be rounded either way."""
    mod = module(quantized, var("x", 64, 16))
    result = tvm_dnnl.verify(mod, prune=False)
    assert not result.wrong and result.ops[-1].dtype == "int8"
    report = tvm_dnnl.compile(mod, verify=True, prune=False).report
    assert report.verified.startswith("as numpy computes it")


def test_bfloat16():
    """TVM computes it where oneDNN cannot; the bound is that of the type."""
    mod = module(
        lambda builder, x: builder.emit(op.nn.softmax(x)), var("x", 4, 16, dtype="bfloat16")
    )
    (row,) = tvm_dnnl.verify(mod).ops
    assert row.dtype == "bfloat16" and row.error <= row.bound == pytest.approx(2.0**-5)


def test_results_that_are_inputs():
    def build(builder, x):
        a = builder.emit(op.tanh(x))
        return relax.Tuple([a, x, a, relax.Tuple([a])])

    mod = module(build, var("x", 2, 4))
    assert [each.op for each in tvm_dnnl.verify(mod).ops] == ["tanh"]
    assert "as numpy" in tvm_dnnl.compile(mod, verify=True).report.verified


def test_given_values():
    mod = module(lambda b, x, y: b.emit(op.add(x, y)), var("x", 2, 4), var("y", 2, 4))
    x = np.ones((2, 4), "float32")
    result = tvm_dnnl.verify(mod, {"x": x}, params={"y": rand(2, 4)})
    assert [each.op for each in result.ops] == ["add"]
    assert not tvm_dnnl.verify(mod, [x, x]).wrong


@pytest.mark.parametrize(
    "inputs, error, message",
    [
        ({"z": np.ones(1)}, ValueError, "there is no input z; the inputs are: x"),
        (
            {"x": np.ones((2, 4))},
            TypeError,
            "input x: dtype float64, but the model expects float32",
        ),
        ({"x": rand(2, 5)}, ValueError, r"input x: shape \(2, 5\), but .* expects \(any, 4\)"),
        ([], ValueError, "0 inputs are passed for 1: x"),
    ],
)
def test_wrong_inputs(inputs, error, message):
    mod = module(lambda builder, x: builder.emit(op.tanh(x)), var("x", "n", 4))
    with pytest.raises(error, match=message):
        tvm_dnnl.verify(mod, inputs)


def test_what_cannot_be_verified():
    mod = module(lambda builder, x: builder.emit(op.matmul(x, const(4, 4))), var("x", 2, 4))
    with pytest.raises(TypeError, match='reference="source" is for models of PyTorch and ONNX'):
        tvm_dnnl.verify(mod, reference="source")
    with pytest.raises(ValueError, match="reference must be"):
        tvm_dnnl.verify(mod, reference="torch")
    with pytest.raises(TypeError, match="shape is for ONNX models"):
        tvm_dnnl.verify(mod, shape={"x": (2, 4)})
    with pytest.raises(TypeError, match="verify must be True or False"):
        tvm_dnnl.compile(mod, verify="yes")
    partitioned = tvm_dnnl.partition_for_dnnl(mod, prune=False)
    with pytest.raises(ValueError, match="partitioned already"):
        tvm_dnnl.verify(partitioned)


def test_an_onnx_model_with_numpy(wrong_relu):
    model = parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        g (float[n, 8] x) => (float[n, 8] y) { a = Tanh(x) y = Relu(a) }""")
    assert not tvm_dnnl.verify(model).wrong
    result = tvm_dnnl.verify(model, {"x": rand(3, 8)}, reference="numpy")
    assert result.framework == "numpy" and [each.op for each in result.wrong] == ["nn.relu"]
    assert result.ops[0].shape == (3, 8)
