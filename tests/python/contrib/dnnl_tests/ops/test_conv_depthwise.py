# SPDX-License-Identifier: Apache-2.0
"""Depthwise convolutions over three dimensions, which oneDNN multiplies channel by channel."""

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.contrib.onednn import cpu
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from dnnl_tests import direct
from dnnl_tests.quantized import Quantization, run_quantized
from dnnl_tests.reference import RTOL, conv, rand
from dnnl_tests.single_op import run_fused, var

# Sizes of the data, kernel, and attributes. The kernel computes eight neighboring results of a row
# at once, and one at a time where windows reach into the padding.
CASES = {
    "several": ((3, 4, 21), (3, 3, 3), dict(padding=(1, 1, 1))),
    "overlap": ((2, 3, 19), (1, 1, 3), {}),
    "eight": ((2, 3, 8), (2, 2, 1), {}),
    "few": ((3, 3, 7), (3, 3, 3), dict(padding=(1, 1, 1))),
    "edges": ((4, 4, 4), (7, 7, 7), dict(padding=(3, 3, 3))),
    "asymmetric": ((4, 5, 12), (3, 2, 5), dict(padding=(1, 0, 3, 2, 1, 4))),
    "padding-alone": ((2, 3, 4), (1, 1, 2), dict(padding=(2, 2, 3))),
    "strides": ((5, 7, 33), (3, 3, 3), dict(strides=(2, 3, 2), padding=(1, 1, 1))),
    "dilation": ((5, 5, 24), (2, 3, 3), dict(dilation=(3, 2, 4), padding=(1, 2, 4))),
    "one": ((1, 1, 1), (1, 1, 1), {}),
}


def depthwise(name, channels, channels_last=False):
    """Return a convolution with its data, weight and result."""
    sizes, kernel, attrs = CASES[name]
    layouts = dict(data_layout="NCDHW", kernel_layout="OIDHW")
    attrs = dict(attrs, groups=channels, channels=channels, kernel_size=kernel, **layouts)
    x, w = rand(2, channels, *sizes), rand(channels, 1, *kernel, seed=1)
    if channels_last:
        attrs["data_layout"], x = "NDHWC", np.moveaxis(x, 1, -1).copy()
    expr = relay.nn.conv3d(var("x", x.shape), var("w", w.shape), **attrs)
    return expr, x, w, conv(x, w, attrs)


def kinds(steps):
    """Return the kinds of the steps, reorders left out, none of which may be plain loops."""
    for step in steps:
        assert not step["reference"] and "gemm" not in step["impl"], step
    return [step["kind"] for step in steps if step["kind"] != "reorder"]


# Full blocks of 8 and of 16 channels, and others.
@pytest.mark.parametrize("channels", [3, 16, 20])
@pytest.mark.parametrize("channels_last", [False, True], ids=["ncdhw", "ndhwc"])
@pytest.mark.parametrize("case", CASES)
def test_alone(case, channels_last, channels):
    expr, x, w, want = depthwise(case, channels, channels_last)
    (kind,) = kinds(run_fused(expr, {"x": x, "w": w}, want))
    assert kind in ("depthwise convolution", "convolution")


def test_zero_in_the_weight_keeps_nan_and_infinity():
    """They reach all results whose windows contain them, and no other channel."""
    expr, x, w, _ = depthwise("several", 20)
    x[0, 3, 1, 2, 9], x[1, 19, 0, 0, 0] = np.nan, np.inf
    w[3, 0, 0, 0, 0] = 0
    padded = np.pad(x.astype("float64"), [(0, 0)] * 2 + [(1, 1)] * 3)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3, 3), (2, 3, 4))
    want = np.einsum("ncdhwijk,cijk->ncdhw", windows, w[:, 0])
    assert np.isnan(want[0, 3]).sum() == 27 and np.isinf(want[1, 19]).sum() == 8
    run_fused(expr, {"x": x, "w": w}, want.astype("float32"))


@pytest.mark.parametrize("channels_last", [False, True], ids=["ncdhw", "ndhwc"])
def test_post_ops_are_one_step(channels_last):
    expr, x, w, out = depthwise("several", 20, channels_last)
    shape = (20,) if channels_last else (20, 1, 1, 1)
    b, z = rand(*shape, seed=2), rand(*out.shape, seed=3)
    expr = relay.nn.relu(expr + var("b", shape) + var("z", z.shape))
    inputs = {"x": x, "w": w, "b": b, "z": z}
    ours = kinds(run_fused(expr, inputs, np.maximum(out + b + z, 0), rtol=RTOL))
    assert ours in (["depthwise convolution", "binary"], ["convolution"])


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_reduced_precision(dtype):
    """Not as small matrices of each channel, of which AMX and AVX512_FP16 have kernels."""
    if not cpu.computes(dtype):
        pytest.skip(f"{dtype} needs instructions that this CPU lacks")
    expr, x, w, want = depthwise("several", 32)
    mod = dnnl.partition_for_dnnl(
        tvm.IRModule.from_expr(expr), {"w": w}, precision=dtype, prune=False
    )
    runner = direct.Runner(mod)
    # Data and weights are rounded to 8 or 11 bits.
    testing.assert_close(runner({"x": x}), [want], {"bfloat16": 2**-7, "float16": 2**-10}[dtype])
    (plan,) = testing.plans(runner)
    assert kinds(plan["primitives"])[0] == "depthwise convolution"


@pytest.mark.parametrize("zero_point", [0, 128])
def test_int8(zero_point):
    data, weight = Quantization(0.03, zero_point), Quantization(0.01, 0, "int8")
    expr, x, w, _ = depthwise("several", 32)
    x, w = data.values(*x.shape), weight.values(*w.shape, low=-127)
    attrs = {key: expr.attrs[key] for key in ("padding", "groups", "channels", "kernel_size")}
    want = conv(data.real(x), weight.real(w), dict(attrs, data_layout="NCDHW"))
    result = Quantization(float(np.abs(want).max() / 127), 128)
    expr = relay.nn.conv3d(data.dequantize(data.var("x", *x.shape)), weight.dequantize(w), **attrs)
    steps = run_quantized(
        result.quantize(expr),
        {"x": x},
        result.nearest(want),
        composites={"dnnl.qnn.conv3d_quantize": 1},
    )
    assert "depthwise convolution" in kinds(steps)
