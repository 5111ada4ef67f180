# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.  See the NOTICE file
# distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file
# to you under the Apache License, Version 2.0 (the
# "License"); you may not use this file except in compliance
# with the License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing,
# software distributed under the License is distributed on an
# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
# KIND, either express or implied.  See the License for the
# specific language governing permissions and limitations
# under the License.
"""Unary elementwise ops between dequantize and quantize: one primitive that reads 8 bits."""

import numpy as np
import pytest
from tvm import relay

from dnnl_tests.marks import has_avx2
from dnnl_tests.quantized import Quantization, run_quantized
from dnnl_tests.reference import conv

DATA = {
    "u8": Quantization(0.02, 0, "uint8"),
    "u8-zero-point": Quantization(0.02, 131, "uint8"),
    "s8": Quantization(0.03, 0, "int8"),
    "s8-zero-point": Quantization(0.03, -7, "int8"),
}
OUT = {"u8": Quantization(0.021, 120, "uint8"), "s8": Quantization(0.023, -3, "int8")}


def gelu(x):
    """Return the formula of gelu, which is one op of oneDNN."""
    half = relay.const(0.5, "float32")
    return x * (half + half * relay.erf(x * relay.const(0.5**0.5, "float32")))


def erf(x):
    """Compute the error function by the trapezoidal rule."""
    points = np.linspace(0, x, 4001)
    return np.trapz(2 / np.pi**0.5 * np.exp(-(points**2)), points, axis=0)


OPS = {
    "relu": (relay.nn.relu, lambda x: np.maximum(x, 0)),
    "leaky_relu": (lambda x: relay.nn.leaky_relu(x, 0.1), lambda x: np.where(x > 0, x, 0.1 * x)),
    "clip": (lambda x: relay.clip(x, -1.5, 1.7), lambda x: np.clip(x, -1.5, 1.7)),
    "abs": (relay.abs, np.abs),
    "negative": (relay.negative, np.negative),
    "exp": (relay.exp, np.exp),
    "tanh": (relay.tanh, np.tanh),
    "sigmoid": (relay.sigmoid, lambda x: 1 / (1 + np.exp(-x))),
    "gelu_erf": (gelu, lambda x: x * (1 + erf(x / 2**0.5)) / 2),
}


def assert_one_step(steps, post_op):
    """Assert that the plan, which C source does not tell, is one primitive on any CPU with AVX2."""
    for step in steps:
        assert not has_avx2() or (len(steps) == 1 and post_op in step["post_ops"]), steps


@pytest.mark.parametrize("out", OUT)
@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("op", OPS)
def test_alone(op, data, out):
    data, out, (build, function) = DATA[data], OUT[out], OPS[op]
    x = data.values(2, 17, 9)
    steps = run_quantized(
        out.quantize(build(data.dequantize(data.var("x", *x.shape)))),
        {"x": x},
        out.nearest(function(data.real(x))),
        composites={f"dnnl.qnn.{op}_quantize": 1},
    )
    assert_one_step(steps, "quantize")


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("op", ["relu", "clip"])
def test_same_scale(op, data):
    """With the scale of the data the result is the integers', cut off: nothing is rounded."""
    data, (build, function) = DATA[data], OPS[op]
    x = data.values(2, 17, 9)
    real = data.dequantize(data.var("x", *x.shape))
    want = data.nearest(function(data.real(x)))
    run_quantized(
        data.quantize(build(real)), {"x": x}, want, composites={f"dnnl.qnn.{op}_quantize": 1}
    )


def test_sum():
    """What is added behind it keeps a scale of its own."""
    data, other, out = DATA["u8-zero-point"], DATA["s8-zero-point"], OUT["u8"]
    x, y = data.values(2, 8, 5, 5), other.values(2, 8, 5, 5, seed=1)
    real = relay.abs(data.dequantize(data.var("x", *x.shape)))
    real = real + other.dequantize(other.var("y", *y.shape))
    steps = run_quantized(
        out.quantize(real),
        {"x": x, "y": y},
        out.nearest(np.abs(data.real(x)) + other.real(y)),
        composites={"dnnl.qnn.abs_sum_quantize": 1},
    )
    assert_one_step(steps, "binary_add")


def test_rounded_inside():
    """Rounded to 8 bits between two ops, and not at the end: the op reads real numbers."""
    data, inner = DATA["u8-zero-point"], OUT["s8"]
    x, y = data.values(2, 8, 5, 5), np.linspace(-1, 1, 400).reshape(2, 8, 5, 5).astype("float32")
    real = relay.abs(data.dequantize(data.var("x", *x.shape)))
    real = inner.dequantize(inner.quantize(real)) + relay.var("y", shape=y.shape)
    want = inner.real(inner.nearest(np.abs(data.real(x)))) + y
    run_quantized(
        real,
        {"x": x, "y": y},
        want.astype("float32"),
        composites={"dnnl.abs_quantize_sum": 1},
    )


def test_scale_for_each_channel():
    """Such a dequantize is a step of its own."""
    data, out = Quantization(np.linspace(0.01, 0.03, 8), 0, "int8", 1), OUT["s8"]
    x = data.values(2, 8, 5, 5)
    real = relay.tanh(data.dequantize(data.var("x", *x.shape)))
    run_quantized(out.quantize(real), {"x": x}, out.nearest(np.tanh(data.real(x))), composites={})


def test_between_convolutions():
    """The layout is that of the convolution before it."""
    data, inner, out = DATA["u8"], Quantization(0.05, 100, "uint8"), OUT["u8"]
    weight = Quantization(0.01, 0, "int8", 0)
    attrs = dict(kernel_size=(3, 3), channels=16, padding=(1, 1))
    x, w = data.values(1, 16, 6, 6), weight.values(16, 16, 3, 3, low=-64, high=64)

    def block(real):
        return relay.nn.conv2d(real, weight.dequantize(w), **attrs)

    bits = inner.quantize(block(data.dequantize(data.var("x", *x.shape))))
    # Two read what the first convolution makes, so nothing is fused to it.
    real = relay.nn.leaky_relu(inner.dequantize(bits), 0.1)
    real = out.dequantize(out.quantize(real)) + inner.dequantize(bits)
    first = inner.real(inner.nearest(conv(data.real(x), weight.real(w), attrs)))
    want = out.real(out.nearest(np.where(first > 0, first, 0.1 * first))) + first
    steps = run_quantized(
        inner.quantize(real),
        {"x": x},
        inner.nearest(want),
        composites={
            "dnnl.qnn.conv2d_quantize": 1,
            "dnnl.qnn.leaky_relu_quantize_sum_quantize": 1,
        },
    )
    if steps and has_avx2():
        assert [step["kind"] for step in steps] == ["convolution", "binary"]
