# SPDX-License-Identifier: Apache-2.0

import itertools

import numpy as np
import pytest
from onnx import TensorProto, helper
from tvm.error import OpAttributeUnImplemented
from tvm.relay.op.contrib import dnnl

from dnnl_tests.onnx.test_integers import results
from dnnl_tests.reference import rand


def pooled(x, kernel, strides, pads, combine):
    """Combine windows as the standard does with ceil_mode: none begins after the image."""
    begins, ends = pads[:2], pads[2:]
    sizes = zip(x.shape[2:], kernel, strides, begins, ends)
    starts = [
        [
            at - before
            for at in range(0, size + before, step)
            if at < size + before + after - k + step
        ]
        for size, k, step, before, after in sizes
    ]
    wanted = np.empty((*x.shape[:2], *map(len, starts)), x.dtype)
    for at in itertools.product(*(range(len(each)) for each in starts)):
        firsts = [each[i] for each, i in zip(starts, at)]
        window = (slice(max(n, 0), max(n + k, 0)) for n, k in zip(firsts, kernel))
        wanted[(..., *at)] = combine(x[(..., *window)], (2, 3))
    return wanted


@pytest.mark.parametrize("op, combine", [("MaxPool", np.max), ("AveragePool", np.mean)])
@pytest.mark.parametrize("pads, strides", [([1, 0, 1, 1], [3, 2]), ([0, 0, 1, 2], [3, 3])])
@pytest.mark.parametrize("size", [11, 12])
def test_ceil_mode_leaves_out_windows_behind_the_image(op, combine, pads, strides, size):
    """TVM has one more, of padding alone."""
    x = rand(1, 3, size, 12)
    attrs = dict(kernel_shape=[3, 3], strides=strides, pads=pads, ceil_mode=1)
    got = results([helper.make_node(op, ["x"], ["y"], **attrs)], {"x": x})
    np.testing.assert_allclose(got, pooled(x, [3, 3], strides, pads, combine), rtol=1e-5, atol=1e-6)


def refused(op, reason, outputs=1, constants=(), dims=("n", 3, "h", "w"), **attrs):
    """Check the message about a node with an image of open size."""
    names = [f"y{k}" for k in range(outputs)]
    node = helper.make_node(op, ["x", *dict(constants)], names, name="the node", **attrs)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in constants]
    results_ = [helper.make_empty_tensor_value_info(name) for name in names]
    graph = helper.make_graph([node], "model", [x, *infos], results_)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with pytest.raises(OpAttributeUnImplemented, match=f"ONNX {op}, node the node: {reason}"):
        dnnl.from_onnx(model)


def test_refused():
    window = dict(kernel_shape=[3, 3], strides=[3, 3])
    refused("MaxPool", "ceil_mode", pads=[0, 0, 1, 1], ceil_mode=1, **window)
    refused("MaxPool", "the output Indices with", outputs=2, **window)
    refused("AveragePool", "auto_pad=SAME_UPPER", auto_pad="SAME_UPPER", **window)
    weight = [("w", [4, 3, 3, 3])]
    refused("Conv", "auto_pad=SAME_LOWER", constants=weight, auto_pad="SAME_LOWER", strides=[2, 2])
    regions = dict(
        constants=[("rois", [5, 4]), ("batch", [5])],
        coordinate_transformation_mode="output_half_pixel",
        output_height=2,
    )
    refused("RoiAlign", "sampling_ratio=0 with", **regions)
    refused("RoiAlign", "an image of an open number", dims=[1, "c", 8, 8], **regions)


def test_roi_align_of_open_sizes():
    """Means over regions of several images; a linear image gives its value at each center."""
    x = np.arange(2 * 3 * 16 * 16, dtype="float32").reshape(2, 3, 16, 16)
    rois = np.array([[0, 0, 8, 8], [3, 2, 11, 6]], "float32")
    attrs = dict(output_height=2, output_width=2, sampling_ratio=2)
    attrs.update(coordinate_transformation_mode="output_half_pixel")
    node = helper.make_node("RoiAlign", ["x", "rois", "batch"], ["y"], **attrs)
    inputs = {"x": x, "rois": rois, "batch": np.array([1, 0])}
    got = results([node], inputs, dims={"x": ("b", 3, "h", "w"), "rois": ("n", 4), "batch": ("n",)})
    for region, image, (left, top, right, bottom) in zip(got, (1, 0), rois):
        rows = top + (bottom - top) * np.array([0.25, 0.75])
        columns = left + (right - left) * np.array([0.25, 0.75])
        expected = x[image, :, :1, :1] + 16 * rows[:, None] + columns
        np.testing.assert_allclose(region, expected, rtol=1e-6)


@pytest.mark.parametrize("op", ["ReduceSum", "ReduceMean", "ReduceL1"])
def test_reduction_of_a_scalar(op):
    x = np.array(-3.0, "float32")
    got = results([helper.make_node(op, ["x"], ["y"])], {"x": x})
    assert got.shape == () and got == (3 if op == "ReduceL1" else -3)


@pytest.mark.parametrize(
    "op, value",
    [
        *(("ReduceSum", 0), ("ReduceProd", 1), ("ReduceMax", -np.inf), ("ReduceMin", np.inf)),
        *(("ReduceMean", np.nan), ("ReduceLogSumExp", -np.inf), ("ReduceL2", 0)),
    ],
)
@pytest.mark.parametrize("shape, axis", [((2, 0, 3), 1), ((2, 0), 0)], ids=str)
def test_reduction_of_nothing(op, value, shape, axis):
    """TVM divides by zero, or takes the lowest number for -inf."""
    x, wanted = np.zeros(shape, "float32"), np.full([*shape[:axis], *shape[axis + 1 :]], value)
    node = helper.make_node(op, ["x"], ["y"], axes=[axis], keepdims=0)
    np.testing.assert_array_equal(results([node], {"x": x}, opset=11), wanted)


def test_mean_of_repeated_axes():
    """TVM divides by their sizes as often."""
    x = rand(2, 3, 4)
    node = helper.make_node("ReduceMean", ["x"], ["y"], axes=[1, -2], keepdims=1)
    got = results([node], {"x": x}, opset=11)
    np.testing.assert_allclose(got, x.mean(1, keepdims=True), 1e-6)


@pytest.mark.parametrize("diagonal", [0, -1, 2, -7])
@pytest.mark.parametrize("dims", [(3, 5), ("n", "m")], ids=["fixed", "open"])
def test_eye_like(dims, diagonal):
    """TVM writes after the end of the matrix for a diagonal below the first one."""
    x = rand(3, 5)
    node = helper.make_node("EyeLike", ["x"], ["e"], k=diagonal, dtype=TensorProto.FLOAT)
    add = helper.make_node("Add", ["e", "x"], ["y"])
    got = results([node, add], {"x": x}, dims={"x": dims})
    np.testing.assert_array_equal(got, x + np.eye(3, 5, diagonal, dtype=x.dtype))


@pytest.mark.parametrize("largest", [0, 1])
def test_top_k_of_nothing(largest):
    """TVM returns all elements."""
    node = helper.make_node("TopK", ["x", "k"], ["y", "i"], axis=0, largest=largest)
    got = results([node], {"x": rand(5, 3)}, {"k": np.array([0])})
    assert got.shape == (0, 3) and got.dtype == np.float32


@pytest.mark.parametrize("low, high", [(None, None), (1, -1), (-0.5, 0.5)])
def test_clip(low, high):
    """TVM lets the lower bound win, and does not compile a model without bounds."""
    x, bounds = rand(3, 4), {"low": low, "high": high}
    constants = {k: np.array(v, "float32") for k, v in bounds.items() if v is not None}
    node = helper.make_node("Clip", ["x", *constants], ["y"])
    wanted = x if low is None else np.minimum(np.maximum(x, low), high)
    np.testing.assert_allclose(results([node], {"x": x}, constants), wanted)


@pytest.mark.parametrize("axes", [[-1, 0, -3], [1, -1], [-2]], ids=str)
def test_unsqueeze_at_negative_axes(axes):
    x = rand(3, 4)
    node = helper.make_node("Unsqueeze", ["x", "a"], ["y"])
    got = results([node], {"x": x}, {"a": np.array(axes)})
    np.testing.assert_array_equal(got, np.expand_dims(x, tuple(axes)))


@pytest.mark.parametrize("is_constant", [False, True], ids=["computed", "constant"])
@pytest.mark.parametrize("axis", [0, -2, -1])
@pytest.mark.parametrize("reduction", ["none", "add"])
def test_scatter_elements_counts_from_the_end(axis, reduction, is_constant):
    x, at, updates = np.zeros((4, 4), "float32"), np.array([[-1, 0, -2, 1]]), rand(1, 4)
    if axis == -1:
        at, updates = at.T.copy(), updates.T.copy()
    wanted = x.copy()
    np.put_along_axis(wanted, at % 4, updates, axis)
    node = helper.make_node("ScatterElements", ["x", "i", "u"], ["y"], axis=axis)
    if reduction != "none":
        node.attribute.append(helper.make_attribute("reduction", reduction))
    operands = {"x": x, "i": at, "u": updates}
    constants = {"i": operands.pop("i")} if is_constant else {}
    np.testing.assert_array_equal(results([node], operands, constants, 18), wanted)


@pytest.mark.parametrize("size, lengths", [(6, 3), (7, 3), (4, 3), (6, [1, 0, 5])], ids=str)
def test_split_into_parts_of_unequal_sizes(size, lengths):
    """TVM refuses an empty part, and ignores `num_outputs`."""
    x, is_count = rand(2, size), isinstance(lengths, int)
    if is_count:
        ends = np.minimum(np.arange(1, lengths) * -(-size // lengths), size)
    else:
        ends = np.cumsum(lengths)[:-1]
    names, attrs = ["y", "y1", "y2"], {"num_outputs": 3} if is_count else {}
    node = helper.make_node("Split", ["x"] if is_count else ["x", "s"], names, axis=-1, **attrs)
    join = helper.make_node("Concat", ["y2", "y", "y1"], ["z"], axis=1)
    nodes, constants = [node, join], {} if is_count else {"s": np.array(lengths)}
    got = results(nodes, {"x": x}, constants, 18, result="z")
    first, second, third = np.split(x, ends, axis=1)
    np.testing.assert_array_equal(got, np.concatenate([third, first, second], 1))


def test_split_into_one_part():
    x = rand(2, 3)
    node = helper.make_node("Split", ["x", "s"], ["y"], axis=1)
    got = results([node], {"x": x}, {"s": np.array([3])}, dims={"x": ["n", 3]})
    np.testing.assert_array_equal(got, x)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("axis", [None, -2])
def test_dequantize_without_a_zero_point(dtype, axis):
    """TVM expects one."""
    x = np.arange(6).reshape(2, 3).astype(dtype)
    scale = np.array(0.5, "float32") if axis is None else np.array([0.5, 2], "float32")
    attrs = {} if axis is None else {"axis": axis}
    node = helper.make_node("DequantizeLinear", ["x", "s"], ["y"], **attrs)
    wanted = x.astype("float32") * (scale if axis is None else scale[:, None])
    np.testing.assert_array_equal(results([node], {"x": x}, {"s": scale}), wanted)


def test_upsample_has_a_default():
    x = rand(1, 2, 3, 3)
    node = helper.make_node("Upsample", ["x", "s"], ["y"])
    got = results([node], {"x": x}, {"s": np.array([1, 1, 2, 2], "float32")}, opset=9)
    np.testing.assert_array_equal(got, x.repeat(2, 2).repeat(2, 3))


def test_quantize_without_a_zero_point():
    """TVM expects one."""
    x, scale = np.array([0.2, 1.6, 300], "float32"), {"s": np.float32(0.5)}
    got = results([helper.make_node("QuantizeLinear", ["x", "s"], ["y"])], {"x": x}, scale)
    np.testing.assert_array_equal(got, np.array([0, 3, 255], "uint8"))


def selu(x):
    return 1.0507 * np.where(x < 0, 1.67326 * np.expm1(x), x)


@pytest.mark.parametrize("op, of", [("Acos", np.arccos), ("Tan", np.tan), ("Selu", selu)])
def test_functions_of_float16(op, of):
    """LLVM has them for float32 and float64 only."""
    x = np.linspace(-0.9, 0.9, 7).astype("float16")
    got = results([helper.make_node(op, ["x"], ["y"])], {"x": x})
    np.testing.assert_allclose(got, of(x), rtol=2e-3, atol=1e-3)


def test_clip_to_a_computed_bound():
    """TVM needs both to be constant."""
    operands = {"x": rand(3, 4), "high": np.float32(0.25)}
    got = results([helper.make_node("Clip", ["x", "", "high"], ["y"])], operands)
    np.testing.assert_array_equal(got, np.minimum(operands["x"], operands["high"]))


def test_one_hot_of_a_depth_of_one_element():
    """TVM adds a dimension."""
    constants = {"depth": np.array([3]), "values": np.array([0, 1], "float32")}
    node = helper.make_node("OneHot", ["x", *constants], ["y"])
    got = results([node], {"x": np.array(-1)}, constants)
    np.testing.assert_array_equal(got, np.array([0, 0, 1], "float32"))


def test_resize_to_sizes_without_scales():
    """TVM reads the scales."""
    x, sizes = rand(1, 2, 3, 3), {"sizes": np.array([1, 2, 6, 6])}
    node = helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], mode="nearest")
    attribute = helper.make_attribute("coordinate_transformation_mode", "asymmetric")
    node.attribute.extend([attribute, helper.make_attribute("nearest_mode", "floor")])
    got = results([node], {"x": x}, sizes, opset=11)
    np.testing.assert_array_equal(got, x.repeat(2, 2).repeat(2, 3))


def test_non_max_suppression_of_negative_scores():
    """They count if no threshold is given, or a lower one; TVM drops them."""
    corners = np.arange(5, dtype="float32")[:, None]
    boxes = np.concatenate([3 * corners, corners, 3 * corners + 2, corners + 1], 1)[None]
    inputs = {"b": boxes, "s": np.float32([[[-1, 2, -300, 0, 1]]])}
    node = helper.make_node("NonMaxSuppression", ["b", "s", "most", "overlap"], ["y"])
    got = results([node], inputs, {"most": np.array([4]), "overlap": np.float32([0.5])})
    assert got.tolist() == [[0, 0, each] for each in (1, 4, 3, 0)]


@pytest.mark.parametrize("is_last", [0, 1], ids=["first", "last"])
@pytest.mark.parametrize("op, sign", [("ArgMax", 1), ("ArgMin", -1)])
def test_index_of_an_extremum_of_masked_rows(op, sign, is_last):
    """TVM finds no element of a row of infinities, or of the lowest number, and returns -1."""
    lowest = np.finfo("float32").min
    x = sign * np.float32([[1, 3, 3], [-np.inf] * 3, [lowest] * 3, [-np.inf, 0, -np.inf]])
    node = helper.make_node(op, ["x"], ["y"], axis=1, keepdims=0, select_last_index=is_last)
    assert results([node], {"x": x}).tolist() == ([2, 2, 2, 1] if is_last else [1, 0, 0, 1])


@pytest.mark.parametrize("op, value", [("ArgMax", 0), ("ArgMin", 255)])
def test_index_of_an_extremum_of_bytes(op, value):
    """TVM starts from the lowest number of the type, here 0, and from -1."""
    x = np.array([[value] * 3, [value, 7, value]], "uint8")
    node = helper.make_node(op, ["x"], ["y"], axis=1, keepdims=0)
    assert results([node], {"x": x}).tolist() == [0, 1]
