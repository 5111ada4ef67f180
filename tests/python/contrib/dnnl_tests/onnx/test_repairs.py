# SPDX-License-Identifier: Apache-2.0
"""Nodes that TVM's ONNX importer reads as others are repaired, or refused by name."""

import numpy as np
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper, reference
from tvm import relay
from tvm.relay.frontend import common
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from dnnl_tests.reference import rand

STEPS, BATCH, FEATURES, HIDDEN = 4, 3, 5, 6
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def model(op, inputs, constants=(), outputs=1, opset=13, **attrs):
    """Return a model of one node, whose name is "the node"; None is an input that is left out."""
    names = {**inputs, **dict(constants)}
    results = [f"y{k}" for k in range(outputs)]
    node = helper.make_node(
        op, ["" if names[k] is None else k for k in names], results, name="the node", **attrs
    )
    infos = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
        )
        for name, value in inputs.items()
    ]
    graph = helper.make_graph(
        [node],
        op,
        infos,
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in results],
        [numpy_helper.from_array(v, k) for k, v in dict(constants).items() if v is not None],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def run(proto, inputs, prune=False):
    """Import a model, partition it and run it."""
    mod, _ = relay.frontend.from_onnx(proto, freeze_params=True)
    return testing.run(dnnl.partition_for_dnnl(mod, prune=prune), inputs)


def check(proto, inputs, expected=None):
    """Compare a model with what the standard demands."""
    if expected is None:
        expected = reference.ReferenceEvaluator(proto).run(None, inputs)
    testing.assert_close(run(proto, inputs), expected)


@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("indices", [-1, [1, -2]], ids=str)
@pytest.mark.parametrize("is_constant", [True, False], ids=["constant", "computed"])
def test_gather_of_negative_indices(indices, axis, is_constant):
    x, indices = {"x": rand(3, 4)}, {"i": np.array(indices)}
    expected = np.take(x["x"], indices["i"], axis)
    inputs = x if is_constant else {**x, **indices}
    proto = model("Gather", inputs, indices if is_constant else (), axis=axis)
    check(proto, inputs, [expected])


def test_gather_of_negative_indices_of_an_open_size():
    x = {"x": rand(3, 4)}
    proto = model("Gather", x, {"i": np.array([-1, 0, -3])})
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    mod, _ = relay.frontend.from_onnx(proto, freeze_params=True)
    (result,) = testing.run(mod, x, executor="vm")
    np.testing.assert_array_equal(result, x["x"][[-1, 0, -3]])


def test_gather_nd_and_elements_of_negative_indices():
    x = {"x": rand(3, 4)}
    check(
        model("GatherND", x, {"i": np.array([[-1, -2], [0, -1]])}), x, [x["x"][[-1, 0], [-2, -1]]]
    )
    along = np.array([[-1], [0], [-4]])
    proto = model("GatherElements", x, {"i": along}, axis=-1)
    check(proto, x, [np.take_along_axis(x["x"], along, 1)])


@pytest.mark.parametrize("zero_points", [None, (130, -3)], ids=["plain", "zero-points"])
@pytest.mark.parametrize("shape", [(4, 8), (2, 4, 8)], ids=str)
def test_matmul_integer_of_two_types(shape, zero_points):
    draw = np.random.default_rng(0)
    x = {"x": draw.integers(0, 255, shape).astype("uint8")}
    constants = {"w": draw.integers(-128, 127, (8, 3)).astype("int8")}
    if zero_points:
        constants.update(zip(("x_zero", "w_zero"), map(np.array, zero_points, ("uint8", "int8"))))
    proto = model("MatMulInteger", x, constants)
    proto.graph.output[0].type.tensor_type.elem_type = TensorProto.INT32
    (expected,) = reference.ReferenceEvaluator(proto).run(None, x)
    (result,) = run(proto, x)
    # The converters compute it in float32, which holds these integers.
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("opset", [1, 11])
@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("kernel, stride", [(3, 2), (4, 2)])
def test_conv_transpose_with_auto_pad(mode, kernel, stride, opset):
    """It is the convolution with the padding that the standard computes."""
    x, w = {"x": rand(1, 2, 5, 6)}, {"w": rand(2, 3, kernel, kernel)}
    total = kernel - stride
    first = total // 2 if mode == "SAME_UPPER" else total - total // 2
    attrs = dict(opset=opset, strides=[stride] * 2, kernel_shape=[kernel] * 2)
    padded = model("ConvTranspose", x, w, pads=[first] * 2 + [total - first] * 2, **attrs)
    (result,) = run(model("ConvTranspose", x, w, auto_pad=mode, **attrs), x)
    assert result.shape == (1, 3, 5 * stride, 6 * stride)
    testing.assert_close([result], run(padded, x))


def recurrent(op, direction, lengths=None, opset=14, **attrs):
    """Return a model and its input."""
    directions = 2 if direction == "bidirectional" else 1
    gates = GATES[op] * HIDDEN
    x = {"x": rand(STEPS, BATCH, FEATURES)}
    constants = {
        "w": rand(directions, gates, FEATURES, seed=1),
        "r": rand(directions, gates, HIDDEN, seed=2),
        "b": rand(directions, 2 * gates, seed=3),
        "lengths": None if lengths is None else np.array(lengths, "int32"),
        "h": rand(directions, BATCH, HIDDEN, seed=4),
    }
    outputs = 3 if op == "LSTM" else 2
    attrs.update(hidden_size=HIDDEN, direction=direction)
    return model(op, x, constants, outputs, opset, **attrs), x


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("opset", [7, 14])
def test_reverse_recurrent_nodes(op, opset):
    """It is the forward one of the reversed sequence, and half of one in both directions."""
    proto, x = recurrent(op, "reverse", opset=opset)
    forward, _ = recurrent(op, "forward", opset=opset)
    expected = run(forward, {"x": x["x"][::-1]})
    expected[0] = expected[0][::-1]
    testing.assert_close(run(proto, x), expected)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("op", GATES)
def test_lengths_that_are_those_of_the_input(op, direction):
    proto, x = recurrent(op, direction, [STEPS] * BATCH)
    testing.assert_close(run(proto, x), run(recurrent(op, direction)[0], x))


def test_reverse_gru_of_shorter_sequences():
    """Each sequence is as one of its own, and zero after its end."""
    lengths = [4, 1, 3]
    proto, x = recurrent("GRU", "reverse", lengths)
    outputs, state = run(proto, x)
    for k, length in enumerate(lengths):
        short = recurrent("GRU", "reverse")[0]
        short.graph.input[0].type.tensor_type.shape.dim[0].dim_value = length
        alone = run(short, {"x": x["x"][:length]})
        testing.assert_close([outputs[:length, :, k]], [alone[0][:, :, k]])
        testing.assert_close([state[:, k]], [alone[1][:, k]])
        assert not outputs[length:, :, k].any()


REFUSED = {
    "lengths": (("LSTM", "forward", [4, 1, 3]), dict(activations=["Relu"] * 3), "sequence_lens"),
    "long": (("RNN", "reverse", [4, 1, 5]), {}, r"sequence_lens=\[4, 1, 5\]"),
    "clip": (("GRU", "forward"), dict(clip=-0.5), "clip=-0.5"),
    "input_forget": (
        ("LSTM", "forward"),
        dict(input_forget=1, activations=["HardSigmoid", "Tanh", "Tanh"]),
        "input_forget",
    ),
}


@pytest.mark.parametrize("args, attrs, why", REFUSED.values(), ids=REFUSED)
def test_recurrent_nodes_that_are_refused(args, attrs, why):
    """The error names the node."""
    with pytest.raises(tvm.error.OpAttributeUnImplemented, match=f"node the node: {why}"):
        relay.frontend.from_onnx(recurrent(*args, **attrs)[0])


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_softmax_before_opset_13(axis):
    """It sums over all dimensions from the axis on."""
    x = {"x": rand(2, 3, 4)}
    rows = x["x"].reshape(int(np.prod((2, 3, 4)[: axis % 3])), -1)
    exps = np.exp(rows - rows.max(1, keepdims=True))
    expected = (exps / exps.sum(1, keepdims=True)).reshape(2, 3, 4)
    check(model("Softmax", x, opset=11, axis=axis), x, [expected])
    check(model("LogSoftmax", x, opset=11, axis=axis), x, [np.log(expected)])


def test_mean():
    x = {"x": rand(2, 3), "z": rand(2, 3, seed=1)}
    check(model("Mean", x), x)


@pytest.mark.parametrize("shape", [(3,), (4, 1), (3, 1, 1), (1,)], ids=str)
def test_prelu_of_any_axis(shape):
    x, slope = {"x": rand(2, 3, 4, 3)}, {"slope": rand(*shape, seed=1)}
    check(model("PRelu", x, slope, opset=16), x)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("more", [{}, {"pads": [1, 1]}, {"pads": [1, 1], "ceil_mode": 1}], ids=str)
def test_pools_of_rows(op, more):
    x = {"x": rand(1, 2, 12)}
    check(model(op, x, kernel_shape=[3], strides=[2], **more), x)


def test_lp_pool_of_odd_power():
    x = {"x": rand(1, 2, 8, 8)}
    windows = np.lib.stride_tricks.sliding_window_view(x["x"], (2, 2), (2, 3))[:, :, ::2, ::2]
    expected = (np.abs(windows) ** 3).sum((4, 5)) ** (1 / 3)
    check(model("LpPool", x, kernel_shape=[2, 2], strides=[2, 2], p=3), x, [expected])


def test_unsqueeze_of_negative_axes():
    x = {"x": rand(4, 5)}
    check(model("Unsqueeze", x, opset=11, axes=[-1, 0]), x, [x["x"][None, ..., None]])


@pytest.mark.parametrize("axes", [[1, 2], [-1, 0], []], ids=str)
@pytest.mark.parametrize("op, opset", [("ReduceSum", 13), ("ReduceMean", 18), ("ReduceL2", 18)])
def test_reductions_along_several_axes(op, opset, axes):
    x, axes = {"x": rand(2, 3, 4)}, {"axes": np.array(axes, "int64")}
    check(model(op, x, axes, opset=opset, keepdims=0), x)


def test_gelu_by_the_hyperbolic_tangent():
    x = {"x": rand(3, 4)}
    check(model("Gelu", x, opset=20, approximate="tanh"), x)


SCALES = {"roi": None, "scales": np.float32([1, 1, 0.6, 0.6])}
REFUSED_NODES = {
    "batch norm": ("BatchNormalization", "training_mode", {}, 15, dict(training_mode=1)),
    "cast": ("Cast", "the type FLOAT8E4M3FN", {}, 19, dict(to=TensorProto.FLOAT8E4M3FN)),
    "resize": ("Resize", "antialias", SCALES, 18, dict(mode="linear", antialias=1)),
    "scales": ("Resize", "scales that give a fractional size", SCALES, 13, dict(mode="cubic")),
}


@pytest.mark.parametrize(
    "op, why, constants, opset, attrs", REFUSED_NODES.values(), ids=REFUSED_NODES
)
def test_nodes_that_are_refused(op, why, constants, opset, attrs):
    x = {"x": rand(1, 2, 4, 5)}
    if op == "BatchNormalization":
        constants = {name: np.ones(2, "float32") for name in ("scale", "bias", "mean", "var")}
    with pytest.raises(tvm.error.OpAttributeUnImplemented, match=f"{op}, node the node: {why}"):
        relay.frontend.from_onnx(model(op, x, constants, opset=opset, **attrs), freeze_params=True)


@pytest.mark.parametrize("has_bias", [False, True], ids=["plain", "bias"])
def test_scale_of_the_result_of_a_quantized_convolution(has_bias):
    random = np.random.default_rng(1)
    x = {"x": random.integers(0, 256, (1, 3, 6, 6), dtype="uint8")}
    constants = dict(
        x_scale=np.float32(0.02),
        x_zero=np.uint8(128),
        w=random.integers(-127, 128, (4, 3, 3, 3), dtype="int8"),
        w_scale=np.float32(0.01),
        w_zero=np.int8(0),
        y_scale=np.float32(0.05),
        y_zero=np.uint8(100),
    )
    if has_bias:
        constants["bias"] = random.integers(-2000, 2000, 4, dtype="int32")
    proto = model("QLinearConv", x, constants)
    (expected,) = reference.ReferenceEvaluator(proto).run(None, x)
    (got,) = run(proto, x)
    assert got.dtype == "uint8" and np.abs(got.astype(int) - expected).max() <= 1
    assert len(np.unique(expected)) > 20


@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
@pytest.mark.parametrize("align_corners", [0, 1])
def test_grid_sample(mode, align_corners):
    inputs = {"x": rand(1, 2, 4, 5), "grid": rand(1, 3, 6, 2)}
    proto = model("GridSample", inputs, opset=20, mode=mode, align_corners=align_corners)
    check(proto, inputs)


@pytest.mark.parametrize("mode", ["linear", "nearest"])
def test_grid_sample_of_volumes(mode):
    inputs = {"x": rand(1, 2, 3, 4, 5), "grid": rand(1, 2, 3, 4, 3)}
    check(model("GridSample", inputs, opset=20, mode=mode, padding_mode="border"), inputs)
    with pytest.raises(tvm.error.OpAttributeUnImplemented, match="the node: mode=bicubic for 3"):
        run(model("GridSample", inputs, opset=20, mode="cubic"), inputs)


def test_types_are_inferred_once(monkeypatch):
    """TVM's inference visits all nodes before one, for each of which repairs asked for it."""
    inferred = []
    infer_type = common.infer_type
    monkeypatch.setattr(
        common, "infer_type", lambda node, mod=None: inferred.append(node) or infer_type(node, mod)
    )
    nodes = []
    for i in range(8):
        nodes += [
            helper.make_node("Split", [f"x{i}"], [f"a{i}", f"b{i}"], axis=1),
            helper.make_node("Concat", [f"b{i}", f"a{i}"], [f"c{i}"], axis=1),
            helper.make_node("Unsqueeze", [f"c{i}", "axes"], [f"u{i}"]),
            helper.make_node("ReduceMax", [f"u{i}"], [f"m{i}"], axes=[-1], keepdims=0),
            helper.make_node("Gather", [f"m{i}", "at"], [f"x{i + 1}"], axis=1),
        ]
    sides = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 4]) for name in ("x0", "x8")
    ]
    weights = [
        numpy_helper.from_array(np.array([-1]), "axes"),
        numpy_helper.from_array(np.array([3, -1, 0, -4]), "at"),
    ]
    graph = helper.make_graph(nodes, "g", sides[:1], sides[1:], weights)
    opset = helper.make_opsetid("", 13)
    proto = helper.make_model(graph, opset_imports=[opset], ir_version=8)
    x = rand(2, 4)
    check(proto, {"x0": x})
    computed = [node for node in inferred if isinstance(node, relay.Call)]
    assert not computed, f"types of all nodes before {len(computed)} nodes were inferred"
