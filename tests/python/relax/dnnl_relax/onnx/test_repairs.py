# SPDX-License-Identifier: Apache-2.0
"""Nodes that TVM's importer for Relax reads as others, or not at all, against numpy."""

import functools

import numpy as np
import pytest
import tvm
import tvm_dnnl
from dnnl_tests.onnx_models import onnx_model

from dnnl_relax.modules import compiled, run
from dnnl_relax.onnx.nodes import check_node, node_model, normal, results


def check(op, operands, wanted, **options):
    check_node(op, operands, [np.asarray(wanted)], tolerance=1e-6, domain="", **options)


@pytest.mark.parametrize("depth", [np.array(3), np.array([3])], ids=["scalar", "vector"])
@pytest.mark.parametrize("dtype", ["float32", "int32", "bool"])
@pytest.mark.parametrize("axis", [-1, 0])
def test_one_hot(dtype, depth, axis):
    """Of the type of the values; negative indices count from the end, others give `off`."""
    indices, values = np.array([0, -1, 2, 5]), np.array([0, 1], dtype)
    wanted = np.stack([np.eye(3, dtype=dtype)[k] for k in (0, 2, 2)] + [np.zeros(3, dtype)])
    operands = dict(x=indices, depth=depth, values=values)
    wanted = wanted.T.copy() if axis == 0 else wanted
    for consts in (("depth", "values"), ("depth",)):
        check("OneHot", operands, wanted, consts=consts, axis=axis)


def test_one_hot_of_a_computed_depth():
    operands = dict(x=np.array([0]), depth=np.array(3), values=np.array([0, 1]))
    with pytest.raises(tvm.error.OpNotImplemented, match="OneHot node: a depth that is not const"):
        tvm_dnnl.from_onnx(node_model("OneHot", operands, domain="", consts=("values",)))


NO_AXES = {
    "ReduceL1": np.abs,
    "ReduceL2": np.abs,
    "ReduceLogSum": np.log,
    "ReduceMax": np.positive,
    "ReduceSum": np.positive,
    "ReduceSumSquare": np.square,
}


@pytest.mark.parametrize("axes", [None, np.zeros(0, "int64")], ids=["none", "empty"])
@pytest.mark.parametrize("op", NO_AXES)
def test_reductions_of_no_axes(op, axes):
    """What they compute of each element stays."""
    x = np.array([[-2, 3], [0.5, 7]], "float32")
    x = np.abs(x) if op == "ReduceLogSum" else x
    operands = {"x": x, "axes": axes} if axes is not None else {"x": x}
    attrs = dict(consts=("axes",), opset=18, noop_with_empty_axes=1)
    check(op, operands, NO_AXES[op](x), **attrs)


@pytest.mark.parametrize("is_computed", [False, True], ids=["constant", "computed"])
@pytest.mark.parametrize("axis, largest", [(-1, 1), (0, 0)])
def test_top_k(axis, largest, is_computed):
    """Of a number that is known when the model runs; without `sorted`, any order is right."""
    x, k = normal(4, 5), np.array([2])
    operands, consts = dict(x=x, k=k), () if is_computed else ("k",)
    order = np.argsort(-x if largest else x, axis, kind="stable").take([0, 1], axis)
    wanted = [np.take_along_axis(x, order, axis), order]
    options = dict(outputs=2, consts=consts, axis=axis, largest=largest, sorted=0)
    check_node("TopK", operands, wanted, tolerance=0, domain="", **options)


@pytest.mark.parametrize("is_constant", [True, False], ids=["constant", "computed"])
def test_dequantize_of_blocks(is_constant):
    x = np.random.default_rng(0).integers(-128, 127, (3, 8), "int8")
    scale, zero = np.abs(normal(3, 4)), np.arange(12, dtype="int8").reshape(3, 4)
    wanted = (x.astype("float32") - np.repeat(zero, 2, 1)) * np.repeat(scale, 2, 1)
    consts = ("scale", "zero") if is_constant else ()
    operands = dict(x=x, scale=scale, zero=zero)
    check("DequantizeLinear", operands, wanted, consts=consts, opset=21, axis=1, block_size=2)


@pytest.mark.parametrize(
    "shape, mode", [((1, 4), "linear"), ((4, 1), "nearest"), ((1, 1), "cubic")], ids=str
)
def test_a_reflected_axis_of_one_element(shape, mode):
    """Each position of it reads the element."""
    x, grid = normal(1, 2, *shape), np.zeros((1, 1, 4, 2), "float32")
    at = np.arange(max(shape))
    axis = 0 if shape[1] > 1 else 1
    grid[0, 0, : len(at), axis] = np.linspace(-1, 1, len(at)) if len(at) > 1 else 0.3
    grid[0, 0, :, 1 - axis] = 0.7
    attrs = dict(mode=mode, padding_mode="reflection", align_corners=1)
    grid = np.ascontiguousarray(grid[:, :, : len(at)])
    wanted = x.reshape(1, 2, 1, -1)
    operands = dict(x=x, grid=grid)
    check_node("GridSample", operands, [wanted], tolerance=1e-5, domain="", opset=20, **attrs)


def test_expand_of_open_sizes_to_a_constant_shape():
    x, shape = normal(4, 1, 3), np.array([1, 2, 1])
    options = dict(consts=("shape",), dims={"x": ["b", 1, 3]})
    check("Expand", dict(x=x, shape=shape), np.broadcast_to(x, (4, 2, 3)), **options)


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("kernel, stride", [(2, 2), (3, 2), (3, 1)])
def test_max_pool_that_pads_open_sizes(mode, kernel, stride):
    attrs = dict(auto_pad=mode, kernel_shape=[kernel] * 2, strides=[stride] * 2, domain="")
    for height, width in ((9, 7), (8, 10)):
        operands = dict(x=normal(2, 3, height, width))
        check_node("MaxPool", operands, dims={"x": ["n", 3, "h", "w"]}, opset=12, **attrs)


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("is_counted", [0, 1], ids=["not counted", "counted"])
def test_average_pool_that_pads_open_sizes(mode, is_counted):
    """TVM's converter needs the sizes to know the pads."""
    attrs = dict(auto_pad=mode, kernel_shape=[3, 2], strides=[2, 3], count_include_pad=is_counted)
    for height, width in ((9, 7), (8, 10)):
        operands = dict(x=normal(2, 3, height, width))
        dims = {"x": ["n", 3, "h", "w"]}
        check_node("AveragePool", operands, dims=dims, opset=12, domain="", **attrs)


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("strides", [[2, 3], [3, 1]])
def test_convolution_that_pads_open_sizes(mode, strides):
    attrs = dict(auto_pad=mode, strides=strides)
    for height, width in ((9, 7), (8, 10)):
        operands = dict(x=normal(2, 3, height, width), w=normal(4, 3, 3, 4), b=normal(4))
        options = dict(dims={"x": ["n", 3, "h", "w"]}, consts=("w", "b"), opset=12, domain="")
        counts = check_node("Conv", operands, **options, **attrs)
        assert any(name.startswith("dnnl.conv2d") for name in counts)


@pytest.mark.parametrize("begin", [-3, 2])
def test_slice_to_the_end_of_a_concatenation(begin):
    """Of a length that is at least that of its fixed part, after a matmul on oneDNN."""
    nodes = ["t = MatMul(x, w)", "u = Concat<axis=1>(c, t)", "y = Slice(u, s, e, a)"]
    shapes = {"x": [1, "n", 4], "c": [1, 3, 4]}
    bounds = {"s": np.array([begin]), "e": np.array([2**63 - 1]), "a": np.array([1])}
    weights = {"w": np.eye(4, dtype="float32"), **bounds}
    mod = tvm_dnnl.partition_for_dnnl(tvm_dnnl.from_onnx(onnx_model(nodes, shapes, weights)))
    assert tvm_dnnl.offload_report(mod).partitions == 1
    machine = compiled(mod)
    for length in (1, 6):
        x, c = normal(1, length, 4), normal(1, 3, 4, seed=1)
        (got,) = run(machine, x, c)
        np.testing.assert_allclose(got, np.concatenate([c, x], 1)[:, begin:], rtol=1e-6)


@pytest.mark.parametrize("allowzero", [0, 1])
def test_reshape_to_computed_sizes(allowzero):
    """PyTorch's exporter always writes allowzero=1."""
    nodes = [
        "s = Shape<start=0, end=1>(x)",
        "d = Mul(s, two)",
        "t = Concat<axis=0>(d, three)",
        f"y = Reshape<allowzero={allowzero}>(x, t)",
    ]
    weights = {"two": np.array([2]), "three": np.array([3])}
    mod = tvm_dnnl.from_onnx(onnx_model(nodes, {"x": ["b", 6]}, weights))
    x = normal(5, 6)
    (got,) = run(compiled(mod), x)
    np.testing.assert_array_equal(got, x.reshape(10, 3))


@pytest.mark.parametrize("size, count", [(6, 3), (7, 3), (4, 3)])
def test_split_into_a_number_of_parts(size, count):
    """Since opset 18; the last part is smaller, or empty."""
    x = normal(2, size)
    ends = np.minimum(np.arange(1, count) * -(-size // count), size)
    wanted = np.split(x, ends, axis=-1)
    options = dict(outputs=count, opset=18, domain="", axis=-1, num_outputs=count)
    got, _ = results(node_model("Split", {"x": x}, **options), {"x": x})
    assert len(got) == count
    for one, part in zip(got, wanted):
        np.testing.assert_array_equal(one, part)


@pytest.mark.parametrize("bounds", [(4, 2, 1), (2, 4, -1), (9, 20, 1), (3, 3, 1)])
@pytest.mark.parametrize("rows", [3, "n"])
def test_slice_of_nothing(bounds, rows):
    """TVM refuses bounds in the other order."""
    begin, end, step = bounds
    consts = {"s": begin, "e": end, "a": 1, "t": step}
    operands = {"x": normal(3, 6), **{name: np.array([n]) for name, n in consts.items()}}
    model = node_model("Slice", operands, domain="", consts=consts, dims={"x": [rows, 6]})
    (got,), _ = results(model, operands)
    assert got.shape == (3, 0) and got.dtype == np.float32


def test_top_k_of_nothing():
    """TVM returns all elements."""
    operands = {"x": normal(5, 3), "k": np.array([0])}
    model = node_model("TopK", operands, outputs=2, domain="", consts=["k"])
    (values, indices), _ = results(model, operands)
    assert values.shape == indices.shape == (5, 0)
    assert (values.dtype, indices.dtype) == (np.float32, np.int64)


@pytest.mark.parametrize("op", ["Max", "Min"])
def test_an_extremum_of_nan_is_nan(op):
    """TVM returns the second operand."""
    of, nan = {"Max": np.maximum, "Min": np.minimum}[op], np.nan
    a, b = (np.array(each, "float32") for each in ([1, nan, 3, 5], [nan, 2, 2, 6]))
    operands = {"a": a, "b": b, "c": np.float32([4])}
    for names in ("a", "ab", "ba", "abc", "cab"):
        given = {name: operands[name] for name in names}
        consts = [name for name in names if name == "c"]
        (got,), _ = results(node_model(op, given, domain="", consts=consts), given)
        np.testing.assert_array_equal(got, functools.reduce(of, given.values()))


@pytest.mark.parametrize("op, of", [("Less", np.less), ("Equal", np.equal), ("Mod", np.mod)])
def test_two_open_sizes_that_are_equal(op, of):
    """TVM does not know that they are."""
    operands = {"a": np.arange(6).reshape(2, 3), "b": np.arange(1, 4)}
    model = node_model(op, operands, domain="", dims={"a": ["n", "m"], "b": ["k"]})
    (got,), _ = results(model, operands)
    np.testing.assert_array_equal(got, of(operands["a"], operands["b"]))


@pytest.mark.parametrize("b", [["p", "q"], [3, "q"], [3, 4]], ids=str)
def test_gemm_of_open_sizes_that_are_equal(b):
    operands = {"a": normal(2, 3), "b": normal(3, 4), "c": normal(2, 4)}
    dims = {"a": ["n", "m"], "b": b, "c": ["k", 4]}
    (got,), _ = results(node_model("Gemm", operands, domain="", dims=dims), operands)
    wanted = operands["a"] @ operands["b"] + operands["c"]
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def test_matmul_of_open_batches_that_are_equal():
    operands = {"a": normal(2, 5, 3), "b": normal(2, 3, 4, seed=1)}
    dims = {"a": ["n", 5, "m"], "b": ["k", "p", 4]}
    (got,), _ = results(node_model("MatMul", operands, domain="", dims=dims), operands)
    np.testing.assert_allclose(got, operands["a"] @ operands["b"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "op, of",
    [
        ("Acos", np.arccos),
        ("Atan", np.arctan),
        ("Sinh", np.sinh),
        ("Elu", lambda x: np.where(x < 0, np.expm1(x), x)),
    ],
)
def test_functions_of_float16(op, of):
    """LLVM has them for float32 and float64 only."""
    x = np.linspace(-0.9, 0.9, 7).astype("float16")
    check_node(op, {"x": x}, [of(x)], tolerance=1e-3, domain="")


def test_roi_align_of_a_scaled_image():
    """TVM shifts the regions by half a pixel of the data."""
    x = np.arange(64, dtype="float32").reshape(1, 1, 8, 8)
    operands = {"x": x, "rois": np.float32([[2, 4, 10, 12]]), "batch": np.array([0])}
    attrs = dict(spatial_scale=0.5, sampling_ratio=1, output_height=2, output_width=2)
    # Of the pixels 0.5 to 4.5 and 1.5 to 5.5, at the centers of the halves.
    rows, columns = np.array([[2.5], [4.5]]), np.array([[1.5, 3.5]])
    check(
        "RoiAlign", operands, (8 * rows + columns)[None, None].astype("float32"), opset=16, **attrs
    )


def test_non_max_suppression_of_negative_scores():
    """They count if no threshold is given, or a lower one; TVM drops them."""
    corners = np.arange(5, dtype="float32")[:, None]
    boxes = np.concatenate([3 * corners, corners, 3 * corners + 2, corners + 1], 1)[None]
    scores = np.float32([[[-1, 2, -300, 0, 1]]])
    operands = dict(boxes=boxes, scores=scores, most=np.array([4]), overlap=np.float32([0.5]))
    wanted = np.array([[0, 0, each] for each in (1, 4, 3, 0)])
    consts = ["most", "overlap", "score"]
    check("NonMaxSuppression", operands, wanted, consts=consts)
    for score, count in ((-1.5, 4), (-0.5, 3), (0.5, 2)):
        operands["score"] = np.float32([score])
        check("NonMaxSuppression", operands, wanted[:count], consts=consts)


@pytest.mark.parametrize("is_last", [0, 1], ids=["first", "last"])
@pytest.mark.parametrize("op, sign", [("ArgMax", 1), ("ArgMin", -1)])
def test_index_of_an_extremum_of_masked_rows(op, sign, is_last):
    """TVM finds no element of a row of infinities, or of the lowest number, and returns -1."""
    lowest = np.finfo("float32").min
    x = sign * np.float32([[1, 3, 3], [-np.inf] * 3, [lowest] * 3, [-np.inf, 0, -np.inf]])
    wanted = np.array([2, 2, 2, 1] if is_last else [1, 0, 0, 1])
    check(op, {"x": x}, wanted, opset=13, axis=1, keepdims=0, select_last_index=is_last)


@pytest.mark.parametrize("op, value", [("ArgMax", 0), ("ArgMin", 255)])
def test_index_of_an_extremum_of_bytes(op, value):
    """TVM starts from the lowest number of the type, here 0, and from -1."""
    x = np.array([[value] * 3, [value, 7, value]], "uint8")
    check(op, {"x": x}, np.array([0, 1]), opset=13, axis=1, keepdims=0)


@pytest.mark.parametrize("op, sign", [("ReduceMax", 1), ("ReduceMin", -1)])
def test_extremum_of_masked_rows_in_float16(op, sign):
    """TVM starts from the largest finite number, which a mask need not have."""
    lowest = np.finfo("float16").min
    x = sign * np.array([[-np.inf] * 3, [-np.inf, lowest, -np.inf], [lowest] * 3], "float16")
    wanted = sign * np.array([-np.inf, lowest, lowest], "float16")
    check(op, {"x": x}, wanted, opset=13, axes=[1], keepdims=0)
