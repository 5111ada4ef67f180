# SPDX-License-Identifier: Apache-2.0
"""Ops between dequantize and quantize: convolutions, matmuls and unary ones fused, and right."""

import numpy as np
import pytest
from tvm import relay

from dnnl_tests.marks import has_avx2
from dnnl_tests.quantized import Quantization, run_quantized
from dnnl_tests.reference import conv, rand

DATA = {
    "u8": Quantization(0.02, 0, "uint8"),
    "u8-zero-point": Quantization(0.02, 131, "uint8"),
    "s8": Quantization(0.03, 0, "int8"),
    "s8-zero-point": Quantization(0.03, -7, "int8"),
}
OUT = {"u8": Quantization(0.11, 120, "uint8"), "s8": Quantization(0.13, -3, "int8")}
# With weights up to 64 no CPU's sums of two products exceed 16 bits; beyond, those without VNNI
# take another way.
RANGES = {"7-bits": 64, "8-bits": 127}


def weight_scale(channels, axis, per_channel):
    """Return the quantization of a weight."""
    scale = np.linspace(0.004, 0.02, channels) if per_channel else 0.01
    return Quantization(scale, 0, "int8", axis)


def assert_in_8_bits(steps, data, bits="7-bits"):
    """Assert that integers are multiplied, as they are on any CPU with AVX2 for such operands."""
    is_exact = has_avx2() and data.dtype == "uint8" and bits == "7-bits"
    for step in steps if is_exact else ():
        assert not step["reference"] and "in float32" not in step["variant"], step


@pytest.mark.parametrize("bits", RANGES)
@pytest.mark.parametrize("per_channel", [True, False], ids=["per-channel", "per-tensor"])
@pytest.mark.parametrize("groups", [1, 2, 16], ids=["dense", "groups", "depthwise"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("data", DATA)
def test_conv2d_bias_relu(data, layout, groups, per_channel, bits):
    """Padding is zero in floating-point values, whatever the zero point."""
    data, out = DATA[data], OUT["u8"]
    kernel_layout = {"NCHW": "OIHW", "NHWC": "HWIO"}[layout]
    attrs = dict(kernel_size=(3, 3), channels=16, padding=(1, 1), groups=groups)
    attrs.update(data_layout=layout, kernel_layout=kernel_layout)
    weight = weight_scale(16, kernel_layout.index("O"), per_channel)
    x = data.values(*[dict(N=2, C=16, H=7, W=9)[c] for c in layout])
    limit = RANGES[bits]
    w = weight.values(
        *[dict(O=16, I=16 // groups, H=3, W=3)[c] for c in kernel_layout], low=-limit, high=limit
    )
    b, axis = rand(16, seed=2), layout.index("C")
    real = relay.nn.conv2d(data.dequantize(data.var("x", *x.shape)), weight.dequantize(w), **attrs)
    real = relay.nn.relu(relay.nn.bias_add(real, relay.const(b), axis))
    shape = [1] * 4
    shape[axis] = 16
    want = np.maximum(conv(data.real(x), weight.real(w), attrs) + b.reshape(shape), 0)
    steps = run_quantized(
        out.quantize(real),
        {"x": x},
        out.nearest(want),
        composites={"dnnl.qnn.conv2d_bias_relu_quantize": 1},
    )
    assert len(steps) <= 1 or "convolution" in {step["kind"] for step in steps}
    assert_in_8_bits(steps, data, bits)


@pytest.mark.parametrize("data", DATA)
def test_conv2d_bias_prelu(data):
    data, out, weight = DATA[data], OUT["s8"], weight_scale(16, 0, True)
    attrs = dict(kernel_size=(3, 3), channels=16, padding=(1, 1))
    x, w = data.values(2, 16, 7, 9), weight.values(16, 16, 3, 3, low=-64, high=64)
    b, slopes = rand(16, seed=2), rand(16, seed=3)
    real = relay.nn.conv2d(data.dequantize(data.var("x", *x.shape)), weight.dequantize(w), **attrs)
    real = relay.nn.prelu(relay.nn.bias_add(real, relay.const(b)), relay.const(slopes))
    want = conv(data.real(x), weight.real(w), attrs) + b.reshape(16, 1, 1)
    run_quantized(
        out.quantize(real),
        {"x": x},
        out.nearest(np.where(want < 0, want * slopes.reshape(16, 1, 1), want)),
        composites={"dnnl.qnn.conv2d_bias_prelu_quantize": 1},
    )


@pytest.mark.parametrize("dilation", [(2, 1), (1, 2), (2, 2)])
@pytest.mark.parametrize("data", DATA)
def test_dilated_border(data, dilation):
    """Windows with gaps that span the whole image: on AMX a kernel of oneDNN's is wrong there."""
    data, weight = DATA[data], weight_scale(16, 0, True)
    attrs = dict(kernel_size=(5, 5), channels=16, dilation=dilation)
    attrs["padding"] = tuple(2 * gap for gap in dilation)
    x, w = data.values(2, 16, 9, 9), weight.values(16, 16, 5, 5, low=-64, high=64)
    real = relay.nn.conv2d(data.dequantize(data.var("x", *x.shape)), weight.dequantize(w), **attrs)
    want = conv(data.real(x), weight.real(w), attrs)
    out = Quantization(np.abs(want).max() / 127, 0, "int8")
    run_quantized(
        out.quantize(real), {"x": x}, out.nearest(want), composites={"dnnl.qnn.conv2d_quantize": 1}
    )


@pytest.mark.parametrize("per_channel", [True, False], ids=["per-channel", "per-tensor"])
@pytest.mark.parametrize("data", DATA)
def test_patches(data, per_channel):
    data, out, weight = DATA[data], OUT["u8"], weight_scale(16, 0, per_channel)
    attrs = dict(kernel_size=(4, 2), channels=16, strides=(4, 2))
    x, w = data.values(2, 3, 12, 8), weight.values(16, 3, 4, 2, low=-64, high=64)
    real = relay.nn.conv2d(data.dequantize(data.var("x", *x.shape)), weight.dequantize(w), **attrs)
    want = out.nearest(conv(data.real(x), weight.real(w), attrs))
    steps = run_quantized(
        out.quantize(real), {"x": x}, want, composites={"dnnl.qnn.conv2d_quantize": 1}
    )
    # C source tells no plan. Without VNNI, our kernel multiplies what oneDNN's does inexactly.
    variants = [step["variant"] for step in steps if step["kind"] == "convolution"]
    names = ("1x1 convolution", "products in 16 bits")[: 2 if data.dtype == "int8" else 1]
    told = [any(name in variant for name in names) for variant in variants]
    assert told == [has_avx2()] * bool(steps)


@pytest.mark.parametrize("bits", RANGES)
@pytest.mark.parametrize("per_channel", [True, False], ids=["per-channel", "per-tensor"])
@pytest.mark.parametrize("rows", [1, 5, 200])
@pytest.mark.parametrize("data", DATA)
def test_dense_bias_gelu(data, rows, per_channel, bits):
    data, out, weight = DATA[data], OUT["s8"], weight_scale(24, 0, per_channel)
    limit = RANGES[bits]
    x, w, b = data.values(rows, 40), weight.values(24, 40, low=-limit, high=limit), rand(24, seed=2)
    real = relay.nn.dense(data.dequantize(data.var("x", *x.shape)), weight.dequantize(w))
    real = relay.tanh(real + relay.const(b))
    out = Quantization(0.008, 1, "int8")
    want = np.tanh(data.real(x) @ weight.real(w).T + b)
    steps = run_quantized(
        out.quantize(real),
        {"x": x},
        out.nearest(want),
        composites={"dnnl.qnn.dense_bias_tanh_quantize": 1},
    )
    assert_in_8_bits(steps, data, bits)


@pytest.mark.parametrize("out", OUT)
@pytest.mark.parametrize("op", ["add", "multiply"])
def test_binary_of_real_numbers(op, out):
    """As an input is normalised: nothing is in 8 bits but the result."""
    out, x, f = OUT[out], 40 * rand(2, 3, 9, 7), rand(3, 1, 1, seed=1)
    real = getattr(relay, op)(relay.var("x", shape=x.shape), relay.const(f))
    real = relay.nn.relu(real + relay.const(f))
    want = np.maximum(getattr(np, op)(x, f) + f, 0)
    name = f"dnnl.{op}_add_relu_quantize"
    steps = run_quantized(out.quantize(real), {"x": x}, out.nearest(want), composites={name: 1})
    assert len(steps) <= 1


RESIDUALS = {
    "plain": (None, "dnnl.qnn.conv2d_sum_relu_quantize"),
    "rounded-before": (OUT["s8"], "dnnl.qnn.conv2d_quantize_sum_relu_quantize"),
}


@pytest.mark.parametrize("residual", DATA)
@pytest.mark.parametrize("kind", RESIDUALS)
def test_residual(kind, residual):
    """What is added has a scale of its own; a rounding between the ops is kept."""
    data, out, weight, residual = DATA["u8"], OUT["u8"], weight_scale(16, 0, True), DATA[residual]
    rounded, composite = RESIDUALS[kind]
    attrs = dict(kernel_size=(3, 3), channels=16, padding=(1, 1))
    x, w = data.values(1, 16, 6, 6), weight.values(16, 16, 3, 3, low=-64, high=64)
    r = residual.values(1, 16, 6, 6, seed=3)
    real = relay.nn.conv2d(data.dequantize(data.var("x", *x.shape)), weight.dequantize(w), **attrs)
    want = conv(data.real(x), weight.real(w), attrs)
    if rounded:
        real, want = rounded.dequantize(rounded.quantize(real)), rounded.real(rounded.nearest(want))
    real = relay.nn.relu(real + residual.dequantize(residual.var("r", *r.shape)))
    want = out.nearest(np.maximum(want + residual.real(r), 0))
    inputs, counts = {"x": x, "r": r}, {composite: 1}
    assert_in_8_bits(run_quantized(out.quantize(real), inputs, want, composites=counts), data)


def test_zeros_of_coarse_steps_stay_zeros():
    """What is added has steps so fine that it shows a zero that is a millionth of a coarse one."""
    data, weight, fine = DATA["u8"], weight_scale(8, 0, False), Quantization(1e-7, -3, "int8")
    coarse = Quantization(1e5 / 3, 127, "int8")
    x, w = data.values(4, 16), weight.values(8, 16, low=0)
    r = fine.values(4, 8, seed=3)
    real = relay.nn.dense(data.dequantize(data.var("x", 4, 16)), weight.dequantize(w))
    real = coarse.dequantize(coarse.quantize(real)) + fine.dequantize(fine.var("r", 4, 8))
    run_quantized(
        fine.quantize(real),
        {"x": x, "r": r},
        r,
        composites={"dnnl.qnn.dense_quantize_sum_quantize": 1},
    )


@pytest.mark.parametrize("channels", [3, 8, 17])
def test_residual_of_few_channels(channels):
    """The source of a depthwise convolution is also what is added to its result."""
    data, out, weight = DATA["u8"], OUT["u8"], weight_scale(channels, 0, True)
    attrs = dict(kernel_size=(3, 3), channels=channels, padding=(1, 1), groups=channels)
    x, w = data.values(2, channels, 5, 5), weight.values(channels, 1, 3, 3, low=-60, high=60)
    var = data.var("x", *x.shape)
    real = relay.nn.conv2d(data.dequantize(var), weight.dequantize(w), **attrs)
    want = out.nearest(conv(data.real(x), weight.real(w), attrs) + data.real(x))
    run_quantized(
        out.quantize(real + data.dequantize(var)),
        {"x": x},
        want,
        composites={"dnnl.qnn.conv2d_sum_quantize": 1},
    )


def test_sum_of_far_scales():
    """What stands for zero with a large scale adds nothing to a tensor of small numbers."""
    lhs, rhs = Quantization(21.6, 255, "uint8"), Quantization(1.3e-5, 255, "uint8")
    out = Quantization(2.7e-5, 149, "uint8")
    x, y = np.full((4, 50), 255, "uint8"), rhs.values(4, 50)
    real = lhs.dequantize(lhs.var("x", 4, 50)) + rhs.dequantize(rhs.var("y", 4, 50))
    want = out.nearest(lhs.real(x) + rhs.real(y))
    run_quantized(
        out.quantize(real), {"x": x, "y": y}, want, composites={"dnnl.qnn.add_quantize": 1}
    )


def test_weight_with_a_zero_point():
    """A weight of uint8 around 128 is the same in int8 around 0."""
    data, out, weight = DATA["u8"], OUT["u8"], Quantization(0.01, 128, "uint8", 0)
    x, w = data.values(4, 16), weight.values(8, 16)
    real = relay.nn.dense(data.dequantize(data.var("x", 4, 16)), weight.dequantize(w))
    want = out.nearest(data.real(x) @ weight.real(w).T)
    run_quantized(out.quantize(real), {"x": x}, want, composites={"dnnl.qnn.dense_quantize": 1})


def test_weight_beyond_int8():
    """A convolution whose weight has no room in int8 is the sum of two."""
    data, out, weight = DATA["u8"], OUT["u8"], Quantization(0.01, 3, "uint8", 0)
    attrs = dict(kernel_size=(1, 1), channels=8)
    x, w = data.values(1, 4, 5, 5), weight.values(8, 4, 1, 1)
    real = relay.nn.conv2d(data.dequantize(data.var("x", *x.shape)), weight.dequantize(w), **attrs)
    want = out.nearest(conv(data.real(x), weight.real(w), attrs))
    counts = {"dnnl.qnn.conv2d": 2, "dnnl.add_quantize": 1}
    run_quantized(out.quantize(real), {"x": x}, want, composites=counts)


UNARY_OUT = {"u8": Quantization(0.021, 120, "uint8"), "s8": Quantization(0.023, -3, "int8")}


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
    "erf": (relay.erf, erf),
    # Functions of ours; a step is where float32 has it.
    "floor": (relay.floor, lambda x: np.floor(x.astype("float32"))),
    "sin": (relay.sin, np.sin),
}


def assert_one_step(steps, post_op):
    """Assert that the plan, which C source does not tell, is one primitive on any CPU with AVX2."""
    for step in steps:
        assert not has_avx2() or (len(steps) == 1 and post_op in step["post_ops"]), steps


@pytest.mark.parametrize("out", UNARY_OUT)
@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("op", OPS)
def test_alone(op, data, out):
    data, out, (build, function) = DATA[data], UNARY_OUT[out], OPS[op]
    x = data.values(2, 17, 9)
    steps = run_quantized(
        out.quantize(build(data.dequantize(data.var("x", *x.shape)))),
        {"x": x},
        out.nearest(function(data.real(x))),
        composites={f"dnnl.qnn.{op}_quantize": 1},
    )
    for step in steps:
        assert len(steps) == 1 and step["variant"] == "table of results", steps


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
    """What is added after it keeps a scale of its own."""
    data, other, out = DATA["u8-zero-point"], DATA["s8-zero-point"], UNARY_OUT["u8"]
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
    """Rounded to 8 bits between two ops, and not at the end: the op reads floating-point values."""
    data, inner = DATA["u8-zero-point"], UNARY_OUT["s8"]
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
    data, out = Quantization(np.linspace(0.01, 0.03, 8), 0, "int8", 1), UNARY_OUT["s8"]
    x = data.values(2, 8, 5, 5)
    real = relay.tanh(data.dequantize(data.var("x", *x.shape)))
    run_quantized(out.quantize(real), {"x": x}, out.nearest(np.tanh(data.real(x))), composites={})


def test_between_convolutions():
    """The layout is that of the convolution before it."""
    data, inner, out = DATA["u8"], Quantization(0.05, 100, "uint8"), UNARY_OUT["u8"]
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
