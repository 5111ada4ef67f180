# SPDX-License-Identifier: Apache-2.0
"""Convolutions over images of one column, which are computed as rows, and weights near zero."""

import numpy as np
import pytest
from tvm import relay
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from dnnl_tests import direct
from dnnl_tests.marks import has_avx2, json_only
from dnnl_tests.reference import RTOL, conv2d, rand
from dnnl_tests.relay import module
from dnnl_tests.single_op import run_alone, var

COLUMNS = {
    "plain": {},
    "asymmetric": dict(padding=(2, 0, 1, 0)),
    "strides": dict(strides=(3, 2), padding=(1, 0)),
    "dilation": dict(dilation=(2, 5)),
    "groups": dict(groups=2),
    "depthwise": dict(groups=16),
}
VARIANT = "a column as a row"


@pytest.mark.parametrize("channels_last", [False, True], ids=["nchw", "nhwc"])
@pytest.mark.parametrize("case", COLUMNS)
def test_column(case, channels_last):
    attrs = dict(channels=16, kernel_size=(3, 1), **COLUMNS[case])
    x, w = rand(2, 16, 20, 1), rand(16, 16 // attrs.get("groups", 1), 3, 1, seed=1)
    y = rand(*conv2d(x, w, attrs).shape, seed=2)
    want = np.maximum(conv2d(x, w, attrs) + y, 0)
    if channels_last:
        x, y, want = (each.transpose(0, 2, 3, 1) for each in (x, y, want))
        attrs["data_layout"] = "NHWC"
        attrs["kernel_layout"] = "OIHW"
    expr = relay.nn.conv2d(var("x", x.shape), var("w", w.shape), **attrs)
    expr = relay.nn.relu(relay.add(expr, var("y", y.shape)))
    (step,) = run_alone(expr, {"x": x, "y": y}, {"w": w}, want, kinds=["convolution"], rtol=RTOL)
    assert step["variant"] == VARIANT


def test_operand_of_a_column():
    attrs = dict(channels=16, kernel_size=(3, 1), padding=(1, 0))
    x, w, y = rand(2, 16, 20, 1), rand(16, 16, 3, 1, seed=1), rand(1, 16, 1, 1, seed=2)
    expr = relay.nn.conv2d(var("x", x.shape), var("w", w.shape), **attrs)
    expr = relay.multiply(expr, var("y", y.shape))
    inputs, want = {"x": x, "y": y}, conv2d(x, w, attrs) * y
    (step,) = run_alone(expr, inputs, {"w": w}, want, kinds=["convolution"], rtol=RTOL)
    assert step["variant"] == VARIANT and step["post_ops"] == ["binary_mul"]


@json_only
@pytest.mark.parametrize("pool", [relay.nn.max_pool2d, relay.nn.avg_pool2d])
def test_pool_behind_a_column(pool):
    """It reads the result as it is: no stride of the one column is odd."""
    attrs = dict(channels=16, kernel_size=(3, 1), padding=(1, 0))
    x, w = rand(1, 16, 100, 1), rand(16, 16, 3, 1, seed=1)
    expr = relay.nn.conv2d(var("x", x.shape), var("w", w.shape), **attrs)
    expr = pool(expr, pool_size=(2, 1), strides=(2, 1))
    want = conv2d(x, w, attrs).reshape(1, 16, 50, 2, 1)
    want = want.max(3) if pool is relay.nn.max_pool2d else want.mean(3)
    kinds = ["convolution", "pooling"]
    steps = run_alone(expr, {"x": x}, {"w": w}, want, kinds=kinds, rtol=RTOL, reorders=True)
    order = [step["kind"] for step in steps]
    assert order.index("pooling") == order.index("convolution") + 1


def test_column_padded_to_three():
    """A window may move to both sides over one column of values."""
    attrs = dict(channels=8, kernel_size=(3, 1), padding=(1, 1))
    x, w = rand(1, 8, 20, 1), rand(8, 8, 3, 1, seed=1)
    expr = relay.nn.conv2d(var("x", x.shape), var("w", w.shape), **attrs)
    want = conv2d(x, w, attrs)
    assert want.shape[3] == 3
    (step,) = run_alone(expr, {"x": x}, {"w": w}, want, kinds=["convolution"], rtol=RTOL)
    assert step["variant"] != VARIANT


# A transposed one of few channels is a 1x1 convolution that makes the windows one by one.
WEIGHTED = {
    "conv2d": (16, "oneDNN's layouts"),
    "conv2d_transpose": (16, "oneDNN's layouts"),
    "windows": (8, "1x1 convolution"),
    "dense": (16, "inner_product, weights packed once"),
    "patches": (16, "1x1 convolution"),
}


@pytest.mark.skipif(not has_avx2(), reason="oneDNN packs only some of these weights")
@pytest.mark.parametrize("name", WEIGHTED)
def test_weights_too_small_to_be_normal_are_zero(name):
    """A CPU would multiply them up to a hundred times slower, as in models of PaddlePaddle."""
    channels, (out, variant) = 2 if name == "patches" else 16, WEIGHTED[name]
    x = np.full((32, channels, 4, 4) if name != "dense" else (32, 16), 1e30, "float32")
    w = np.full((out, channels, 2, 2) if name != "dense" else (16, 16), 1e-39, "float32")
    w[::2] = 1e-30
    results = []
    for weight in (w, np.where(w < np.finfo("float32").tiny, np.float32(0), w)):
        data, attrs = var("x", x.shape), dict(channels=out, kernel_size=(2, 2), strides=(2, 2))
        if name == "dense":
            expr = relay.nn.dense(data, relay.const(weight))
        elif name in ("conv2d_transpose", "windows"):
            expr = relay.nn.conv2d_transpose(data, relay.const(weight.swapaxes(0, 1)), **attrs)
        else:
            expr = relay.nn.conv2d(data, relay.const(weight), **attrs)
        mod = dnnl.partition_for_dnnl(module(expr), prune=False)
        assert testing.offload(mod).partitions == 1
        runner = direct.Runner(mod)
        results.append(runner({"x": x})[0])
        (plan,) = testing.plans(runner)
        assert variant in [step["variant"] for step in plan["primitives"]]
    np.testing.assert_array_equal(*results)
    assert results[0].max() > 0.9


def test_operands_of_other_ops_stay_as_they_are():
    x, y = np.full((2, 8, 4), 1e30, "float32"), np.full((1, 8, 1), 1e-39, "float32")
    expr = relay.multiply(var("x", x.shape), relay.const(y))
    mod = dnnl.partition_for_dnnl(module(expr), prune=False)
    np.testing.assert_allclose(direct.run(mod, {"x": x})[0], x * y, 1e-5)
