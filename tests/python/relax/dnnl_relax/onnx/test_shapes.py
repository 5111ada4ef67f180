# SPDX-License-Identifier: Apache-2.0
"""ONNX models that compute shapes: TVM's importer fails, `tvm_dnnl.from_onnx` does not."""

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tvm
import tvm_dnnl
import tvm_ffi
from dnnl_tests.onnx_models import onnx_model as model
from onnx import TensorProto
from tvm.relax.frontend.onnx import from_onnx

from dnnl_relax.modules import compiled, rand, run
from dnnl_relax.onnx.nodes import onnxruntime_results

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def check(proto, *inputs, mod=None):
    """Compare an imported and partitioned model with onnxruntime; return the report."""
    mod = tvm_dnnl.from_onnx(proto) if mod is None else mod
    partitioned = tvm_dnnl.partition_for_dnnl(mod, prune=False)
    for values in inputs:
        results = run(compiled(partitioned), *values)
        wanted = onnxruntime_results(proto, values)
        assert len(results) == len(wanted)
        for one, other in zip(results, wanted):
            assert (one.dtype, one.shape) == (other.dtype, other.shape)
            # Sums of at most a few hundred products, in another order.
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
    return tvm_dnnl.offload_report(partitioned)


W = rand(12, 4)
TWO, ONE, ZERO, MINUS = (np.array([n], "int64") for n in (2, 1, 0, -1))

# By the message of TVM 0.27: the nodes, the shapes, and the constants.
CASES = {
    "Reshape requires the input data to be Tensor": (
        [
            "s = Shape(x)",
            "n = Gather(s, first)",
            "m = Reshape(n, one)",
            "t = Concat<axis=0>(m, minus)",
            "r = Reshape(x, t)",
            "y = MatMul(r, w)",
        ],
        {"x": ["n", 3, 4]},
        {"first": np.array(0), "one": ONE, "minus": MINUS, "w": W},
    ),
    "Reshape expects the input tensor to have known shape": (
        ["a = Add(x, z)", "r = Reshape(a, t)", "y = MatMul(r, w)"],
        {"x": ["n", 3, 4], "z": ["k", 3, 4]},
        {"t": np.array([-1, 12]), "w": W},
    ),
    "identity_i cannot handle ShapeExpr inputs": (
        [
            "s = Shape(x)",
            "i = Identity(s)",
            "d = Slice(i, zero, one)",
            "t = Concat<axis=0>(d, minus)",
            "r = Reshape(x, t)",
            "y = MatMul(r, w)",
        ],
        {"x": ["n", 3, 4]},
        {"zero": ZERO, "one": ONE, "minus": MINUS, "w": W},
    ),
    "shape_of expects a tensor input": (
        [
            "a = Add(x, z)",
            "s = Shape(a)",
            "d = Gather(s, zero)",
            "t = Concat<axis=0>(d, minus)",
            "r = Reshape(a, t)",
            "y = MatMul(r, w)",
        ],
        {"x": ["n", 3, 4], "z": ["k", 3, 4]},
        {"zero": ZERO, "minus": MINUS, "w": W},
    ),
    "broadcast_to expects": (
        [
            "k = ConstantOfShape<value = float[1] {2.0}>(e)",
            "a = Add(x, k)",
            "r = Reshape(a, t)",
            "y = MatMul(r, w)",
        ],
        {"x": [2, 3, 4]},
        {"e": np.zeros(0, "int64"), "t": np.array([-1, 12]), "w": W},
    ),
    "has no attribute 'value'": (
        [
            "s = Shape(z)",
            "h = Slice(s, two, four)",
            "q = Shape(x)",
            "b = Slice(q, zero, two)",
            "t = Concat<axis=0>(b, h)",
            'y = Resize<mode="linear">(x, , , t)',
        ],
        {"x": ["n", 3, "h", "w"], "z": ["n", 3, "hh", "ww"]},
        {"zero": ZERO, "two": TWO, "four": np.array([4])},
    ),
    "requires the input new shape to be Shape": (
        [
            "s = Shape(x)",
            "d = Gather(s, zero)",
            "t = Concat<axis=0>(d, minus)",
            "r = Reshape(x, t)",
            "y = MatMul(r, w)",
        ],
        {"x": ["n", 3, 4]},
        {"zero": ZERO, "minus": MINUS, "w": W},
    ),
    "split_a cannot handle ShapeExpr": (
        [
            "s = Shape(x)",
            "a, b, c = Split(s, sections)",
            "d = Mul(a, two)",
            "h = Div(c, two)",
            "t = Concat<axis=0>(d, b, h)",
            "y = Reshape(x, t)",
        ],
        {"x": ["n", 3, 4]},
        {"sections": np.array([1, 1, 1]), "two": TWO},
    ),
    "Cannot compare two tensors with different shapes": (
        ["s = Shape(x)", "e = Equal(s, minus)", "t = Where(e, ones, s)", "y = Expand(c, t)"],
        {"x": ["n", 3, 4]},
        {"minus": MINUS, "ones": np.array([1, 1, 1]), "c": rand(1, 3, 1)},
    ),
}
SIZES = {"n": 2, "k": 2, "h": 5, "w": 4, "hh": 10, "ww": 9}


@pytest.mark.parametrize("message", CASES, ids=lambda text: text.replace(" ", "-"))
def test_what_tvm_alone_does_not_import(message):
    nodes, shapes, constants = CASES[message]
    proto = model(nodes, shapes, constants)
    for node in proto.graph.node:
        node.name = f"{node.op_type.lower()}_{node.output[0]}"
    with pytest.raises(Exception, match=f"(?s){message}"):
        from_onnx(proto)
    inputs = [
        [rand(*(sizes.get(size, size) for size in dims)) for dims in shapes.values()]
        for sizes in (SIZES, {name: size + 1 for name, size in SIZES.items()})
    ]
    report = check(proto, *inputs[: 2 if any("n" in dims for dims in shapes.values()) else 1])
    wanted = 2 if "w" in constants else 0
    assert report.offloaded >= wanted, str(report)


def test_open_dimensions_without_a_name_are_different_ones():
    """TVM's importer takes them for one."""
    proto = model(["y = Relu(x)"], {"x": [None, 3, None]})
    assert check(proto, [rand(2, 3, 5)], [rand(4, 3, 4)]).offloaded == 1
    proto = model(["y = Relu(x)"], {"x": ["-1", 3]})
    assert check(proto, [rand(2, 3)]).offloaded == 1


def test_sizes_that_must_be_equal_are_checked():
    proto = model(["y = Add(x, z)"], {"x": ["n", 4], "z": ["k", 4]})
    check(proto, [rand(3, 4), rand(3, 4)])
    mod = compiled(tvm_dnnl.partition_for_dnnl(tvm_dnnl.from_onnx(proto)))
    with pytest.raises(Exception, match="match_cast|shape"):
        run(mod, rand(3, 4), rand(1, 4))


def test_a_squeeze_of_an_open_size_is_checked():
    proto = model(["y = Squeeze(x, one)"], {"x": ["n", "h"]}, {"one": ONE})
    check(proto, [rand(3, 1)])
    mod = compiled(tvm_dnnl.partition_for_dnnl(tvm_dnnl.from_onnx(proto)))
    with pytest.raises(Exception, match="match_cast|shape"):
        run(mod, rand(3, 2))


def test_a_range_of_open_sizes_has_a_known_length():
    """Such as the positions of tokens that follow a cache."""
    nodes = [
        "old = Shape(past)",
        "new = Shape(x)",
        "start = Gather(old, zero)",
        "count = Gather(new, zero)",
        "end = Add(start, count)",
        "indices = Range(start, end, one)",
        "numbers = Cast<to=1>(indices)",
        "column = Unsqueeze(numbers, last)",
        "size = Slice(new, first, last)",
        "target = Concat<axis=0>(size, rest)",
        "rows = Reshape(x, target)",  # for which TVM's importer fails
        "y = Add(rows, column)",
    ]
    scalars = {"zero": np.array(0), "one": np.array(1)}
    constants = {**scalars, "first": np.array([0]), "last": ONE, "rest": np.array([-1])}
    proto = model(nodes, {"past": ["m", 2], "x": ["n", 2]}, constants)
    check(proto, [rand(3, 2), rand(4, 2)], [rand(0, 2), rand(1, 2)])
    assert "match_cast" not in tvm_dnnl.from_onnx(proto).script()


@pytest.mark.parametrize(
    "bound, part, is_known",
    [
        ("Neg(size)", "bound, most", True),
        ("Neg(size)", "zero, bound", True),
        ("Mul(size, minus)", "bound, most", True),
        ("Mul(size, minus_two)", "bound, most", False),
    ],
    ids=["Neg", "end", "Mul", "before the first element"],
)
def test_slices_by_open_bounds_that_count_from_the_end(bound, part, is_known):
    """As T5 reads the last rows of its table of positions."""
    nodes = ["shape = Shape(x)", "size = Slice(shape, zero, one)", f"bound = {bound}"]
    nodes += [f"rows = Slice(x, {part}, zero)", "y = MatMul(rows, w)"]
    constants = {"minus": MINUS, "minus_two": np.array([-2]), "most": np.array([2**31 - 1])}
    constants |= {"zero": ZERO, "one": ONE, "w": rand(4, 5)}
    proto = model(nodes, {"x": ["n", 4]}, constants)
    mod = tvm_dnnl.from_onnx(proto)
    assert ("dynamic_strided_slice" not in mod.script()) == is_known
    report = check(proto, [rand(3, 4)], [rand(1, 4)], mod=mod)
    assert report.offloaded_ops["matmul"] == (part != "zero, bound")  # no rows


def test_a_slice_until_the_end_from_an_open_start():
    """As OPT with a cache reads the positions of new tokens; the size is that of these."""
    nodes = ["shape = Shape(past)", "start = Slice(shape, one, two)"]
    nodes += ["all = Concat<axis=1>(past, x)", "rows = Slice(all, start, end, one)"]
    nodes += ["sum = Add(rows, x)", "r = Reshape(sum, sizes)", "y = MatMul(r, w)"]
    constants = {"one": ONE, "two": TWO, "end": np.array([2**63 - 1]), "w": rand(2, 3)}
    constants["sizes"] = np.array([0, -1, 4, 2])
    proto = model(nodes, {"past": ["n", "p", 8], "x": ["n", "t", 8]}, constants)
    mod = tvm_dnnl.from_onnx(proto)
    assert "dynamic_strided_slice" not in mod.script() and str(2**63 - 1) not in mod.script()
    check(proto, [rand(2, 3, 8), rand(2, 5, 8)], [rand(1, 4, 8), rand(1, 1, 8)], mod=mod)


def test_roll_along_an_open_axis_as_pytorch_exports_it():
    nodes = ["size = Shape(x)", "start = Mod(shift, size)", "last = Slice(x, start, most, zero)"]
    nodes += ["first = Slice(x, zero, start, zero)", "y = Concat<axis=0>(last, first)"]
    for shift in (-1, 2):
        constants = dict(zero=ZERO, most=np.array([2**63 - 1]), shift=np.array([shift]))
        check(model(nodes, {"x": ["n"]}, constants), *([rand(size)] for size in (5, 2, 1)))


def test_tile_by_an_open_count():
    """As Whisper repeats its positions for each item of a batch."""
    nodes = ["shape = Shape(x)", "n = Slice(shape, zero, one)", "counts = Concat<axis=0>(n, rest)"]
    nodes += ["positions = Tile(c, counts)", "y = Add(x, positions)"]
    constants = {"zero": ZERO, "one": ONE, "rest": np.array([1, 2]), "c": rand(1, 3, 4)}
    proto = model(nodes, {"x": ["n", 3, 8]}, constants)
    report = check(proto, [rand(2, 3, 8)], [rand(1, 3, 8)])
    assert report.offloaded_ops == {"reshape": 1, "add": 1}


def test_sizes_of_a_strided_convolution():
    """The exporter of PyTorch computes them, with a Div that rounds towards zero."""
    nodes = ["shape = Shape(x)", "n = Slice(shape, zero, one)", "h = Slice(shape, two, four)"]
    nodes += ["less = Sub(h, one)", "half = Div(less, two)", "size = Add(half, one)"]
    nodes += ["target = Concat<axis=0>(n, eight, size)", "c = Conv<strides=[2, 2]>(x, w)"]
    nodes += ["r = Reshape(c, target)", "y = Conv(r, v)"]
    constants = {"zero": ZERO, "one": ONE, "two": TWO, "four": np.array([4])}
    constants |= {"eight": np.array([8]), "w": rand(8, 4, 1, 1), "v": rand(2, 8, 1, 1)}
    proto = model(nodes, {"x": ["n", 4, "h", "w"]}, constants)
    report = check(proto, [rand(2, 4, 9, 8)], [rand(1, 4, 6, 5)], [rand(3, 4, 1, 2)])
    assert report.offloaded == report.total and report.partitions == 1


def test_sizes_of_convolutions_that_are_computed_before_these():
    """As in wav2vec2: only the convolutions tell that the numerators are not negative."""
    nodes = ["shape = Shape(x)", "n = Slice(shape, zero, one)", "h = Slice(shape, two, three)"]
    nodes += ["less = Sub(h, three)", "half = Div(less, two)", "first = Add(half, one)"]
    nodes += ["less_2 = Sub(first, three)", "half_2 = Div(less_2, two)", "size = Add(half_2, one)"]
    nodes += ["size_0 = Squeeze(size)", "range = Range(start, size_0, step)"]
    nodes += ["a = Conv<strides=[2]>(x, w)", "b = Conv<strides=[2]>(a, v)"]
    nodes += ["rows = Transpose<perm=[0, 2, 1]>(b)", "target = Concat<axis=0>(n, size, minus, two)"]
    nodes += ["r = Reshape(rows, target)", "heads = Transpose<perm=[0, 2, 1, 3]>(r)"]
    nodes += ["turned = Transpose<perm=[0, 2, 3, 1]>(r)", "product = MatMul(heads, turned)"]
    nodes += ["positions = Cast<to=1>(range)", "y = Add(product, positions)"]
    constants = {"zero": ZERO, "one": ONE, "two": TWO, "three": np.array([3]), "minus": MINUS}
    constants |= {"start": np.array(0), "step": np.array(1), "w": rand(8, 4, 3), "v": rand(8, 8, 3)}
    proto = model(nodes, {"x": ["n", 4, "h"]}, constants)
    report = check(proto, [rand(2, 4, 16)], [rand(1, 4, 7)], [rand(3, 4, 33)])
    assert report.offloaded == report.total - 2 and report.partitions == 1


def test_attention_of_einsums():
    """As PyTorch exports torch.einsum: TVM alone computes it by loops."""
    nodes = [
        'scores = Einsum<equation = "bqhd,bkhd->bhqk">(x, z)',
        "share = Softmax<axis=-1>(scores)",
    ]
    nodes += ['y = Einsum<equation = "bhqk,bkhd->bqhd">(share, z)']
    shapes = {"x": ["n", "q", 2, 8], "z": ["n", "k", 2, 8]}
    calls = [[rand(n, q, 2, 8), rand(n, k, 2, 8)] for n, q, k in ((2, 3, 5), (1, 4, 4), (3, 1, 2))]
    report = check(model(nodes, shapes, {}), *calls)
    assert report.offloaded == report.total and report.partitions == 1


def test_infinity_is_no_size():
    """A causal mask of an open length begins as infinities of its sizes."""
    nodes = ["shape = Shape(x)", "n = Slice(shape, zero, one)", "sizes = Concat<axis=0>(n, n)"]
    nodes += ["full = Expand(lowest, sizes)", "mask = Trilu<upper=1>(full, one_0)"]
    nodes += ["scores = MatMul(x, w)", "turned = Transpose(x)"]
    nodes += ["square = MatMul(scores, turned)", "y = Add(square, mask)"]
    constants = {"zero": ZERO, "one": ONE, "one_0": np.array(1), "w": rand(4, 4)}
    constants["lowest"] = np.array(-np.inf, "float32")
    report = check(model(nodes, {"x": ["n", 4]}, constants), [rand(3, 4)], [rand(5, 4)])
    assert report.offloaded_ops["matmul"] == 2 and report.partitions == 1


def test_an_input_without_a_shape():
    proto = model(["y = Relu(x)"], {"x": [2]})
    proto.graph.input[0].type.tensor_type.ClearField("shape")
    assert tvm_dnnl.from_onnx(proto)["main"].params[0].ty.ndim == -1


def test_a_shape_as_output_is_a_tensor():
    proto = model(["y = Shape(x)"], {"x": ["n", 3]})
    check(proto, [rand(2, 3)], [rand(5, 3)])


def test_pyramid_whose_open_sizes_may_differ():
    """The upsampled half of an odd size is larger: the sizes are checked at run time."""
    nodes = [
        "a = Conv<pads=[1,1,1,1], strides=[2,2]>(x, w)",
        'b = Resize<mode="nearest", coordinate_transformation_mode="asymmetric", '
        'nearest_mode="floor">(a, , scales)',
        "c = Add(b, x)",
        "d = Concat<axis=1>(b, c)",
        "e = GlobalAveragePool(d)",
        "y = Flatten(e)",
    ]
    constants = {"w": rand(3, 3, 3, 3), "scales": np.array([1, 1, 2, 2], "float32")}
    proto = model(nodes, {"x": ["n", 3, "h", "w0"]}, constants)
    report = check(proto, [rand(1, 3, 8, 6)], [rand(2, 3, 4, 10)])
    assert report.offloaded == report.total and report.partitions == 1
    mod = compiled(tvm_dnnl.partition_for_dnnl(tvm_dnnl.from_onnx(proto)))
    with pytest.raises(Exception, match="match_cast|shape"):
        run(mod, rand(1, 3, 7, 6))


def test_clip_of_open_sizes_is_offloaded():
    """TVM writes it in TIR, as a function of the open sizes, too."""
    nodes = ["a = Conv<pads=[1,1,1,1], strides=[2,2]>(x, w)", "y = Clip(a, low, high)"]
    constants = {"w": rand(4, 3, 3, 3), "low": np.float32(0), "high": np.float32(6)}
    report = check(model(nodes, {"x": ["n", 3, "h", "w0"]}, constants), [rand(2, 3, 7, 5)])
    assert report.offloaded == report.total


@pytest.mark.parametrize(
    "low, high, is_one_op",
    [(-0.5, 0.5, True), (0.5, 0.5, True), (0.5, -0.5, False), (None, 0.5, False)],
    ids=["ordered", "equal", "reversed", "open"],
)
def test_clip(low, high, is_one_op):
    bounds = {"low": low, "high": high}
    constants = {name: np.float32(each) for name, each in bounds.items() if each is not None}
    proto = model([f"y = Clip(x, {'' if low is None else 'low'}, high)"], {"x": [3, 4]}, constants)
    mod = tvm_dnnl.from_onnx(proto)
    assert (len(mod.functions) == 1) == is_one_op
    check(proto, [rand(3, 4)], mod=mod)


@pytest.mark.parametrize("given", [{"x": (1, 3, 4)}, {"n": 1}, {"x": (1, None, None)}], ids=str)
def test_given_shapes(given):
    nodes, shapes, constants = CASES["identity_i cannot handle ShapeExpr inputs"]
    proto = model(nodes, shapes, constants)
    mod = tvm_dnnl.from_onnx(proto, shape=given)
    assert [int(size) for size in mod["main"].params[0].ty.shape] == [1, 3, 4]
    assert check(proto, [rand(1, 3, 4)], mod=mod).partitions == 1


def test_errors_name_the_node():
    proto = model(["s = Shape(x)", "y = Resize(x, , , s)"], {"x": ["n", "h"]})
    proto.graph.node[1].name = "upsample"
    with pytest.raises(Exception, match="ONNX Resize, node upsample"):
        tvm_dnnl.from_onnx(proto)
    with pytest.raises(tvm.error.OpNotImplemented, match="NoSuchOp"):
        tvm_dnnl.from_onnx(model(["y = NoSuchOp(x)"], {"x": [1]}))
    with pytest.raises(ValueError, match="no input 'z'; its inputs are x of rank 2 .n, h."):
        tvm_dnnl.from_onnx(proto, shape={"z": (1, 2)})


def test_threads_that_import_at_once():
    """TVM's builders of functions have one stack for all threads."""
    nodes = ["x0 = Neg(x)", *(f"x{i + 1} = Sigmoid(x{i})" for i in range(30)), "y = MatMul(x30, w)"]
    proto = model(nodes, {"x": ["n", 12]}, {"w": W})
    with ThreadPoolExecutor(3) as pool:
        mods = list(pool.map(tvm_dnnl.from_onnx, [proto] * 12))
    assert all(tvm_ffi.structural_equal(each, mods[0]) for each in mods)


def test_nothing_is_printed(capfd):
    """TVM's importer prints the node that it fails for; here that is imported in another way."""
    proto = model(*CASES["identity_i cannot handle ShapeExpr inputs"])
    stdout = sys.stdout
    tvm_dnnl.from_onnx(proto)
    with pytest.raises(ValueError, match="Resize of rank 2"):
        tvm_dnnl.from_onnx(model(["s = Shape(x)", "y = Resize(x, , , s)"], {"x": ["n", "h"]}))
    assert sys.stdout is stdout and capfd.readouterr().out == ""
