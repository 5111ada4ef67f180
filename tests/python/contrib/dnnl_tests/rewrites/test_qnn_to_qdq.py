# SPDX-License-Identifier: Apache-2.0
"""The QNN dialect, and what importers write instead of it, as float ops between QDQ pairs."""

import numpy as np
import pytest
import tvm
from scipy import special
from tvm import relay
from tvm.relay.op.contrib import dnnl
from tvm.relay.qnn import op as qnn
from tvm.testing import dnnl as testing

from dnnl_tests import direct
from dnnl_tests.quantized import (
    Quantization,
    assert_within_one_step,
    parameters,
    run_quantized,
)
from dnnl_tests.reference import conv, pool
from dnnl_tests.relay import composites, module, partition

DATA = Quantization(0.02, 131, "uint8")
OUT = Quantization(0.11, 120, "uint8")


def const(value, dtype):
    return relay.const(np.array(value, dtype))


@pytest.mark.parametrize("axis", [2, -1])
def test_scales_of_rows_or_columns_of_a_conv(axis):
    """There are as many as output channels, but they are not theirs."""
    weight, attrs = Quantization(0.01, 0, "int8"), dict(kernel_size=(1, 1), channels=8)
    x, w = DATA.values(1, 4, 8, 8), weight.values(8, 4, 1, 1, low=-64, high=64)
    expr = qnn.conv2d(DATA.var("x", *x.shape), relay.const(w), *parameters(DATA, weight), **attrs)
    scales = np.linspace(0.0001, 0.0003, 8).astype("float32")
    want = conv(DATA.real(x), weight.real(w), attrs) / (0.02 * 0.01)
    want = want * np.expand_dims(scales, () if axis == -1 else (-1,))
    mod = partition(module(OUT.requantize(expr, scales, axis)), prune=False)
    offload = testing.offload(mod)
    assert offload.composites == {"dnnl.dequantize_quantize": 1}
    assert offload.host_ops == {"qnn.conv2d": 1}
    assert_within_one_step(direct.run(mod, {"x": x})[0], OUT.nearest(want))


@pytest.mark.parametrize("low, high", [(-3.7, 5.9), (-0.5, 100.2)])
def test_clip_of_signed_integers(low, high):
    """Fractions are cut off towards zero, in TVM alone, too."""
    out = Quantization(0.05, 0, "int8")
    x = DATA.values(4, 60)
    expr = relay.clip(out.quantize(DATA.dequantize(DATA.var("x", 4, 60))), low, high)
    want = np.clip(out.nearest(DATA.real(x)), int(low), int(high))
    assert_within_one_step(direct.run(module(expr), {"x": x})[0], want)
    run_quantized(expr, {"x": x}, want, composites={"dnnl.qnn.clip_quantize": 1})


def test_sum_that_becomes_float32():
    weight = Quantization(0.01, 0, "int8", 0)
    x, w = DATA.values(5, 16), weight.values(8, 16, low=-64, high=64)
    total = qnn.dense(DATA.var("x", 5, 16), relay.const(w), *parameters(DATA, weight), units=8)
    want = ((x.astype("int32") - 131) @ w.astype("int32").T).astype("float32")
    run_quantized(relay.cast(total, "float32"), {"x": x}, want, composites={"dnnl.qnn.dense": 1})
    real = qnn.dequantize(total, const(0.0002, "float32"), const(0, "int32"))
    run_quantized(real, {"x": x}, want * np.float32(0.0002), composites={"dnnl.qnn.dense": 1})


def hard_swish(x):
    return x * np.clip(x + 3, 0, 6) / 6


# The float function, the zero point of the data, and the float op.
UNARY = {
    "abs": (np.abs, 100, "abs"),
    "erf": (special.erf, 100, "erf"),
    "exp": (np.exp, 100, "exp"),
    "hardswish": (hard_swish, 150, "hard_swish"),
    "rsqrt": (lambda x: 1 / np.sqrt(x), -1, "rsqrt"),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), 100, "sigmoid"),
    "sqrt": (np.sqrt, 0, "sqrt"),
    "tanh": (np.tanh, 100, "tanh"),
}


def unary(op, x, data, out, attrs=None):
    """Return a QNN op of one operand."""
    params = [data.scale_expr, data.zero_expr, out.scale_expr, out.zero_expr]
    return relay.Call(tvm.ir.Op.get(f"qnn.{op}"), [data.var("x", *x.shape), *params], attrs)


@pytest.mark.parametrize("op", UNARY)
def test_unary(op):
    function, zero, float_op = UNARY[op]
    data, out = Quantization(0.02, zero, "uint8"), Quantization(0.03, 5, "uint8")
    x = data.values(4, 60)
    want = out.nearest(function(data.real(x)))
    counts = {f"dnnl.qnn.{float_op}_quantize": 1}
    run_quantized(unary(op, x, data, out), {"x": x}, want, composites=counts)


# Their attributes are those of the float ops: the numbers, what writes these, the composites.
WITH_ATTRS = {
    "leaky_relu": (
        lambda x: np.where(x > 0, x, 0.1 * x),
        lambda x: relay.nn.leaky_relu(x, 0.1),
        {"dnnl.qnn.leaky_relu_quantize": 1},
    ),
    "softmax": (
        lambda x: np.exp(x) / np.exp(x).sum(1, keepdims=True),
        lambda x: relay.nn.softmax(x, 1),
        {},
    ),
    "avg_pool2d": (
        lambda x: pool(x, "avg", dict(pool_size=(3, 3), strides=(2, 2), padding=(1, 1))),
        lambda x: relay.nn.avg_pool2d(x, (3, 3), (2, 2), padding=(1, 1)),
        {"dnnl.qnn.avg_pool2d_quantize": 1},
    ),
}


@pytest.mark.parametrize("op", WITH_ATTRS)
def test_unary_with_attributes(op):
    function, float_op, counts = WITH_ATTRS[op]
    # TVM's softmax has int8 only.
    data, out = Quantization(0.02, 3, "int8"), Quantization(0.013, -5, "int8")
    x = data.values(2, 8, 7, 7)
    attrs = float_op(relay.var("x", shape=x.shape)).attrs
    want = out.nearest(function(data.real(x)))
    run_quantized(unary(op, x, data, out, attrs), {"x": x}, want, composites=counts)


@pytest.mark.parametrize("bias", [False, True], ids=["no-bias", "bias"])
@pytest.mark.parametrize("weights", ["int8", "uint8"])
def test_qlinear_conv(weights, bias):
    """As TVM v0.19 imports ONNX's QLinearConv: scales are computed, zero points are vectors."""
    attrs = dict(kernel_size=(3, 3), channels=8, padding=(1, 1))
    zero = 0 if weights == "int8" else 128
    weight = Quantization(np.linspace(0.004, 0.02, 8), zero, weights, 0)
    x, w = DATA.values(1, 4, 6, 6), weight.values(8, 4, 3, 3, low=zero - 64, high=zero + 64)
    zeros = relay.cast(const([zero] * 8, weights), "int32")
    scales = DATA.scale_expr * weight.scale_expr
    params = DATA.zero_expr, zeros, DATA.scale_expr, weight.scale_expr
    expr = qnn.conv2d(DATA.var("x", *x.shape), relay.const(w), *params, **attrs)
    want, name = conv(DATA.real(x), weight.real(w), attrs), "dnnl.qnn.conv2d_quantize"
    if bias:
        b = np.random.default_rng(0).integers(-2000, 2000, 8).astype("int32")
        expr = relay.nn.bias_add(expr, relay.const(b))
        want = want + (b * 0.02 * weight.scale).reshape(8, 1, 1)
        name = "dnnl.qnn.conv2d_bias_quantize"
    expr = qnn.requantize(
        expr, scales, const(0, "int32"), OUT.scale_expr, OUT.zero_expr, 1, out_dtype="uint8"
    )
    run_quantized(expr, {"x": x}, OUT.nearest(want), composites={name: 1})


@pytest.mark.parametrize("weights", ["int8", "uint8"])
def test_qlinear_matmul(weights):
    """As TVM v0.19 imports ONNX's QLinearMatMul: the weight is turned."""
    weight = Quantization(0.01, 0 if weights == "int8" else 120, weights)
    x, w = DATA.values(5, 16), weight.values(16, 8)
    turned, params = relay.transpose(relay.const(w)), parameters(DATA, weight)
    expr = qnn.dense(DATA.var("x", 5, 16), turned, *params, units=8, out_dtype="int32")
    expr = OUT.requantize(expr, np.float32(0.02) * np.float32(0.01))
    want = OUT.nearest(DATA.real(x) @ weight.real(w))
    run_quantized(expr, {"x": x}, want, composites={"dnnl.qnn.dense_quantize": 1})


def test_concatenate():
    """Each operand is requantized alone, one that has the result's scale not at all."""
    other = Quantization(0.03, 10, "uint8")
    x, y = OUT.values(2, 8, 5), other.values(2, 4, 5, seed=1)
    expr = qnn.concatenate(
        relay.Tuple([OUT.var("x", *x.shape), other.var("y", *y.shape)]),
        relay.Tuple([OUT.scale_expr, other.scale_expr]),
        relay.Tuple([OUT.zero_expr, other.zero_expr]),
        OUT.scale_expr,
        OUT.zero_expr,
        1,
    )
    want = np.concatenate([x, OUT.nearest(other.real(y))], 1)
    run_quantized(expr, {"x": x, "y": y}, want, composites={"dnnl.dequantize_quantize": 1})


@pytest.mark.parametrize("zero", ["constant", "computed"])
def test_arithmetic_for_dequantize(zero):
    """ONNX's MatMulInteger is imported as casts to float32, less the zero points."""
    x, w = DATA.values(5, 16), Quantization(1, 0, "int8").values(8, 16, low=-64, high=64)
    if zero == "constant":
        subtracted, inputs = relay.const(np.float32(131)), {"x": x}
    else:
        z = relay.var("z", shape=(), dtype="uint8")
        subtracted, inputs = relay.cast(z, "float32"), {"x": x, "z": np.uint8(131)}
    data = relay.cast(DATA.var("x", 5, 16), "float32") - subtracted
    weight = relay.cast(relay.const(w), "float32") - relay.const(np.float32(0))
    want = ((x.astype("int32") - 131) @ w.astype("int32").T).astype("float32")
    expr = relay.nn.dense(data, weight)
    mod = module(expr)
    if zero == "constant":
        run_quantized(expr, inputs, want, composites={"dnnl.qnn.dense": 1})
    else:
        assert composites(mod) == {"dnnl.qnn.dense": 1}


@pytest.mark.parametrize("zero", [np.zeros(8), np.full(8, 3), np.full(1, 3), np.arange(8)])
def test_arithmetic_with_zero_points_of_columns(zero):
    """Onnxruntime writes a zero point for each column of a MatMulInteger's weight."""
    x, w = DATA.values(5, 16), Quantization(1, 0, "int8").values(16, 8, low=-64, high=64)
    data = relay.cast(DATA.var("x", 5, 16), "float32") - relay.const(np.float32(131))
    weight = relay.cast(relay.const(w), "float32") - const(zero, "float32")
    want = ((x.astype("int32") - 131) @ (w - zero.astype("int32"))).astype("float32")
    expr = relay.nn.dense(data, relay.transpose(weight))
    run_quantized(expr, {"x": x}, want, composites={"dnnl.qnn.dense": 1})


@pytest.mark.parametrize("op", ["conv2d", "dense"])
@pytest.mark.parametrize("low, high", [(-128, 127), (-56, 199), (3, 258), (-100, 200)])
def test_weights_that_were_folded(op, low, high):
    """An importer that folds constants leaves the weight's integers in float32."""
    w = np.random.default_rng(2).integers(low, high, (8, 16), endpoint=True)
    w.flat[:2] = low, high
    if op == "dense":
        expr = relay.nn.dense(DATA.dequantize(DATA.var("x", 5, 16)), const(w, "float32"))
        x = DATA.values(5, 16)
        want = DATA.real(x) @ w.T
    else:
        w, attrs = w.reshape(8, 4, 2, 2), dict(kernel_size=(2, 2), channels=8, padding=(0, 0))
        x = DATA.values(1, 4, 6, 6)
        real = DATA.dequantize(DATA.var("x", *x.shape))
        expr = relay.nn.conv2d(real, const(w, "float32"), **attrs)
        want = conv(DATA.real(x), w.astype("float64"), attrs)
    # A convolution whose weight needs a zero point is the sum of two.
    count = 2 if op == "conv2d" and high != 127 else 1
    run_quantized(
        expr,
        {"x": x},
        want.astype("float32"),
        composites={f"dnnl.qnn.{op}": count} if high - low < 256 else {},
    )
    assert not dnnl.offload_report(partition(module(expr), prune=False)).in_float32


def test_what_is_used_twice_stays():
    """A sum that something else reads, too, is not computed twice."""
    weight = Quantization(0.01, 0, "int8", 0)
    w = weight.values(8, 16, low=-64, high=64)
    total = qnn.dense(DATA.var("x", 5, 16), relay.const(w), *parameters(DATA, weight), units=8)
    assert composites(module(OUT.requantize(total, 0.0002), total)) == {}


def test_excluded():
    weight = Quantization(0.01, 0, "int8", 0)
    w = weight.values(8, 16, low=-64, high=64)
    total = qnn.dense(DATA.var("x", 5, 16), relay.const(w), *parameters(DATA, weight), units=8)
    mod = module(OUT.requantize(total, 0.0002))
    assert composites(mod) == {"dnnl.qnn.dense_quantize": 1}
    assert composites(mod, exclude=["nn.dense"]) == {}
