# SPDX-License-Identifier: Apache-2.0
"""Sums in int32 of the QNN dialect: what importers write after them, and averages."""

import numpy as np
import pytest
from tvm import relay
from tvm.relay.qnn import op as qnn
from tvm.testing import dnnl as testing

from dnnl_tests import direct
from dnnl_tests.quantized import (
    Quantization,
    assert_within_one_step,
    parameters,
    run_quantized,
)
from dnnl_tests.reference import conv
from dnnl_tests.relay import module, partition

DATA = Quantization(0.02, 131, "uint8")
OUT = Quantization(0.11, 120, "uint8")
SCALES = np.linspace(0.004, 0.02, 8).astype("float32")


class Conv2d:
    """A convolution in the QNN dialect, of 4 to 8 channels.

    Attributes
    ----------
    inputs : dict of str to array
        The data.
    expr : relay.Expr
        Its result in int32.
    exact : array
        That in floating-point values.
    scale : array
        What one of its result stands for, by channel.
    """

    def __init__(self, scale=SCALES, batch=2):
        attrs, weight = dict(kernel_size=(1, 1), channels=8), Quantization(scale, 0, "int8", 0)
        x, w = DATA.values(batch, 4, 8, 8), weight.values(8, 4, 1, 1, low=-64, high=64)
        self.inputs = {"x": x}
        self.expr = qnn.conv2d(
            DATA.var("x", *x.shape), relay.const(w), *parameters(DATA, weight), **attrs
        )
        self.exact = conv(DATA.real(x), weight.real(w), attrs)
        self.scale = np.float32(DATA.scale) * scale


def bias_of(size):
    return np.random.default_rng(size).integers(-5000, 5000, size).astype("int32")


def test_bias_of_more_dimensions():
    """The axis of the scales is then another than that of the channels."""
    one = Conv2d(scale=np.float32(0.01), batch=8)
    expr = one.expr + relay.const(np.full((1, 1, 1, 1, 1), 500, "int32"))
    mod = partition(module(OUT.requantize(expr, SCALES, 1)), prune=False)
    assert testing.offload(mod).host_ops == {"qnn.conv2d": 1, "add": 1}
    (got,) = direct.run(mod, one.inputs)
    sums = np.rint(one.exact / one.scale)[None] + 500
    assert_within_one_step(got, OUT.nearest(sums * SCALES.reshape(1, 8, 1, 1, 1)))


def test_relu_with_a_scale_below_zero():
    """What is above zero stands for what is below."""
    one = Conv2d()
    expr = OUT.requantize(relay.nn.relu(one.expr), -one.scale, 1)
    mod = partition(module(expr), prune=False)
    assert testing.offload(mod).host_ops == {"qnn.conv2d": 1, "nn.relu": 1}


def as_pytorch(expr, scale, out, low=0, high=255.0):
    """Requantize a sum as TVM's PyTorch importer does."""
    zero = relay.const(0, "int32")
    expr = qnn.requantize(
        expr, relay.const(scale), zero, out.scale_expr, out.zero_expr, 1, out_dtype="int32"
    )
    return relay.cast(relay.clip(expr, low, high), "uint8")


@pytest.mark.parametrize("constants", ["integers", "quantize"])
@pytest.mark.parametrize("relu", [False, True], ids=["no-relu", "relu"])
@pytest.mark.parametrize("groups", [1, 4], ids=["one-group", "depthwise"])
def test_conv_of_pytorch(groups, relu, constants):
    """An explicit pad, then conv2d, bias_add, requantize to int32, clip, cast.

    Weight and bias are integers, or the quantize of floating-point values.
    """
    weight = Quantization(SCALES, 0, "int8", 0)
    attrs = dict(kernel_size=(3, 3), channels=8, groups=groups)
    x, bias = DATA.values(1, 4, 6, 6), bias_of(8)
    w = weight.values(8, 4 // groups, 3, 3, low=-64, high=64)
    padded = relay.nn.pad(DATA.var("x", *x.shape), ((0, 0), (0, 0), (1, 1), (1, 1)), 131.0)
    scale = np.float32(DATA.scale) * SCALES
    w_expr, bias_expr = relay.const(w), relay.const(bias)
    if constants == "quantize":
        of_sums = Quantization(scale, 0, "int32", 0)
        w_expr = weight.quantize(relay.const(weight.real(w).astype("float32")))
        bias_expr = of_sums.quantize(relay.const(of_sums.real(bias).astype("float32")))
    expr = qnn.conv2d(padded, w_expr, *parameters(DATA, weight), padding=(0, 0), **attrs)
    low = OUT.zero_point if relu else 0
    expr = as_pytorch(relay.nn.bias_add(expr, bias_expr), scale, OUT, low)
    exact = conv(DATA.real(x), weight.real(w), dict(attrs, padding=(1, 1)))
    exact = exact + (bias * scale.astype("float64")).reshape(8, 1, 1)
    name = "dnnl.qnn.conv2d_bias_clip_quantize" if relu else "dnnl.qnn.conv2d_bias_quantize"
    want = OUT.nearest(np.maximum(exact, 0) if relu else exact)
    run_quantized(expr, {"x": x}, want, composites={name: 1})


@pytest.mark.parametrize(
    "low, high, is_read",
    [
        (99.5, 160.5, True),
        (-1.0, 255.0, False),
        (0.0, 256.0, False),
        (0.5, 255.5, True),
    ],
)
def test_bounds_of_a_cast(low, high, is_read):
    """Within them a cast changes nothing; beyond the type it wraps around."""
    one = Conv2d()
    expr = as_pytorch(one.expr, one.scale, OUT, low, high)
    mod = partition(module(expr), prune=False)
    host = testing.offload(mod).host_ops
    assert ("qnn.conv2d" not in host) == is_read
    steps = np.rint(one.exact / OUT.scale) + OUT.zero_point
    (got,) = direct.run(mod, one.inputs)
    # TVM cuts the fractions of the bounds off.
    assert_within_one_step(got, np.clip(steps, int(low), int(high)).astype("int64").astype("uint8"))
