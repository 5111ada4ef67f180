# SPDX-License-Identifier: Apache-2.0
"""LSTM, GRU and RNN as TVM's ONNX importer unrolls them, which become one op again.

So do those of older models; ours imports a layer as one op, see `onnx/test_recurrent.py`.
"""

import numpy as np
import onnx
import onnxruntime
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper
from tvm import relay
from tvm.contrib.onednn import cpu
from tvm.contrib.onednn.rewrites import narrow_layers
from tvm.relay.frontend.onnx_repairs import converters
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from dnnl_tests import direct
from dnnl_tests.marks import json_only

STEPS, BATCH, INPUTS, HIDDEN = 4, 2, 16, 32
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
# Sums of 48 products in float32, in four steps that squash them.
RTOL = 1e-5


def recurrent(kind, direction="forward", has_initial=False, has_bias=True, **attrs):
    """Return an ONNX model of one layer with random weights."""
    directions = 2 if direction == "bidirectional" else 1
    gates, random = GATES[kind], np.random.default_rng(0)
    shapes = {"w": (directions, gates * HIDDEN, INPUTS), "r": (directions, gates * HIDDEN, HIDDEN)}
    shapes |= {"b": (directions, 2 * gates * HIDDEN)} if has_bias else {}
    weights = [
        numpy_helper.from_array(random.standard_normal(shape, "float32") / 8, name)
        for name, shape in shapes.items()
    ]
    state = (directions, BATCH, HIDDEN)
    names = ["h", "c"][: 1 + (kind == "LSTM")]
    ends = {"x": (STEPS, BATCH, INPUTS), **({f"{each}0": state for each in names})}
    ends = ends if has_initial else {"x": ends["x"]}
    results = {"y": (STEPS, directions, BATCH, HIDDEN), **{f"{each}n": state for each in names}}
    operands = ["x", "w", "r", "b" if has_bias else "", "", *list(ends)[1:]]
    sizes = dict(hidden_size=HIDDEN, direction=direction)
    node = helper.make_node(kind, operands, list(results), **sizes, **attrs)
    inputs, outputs = (
        [
            helper.make_tensor_value_info(each, TensorProto.FLOAT, shape)
            for each, shape in of.items()
        ]
        for of in (ends, results)
    )
    graph = helper.make_graph([node], kind, inputs, outputs, weights)
    opset = [helper.make_opsetid("", 14)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=8)
    onnx.checker.check_model(model)
    return model


def values(model):
    """Return inputs of a model, and what onnxruntime computes of them."""
    random = np.random.default_rng(1)
    inputs = {
        each.name: random.standard_normal(
            [dim.dim_value for dim in each.type.tensor_type.shape.dim], "float32"
        )
        for each in model.graph.input
    }
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return inputs, session.run(None, inputs)


LAYERS = {
    "lstm": recurrent("LSTM"),
    "lstm-both-initial": recurrent("LSTM", "bidirectional", has_initial=True),
    "lstm-reverse-no-bias": recurrent("LSTM", "reverse", has_bias=False),
    "gru-initial": recurrent("GRU", has_initial=True),
    "gru-both": recurrent("GRU", "bidirectional"),
    "gru-linear-both": recurrent("GRU", "bidirectional", linear_before_reset=1),
    "gru-linear-reverse-no-bias": recurrent(
        "GRU", "reverse", has_bias=False, linear_before_reset=1
    ),
    "rnn-both": recurrent("RNN", "bidirectional"),
    "rnn-relu-initial": recurrent("RNN", has_initial=True, activations=["Relu"]),
}


@pytest.fixture(autouse=True)
def _unrolled(monkeypatch):
    monkeypatch.setattr(converters, "unrolled_reason", lambda *_: "by the test")


@pytest.mark.parametrize("model", LAYERS.values(), ids=LAYERS)
def test_layer_is_one_op(model):
    inputs, expected = values(model)
    mod, params = relay.frontend.from_onnx(model, freeze_params=True)
    name = f"dnnl.{model.graph.node[0].op_type.lower()}"
    report = dnnl.offload_report(dnnl.partition_for_dnnl(mod, params))
    assert report.composites == {name: 1} and report.partitions == 1
    assert report.offloaded == report.total
    direct.check(mod, inputs, reference=expected, rtol=RTOL)


@pytest.mark.parametrize("codegen", ["JSON", "C_SRC"])
def test_compiled(codegen):
    model = LAYERS["gru-linear-both"]
    inputs, expected = values(model)
    mod, params = relay.frontend.from_onnx(model, freeze_params=True)
    mod = dnnl.partition_for_dnnl(mod, params)
    with tvm.transform.PassContext(config={"relay.ext.dnnl.codegen": codegen}):
        testing.assert_close(testing.run(mod, inputs), expected, RTOL)


@pytest.mark.parametrize(
    "is_open", [False, pytest.param(True, marks=json_only)], ids=["known", "open"]
)
def test_weights_in_bfloat16(monkeypatch, is_open):
    """Those of large layers; data and states stay in float32."""
    if not cpu.computes("bfloat16"):
        pytest.skip("oneDNN does not support bfloat16 on this CPU")
    monkeypatch.setattr(narrow_layers, "FEWEST_WEIGHTS", 1)
    model = recurrent("LSTM", "bidirectional", has_initial=True)
    inputs, expected = values(model)
    if is_open:
        for each in (*model.graph.input, *model.graph.output):
            dims = each.type.tensor_type.shape.dim
            dims[2 if each.name == "y" else 1].dim_param = "batch"
    mod = dnnl.partition_for_dnnl(*dnnl.from_onnx(model), precision="bfloat16")
    report = dnnl.offload_report(mod)
    assert report.composites == {"dnnl.lstm": 1} and not report.in_float32
    got = testing.run(mod, inputs, executor="vm" if is_open else "graph")
    # Not by accident equal, and each weight is off by 1 in 2**9 at most.
    assert not np.allclose(got[0], expected[0], rtol=1e-5, atol=1e-6)
    testing.assert_close(got, expected, 1e-2)


def test_precision():
    """A layer whose weights a cache holds stays in float32."""
    if not cpu.computes("bfloat16"):
        pytest.skip("oneDNN does not support bfloat16 on this CPU")
    model = LAYERS["gru-linear-both"]
    inputs, expected = values(model)
    mod, params = relay.frontend.from_onnx(model, freeze_params=True)
    options = {"precision": "bfloat16"}
    report = dnnl.offload_report(dnnl.partition_for_dnnl(mod, params, **options))
    assert report.composites == {"dnnl.gru": 1}
    why = "4608 weights, with fewer than 600000 bfloat16 is slower"
    assert report.in_float32 == {f"dnnl.gru: {why}": 1}
    assert f"in float32: 1 x dnnl.gru: {why}" in str(report)
    direct.check(mod, inputs, reference=expected, options=options, rtol=RTOL)
