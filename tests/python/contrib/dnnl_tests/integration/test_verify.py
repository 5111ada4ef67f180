# SPDX-License-Identifier: Apache-2.0
"""`verify` tells the error of each op; `compile(verify=True)` compares the results."""

from dataclasses import replace

import numpy as np
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper
from tvm import relay
from tvm.contrib.onednn.ops.table import TABLE
from tvm.relay.frontend import onnx as frontend
from tvm.relay.op.contrib import dnnl

from dnnl_tests.marks import json_only

pytest.importorskip("onnxruntime")


def model():
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], name="product"),
        helper.make_node("Tanh", ["m"], ["t"], name="activation"),
        helper.make_node("Add", ["t", "x"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, (4, 16)) for n in "xy")
    unread = helper.make_tensor_value_info("unread.1", TensorProto.FLOAT, (1,))
    w = np.random.default_rng(0).standard_normal((16, 16)).astype("float32")
    graph = helper.make_graph(nodes, "g", [x, unread], [y], [numpy_helper.from_array(w, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def test_right():
    result = dnnl.verify(model(), {"x": np.ones((4, 16), "float32")}, prune=False)
    assert [each.name for each in result.ops] == ["m", "t", "y"] and not result.wrong
    assert all(each.error < 1e-6 for each in result.ops)


@pytest.fixture
def wrong_tanh(monkeypatch):
    """Let the importer read every Tanh as a sigmoid."""
    own = frontend._get_convert_map

    def convert_map(opset):
        return {**own(opset), "Tanh": lambda inputs, attrs, params: relay.sigmoid(inputs[0])}

    monkeypatch.setattr(frontend, "_get_convert_map", convert_map)


def test_wrong(wrong_tanh):
    result = dnnl.verify(model())
    assert [each.name for each in result.wrong] == ["t"]
    assert result.wrong[0].where == "node activation"


def test_page():
    mod, params = dnnl.from_onnx(model())
    report = dnnl.offload_report(dnnl.partition_for_dnnl(mod, params))
    pytest.importorskip("graphviz")
    page = report.to_html(errors=dnnl.verify(model()).page_rows())
    assert "Error of each op" in page and "m: 4x16 float32, bound" in page


def test_compile_right():
    report = dnnl.compile(model(), verify=True, prune=False).report
    assert "as onnxruntime computes it" in report.verified and report.offloaded
    assert dnnl.compile(model()).report.verified == ""


def test_compile_wrong(wrong_tanh):
    with pytest.raises(dnnl.VerificationError) as raised:
        dnnl.compile(model(), verify=True, prune=False)
    text = str(raised.value)
    assert "The first op that differs is t (Tanh, 4x16 float32)" in text
    assert "the op is imported wrongly" in text
    with pytest.raises(TypeError, match="verify must be True or False"):
        dnnl.compile(model(), verify=1)


def module(batch):
    """Ops with several results, one without a definition, two partitions and an unread input."""
    rng = np.random.default_rng(0)
    kernel, weight, last = (
        relay.const(rng.standard_normal(shape).astype("float32"))
        for shape in ((16, 3, 3, 3), (8, 16), (4, 4))
    )
    x, unread = relay.var("x", shape=(batch, 3, 16, 16)), relay.var("unread", shape=(1,))
    conv = relay.nn.conv2d(x, kernel, padding=(1, 1), channels=16, kernel_size=(3, 3))
    dense = relay.nn.dense(relay.mean(relay.nn.relu(conv), [2, 3]), weight)
    sums = relay.cumsum(dense, 1)
    results = relay.Tuple([relay.nn.dense(relay.split(sums, 2, 1)[0], last), sums])
    return tvm.IRModule.from_expr(relay.Function([x, unread], results))


@json_only  # C source has no plan, which tells the kernels, and no open sizes
@pytest.mark.parametrize("batch", [2, relay.Any()], ids=["fixed", "open"])
def test_module(batch):
    result = dnnl.verify(module(batch), prune=False)
    assert result.framework == "numpy" and not result.wrong and result.undefined == ["cumsum"]
    ops = {each.op: each for each in result.ops}
    assert {"nn.conv2d", "nn.relu", "mean", "nn.dense", "split"} <= set(ops)
    assert 0 < ops["nn.conv2d"].error < 1e-5
    assert "avx" in ops["nn.conv2d"].kernel and "->" in ops["nn.conv2d"].layouts


def test_wrong_module(monkeypatch):
    wrong = replace(TABLE["nn.relu"], numpy=lambda attrs, type_, x: abs(x))
    monkeypatch.setitem(TABLE, "nn.relu", wrong)
    mod = module(2)
    assert [each.op for each in dnnl.verify(mod, prune=False).wrong] == ["nn.relu"]
    with pytest.raises(dnnl.VerificationError, match=r"first op that differs is \S+ \(nn.relu"):
        x = relay.var("x", shape=(4, 16))
        mod = tvm.IRModule.from_expr(relay.Function([x], relay.nn.relu(x)))
        dnnl.compile(mod, verify=True, prune=False)


def test_module_in_8_bits():
    """The ops of QNN that have no numpy definition are named."""
    x = relay.var("x", shape=(4, 16))
    scale, zero = relay.const(0.05), relay.const(3)
    weight = relay.const(np.arange(-128, 128, dtype="int8").reshape(16, 16))
    narrow = relay.qnn.op.quantize(x, scale, zero, out_dtype="int8")
    args = (narrow, weight, zero, relay.const(0), scale, scale)
    dense = relay.qnn.op.dense(*args, units=16)
    one, two = relay.const(0.0025), relay.const(0)
    narrow = relay.qnn.op.requantize(dense, one, two, relay.const(0.5), two, out_dtype="int8")
    result = dnnl.verify(tvm.IRModule.from_expr(relay.Function([x], narrow)), prune=False)
    assert [each.op for each in result.ops] == ["qnn.quantize"] and not result.wrong
    assert result.undefined == ["qnn.dense", "qnn.requantize"]


def test_inputs_of_a_module():
    mod = module(relay.Any())
    with pytest.raises(ValueError, match="there is no input y; the inputs are: x, unread"):
        dnnl.verify(mod, {"y": np.ones(1)})
    with pytest.raises(ValueError, match=r"expects \(any, 3, 16, 16\)"):
        dnnl.verify(mod, {"x": np.ones((1, 3, 16), "float32")})
    with pytest.raises(TypeError, match="dtype float64"):
        dnnl.verify(mod, {"x": np.ones((1, 3, 16, 16))})
    with pytest.raises(TypeError, match="reference="):
        dnnl.verify(mod, reference="source")
    with pytest.raises(ValueError, match="partitioned already"):
        dnnl.verify(dnnl.partition_for_dnnl(mod, prune=False))


def test_onnx_model_with_numpy():
    result = dnnl.verify(model(), reference="numpy", prune=False)
    assert result.framework == "numpy" and not result.wrong and not result.undefined
    assert "tanh" in [each.op for each in result.ops]
