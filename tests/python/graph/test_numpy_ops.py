# SPDX-License-Identifier: Apache-2.0
"""Numpy definitions of ops, where oneDNN computes nothing; the nets compare them elsewhere."""

from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest
from scipy import special
from tvm.contrib.onednn.ir.numpy_types import UndefinedResult
from tvm.contrib.onednn.ir.op import infer
from tvm.contrib.onednn.ir.op_view import Tensor
from tvm.contrib.onednn.ops.evaluate import define, evaluate_op, has_definition

X = np.concatenate([np.linspace(-8, 8, 1001), [-700.0, 700.0, 1e-300, -1e-300, 0.0]])


def compute(name, *values, shape=None, dtype="float64", **attrs):
    shape = np.shape(values[0]) if shape is None else shape
    return evaluate_op(name, SimpleNamespace(**attrs), Tensor(shape, dtype), values)


def assert_ulps(got, want, ulps=4):
    """Compare with an error relative to each value."""
    np.testing.assert_allclose(got, want, rtol=ulps * 2.0**-53, atol=1e-320)


# By op: the attributes, and the function in other words.
FUNCTIONS = {
    "erf": ({}, special.erf),
    "sigmoid": ({}, special.expit),
    "dnnl.softplus": ({}, lambda x: -special.log_expit(-x)),
    "dnnl.mish": ({}, lambda x: x * np.tanh(-special.log_expit(-x))),
    "dnnl.gelu_erf": ({}, lambda x: x * 0.5 * (1 + special.erf(x / np.sqrt(2)))),
    "dnnl.gelu_tanh": (
        {},
        lambda x: x * special.expit(2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x * x * x)),
    ),
    "dnnl.swish": ({"alpha": 1.702}, lambda x: x * special.expit(1.702 * x)),
    "dnnl.elu": ({"alpha": 0.5}, lambda x: np.maximum(x, 0) + 0.5 * np.expm1(np.minimum(x, 0))),
    "dnnl.hard_sigmoid": ({"alpha": 0.2, "beta": 0.5}, lambda x: np.clip(0.2 * x + 0.5, 0, 1)),
    "dnnl.hard_swish": (
        {"alpha": 1 / 6, "beta": 0.5},
        lambda x: x * np.minimum(np.maximum(x * (1 / 6) + 0.5, 0), 1),
    ),
    "dnnl.linear": ({"alpha": -1.0, "beta": 2.0}, lambda x: 2 - x),
    "dnnl.pow": ({"alpha": 3.0, "beta": 2.0}, lambda x: 3 * (x * x)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    attrs, function = FUNCTIONS[name]
    with np.errstate(all="ignore"):
        expected = function(X)
    # The last of these cancel digits of their own for negative x.
    cancels = name in ("dnnl.gelu_erf", "dnnl.gelu_tanh")
    got = compute(name, X, **attrs)
    if cancels:
        np.testing.assert_allclose(got, expected, rtol=1e-13, atol=1e-14)
    else:
        assert_ulps(got, expected, ulps=8)


def test_erf_is_that_of_scipy():
    np.testing.assert_allclose(compute("erf", X), special.erf(X), rtol=1e-15, atol=0)
    assert compute("erf", np.zeros((0, 2))).shape == (0, 2)


def test_integers_are_summed_in_wide_ones():
    data, weight = np.full((1, 300), 127, "int8"), np.full((2, 300), -128, "int8")
    got = compute("nn.dense", data, weight, shape=(1, 2), dtype="int32")
    assert got.tolist() == [[-300 * 127 * 128] * 2]


def pool(name, data, **attrs):
    given = dict(pool_size=[3], strides=[2], padding=[1, 1], layout="NCW")
    attrs = SimpleNamespace(**{**given, **attrs})
    values = np.asarray(data)[None, None]
    type_ = infer(name, [Tensor(values.shape, str(values.dtype))], attrs)
    return define(name)(attrs, type_, values)[0, 0].tolist()


def test_windows_at_the_edges():
    data = [1.0, 2.0, 3.0, 6.0]
    assert pool("nn.max_pool1d", data) == [2.0, 6.0]
    assert pool("nn.avg_pool1d", data) == [1.5, 11 / 3]
    assert pool("nn.avg_pool1d", data, count_include_pad=True) == [1.0, 11 / 3]
    # The last window begins at the last value, and reaches beyond the padding.
    more = dict(ceil_mode=True, padding=[0, 0], strides=[3])
    assert pool("nn.avg_pool1d", data, **more) == [2.0, 6.0]
    assert pool("nn.avg_pool1d", data, **more, count_include_pad=True) == [2.0, 6.0]
    assert pool("nn.max_pool1d", data, dilation=[2], padding=[0, 0], pool_size=[2]) == [3.0]


def test_windows_of_nothing():
    beyond = dict(pool_size=[1], strides=[3], padding=[0, 2])
    lowest = float(np.finfo("float32").min)
    data = np.array([1, 2, 3, 4], "float32")[:2]
    assert pool("nn.max_pool1d", data, **beyond) == [1.0, lowest]
    with pytest.raises(UndefinedResult, match="nothing to average"):
        pool("nn.avg_pool1d", data, **beyond)
    assert pool("nn.avg_pool1d", data, **beyond, count_include_pad=True) == [1.0, 0.0]
    assert pool("nn.max_pool1d", np.array([-3, -5], "int8"), **beyond) == [-3, -128]


def test_resize():
    attrs = dict(size=[4], layout="NCW", rounding_method="")
    data = np.array([[[0.0, 4.0]]])

    def resized(method, mode, rounding=""):
        given = SimpleNamespace(**{**attrs, "rounding_method": rounding})
        given.method, given.coordinate_transformation_mode = method, mode
        return evaluate_op("image.resize1d", given, Tensor((1, 1, 4), "float64"), [data])[0, 0]

    assert resized("linear", "half_pixel").tolist() == [0.0, 1.0, 3.0, 4.0]
    assert resized("linear", "asymmetric").tolist() == [0.0, 2.0, 4.0, 4.0]
    np.testing.assert_allclose(resized("linear", "align_corners"), [0, 4 / 3, 8 / 3, 4])
    assert resized("nearest_neighbor", "asymmetric").tolist() == [0.0, 0.0, 4.0, 4.0]
    assert resized("nearest_neighbor", "asymmetric", "ceil").tolist() == [0.0, 4.0, 4.0, 4.0]
    with pytest.raises(UndefinedResult, match="method=area"):
        resized("area", "half_pixel")


def test_quantize():
    values = np.array([0.5, 1.5, -1000.0, 1000.0, 0.24], "float32")
    parameters = np.float32(1.0), np.int32(10)
    got = compute("qnn.quantize", values, *parameters, dtype="uint8", axis=0)
    assert got.dtype == "uint8" and got.tolist() == [10, 12, 0, 255, 10]
    back = compute("qnn.dequantize", got, *parameters, dtype="float32", axis=0)
    assert back.dtype == "float32" and back.tolist() == [0.0, 2.0, -10.0, 245.0, 0.0]
    scales, zeros = np.array([1.0, 0.5], "float32"), np.array([0, 1], "int32")
    got = compute("qnn.quantize", np.ones((2, 1)), scales, zeros, dtype="int8", axis=-2)
    assert got.tolist() == [[1], [3]]
    with pytest.raises(UndefinedResult):
        compute("qnn.quantize", np.array([np.nan]), *parameters, dtype="uint8", axis=0)


def test_ops_without_a_row():
    x = np.array([[1.0, -2.5], [np.nan, 2.5]])
    assert compute("isnan", x, dtype="bool").tolist() == [[False, False], [True, False]]
    assert compute("round", x[:, 1]).tolist() == [-3.0, 3.0]
    assert compute("floor_divide", np.array([7, -7]), np.int64(2), dtype="int64").tolist() == [
        3,
        -4,
    ]
    truth = np.array([True, False])
    assert compute("logical_not", truth, dtype="bool").tolist() == [False, True]
    assert compute("logical_and", truth, ~truth, dtype="bool").tolist() == [False, False]
    assert compute("logical_or", truth, ~truth, dtype="bool").tolist() == [True, True]
    assert compute("where", truth, x[0], np.float64(0.0)).tolist() == [1.0, 0.0]
    assert compute("full", np.float32(2.0), shape=(2,), dtype="float16").tolist() == [2.0, 2.0]
    assert compute("broadcast_to", x[:1], shape=(3, 2)).shape == (3, 2)
    assert evaluate_op("zeros", SimpleNamespace(), Tensor((2,), "int8"), []).tolist() == [0, 0]
    assert evaluate_op("ones", SimpleNamespace(), Tensor((2,), "int8"), []).tolist() == [1, 1]
    assert compute("copy", x[0]).tolist() == x[0].tolist()
    assert not has_definition("nn.attention") and not has_definition(None)
    with pytest.raises(KeyError):
        define("nn.attention")


def test_take():
    x, places = np.arange(6.0).reshape(2, 3), np.array([2, 5])
    assert compute("take", x, places, shape=(2, 2), axis=1, mode="clip").tolist() == [
        [2, 2],
        [5, 5],
    ]
    assert compute("take", x, places, shape=(2,), axis=None, mode="fast").tolist() == [2, 5]
    assert compute("take", x, np.array(1), shape=(3,), axis=0, mode="wrap").tolist() == [3, 4, 5]
    with pytest.raises(UndefinedResult, match="batch_dims"):
        compute("take", x, places, shape=(2,), axis=1, mode="clip", batch_dims=1)


def test_variance():
    x = np.array([[1.0, 3.0], [2.0, 2.0]])
    attrs = dict(axis=[1], keepdims=False)
    assert compute("variance", x, shape=(2,), **attrs).tolist() == [1.0, 0.0]
    assert compute("variance", x, shape=(2,), unbiased=True, **attrs).tolist() == [2.0, 0.0]
    mean = x.mean(1, keepdims=True)
    assert compute("variance", x, mean, shape=(2,), **attrs).tolist() == [1.0, 0.0]


def test_results_are_rounded_once():
    x = np.array([1.0 + 2.0**-8 + 2.0**-30, 1e39, np.nan])
    bfloat16 = compute("cast", x, dtype="bfloat16", shape=(3,))
    assert bfloat16.dtype == ml_dtypes.bfloat16 and bfloat16[1] == np.inf and np.isnan(bfloat16[2])
    total = compute("add", np.float32([1.0]), np.float32([2.0**-24 + 2.0**-40]), dtype="float32")
    assert total == np.float32(1 + 2.0**-23), "to the nearest of the exact sum"


def test_a_result_of_another_shape():
    with pytest.raises(UndefinedResult, match=r"abs gives the shape \(2,\), not \(3,\)"):
        compute("abs", np.ones(2), shape=(3,))
