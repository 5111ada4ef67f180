# SPDX-License-Identifier: Apache-2.0
"""Recurrent ONNX nodes are imported as one op each, which runs on oneDNN or on TVM."""

import numpy as np
import onnxruntime
import pytest
import tvm
from onnx import helper, numpy_helper
from tvm import relay
from tvm.contrib.onednn.frontend.layer_weights import dequantized
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from dnnl_tests import direct
from dnnl_tests.marks import json_only
from dnnl_tests.reference import rand

STEPS, BATCH, FEATURES, HIDDEN = 4, 3, 5, 6
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
DIRECTIONS = ("forward", "reverse", "bidirectional")
NAMES = ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P")
# float32: sums have another order, and each step adds its rounding.
RTOL = 1e-5


def operands(op, direction="forward", optional=("B",), lengths=None, steps=STEPS):
    """Return the inputs of a node by name."""
    count, gates = 1 + (direction == "bidirectional"), GATES[op] * HIDDEN
    shapes = {
        "X": (steps, BATCH, FEATURES),
        "W": (count, gates, FEATURES),
        "R": (count, gates, HIDDEN),
        "B": (count, 2 * gates),
        "initial_h": (count, BATCH, HIDDEN),
        "initial_c": (count, BATCH, HIDDEN),
        "P": (count, 3 * HIDDEN),
    }
    names = ("X", "W", "R", *optional)
    values = {name: rand(*shapes[name], seed=k) for k, name in enumerate(names)}
    if lengths is not None:
        values["sequence_lens"] = np.array(lengths, "int32")
    return values


def node(op, values, inputs=("X",), dims=None, **attrs):
    """Return the model of a layer, of which all but some inputs are constant, and their values."""
    order = [*NAMES, *(name for name in values if name not in NAMES)]
    names = [name if name in values else "" for name in order]
    while not names[-1]:
        names.pop()
    results = ["Y", "Y_h", "Y_c"][: 3 if op.endswith("LSTM") else 2]
    domain = "com.microsoft" if op not in GATES else ""
    attrs = {"hidden_size": HIDDEN, "domain": domain, **attrs}
    tensors = {name: numpy_helper.from_array(value, name) for name, value in values.items()}
    infos = [
        helper.make_tensor_value_info(
            name, tensors[name].data_type, (dims or {}).get(name, values[name].shape)
        )
        for name in inputs
    ]
    graph = helper.make_graph(
        [helper.make_node(op, names, results, name="the layer", **attrs)],
        op,
        infos,
        [helper.make_empty_tensor_value_info(name) for name in results],
        [tensor for name, tensor in tensors.items() if name not in inputs],
    )
    opsets = [helper.make_opsetid("", 14), helper.make_opsetid("com.microsoft", 1)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return proto, {name: values[name] for name in inputs}


def onnxruntime_results(proto, inputs):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    return session.run(None, inputs)


def turned(values):
    """Return operands or results with the batch first for those with the steps first."""
    axes = {"X": (1, 0, 2), "Y": (2, 0, 1, 3)}
    return {
        name: value.transpose(axes.get(name, (1, 0, 2))) if value.ndim > 2 and name not in "WR"
        else value
        for name, value in values.items()
    }  # fmt: skip


def check(proto, inputs, expected=None, rtol=RTOL):
    """Compare a model, imported as one op, with onnxruntime, on oneDNN and on TVM alone."""
    expected = onnxruntime_results(proto, inputs) if expected is None else expected
    mod, _ = dnnl.from_onnx(proto)
    report = dnnl.offload_report(dnnl.partition_for_dnnl(mod))
    name = proto.graph.node[0].op_type.lower().removeprefix("dynamicquantize")
    assert report.composites == {f"dnnl.{name}": 1} and report.partitions == 1
    direct.check(mod, inputs, reference=expected, rtol=rtol)
    return mod


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("op", GATES)
def test_lengths(op, direction):
    values = operands(op, direction, ("B", "initial_h"), [4, 1, 3])
    for inputs in (("X",), ("X", "sequence_lens")):
        check(*node(op, values, inputs, direction=direction))


@pytest.mark.parametrize("layout", [0, 1], ids=["steps-first", "batch-first"])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("op", GATES)
def test_on_tvm_alone(op, direction, layout):
    """The loops of the op; onnxruntime has no layout 1."""
    optional = ("B", "initial_h", *(["initial_c"] if op == "LSTM" else []))
    values = operands(op, direction, optional, [4, 2, 0])
    # Of a sequence without steps onnxruntime returns zero, not the initial state.
    values["sequence_lens"][2] = 1
    proto, inputs = node(op, values, direction=direction)
    expected = onnxruntime_results(proto, inputs)
    if layout:
        names = [each.name for each in proto.graph.output]
        expected = list(turned(dict(zip(names, expected))).values())
        proto, inputs = node(op, turned(values), direction=direction, layout=1)
    mod = check(proto, {k: np.ascontiguousarray(v) for k, v in inputs.items()}, expected)
    testing.assert_close(testing.run(mod, inputs), expected, RTOL)


@pytest.mark.parametrize("linear", [0, 1])
def test_both_resets_of_a_gru_on_tvm_alone(linear):
    proto, inputs = node("GRU", operands("GRU"), linear_before_reset=linear)
    expected = onnxruntime_results(proto, inputs)
    mod = check(proto, inputs, expected)
    testing.assert_close(testing.run(mod, inputs), expected, RTOL)


def test_relu_on_tvm_alone():
    proto, inputs = node("RNN", operands("RNN"), activations=["Relu"])
    expected = onnxruntime_results(proto, inputs)
    testing.assert_close(testing.run(check(proto, inputs, expected), inputs), expected, RTOL)


@json_only
@pytest.mark.parametrize("is_offloaded", [True, False], ids=["onednn", "tvm"])
def test_open_steps_and_batch(is_offloaded):
    """TVM's VM has shape functions of the op."""
    dims = {"X": ("steps", "batch", FEATURES), "sequence_lens": ("batch",)}
    values = operands("LSTM", "bidirectional", lengths=[4, 1, 3])
    proto, inputs = node("LSTM", values, ("X", "sequence_lens"), dims, direction="bidirectional")
    mod, _ = dnnl.from_onnx(proto)
    expected = onnxruntime_results(proto, inputs)
    if is_offloaded:
        mod = dnnl.partition_for_dnnl(mod)
        assert dnnl.offload_report(mod).composites == {"dnnl.lstm": 1}
    testing.assert_close(testing.run(mod, inputs, executor="vm"), expected, RTOL)


def test_steps_are_not_unrolled():
    proto, _ = node("LSTM", operands("LSTM", steps=1000))
    mod, _ = dnnl.from_onnx(proto)
    assert dnnl.offload_report(dnnl.partition_for_dnnl(mod)).total < 10


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_dynamic_quantize_lstm(dtype):
    """An LSTM of the dequantized weights: few weights are not multiplied in 8 bits."""
    values = operands("LSTM", "bidirectional")
    shift, own = (128 if dtype == "uint8" else 3), dict(values)
    for name in "WR":
        weight = values[name].transpose(0, 2, 1)
        scale = np.abs(weight).max((1, 2)) / np.float32(124)
        steps = np.round(weight / scale[:, None, None]) + shift
        zero_point = np.full(2, shift, dtype)
        limits = np.iinfo(dtype)
        own[name] = np.clip(steps, limits.min, limits.max).astype(dtype)
        own |= {f"{name}_scale": scale, f"{name}_zero_point": zero_point}
        values[name] = dequantized(own[name], scale, zero_point).astype("float32")
    expected = onnxruntime_results(*node("LSTM", values, direction="bidirectional"))
    proto, inputs = node("DynamicQuantizeLSTM", own, direction="bidirectional")
    mod = check(proto, inputs, expected)
    testing.assert_close(testing.run(mod, inputs), expected, RTOL)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_input_forget(direction):
    """The forget gate has the negated weights of the input gate."""
    proto, inputs = node("LSTM", operands("LSTM", direction), direction=direction, input_forget=1)
    check(proto, inputs)


UNROLLED = {
    "activations": ("RNN", (), dict(activations=["Softsign"]), "the activations softsign"),
    "peepholes": ("LSTM", ("initial_c", "P"), {}, "peepholes"),
    "peepholes-input-forget": ("LSTM", ("P",), dict(input_forget=1), "peepholes"),
    "clip-LSTM": ("LSTM", (), dict(clip=0.6), "clip"),
    "clip-GRU": ("GRU", ("initial_h",), dict(clip=0.6), "clip"),
    "clip-GRU-linear": ("GRU", (), dict(clip=0.6, linear_before_reset=1), "clip"),
    "clip-RNN": ("RNN", (), dict(clip=0.6), "clip"),
}


@pytest.mark.parametrize("layout", [0, 1], ids=["steps-first", "batch-first"])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("kind", UNROLLED)
def test_other_layers_are_unrolled(kind, direction, layout):
    op, optional, attrs, reason = UNROLLED[kind]
    attrs = dict(attrs, direction=direction)
    if "activations" in attrs and direction == "bidirectional":
        attrs["activations"] = 2 * attrs["activations"]
    values = operands(op, direction, ("B", *optional))
    # Beyond the bound of the clip, as is the cell state.
    values.update({name: values[name] * 4 for name in values if name in ("W", "initial_c")})
    proto, inputs = node(op, values, **attrs)
    expected = onnxruntime_results(proto, inputs)
    if layout:
        names = [each.name for each in proto.graph.output]
        expected = list(turned(dict(zip(names, expected))).values())
        proto, inputs = node(op, turned(values), layout=1, **attrs)
    mod, _ = dnnl.from_onnx(proto)
    assert f"dnnl.{op.lower()}" not in dnnl.offload_report(mod).ops
    report = dnnl.offload_report(dnnl.partition_for_dnnl(mod))
    assert report.unrolled == [f"{op} the layer: it has {reason}"] and report.offloaded
    assert f"unrolled: {op} the layer: it has {reason}" in str(report)
    direct.check(mod, inputs, reference=expected, rtol=RTOL)


ACTIVATIONS = {
    "Affine": (0.5, 0.1),
    "Elu": (0.7,),
    "HardSigmoid": (0.3, 0.4),
    "LeakyRelu": (0.3,),
    "ScaledTanh": (0.8, 0.6),
    "Sigmoid": (),
    "Softplus": (),
    "ThresholdedRelu": (0.2,),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name):
    """With all parameters: onnxruntime reads missing ones as 0, not as the defaults."""
    parameters = dict(zip(("activation_alpha", "activation_beta"), zip(ACTIVATIONS[name])))
    proto, inputs = node("RNN", operands("RNN"), activations=[name], **parameters)
    direct.check(
        dnnl.from_onnx(proto)[0], inputs, reference=onnxruntime_results(proto, inputs), rtol=RTOL
    )


def test_parameters_of_activations():
    """They belong to the functions that have some, in order."""
    proto, inputs = node(
        "LSTM",
        operands("LSTM", "bidirectional"),
        direction="bidirectional",
        activations=["HardSigmoid", "Tanh", "LeakyRelu", "Sigmoid", "Affine", "ScaledTanh"],
        activation_alpha=[0.3, 0.2, 0.7, 0.9],
        activation_beta=[0.4, 0.1, 0.8],
    )
    direct.check(
        dnnl.from_onnx(proto)[0], inputs, reference=onnxruntime_results(proto, inputs), rtol=RTOL
    )


def test_computed_weights_are_unrolled():
    proto, inputs = node("GRU", operands("GRU"), ("X", "W"))
    mod, _ = dnnl.from_onnx(proto)
    report = dnnl.offload_report(mod)
    assert "dnnl.gru" not in report.ops
    assert report.unrolled == ["GRU the layer: its weights are not constant"]
    testing.assert_close(testing.run(mod, inputs), onnxruntime_results(proto, inputs), RTOL)


def test_operands_of_other_shapes():
    """TVM's loops would read past the end of a tensor."""
    proto, _ = node("GRU", operands("GRU"))
    proto.graph.input[0].type.tensor_type.shape.dim[2].dim_value = FEATURES + 1
    with pytest.raises(Exception, match="operand 1 has shape"):
        relay.transform.InferType()(dnnl.from_onnx(proto)[0])


SAVED = {
    "json": lambda mod: tvm.ir.load_json(tvm.ir.save_json(mod)),
    "text": lambda mod: tvm.relay.fromtext(mod.astext()),
}


@pytest.mark.parametrize("way", SAVED)
def test_saved_module(way):
    """A module with the op can be saved and loaded."""
    proto, inputs = node("LSTM", operands("LSTM"))
    mod, _ = dnnl.from_onnx(proto)
    mod = SAVED[way](mod)
    direct.check(mod, inputs, reference=onnxruntime_results(proto, inputs), rtol=RTOL)
