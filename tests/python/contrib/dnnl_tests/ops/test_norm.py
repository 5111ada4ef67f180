# SPDX-License-Identifier: Apache-2.0
"""Softmax and normalizations on oneDNN, against float64."""

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.contrib.onednn import cpu
from tvm.relay.op.contrib import dnnl

from dnnl_tests import direct
from dnnl_tests.marks import json_only
from dnnl_tests.reference import RTOL, conv2d, rand
from dnnl_tests.single_op import reasons, run_alone, run_planned, var

# Sums of a few hundred squares; what is left is about one.
NORM_RTOL = 3e-6


def softmax(x, axis):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def log_softmax(x, axis):
    shifted = x - x.max(axis, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis, keepdims=True))


SOFTMAX = {
    "softmax": (relay.nn.softmax, softmax),
    "fast_softmax": (relay.nn.fast_softmax, softmax),
    "log_softmax": (relay.nn.log_softmax, log_softmax),
}


@pytest.mark.parametrize("name", SOFTMAX)
def test_softmax_of_large_values(name):
    """Whoever forgets to subtract the maximum gets infinities."""
    op, function = SOFTMAX[name]
    x = np.array([[1e4, 1e4 - 1, -1e4], [-3e4, -3e4, -3e4]], "float32")
    reference = function(x.astype("float64"), 1)
    run_alone(op(var("x", x.shape)), {"x": x}, None, reference, kinds=["softmax"], rtol=1e-6)


@pytest.mark.parametrize("classes", [2, 10, 1000])
def test_log_softmax_of_small_values(classes):
    """The log of a sum is off in oneDNN by up to 4e-6; the least result is -log(classes) or so."""
    x = np.float32(0.1) * rand(100, classes)
    reference = log_softmax(x.astype("float64"), 1)
    expr = relay.nn.log_softmax(var("x", x.shape))
    run_alone(expr, {"x": x}, None, reference, kinds=["softmax"], rtol=4e-6)


@pytest.mark.parametrize("axis", [1, 2, 3])
def test_softmax_in_the_layout_of_a_convolution(axis):
    """20 channels leave padding in the blocks, which must not count."""
    x, w = rand(1, 20, 9, 9), rand(20, 20, 3, 3, seed=1)
    attrs = dict(kernel_size=(3, 3), channels=20)
    conv = relay.nn.conv2d(var("x", x.shape), var("w", w.shape), **attrs)
    mod = tvm.IRModule.from_expr(relay.nn.softmax(conv, axis=axis))
    reference = softmax(conv2d(x, w, attrs).astype("float64"), axis)
    steps = run_planned(dnnl.partition_for_dnnl(mod, {"w": w}), {"x": x}, [reference], RTOL)
    assert not [step for step in steps if step["reference"]]


def normalized(x, axes, epsilon):
    mean = x.mean(axes, keepdims=True)
    return (x - mean) / np.sqrt(x.var(axes, keepdims=True) + epsilon)


def scaled(x, gamma, beta, axis, attrs):
    shape = [1] * x.ndim
    shape[axis] = -1
    x = x * gamma.astype("float64").reshape(shape) if attrs.get("scale", True) else x
    return x + beta.astype("float64").reshape(shape) if attrs.get("center", True) else x


def test_layer_norm_of_little_variance_depends_on_epsilon():
    """An epsilon of 0 or of another magnitude would be far off."""
    x = 1e-3 * rand(4, 32)
    gamma, beta = np.ones(32, "float32"), np.zeros(32, "float32")
    expr = relay.nn.layer_norm(var("x", x.shape), var("g", (32,)), var("b", (32,)), epsilon=1e-6)
    reference = normalized(x.astype("float64"), -1, 1e-6)
    params = {"g": gamma, "b": beta}
    kinds = ["layer_normalization"]
    run_alone(expr, {"x": x}, params, reference, kinds=kinds, rtol=NORM_RTOL)


def test_group_norm_is_what_tvm_computes():
    """The reference above is of our own making where the axis is not the second."""
    x, g, b = rand(2, 3, 4, 12), rand(12, seed=1), rand(12, seed=2)
    expr = relay.nn.group_norm(var("x", x.shape), var("g", (12,)), var("b", (12,)), 3, axis=3)
    direct.check(
        tvm.IRModule.from_expr(expr),
        {"x": x},
        {"g": g, "b": b},
        rtol=NORM_RTOL,
        options={"prune": False},
    )


@json_only
def test_instance_norm_stays_in_the_layout_of_a_convolution():
    x, w = rand(1, 32, 9, 9), rand(32, 32, 3, 3, seed=1)
    g, b = rand(32, seed=2), rand(32, seed=3)
    attrs = dict(kernel_size=(3, 3), channels=32)
    y = relay.nn.conv2d(var("x", x.shape), var("w", w.shape), **attrs)
    y = relay.nn.relu(relay.nn.instance_norm(y, var("g", g.shape), var("b", b.shape)))
    y = relay.nn.conv2d(y, var("v", w.shape), **attrs)
    mod = tvm.IRModule.from_expr(y)
    params = {"w": w, "v": w, "g": g, "b": b}
    middle = conv2d(x, w, attrs).astype("float64")
    middle = scaled(normalized(middle, (2, 3), 1e-5), g, b, 1, {})
    expected = conv2d(np.maximum(middle, 0).astype("float32"), w, attrs)
    steps = run_planned(dnnl.partition_for_dnnl(mod, params), {"x": x}, [expected], 2 * RTOL)
    kinds = [step["kind"] for step in steps if step["kind"] != "reorder"]
    assert kinds == ["convolution", "batch_normalization", "eltwise", "convolution"]
    assert len(steps) - len(kinds) <= 2


L2_KINDS = ["reduction", "binary", "binary"]


def test_l2_normalize_of_zeros():
    """Eps is the least sum of squares, and keeps 0 / 0 away."""
    x = np.zeros((2, 8), "float32")
    expr = relay.nn.l2_normalize(var("x", x.shape), 1e-5, [1])
    run_alone(expr, {"x": x}, None, x, kinds=L2_KINDS, rtol=0)


@pytest.mark.parametrize("shape, axes", [((2, 1, 5), [1]), ((3, 1), [-1]), ((1, 1), None)], ids=str)
def test_l2_normalize_of_single_values(shape, axes):
    x = rand(*shape)
    expr = relay.nn.l2_normalize(var("x", shape), 0.25, axes)
    run_alone(expr, {"x": x}, None, x / np.maximum(np.abs(x), 0.5), kinds=L2_KINDS, rtol=1e-6)


@pytest.mark.parametrize("size", [2.0**-13, 300.0], ids=["small", "large"])
def test_l2_normalize_of_float16(size):
    """The squares are out of the range of float16, what comes out is not."""
    if not cpu.computes("float16"):
        pytest.skip("this CPU has no float16")
    x = np.full((2, 8), size, "float16")
    expr = relay.nn.l2_normalize(relay.var("x", shape=x.shape, dtype="float16"), 1e-12, [1])
    reference = np.full(x.shape, 8**-0.5)
    run_alone(expr, {"x": x}, None, reference, kinds=L2_KINDS, rtol=2.0**-11)


X = var("x", (2, 6, 5, 4))
REFUSED = {
    "lrn-power": (relay.nn.lrn(X, beta=0.5), "beta=0.5 is not 0.75 or 1"),
    "lrn-rank": (relay.nn.lrn(var("x", (2, 6, 5))), "is not 1 or 3 of rank 4"),
    "lrn-axis": (relay.nn.lrn(X, axis=2), "axis=2 of data"),
    "lrn-window": (relay.nn.lrn(X, size=4), "size=4 is not odd"),
    "group_norm": (
        relay.nn.group_norm(X, var("g", (6,)), var("b", (6,)), num_groups=4),
        "num_groups=4 does not divide 6 channels",
    ),
    "l2-axis": (relay.nn.l2_normalize(X, 1e-5, [7]), "axis=7 is out of range"),
}


@pytest.mark.parametrize("expr, text", REFUSED.values(), ids=REFUSED.keys())
def test_refused(expr, text):
    (reason,) = reasons(expr)
    assert text in reason
