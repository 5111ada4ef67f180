# SPDX-License-Identifier: Apache-2.0
"""Evaluating graphs, and folding constants."""

import ml_dtypes
import numpy as np
import pytest
from graph_reader import Reader
from tvm.contrib.onednn.ir.dim import Dim
from tvm.contrib.onednn.ir.node import INPUT
from tvm.contrib.onednn.ir.op_view import Tensor
from tvm.contrib.onednn.ops.evaluate import constant_value, evaluate

X = np.array([[1.0, -2.0, 3.0], [0.5, 4.0, -1.0]], "float32")


def test_calls_tuples_and_fields():
    r = Reader()
    x = r.input(2, 3)
    parts = r.call("split", x, indices_or_sections=3, axis=1)
    last = r.field(parts, 2)
    pair = r.tuple(last, x)
    joined = r.call("concatenate", pair, axis=1)
    total = r.call("add", joined, r.constant([1.0]))
    graph = r.returns(total, pair, parts)
    got, (first, second), fields = evaluate(graph, [X])
    np.testing.assert_array_equal(got, np.concatenate([X[:, 2:], X], 1) + 1)
    np.testing.assert_array_equal(first, X[:, 2:])
    np.testing.assert_array_equal(second, X)
    assert [field.shape for field in fields] == [(2, 1)] * 3


def test_each_call_is_rounded_once():
    r = Reader()
    x = r.input(2, dtype="bfloat16")
    total = r.call("add", x, r.constant([2.0**-9], "bfloat16"))
    graph = r.returns(total, r.call("subtract", total, x))
    value = np.array([1.0, 2.0**-9]).astype(ml_dtypes.bfloat16)
    total, difference = evaluate(graph, [value])
    assert total.dtype == ml_dtypes.bfloat16 and total.tolist() == [1.0, 2.0**-8]
    assert difference.tolist() == [0.0, 2.0**-9]


def test_open_dimensions():
    n = Dim.symbol("n")
    r = Reader()
    x, y = r.input(n, 3), r.input(3, n)
    flat = r.call("reshape", x, newshape=[-1])
    shared = r.call("broadcast_to", r.constant([1.0]), type_=Tensor((3 * n,), "float32"))
    total = r.call("add", flat, shared)
    rows = r.call("strided_slice", x, begin=[1], end=[9], strides=[], axes=[0])
    graph = r.returns(total, rows, y)
    assert rows.type.dims == (None, 3)
    for count in (2, 5):
        value = np.ones((count, 3), "float32")
        got, part, _ = evaluate(graph, {x: value, y: value.T})
        assert got.tolist() == [2.0] * (3 * count) and part.shape == (count - 1, 3)
    with pytest.raises(ValueError, match=r"%1 = input\(\): a value of the shape \(3, 4\)"):
        evaluate(graph, {x: X, y: np.ones((3, 4), "float32")})


def test_what_is_not_needed_is_not_evaluated():
    r = Reader()
    x = r.input(2, 3)
    r.native(x)
    assert evaluate(r.returns(x), [X])[0] is X


@pytest.mark.parametrize(
    "build, message",
    [
        (lambda r, x: r.native(x), r"%1 = native\(%0\): a native node"),
        (
            lambda r, x: r.call("nn.attention", x, type_=x.type),
            r"%1 = nn.attention\(%0\): a call node that has no numpy definition",
        ),
        (
            lambda r, x: r.call("image.resize2d", r.input(1, 1, 2, 2), **CUBIC),
            r"image.resize2d\(.*method=area",
        ),
        (lambda r, x: r.call("abs", x, type_=Tensor((2, 4), "float32")), r"\(2, 3\), not \(2, 4\)"),
    ],
)
def test_errors_name_the_node(build, message):
    r = Reader()
    x = r.input(2, 3)
    graph = r.returns(build(r, x))
    inputs = [np.ones(node.type.dims, "float32") for node in graph.nodes if node.kind == INPUT]
    with pytest.raises(ValueError, match=message):
        evaluate(graph, inputs)


CUBIC = dict(
    size=[4, 4],
    layout="NCHW",
    method="area",
    coordinate_transformation_mode="half_pixel",
    rounding_method="",
)


def test_inputs_that_do_not_fit():
    r = Reader()
    x = r.input(2, 3)
    graph = r.returns(r.call("abs", x))
    for inputs, message in (
        ([], "0 values for 1 inputs"),
        ({}, "no value"),
        ([X.astype("float64")], "float64 for float32"),
        ([X[0]], "a value of the shape"),
    ):
        with pytest.raises(ValueError, match=message):
            evaluate(graph, inputs)


class TestConstantValue:
    def test_call(self):
        r = Reader()
        weight, scale = r.constant(X), r.constant([[3.0]])
        product = r.call("multiply", weight, scale)
        value = constant_value(product)
        assert value.dtype == "float32"
        np.testing.assert_array_equal(value, X * np.float32(3))
        assert constant_value(weight) is weight.value

    def test_float64_rounded_once(self):
        r = Reader()
        values = np.full(4096, 0.1, "float32")
        total = r.call("sum", r.constant(values), axis=[0], keepdims=False)
        assert constant_value(total) == np.float32(4096 * np.float64(np.float32(0.1)))

    def test_tuples(self):
        r = Reader()
        pair = r.tuple(r.constant(X), r.constant(X))
        joined = r.call("concatenate", pair, axis=0)
        assert constant_value(joined).shape == (4, 3)
        parts = r.call("split", r.constant(X), indices_or_sections=3, axis=1)
        np.testing.assert_array_equal(constant_value(r.field(parts, 1)), X[:, 1:2])

    def test_nothing_is_known(self):
        r = Reader()
        x, weight = r.input(2, 3), r.constant(X)
        assert constant_value(x) is None and constant_value(r.native(weight)) is None
        assert constant_value(r.call("add", weight, x)) is None
        unknown = r.call("nn.attention", weight, type_=weight.type)
        assert constant_value(unknown) is None
        # It is the value of one node, not of all that leads to it.
        assert constant_value(r.call("abs", r.call("abs", weight))) is None

    def test_no_result(self):
        r = Reader()
        operands = r.constant([np.nan, 1.0]), r.constant(1.0), r.constant(0, "int32")
        assert constant_value(r.call("qnn.quantize", *operands, axis=0, out_dtype="int8")) is None

    def test_a_call_that_was_not_read(self):
        r = Reader()
        node = r.call("abs", r.constant(X))
        node.unsupported = "a reason"
        np.testing.assert_array_equal(constant_value(node), np.abs(X))
        node.name = "relax.abs"
        np.testing.assert_array_equal(constant_value(node), np.abs(X))
