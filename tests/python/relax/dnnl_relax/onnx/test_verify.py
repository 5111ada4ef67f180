# SPDX-License-Identifier: Apache-2.0
"""`compile(verify=True)` compares ONNX models with onnxruntime or onnx's reference evaluator."""

import sys

import numpy as np
import onnx
import pytest
import tvm_dnnl
from onnx import numpy_helper, parser
from tvm import relax
from tvm.contrib.onednn.verify import onnx_source
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
    monkeypatch.setattr(onnx_source, "_onnxruntime", lambda: None)
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
    monkeypatch.setattr(onnx_source, "_onnxruntime", lambda: None)
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
