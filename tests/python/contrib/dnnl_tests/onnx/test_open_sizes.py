# SPDX-License-Identifier: Apache-2.0
"""ONNX nodes of open sizes whose ops TVM has no shape function for, in Relay."""

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator
from tvm.relay.op.contrib import dnnl

from dnnl_tests.reference import rand

#: Op, attributes, and the dimensions of each input: a name and the size of a call, or a number.
CASES = {
    "depth to space": ("DepthToSpace", dict(blocksize=2), [[("n", 2), 8, ("h", 3), ("w", 4)]]),
    "columns first": (
        "DepthToSpace",
        dict(blocksize=2, mode="CRD"),
        [[("n", 1), 8, ("h", 3), ("w", 4)]],
    ),
    "space to depth": ("SpaceToDepth", dict(blocksize=2), [[("n", 2), 3, ("h", 4), ("w", 6)]]),
    "attention": (
        "Einsum",
        dict(equation="bhqd,bhkd->bhqk"),
        [[("b", 2), 3, ("q", 4), 5], [("b", 2), 3, ("k", 6), 5]],
    ),
    "ellipsis": (
        "Einsum",
        dict(equation="...ij,...jk->...ik"),
        [[("b", 2), ("i", 3), 4], [("b", 2), 4, ("k", 5)]],
    ),
    "implicit": ("Einsum", dict(equation="ji,jk"), [[4, ("n", 3)], [4, ("m", 5)]]),
    "sum": ("Einsum", dict(equation="ij->i"), [[("n", 3), ("m", 4)]]),
    "lower": ("Trilu", dict(upper=0), [[("b", 2), ("n", 3), ("m", 4)]]),
    "upper": ("Trilu", {}, [[("n", 3), ("m", 4)]]),
}


@pytest.mark.parametrize("name", CASES)
def test_open_sizes(name):
    op, attrs, shapes = CASES[name]
    dims = [[each if isinstance(each, int) else each[0] for each in shape] for shape in shapes]
    sizes = [[each if isinstance(each, int) else each[1] for each in shape] for shape in shapes]
    node = helper.make_node(op, [f"x{k}" for k in range(len(shapes))], ["y"], name="n", **attrs)
    check(node, {f"x{k}": rand(*shape) for k, shape in enumerate(sizes)}, dims)


@pytest.mark.parametrize("attrs", [dict(time_axis=0, batch_axis=1), {}], ids=["axes", "default"])
def test_reverse_sequence(attrs):
    node = helper.make_node("ReverseSequence", ["x", "lengths"], ["y"], **attrs)
    inputs = {"x": rand(5, 3, 2), "lengths": np.array([5, 2, 1])}
    check(node, inputs, [("time", "batch", 2), ("batch",)])


@pytest.mark.parametrize("attrs, power", [({}, 2), (dict(p=3), 3)], ids=["default", "p"])
def test_global_lp_pool(attrs, power):
    x = rand(2, 4, 3, 5) - np.float32(0.5)
    wanted = (np.abs(x.astype("float64")) ** power).sum((2, 3), keepdims=True) ** (1 / power)
    node = helper.make_node("GlobalLpPool", ["x"], ["y"], **attrs)
    check(node, {"x": x}, [("n", 4, "h", "w")], wanted)


def check(node, inputs, dims, wanted=None):
    """Compare a node of open sizes with the reference implementation of onnx, or other numbers."""
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), shape)
        for (name, x), shape in zip(inputs.items(), dims)
    ]
    graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info("y")])
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    if wanted is None:
        (wanted,) = ReferenceEvaluator(model).run(None, inputs)
    got = np.asarray(dnnl.compile(model, prune=False)(**inputs))
    assert got.shape == wanted.shape
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)
