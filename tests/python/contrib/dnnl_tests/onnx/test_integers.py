# SPDX-License-Identifier: Apache-2.0
"""Nodes of integers, positions and subgraphs that TVM's ONNX importer reads as others."""

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view
from onnx import helper, numpy_helper
from tvm.relay.op.contrib import dnnl

from dnnl_tests.reference import rand


def results(nodes, inputs, constants=(), opset=17, dims=None, result="y"):
    """Compile a model and run it."""
    infos = [
        helper.make_tensor_value_info(
            name,
            helper.np_dtype_to_tensor_dtype(value.dtype),
            (dims or {}).get(name, value.shape),
        )
        for name, value in inputs.items()
    ]
    weights = [numpy_helper.from_array(np.asarray(v), name) for name, v in dict(constants).items()]
    output = helper.make_empty_tensor_value_info(result)
    graph = helper.make_graph(nodes, "model", infos, [output], weights)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    got = dnnl.compile(proto, prune=False)(**inputs)
    return np.asarray(got[0] if isinstance(got, (list, tuple)) else got)


def check(op, inputs, wanted, opset=17, constants=(), outputs=("y",), dims=None, **attrs):
    """Compare a node with the numbers and the type that the standard demands."""
    names = [*inputs, *dict(constants)]
    node = helper.make_node(op, names, outputs, **attrs)
    got = results([node], inputs, constants, opset, dims)
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("is_constant", [False, True], ids=["computed", "constant"])
@pytest.mark.parametrize("reduction", ["none", "add"])
def test_scatter_nd_counts_from_the_end(reduction, is_constant):
    """TVM writes memory before the tensor."""
    x, at = rand(4, 3), np.array([[-1, -2], [0, 2], [-4, 0]])
    updates, wanted = np.array([5, 6, 7], "float32"), x.copy()
    for (i, j), value in zip(at, updates):
        wanted[i, j] = value + (wanted[i, j] if reduction == "add" else 0)
    operands = {"x": x, "at": at, "u": updates}
    constants = {"at": operands.pop("at")} if is_constant else {}
    node = helper.make_node("ScatterND", ["x", "at", "u"], ["y"])
    if reduction != "none":
        node.attribute.append(helper.make_attribute("reduction", reduction))
    np.testing.assert_array_equal(results([node], operands, constants, 18), wanted)


MATMULS = {
    "matrix": ((3, 1000), (1000, 4)),
    "vector": ((5,), (5,)),
    "vector by matrix": ((5,), (5, 4)),
    "batch": ((2, 3, 5), (5, 4)),
}


@pytest.mark.parametrize("kinds", [("uint8", "uint8"), ("uint8", "int8")], ids="-".join)
@pytest.mark.parametrize("name", MATMULS)
def test_matmul_integer(name, kinds):
    """In int32: a sum of a thousand products has more than the 24 bits of float32."""
    a, b = (np.full(each, np.iinfo(k).max, k) for each, k in zip(MATMULS[name], kinds))
    wanted = np.asarray(np.matmul(a.astype("int32"), b.astype("int32")), "int32")
    check("MatMulInteger", {"a": a, "b": b}, wanted)


def test_matmul_integer_with_zero_points():
    random = np.random.default_rng(0)
    a, b = (random.integers(0, 256, shape, "uint8") for shape in ((3, 8), (8, 4)))
    zeros = {"az": np.uint8(9), "bz": random.integers(0, 256, 4, "uint8")}
    wanted = (a.astype("int32") - 9) @ (b.astype("int32") - zeros["bz"])
    check("MatMulInteger", {"a": a, "b": b}, wanted.astype("int32"), constants=zeros)


# The shapes of data and weight, the attributes, and the padding.
CONVS = {
    "image": ((1, 600, 5, 5), (3, 600, 3, 3), dict(pads=[1, 0, 1, 2]), [(1, 1), (0, 2)]),
    "same": ((1, 4, 6, 6), (3, 4, 4, 4), dict(auto_pad="SAME_UPPER"), [(1, 2), (1, 2)]),
    "sequence": ((2, 4, 9), (3, 4, 3), dict(pads=[1, 1]), [(1, 1)]),
    "volume": ((1, 2, 4, 4, 4), (3, 2, 2, 2, 2), {}, [(0, 0)] * 3),
}


@pytest.mark.parametrize("is_computed", [False, True], ids=["input", "computed"])
@pytest.mark.parametrize("zero", ["none", "one", "channel"])
@pytest.mark.parametrize("name", CONVS)
def test_conv_integer(name, zero, is_computed):
    """In int32: a sum of a thousand products has more than the 24 bits of float32."""
    shape, weights, attrs, padding = CONVS[name]
    random, rank = np.random.default_rng(0), len(shape) - 2
    x, w = (random.integers(0, 256, each, "uint8") for each in (shape, weights))
    zeros = {"none": {}, "one": {"xz": np.uint8(9), "wz": np.uint8(131)}}
    zeros = zeros.get(zero, {"xz": np.uint8(9), "wz": random.integers(0, 256, 3, "uint8")})
    shift = np.reshape(zeros.get("wz", 0), (-1, *[1] * (rank + 1)))
    data = np.pad(x.astype("int64") - zeros.get("xz", 0), [(0, 0), (0, 0), *padding])
    windows = sliding_window_view(data, weights[2:], tuple(range(2, rank + 2)))
    axes = [1, *range(rank + 2, 2 * rank + 2)], [1, *range(2, rank + 2)]
    wanted = np.tensordot(windows, w.astype("int64") - shift, axes)
    names, nodes = ["x", "w", *zeros], []
    if is_computed:
        names[0], nodes = "y0", [helper.make_node("Identity", ["x"], ["x0"])]
        nodes += [helper.make_node("Max", ["x0", "x"], ["y0"])]
    nodes.append(helper.make_node("ConvInteger", names, ["y"], **attrs))
    got = results(nodes, {"x": x}, {"w": w, **zeros})
    assert got.dtype == "int32"
    np.testing.assert_array_equal(got, np.moveaxis(wanted, -1, 1))


def test_powers_of_integers():
    base, exponent = np.array([13, -3, 2]), np.array([8, 3, 40])
    check("Pow", {"a": base, "b": exponent}, base**exponent)


def test_smallest_elements():
    x = rand(3, 5)
    for axis in (0, 1):
        k, wanted = {"k": np.array([2])}, np.sort(x, axis).take([0, 1], axis)
        check("TopK", {"x": x}, wanted, constants=k, outputs=("y", "i"), axis=axis, largest=0)


@pytest.mark.parametrize("is_open", [False, True], ids=["static", "open"])
@pytest.mark.parametrize("bounds", [dict(start=1), dict(end=-1), dict(start=-2, end=3)], ids=str)
def test_a_part_of_a_shape(bounds, is_open):
    wanted = np.array((2, 3, 4)[slice(bounds.get("start"), bounds.get("end"))])
    dims = {"x": ["n", 3, "m"]} if is_open else None
    check("Shape", {"x": rand(2, 3, 4)}, wanted, opset=18, dims=dims, **bounds)


@pytest.mark.parametrize("op", ["ReduceL1", "ReduceL2", "ReduceSum", "ReduceSumSquare"])
def test_reductions_of_no_axes(op):
    """What they compute of each element stays."""
    x = np.array([-2, 3], "float32")
    wanted = {"ReduceSum": x, "ReduceSumSquare": x * x}.get(op, abs(x))
    check(op, {"x": x}, wanted, opset=18, noop_with_empty_axes=1)


def test_an_input_that_only_branches_read():
    branches = {
        name: helper.make_graph(
            [helper.make_node(op, ["x"], ["o"])],
            op,
            [],
            [helper.make_tensor_value_info("o", 1, [2, 2])],
        )
        for name, op in (("then_branch", "Relu"), ("else_branch", "Neg"))
    }
    nodes = [
        helper.make_node("If", ["c"], ["z"], **branches),
        helper.make_node("MatMul", ["z", "w"], ["y"]),
    ]
    x, w = rand(2, 2) - 0.5, rand(2, 3)
    for condition in (True, False):
        got = results(nodes, {"x": x, "c": np.array(condition)}, {"w": w})
        np.testing.assert_allclose(got, (np.maximum(x, 0) if condition else -x) @ w, rtol=1e-5)
