# SPDX-License-Identifier: Apache-2.0
"""`compile(verify=True)` compares ONNX models with onnxruntime or onnx's reference evaluator."""

import sys

import numpy as np
import onnx
import pytest
import tvm_dnnl
from onnx import numpy_helper, parser
from tvm import relax
from tvm.contrib.onednn.frontend.protobuf import rename
from tvm.contrib.onednn.verify import onnx_runners, onnx_source
from tvm.relax.frontend.onnx import onnx_frontend
from tvm_dnnl.frontend._dnnl.onnx import registration

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
model (float[N,16] x, int64[N] ids, int64[N] mask) => (float[N,16] y, int64[N] k)
<float[10,16] table, float[16,16] w> {
  e = Gather(table, ids)
  a = Add(x, e)
  b = MatMul(a, w)
  [activation] t = Tanh(b)
  y = Mul(t, x)
  k = ArgMax<axis=1, keepdims=0>(y)
}"""


def model(text=TEXT):
    proto, rng = parser.parse_model(text), np.random.default_rng(0)
    for value in proto.graph.value_info:  # the weights
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        array = rng.standard_normal(shape).astype("float32")
        proto.graph.initializer.append(numpy_helper.from_array(array, value.name))
    return proto


@pytest.fixture
def wrong_tanh(monkeypatch):
    """Let the importer read every Tanh as a sigmoid."""

    class Tanh(onnx_frontend.OnnxOpConverter):
        @classmethod
        def _impl_v13(cls, bb, inputs, attr, params):
            return relax.op.sigmoid(inputs[0])

    registration.register()
    monkeypatch.setitem(onnx_frontend._get_convert_map(), "Tanh", Tanh)


@pytest.fixture(params=["onnxruntime", "reference"])
def framework(request, monkeypatch):
    if request.param == "onnxruntime":
        pytest.importorskip("onnxruntime")
        return "onnxruntime"
    monkeypatch.setattr(onnx_runners, "onnxruntime", lambda: None)
    return "onnx's reference evaluator"


def test_right(framework):
    report = tvm_dnnl.compile(model(), verify=True, prune=False).report
    assert f"as {framework} computes it" in report.verified and report.offloaded


def test_is_off_by_default(wrong_tanh):
    assert tvm_dnnl.compile(model()).report.verified == ""


def test_wrong(framework, wrong_tanh):
    with pytest.raises(tvm_dnnl.VerificationError) as raised:
        tvm_dnnl.compile(model(), verify=True, prune=False)
    text = str(raised.value)
    assert f"differs from {framework}: result 0" in text
    assert "The first op that differs is t (Tanh, 2x16 float32)" in text
    assert "node activation" in text and "the op is imported wrongly" in text


def test_shape_and_constants(wrong_tanh):
    given = dict(shape={"N": 3}, constants={"mask": 1})
    with pytest.raises(tvm_dnnl.VerificationError, match=r"t \(Tanh, 3x16 float32\)"):
        tvm_dnnl.compile(model(), verify=True, **given)


def test_values_that_are_drawn():
    source = onnx_source.OnnxSource(model(), None)
    x, ids, mask = source.inputs
    assert x.shape == (2, 16) and x.dtype == np.float32
    assert ids.dtype == np.int64 and (0 <= ids).all() and (ids < 10).all()
    assert (mask == 1).all()


HEAD = '<ir_version: 8, opset_import: ["" : 17, "own" : 1]>\n'


def source(text, inputs=None):
    return onnx_source.OnnxSource(model(HEAD + text), None, inputs)


@pytest.mark.parametrize("op", ["MaxPool <kernel_shape = [9, 9]>", "Relu"])
def test_images_as_large_as_windows(op):
    """A pool of a smaller image, which onnxruntime runs, is no legal input of the model."""
    name, _, attrs = op.partition(" ")
    one = source(f"m (float[N, 3, H, W] x) => (float[N, 3, A, B] y) {{ y = {name} {attrs} (x) }}")
    assert one.inputs[0].shape == ((2, 3, 64, 64) if attrs else (2, 3, 8, 8))
    assert one.results()[0].size


def test_open_sizes_of_one_name():
    """Also beside values that are given."""
    text = """model (float[N,M] x, float[M,N] y, int8[M] k) => (float[N,M] z) {
      t = Transpose(y)
      z = Add(x, t)
    }"""
    assert [each.shape for each in source(text).inputs] == [(2, 8), (8, 2), (8,)]
    given = source(text, {"y": np.zeros((5, 3), "float32")})
    assert [each.shape for each in given.inputs] == [(3, 5), (5, 3), (5,)]
    (result,) = given.results()
    np.testing.assert_array_equal(result, given.inputs[0])


@pytest.mark.parametrize(
    "inputs, error, message",
    [
        ({"y": np.ones(1)}, ValueError, "there is no input y; the inputs are: x"),
        ({"x": np.ones((2, 4))}, TypeError, "input x: dtype float64, but the model expects float"),
        ([np.ones(4, "float32")], ValueError, r"input x: shape \(4,\), but .* expects \(any, 4\)"),
    ],
)
def test_wrong_inputs(inputs, error, message):
    with pytest.raises(error, match=message):
        source("model (float[N,4] x) => (float[N,4] y) { y = Tanh(x) }", inputs)


def test_open_sizes_that_are_too_small(framework):
    text = """model (float[N,3,H,W] x) => (float[N,2,H2,W2] y) <float[2,3,40,40] w> {
      y = Conv(x, w)
    }"""
    one = source(text)
    assert one.results()[0].shape == (2, 2, 25, 25) and one.framework == framework
    assert one.inputs[0].shape == (2, 3, 64, 64)


def test_nodes_of_one_name():
    """Each is named as the model has it, and onnxruntime runs them."""
    pytest.importorskip("onnxruntime")
    text = "model (float[2,4] x) => (float[2,4] y) { [one] t = Tanh(x) [one] y = Exp(t) }"
    one = source(text)
    assert len(one.results()) == 1 and one.framework == "onnxruntime"
    assert [step.where for step in one.steps()] == ["node one"] * 2


def test_a_first_result_that_is_left_out():
    text = """model (float[5,2,4] x) => (float[1,2,8] y) <float[1,32,4] w, float[1,32,8] r> {
      , h = LSTM<hidden_size=8>(x, w, r)
      y = Tanh(h)
    }"""
    assert [step.name for step in source(text).steps()] == ["h", "y"]


@pytest.mark.parametrize("name", ["a.exact", "a.noise.exact"])
def test_names_that_noise_has(name):
    """Rounding at random names its own values."""
    text = "model (float[4,8] x) => (float[4,8] y) { a = Tanh(x) b = Exp(a) y = Add(a, b) }"
    proto = model(HEAD + text)
    rename(proto.graph.node, {"b": name})
    one = onnx_source.OnnxSource(proto, None)
    (exact,), (noisy,) = one.results(), one.rounded(2.0**-10, 0)
    error = np.abs(exact - noisy).max() / np.abs(exact).max()
    assert 2.0**-14 < error < 2.0**-8


def test_sums_that_onnxruntime_saturates():
    """It does on CPUs without VNNI; the reference evaluator does not."""
    text = """model (float[4,64] x) => (float[4,16] y) <int8[64,16] w> {
      q, s, z = DynamicQuantizeLinear(x)
      n = MatMulInteger(q, w, z)
      y = Cast<to = 1>(n)
    }"""
    proto = parser.parse_model(HEAD + text)
    w = np.random.default_rng(0).integers(-128, 128, (64, 16)).astype("int8")
    proto.graph.initializer.append(numpy_helper.from_array(w, "w"))
    report = tvm_dnnl.compile(proto, verify=True, prune=False).report
    assert report.verified.startswith("as onnx") or "each op is right" in report.verified


def test_lstm_with_quantized_weights():
    """Its data need not be quantized. The op before is of another domain, and compared alone."""
    pytest.importorskip("onnxruntime")
    text = """model (float[20,1,64] x) => (float[20,1,1,32] y)
    <int8[1,64,128] w, int8[1,32,128] r, float[1] s, int8[1] z> {
      g = com.microsoft.Gelu(x)
      o = com.microsoft.DynamicQuantizeLSTM<hidden_size=32>(g, w, r, , , , , , s, z, s, z)
      y = Tanh(o)
    }"""
    proto = parser.parse_model(HEAD.replace("own", "com.microsoft") + text)
    rng = np.random.default_rng(0)
    values = {
        name: rng.integers(-100, 100, shape)
        for name, shape in (("w", (1, 64, 128)), ("r", (1, 32, 128)))
    }
    values = {name: value.astype("int8") for name, value in values.items()}
    values.update(s=np.float32([0.002]), z=np.int8([0]))
    for name, value in values.items():
        proto.graph.initializer.append(numpy_helper.from_array(value, name))
    result = tvm_dnnl.verify(proto, prune=False)
    assert [each.name for each in result.ops] == ["g", "o", "y"] and not result.wrong
    # That of rounding to 8 bits.
    assert 1e-3 < result.ops[1].bound < 0.2
    assert "onnxruntime" in tvm_dnnl.compile(proto, verify=True, prune=False).report.verified


def test_functions_of_the_model():
    text = """model (float[4,8] x) => (float[4,8] y) { y = own.twice(x) }
    <opset_import: ["" : 17], domain: "own"> twice (a) => (c) { b = Add(a, a) c = Tanh(b) }"""
    assert [step.op for step in source(text).steps()] == ["Add", "Tanh"]


HALF = """model (float[8,64] x) => (float[8,32] y) <float[64,128] w, float[128,32] v> {
  h = Cast<to = 10>(x)
  a = Cast<to = 10>(w)
  b = Cast<to = 10>(v)
  m = MatMul(h, a)
  [activation] t = Tanh(m)
  n = MatMul(t, b)
  s = Softmax(n)
  y = Cast<to = 1>(s)
}"""


def test_float16_between_float32(wrong_tanh):
    """The bound is that of the type that is computed in, whatever type the results have."""
    assert source(HALF).dtype == "float16"
    assert source(HALF.replace("10", "1")).dtype == "float32"
    right = model(HEAD + HALF.replace("Tanh", "Erf"))
    assert "onnx" in tvm_dnnl.compile(right, verify=True, prune=False).report.verified
    with pytest.raises(tvm_dnnl.VerificationError, match="op that differs is t"):
        tvm_dnnl.compile(model(HEAD + HALF), verify=True, prune=False)


def test_operands_that_are_no_steps():
    """The shape of a result is computed again, and weights are no steps."""
    source = onnx_source.OnnxSource(
        model("""<ir_version: 8, opset_import: ["" : 17]>
        model (float[2,3,4] x) => (float[2,12] y) <float[4] w> {
          v = Neg(w)
          a = Add(x, v)
          y = Flatten(a)
        }"""),
        None,
    )
    steps = {step.name: step for step in source.steps()}
    assert set(steps) == {"a", "y"} and steps["y"].operands == ("a",) and not steps["a"].operands
    want = source.inputs[0] - source._initializers["w"]
    np.testing.assert_array_equal(source.evaluate(steps["a"], {}), want)


@pytest.mark.parametrize(
    "text, reason",
    [
        ("model (string[2] s) => (string[2] y) { y = Identity(s) }", "input s has the type"),
        ("model (float x) => (float y) { y = NoSuchOp(x) }", "cannot run it"),
    ],
)
def test_cannot_run(text, reason):
    text = f'<ir_version: 8, opset_import: ["" : 17]>\n{text}'
    with pytest.raises(onnx_source.CannotRun, match=reason):
        onnx_source.OnnxSource(parser.parse_model(text), None).results()


def test_quantized():
    """Rounding to 8 bits decides some elements either way."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
    model (float[64,32] x) => (float[64,32] y) <float[32,32] w> {
      s = Constant<value_float = 0.05>()
      z = Constant<value = int8 {3}>()
      q = QuantizeLinear(x, s, z)
      d = DequantizeLinear(q, s, z)
      v = QuantizeLinear(w, s, z)
      u = DequantizeLinear(v, s, z)
      m = MatMul(d, u)
      t = Relu(m)
      r = QuantizeLinear(t, s, z)
      y = DequantizeLinear(r, s, z)
    }"""
    report = tvm_dnnl.compile(model(text), verify=True, prune=False).report
    assert "onnx" in report.verified and report.offloaded


def test_without_a_reference(monkeypatch):
    monkeypatch.setattr(onnx_runners, "onnxruntime", lambda: None)
    monkeypatch.setitem(sys.modules, "onnx.reference", None)
    report = tvm_dnnl.compile(model(), verify=True).report
    assert report.verified.startswith("not compared: onnx's reference cannot run it")
    assert onnx.__version__


def test_errors_of_ops(framework, wrong_tanh):
    result = tvm_dnnl.verify(model(), {"ids": np.array([3, 9])})
    assert result.framework == framework
    assert [each.name for each in result.ops] == ["e", "a", "b", "t", "y", "k"]
    assert [each.name for each in result.wrong] == ["t"]
    assert "wrong" in str(result) and "node activation" in result.to_json()


def test_errors_cannot_be_told():
    text = "m (string[2] s) => (string[2] y) { y = Identity(s) }"
    text = f'<ir_version: 8, opset_import: ["" : 17]>\n{text}'
    with pytest.raises(ValueError, match="cannot be verified: input s has the type"):
        tvm_dnnl.verify(parser.parse_model(text))
