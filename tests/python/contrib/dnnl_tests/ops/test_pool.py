# SPDX-License-Identifier: Apache-2.0
"""Pooling at its edges, what is fused to it, and what is refused; windows are drawn elsewhere."""

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.testing import dnnl as testing

from dnnl_tests import direct
from dnnl_tests.marks import json_only
from dnnl_tests.reference import RTOL, pool, rand
from dnnl_tests.single_op import refusal, run_fused, run_single, var

SIZES = {1: (14,), 2: (9, 14), 3: (5, 8, 9)}


def relay_pool(op, attrs, x):
    return getattr(relay.nn, op[3:])(var("x", x.shape), **attrs)


def test_avg_pool_that_counts_the_padding_up_to_the_end_of_the_last_window():
    """ceil_mode is exact where it adds no output, or only reaches what is padded anyway."""
    attrs = dict(pool_size=(3, 3), strides=(2, 2), padding=(1, 1), ceil_mode=True)
    attrs.update(count_include_pad=True)
    x = rand(1, 16, 9, 11)
    expr = relay_pool("nn.avg_pool2d", attrs, x)
    run_single(expr, {"x": x}, None, pool(x, "avg", attrs), "nn.avg_pool2d", "pooling")


@pytest.mark.parametrize("spatial", SIZES)
@pytest.mark.parametrize("kind", ["max", "avg"])
def test_what_is_fused_to_one_element_of_each_channel(kind, spatial):
    x, scale = rand(2, 16, *SIZES[spatial]), rand(16, *[1] * spatial, seed=2)
    op = getattr(relay.nn, f"adaptive_{kind}_pool{spatial}d")
    body = op(var("x", x.shape), output_size=(1,) * spatial) * var("s", scale.shape)
    axes = tuple(range(2, x.ndim))
    expected = (x.max if kind == "max" else x.mean)(axes, keepdims=True) * scale
    run_fused(body, {"x": x, "s": scale}, expected)


@pytest.mark.parametrize("spatial", SIZES)
@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize("channels_last", [False, True], ids=["ncx", "nxc"])
def test_fused(channels_last, kind, spatial):
    op, x = f"nn.{kind}_pool{spatial}d", rand(2, 16, *SIZES[spatial])
    windows = {"pool_size": 3, "strides": 2, "padding": 1}
    attrs = {name: (value,) * spatial for name, value in windows.items()}
    scale = rand(16, *[1] * spatial, seed=2)
    if channels_last:
        attrs["layout"] = f"N{'DHW'[3 - spatial :]}C"
        x, scale = np.moveaxis(x, 1, -1).copy(), scale.reshape(-1)
    out = pool(x, kind, attrs)
    z = rand(*out.shape, seed=3)
    body = relay.nn.relu(relay_pool(op, attrs, x) * var("s", scale.shape)) + var("z", z.shape)
    expected = np.maximum(out * scale, 0) + z
    steps = run_fused(body, {"x": x, "s": scale, "z": z}, expected)
    *before, step = (step for step in steps if step["kind"] != "reorder")
    # Our kernel of row-major images computes the pool alone.
    assert [each["impl"] for each in before] == ["tvm:any"] * (not channels_last)
    assert step["post_ops"] == ["binary_mul", "eltwise_relu", "binary_add"]
    assert step["impl"].startswith("jit")


@json_only
def test_the_layout_of_a_convolution_is_kept():
    x, w = rand(1, 16, 12, 12), rand(32, 16, 3, 3, seed=1)
    conv = relay.nn.conv2d(var("x", x.shape), var("w", w.shape), channels=32, kernel_size=(3, 3))
    pooled = relay.nn.max_pool2d(conv, pool_size=(2, 2), strides=(2, 2))
    mod = tvm.IRModule.from_expr(relay.nn.global_avg_pool2d(pooled))
    partitioned = direct.check(mod, {"x": x}, {"w": w}, partitions=1, rtol=RTOL)
    runner = direct.Runner(partitioned)
    runner({"x": x})
    (plan,) = testing.plans(runner)
    pools = [step for step in plan["primitives"] if step["kind"] == "pooling"]
    kinds = [step["kind"] for step in plan["primitives"]]
    assert kinds[1:] == ["convolution", "pooling", "pooling"] and pools[0]["src"] != "abcd"


def pooled(op, shape=(1, 4, 8, 8), **attrs):
    return getattr(relay.nn, op)(var("x", shape), **attrs)


REFUSED = {
    "one-channel": (
        lambda: pooled("avg_pool3d", (2, 1, 7, 4, 4), pool_size=(5, 1, 1)),
        "data of (2, 1, 7, 4, 4) has one channel: slow in oneDNN",
    ),
    "much-padding": (
        lambda: pooled("max_pool2d", (1, 4, 5, 5), pool_size=65, padding=60),
        "padding=[60, 60, 60, 60]: oneDNN is slow for windows with much padding",
    ),
    "no-window": (
        lambda: pooled("avg_pool2d", (1, 4, 5, 8), pool_size=(8, 2), strides=3, padding=(1, 0)),
        "along H, a window of 8 does not fit into 5 values plus padding",
    ),
    "ceil-mode-counts-what-is-not-padded": (
        lambda: pooled(
            "avg_pool2d", pool_size=3, strides=2, ceil_mode=True, count_include_pad=True
        ),
        "along H, ceil_mode moves the last window 1 beyond the padding, which is counted",
    ),
    "ceil-mode-leaves-the-data": (
        lambda: pooled("max_pool1d", (1, 4, 5), pool_size=2, strides=3, padding=1, ceil_mode=True),
        "along W, the last window of 2 contains only padding",
    ),
    "padding-as-large-as-the-window": (
        lambda: pooled("max_pool2d", pool_size=(2, 2), padding=(2, 0)),
        "along H, the first window of 2 contains only padding",
    ),
    "blocked-layout": (
        lambda: pooled("max_pool2d", (1, 1, 8, 8, 4), layout="NCHW4c"),
        "layout=NCHW4c is not NCHW or NHWC",
    ),
    "other-layout": (
        lambda: pooled("global_avg_pool2d", layout="HWNC"),
        "layout=HWNC is not NCHW or NHWC",
    ),
    "out-layout": (
        lambda: pooled("avg_pool2d", out_layout="NHWC"),
        "out_layout=NHWC differs from layout=NCHW",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    make_call, reason = REFUSED[name]
    assert refusal(make_call()) == reason
