# SPDX-License-Identifier: Apache-2.0
"""Nodes of integers, positions and subgraphs that TVM's ONNX importer reads as others."""

import re

import numpy as np
import pytest
import tvm
from onnx import TensorProto, helper

from dnnl_tests.onnx.test_integers import results
from dnnl_tests.reference import rand


@pytest.mark.parametrize("is_constant", [False, True], ids=["computed", "constant"])
@pytest.mark.parametrize(
    "shapes",
    [((3, 2, 4, 5), (5, 6)), ((2, 3, 5), (5,)), ((5,), (3, 5, 2)), ((0, 2, 4, 5), (5, 6))],
    ids=str,
)
def test_matmul_of_other_ranks(shapes, is_constant):
    x, w = (rand(*shape) for shape in shapes)
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    inputs, constants = ({"x": x}, {"w": w}) if is_constant else ({"x": x, "w": w}, ())
    np.testing.assert_allclose(results([node], inputs, constants), x @ w, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dims", [("n", 2, 4, 5), ("n", 2, "m", 5), (None, None, None, None)])
def test_matmul_of_open_sizes(dims):
    x, w = rand(3, 2, 4, 5), rand(5, 6)
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    got = results([node], {"x": x}, {"w": w}, dims={"x": dims})
    np.testing.assert_allclose(got, x @ w, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("op", "shapes", "attrs"),
    [
        ("MatMul", ((1, 9), (3, 4)), {}),
        ("MatMul", ((2, 2, 9), (3, 4)), {}),
        ("MatMul", ((9,), (3, 4)), {}),
        ("MatMul", ((2, 9), (3,)), {}),
        ("Gemm", ((1, 9), (3, 4)), {}),
        ("Gemm", ((3, 1), (9, 4)), {"transA": 1}),
        ("Gemm", ((1, 9), (4, 3)), {"transB": 1}),
    ],
    ids=str,
)
def test_products_of_unequal_sizes_are_refused(op, shapes, attrs):
    """TVM's dense reads beyond the smaller operand."""
    node = helper.make_node(op, ["x", "w"], ["y"], name="product", **attrs)
    x, w = (rand(*shape) for shape in shapes)
    text = f"ONNX {op}, node product: a product of shapes {shapes[0]} and {shapes[1]}"
    with pytest.raises(tvm.error.OpAttributeUnImplemented, match=re.escape(text)):
        results([node], {"x": x, "w": w})


def test_matmul_behind_a_branch():
    """ONNX's shape inference may know no shape of what an If returns."""
    info, x, w = helper.make_tensor_value_info, rand(1, 2, 4, 5), rand(5, 6)
    then, other = (
        helper.make_graph(
            [helper.make_node(op, ["x"], [op])], op, [], [info(op, TensorProto.FLOAT, x.shape)]
        )
        for op in ("Relu", "Neg")
    )
    branch = helper.make_node("If", ["c"], ["z"], then_branch=then, else_branch=other)
    node = helper.make_node("MatMul", ["z", "w"], ["y"])
    for condition, value in ((True, np.maximum(x, 0)), (False, -x)):
        got = results([branch, node], {"x": x, "c": np.array(condition)}, {"w": w})
        np.testing.assert_allclose(got, value @ w, rtol=1e-5, atol=1e-6)
