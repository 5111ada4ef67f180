# SPDX-License-Identifier: Apache-2.0
"""What only moves elements does so in 8 bits, next to the ops that read these."""

import numpy as np
import pytest
from tvm import relay
from tvm.testing import dnnl as testing

from dnnl_tests import direct
from dnnl_tests.quantized import Quantization, run_quantized
from dnnl_tests.reference import conv, pool
from dnnl_tests.relay import composites, module, partition, var

DATA = Quantization(0.02, 131, "uint8")
OUT = Quantization(0.11, 120, "uint8")
WEIGHT = Quantization(0.01, 0, "int8", 0)

MOVES = {
    "reshape": lambda x: relay.reshape(x, (8, 36)),
    "transpose": lambda x: relay.transpose(x, (0, 2, 3, 1)),
    "strided_slice": lambda x: relay.strided_slice(x, [0, 0, 1, 1], [1, 8, 5, 6]),
    "max_pool2d": lambda x: relay.nn.max_pool2d(x, (3, 3), (2, 2), padding=(1, 1)),
    "split": lambda x: relay.split(x, 2, axis=1)[1],
}


def dtypes_of(mod, name):
    """Return the type of each call of an op in the partitions of a module."""
    dtypes = []

    def visit(expr):
        if isinstance(expr, relay.Call) and getattr(expr.op, "name", None) == name:
            dtypes.append(expr.args[0].checked_type.dtype)

    for func in mod.functions.values():
        relay.analysis.post_order_visit(func, visit)
    return dtypes


@pytest.mark.parametrize("move", MOVES)
def test_pair_goes_away(move):
    """Dequantize, something that moves elements, and the same quantize: it moves the integers."""
    x = DATA.var("x", 1, 8, 6, 6)
    mod = module(DATA.quantize(MOVES[move](DATA.dequantize(x))))
    partitioned = partition(mod, prune=False)
    names = {"strided_slice", "split", "reshape", "transpose"}
    op = move if move in names else f"nn.{move}"
    assert dtypes_of(partitioned, op) == ["uint8"]
    assert not dtypes_of(partitioned, "qnn.quantize") + dtypes_of(partitioned, "qnn.dequantize")


def test_before_a_matmul():
    """A dequantize comes right before the op that can read 8 bits."""
    x = DATA.values(2, 8, 4)
    w = WEIGHT.values(16, 32, low=-64, high=64)
    data = relay.reshape(
        relay.transpose(DATA.dequantize(DATA.var("x", 2, 8, 4)), (0, 2, 1)), (2, 32)
    )
    real = relay.nn.dense(data, WEIGHT.dequantize(w))
    want = DATA.real(x).transpose(0, 2, 1).reshape(2, 32) @ WEIGHT.real(w).T
    run_quantized(
        OUT.quantize(real), {"x": x}, OUT.nearest(want), composites={"dnnl.qnn.dense_quantize": 1}
    )


def test_weight_behind_a_transpose():
    """The scales of a weight go where its transpose takes them."""
    weight = Quantization(np.linspace(0.004, 0.02, 16), 0, "int8", 1)
    x, w = DATA.values(2, 32), weight.values(32, 16, low=-64, high=64)
    real = relay.nn.dense(
        DATA.dequantize(DATA.var("x", 2, 32)), relay.transpose(weight.dequantize(w))
    )
    want = OUT.nearest(DATA.real(x) @ weight.real(w))
    run_quantized(OUT.quantize(real), {"x": x}, want, composites={"dnnl.qnn.dense_quantize": 1})


def test_weight_behind_a_reshape():
    """The scales of a weight stay with its channels, which a reshape leaves whole."""
    weight = Quantization(np.linspace(0.004, 0.02, 16), 0, "int8", 0)
    x, w = DATA.values(2, 32), weight.values(16, 4, 8, low=-64, high=64)
    flat = relay.reshape(weight.dequantize(w), (16, 32))
    real = relay.nn.dense(DATA.dequantize(DATA.var("x", 2, 32)), flat)
    want = OUT.nearest(DATA.real(x) @ weight.real(w).reshape(16, 32).T)
    run_quantized(OUT.quantize(real), {"x": x}, want, composites={"dnnl.qnn.dense_quantize": 1})


@pytest.mark.parametrize("scales", ["same", "other"])
def test_concatenate(scales):
    second = DATA if scales == "same" else OUT
    x, y = DATA.values(2, 8, 5), second.values(2, 4, 5, seed=1)
    real = relay.concatenate(
        [DATA.dequantize(DATA.var("x", *x.shape)), second.dequantize(second.var("y", *y.shape))], 1
    )
    want = DATA.nearest(np.concatenate([DATA.real(x), second.real(y)], 1))
    count = {} if scales == "same" else {"dnnl.dequantize_quantize": 1}
    run_quantized(DATA.quantize(real), {"x": x, "y": y}, want, composites=count)


def test_pad_with_the_zero_point():
    """TFLite's models pad with the zero point before a convolution."""
    attrs = dict(kernel_size=(3, 3), channels=8)
    x, w = DATA.values(1, 4, 6, 6), WEIGHT.values(8, 4, 3, 3, low=-64, high=64)
    padded = relay.nn.pad(DATA.var("x", *x.shape), ((0, 0), (0, 0), (1, 1), (1, 1)), 131)
    real = relay.nn.conv2d(DATA.dequantize(padded), WEIGHT.dequantize(w), **attrs)
    want = OUT.nearest(conv(DATA.real(x), WEIGHT.real(w), dict(attrs, padding=(1, 1))))
    run_quantized(OUT.quantize(real), {"x": x}, want, composites={"dnnl.qnn.conv2d_quantize": 1})


@pytest.mark.parametrize("axis", [1, 2], ids=["channels", "rows"])
def test_pad_of_channels_that_have_scales(axis):
    """The padding has scales as well, for which floats have no place; all else is moved."""
    data = Quantization(np.linspace(0.01, 0.02, 8), 0, "uint8", 1)
    x = data.values(1, 4 if axis == 1 else 8, 6, 6)
    widths = [(2, 2) if k == axis else (0, 0) for k in range(4)]
    padded = relay.nn.pad(data.var("x", *x.shape), widths, relay.const(np.uint8(0)))
    real = relay.nn.relu(data.dequantize(padded))
    weight = WEIGHT.dequantize(WEIGHT.values(8, 4, 3, 3, low=-64, high=64))
    image = relay.reshape(DATA.dequantize(DATA.var("y", 4, 36)), (1, 4, 6, 6))
    other = OUT.quantize(relay.nn.conv2d(image, weight, (1, 1), (1, 1)))
    mod = partition(module(real, other), prune=False)
    assert testing.offload(mod).composites == {"dnnl.qnn.conv2d_quantize": 1}
    assert dtypes_of(mod, "nn.pad") == ["uint8"] and dtypes_of(mod, "reshape") == ["uint8"]
    got, _ = direct.run(mod, {"x": x, "y": DATA.values(4, 36)})
    testing.assert_close([got], [data.real(np.pad(x, widths))], 1e-6)


def test_max_pool_with_padding():
    attrs = dict(pool_size=(3, 3), strides=(2, 2), padding=(1, 1))
    x = DATA.values(1, 8, 9, 9)
    real = relay.nn.max_pool2d(DATA.dequantize(DATA.var("x", *x.shape)), **attrs)
    want = DATA.nearest(pool(DATA.real(x), "max", attrs))
    run_quantized(DATA.quantize(real), {"x": x}, want, composites={})


def test_max_pool_of_a_negative_scale():
    """The largest integer is not the largest floating-point value."""
    data, attrs = Quantization(-0.02, 5, "int8"), dict(pool_size=(3, 3), strides=(2, 2))
    x = data.values(1, 8, 9, 9)
    real = relay.nn.max_pool2d(data.dequantize(data.var("x", *x.shape)), **attrs)
    want = pool(data.real(x), "max", dict(attrs, padding=(0, 0)))
    run_quantized(real, {"x": x}, want, composites={})


def rounded_conv(x):
    """Return a convolution whose result is rounded to 8 bits, and the numbers."""
    attrs = dict(kernel_size=(3, 3), channels=8, padding=(1, 1))
    w = WEIGHT.values(8, 4, 3, 3, low=-64, high=64)
    real = relay.nn.conv2d(DATA.dequantize(DATA.var("x", *x.shape)), WEIGHT.dequantize(w), **attrs)
    want = OUT.real(OUT.nearest(conv(DATA.real(x), WEIGHT.real(w), attrs)))
    return OUT.dequantize(OUT.quantize(real)), want


def test_relu_and_max_pool():
    """A relu between a rounded result and a pool goes before the rounding: the pool has 8 bits."""
    x = DATA.values(1, 4, 9, 9)
    attrs = dict(pool_size=(3, 3), strides=(2, 2), padding=(1, 1))
    real, want = rounded_conv(x)
    real = relay.nn.max_pool2d(relay.nn.relu(real), **attrs)
    want = pool(np.maximum(want, 0), "max", attrs)
    counts = {"dnnl.qnn.conv2d_relu_quantize": 1}
    run_quantized(OUT.quantize(real), {"x": x}, OUT.nearest(want), composites=counts)


@pytest.mark.parametrize("reader", ["relu", "sum", "other"])
def test_relu_stays_behind_the_rounding(reader):
    """Where nothing gains, or where the rounded result is read without the relu, too."""
    x = DATA.values(1, 4, 9, 9)
    real, _ = rounded_conv(x)
    relu = relay.nn.relu(real)
    attrs = dict(pool_size=(3, 3), strides=(2, 2), padding=(1, 1))
    outputs = {
        "relu": [DATA.quantize(relu)],
        "sum": [relu + var("y", 1, 8, 9, 9)],
        "other": [relay.nn.max_pool2d(relu, **attrs), relay.nn.softmax(real)],
    }[reader]
    counts = {
        "relu": {"dnnl.qnn.conv2d_quantize_relu_quantize": 1},
        "sum": {"dnnl.qnn.conv2d_quantize_relu_sum": 1},
        "other": {"dnnl.qnn.conv2d_quantize": 1},
    }[reader]
    assert composites(module(*outputs)) == counts


def test_bias_in_int32_is_folded():
    bias = Quantization(0.0002, 0, "int32", 0)
    w = WEIGHT.values(8, 16, low=-64, high=64)
    real = relay.nn.dense(DATA.dequantize(DATA.var("x", 5, 16)), WEIGHT.dequantize(w))
    real = real + bias.dequantize(np.arange(8, dtype="int32"))
    assert composites(module(OUT.quantize(real))) == {"dnnl.qnn.dense_bias_quantize": 1}


def test_operand_of_two_ops():
    """A dequantize that a function reads as well is done for that; the other reads 8 bits."""
    x = DATA.dequantize(DATA.var("x", 5, 16))
    w = WEIGHT.values(8, 16, low=-64, high=64)
    mod = module(OUT.quantize(relay.nn.dense(x, WEIGHT.dequantize(w))), relay.nn.softmax(x))
    assert composites(mod) == {"dnnl.qnn.dense_quantize": 1}
    partitioned = partition(mod, prune=False)
    assert dtypes_of(partitioned, "nn.softmax") == ["float32"]


@pytest.mark.parametrize("second", [DATA, DATA._replace(zero_point=7)], ids=["same", "other"])
def test_quantized_once(second):
    """Constants of equal values keep what two layers read apart, as importers write it."""
    w = WEIGHT.values(8, 16, low=-64, high=64)
    real = relay.nn.softmax(var("x", 5, 16))
    first, other = (
        relay.nn.dense(each.dequantize(each.quantize(real)), WEIGHT.dequantize(w + k))
        for k, each in enumerate((DATA, second))
    )
    mod = module(first + other)
    assert composites(mod) == {"dnnl.qnn.dense": 1, "dnnl.qnn.dense_sum": 1}
    count = 1 if second == DATA else 2
    assert len(dtypes_of(partition(mod, prune=False), "qnn.quantize")) == count


def test_branches_quantize_on_their_own():
    """An op reads 8 bits where the dequantize is evaluated with it."""
    x, flag = var("x", 5, 16), relay.var("flag", shape=(), dtype="bool")
    w = WEIGHT.values(8, 16, low=-64, high=64)
    branches = (
        relay.nn.dense(DATA.dequantize(DATA.quantize(x)), WEIGHT.dequantize(w + k)) for k in (0, 1)
    )
    assert composites(module(relay.If(flag, *branches))) == {"dnnl.qnn.dense": 2}
