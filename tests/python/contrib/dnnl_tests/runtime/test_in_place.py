# SPDX-License-Identifier: Apache-2.0
"""Results that are computed in the memory of an operand, and those that must not be."""

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from dnnl_tests.marks import json_only
from dnnl_tests.reference import RTOL, conv2d, rand

ATTRS = dict(kernel_size=(3, 3), channels=16, padding=(1, 1))
X, W, V = rand(1, 16, 14, 14), rand(16, 16, 3, 3, seed=1), rand(16, 16, 3, 3, seed=2)
pytestmark = json_only


def var(name, value):
    return relay.var(name, shape=value.shape, dtype=str(value.dtype))


def conv(data, name):
    return relay.nn.conv2d(data, var(name, W), **ATTRS)


def first(x):
    """A value that is an intermediate, and its numbers."""
    return relay.nn.relu(conv(x, "v")), np.maximum(conv2d(X, V, ATTRS), 0)


def run(expr, expected):
    """Run in one partition, compare twice; return the post-ops of each primitive and the plan."""
    mod = tvm.IRModule.from_expr(expr)
    params = {"w": W, "v": V}
    mod = relay.transform.InferType()(mod)
    params = {p.name_hint: params[p.name_hint] for p in mod["main"].params if p.name_hint != "x"}
    partitioned = dnnl.partition_for_dnnl(mod, params)
    assert testing.offload(partitioned).partitions == 1
    runner = testing.Runner(testing.build(partitioned))
    for _ in range(2):
        testing.assert_close(runner({"x": X}), expected, 2 * RTOL)
    (plan,) = testing.plans(runner)
    return [step["post_ops"] for step in plan["primitives"] if step["kind"] != "reorder"], plan


def shared(expr):
    """Make variables of one name one variable."""
    by_name = {}
    bind = {v: by_name.setdefault(v.name_hint, v) for v in relay.analysis.free_vars(expr)}
    return relay.bind(expr, {old: new for old, new in bind.items() if old is not new})


def test_a_residual_that_nobody_reads_later():
    a, a_value = first(var("x", X))
    residual = relay.nn.max_pool2d(a, (3, 3), (1, 1), (1, 1), (1, 1))
    out = relay.nn.relu(conv(a, "w") + residual) * relay.const(2.0)
    padded = np.pad(a_value, [(0, 0), (0, 0), (1, 1), (1, 1)], constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    expected = 2 * np.maximum(conv2d(a_value, W, ATTRS) + windows.max((4, 5)), 0)
    post_ops, plan = run(shared(out), [expected])
    assert post_ops[2][:2] == ["sum", "eltwise_relu"]
    assert plan["arena_bytes"] < plan["arena_bytes_unshared"]


def test_a_residual_that_is_read_again_later():
    """TVM's own backend overwrote it. Only the last of two additions may."""
    a, a_value = first(var("x", X))
    b = relay.nn.relu(conv(relay.nn.relu(conv(a, "w")), "w") + a)
    out = relay.nn.relu(conv(conv(b, "v") + a, "w"))
    inner = np.maximum(conv2d(a_value, W, ATTRS), 0)
    b_value = np.maximum(conv2d(inner, W, ATTRS) + a_value, 0)
    last = conv2d(b_value, V, ATTRS) + a_value
    post_ops, _ = run(shared(out), [np.maximum(conv2d(last, W, ATTRS), 0)])
    relu = ["eltwise_relu"]
    assert post_ops == [relu, relu, ["binary_add", "eltwise_relu"], ["sum"], relu]


def test_a_convolution_of_its_own_residual():
    a, a_value = first(var("x", X))
    out = relay.nn.relu(conv(conv(a, "w") + a, "v"))
    middle = conv2d(a_value, W, ATTRS) + a_value
    post_ops, _ = run(shared(out), [np.maximum(conv2d(middle, V, ATTRS), 0)])
    assert ["binary_add"] in post_ops
    assert not any("sum" in names for names in post_ops)


def test_an_input_and_a_constant_are_not_overwritten():
    """Both calls get the same; the input's reordered copy is nobody else's."""
    x = var("x", X)
    constant = rand(*X.shape, seed=5)
    out = relay.nn.relu(conv(conv(x, "v") + relay.const(constant), "w") + x) + relay.const(1.0)
    middle = conv2d(X, V, ATTRS) + constant
    post_ops, _ = run(shared(out), [np.maximum(conv2d(middle, W, ATTRS) + X, 0) + 1])
    assert post_ops[0] == ["binary_add"]


def test_a_part_of_a_concatenation_is_not_overwritten():
    a, a_value = first(var("x", X))
    b, b_value = conv(a, "w"), conv2d(a_value, W, ATTRS)
    joined = relay.concatenate([a, b], axis=1)
    c = relay.nn.relu(conv(b, "v") + a)
    out = relay.Tuple([relay.nn.relu(joined), c * relay.const(2.0)])
    expected = [
        np.maximum(np.concatenate([a_value, b_value], axis=1), 0),
        2 * np.maximum(conv2d(b_value, V, ATTRS) + a_value, 0),
    ]
    run(shared(out), expected)


def test_elementwise_ops_run_in_place():
    """The chain needs the memory of one intermediate, whatever its length."""
    a, a_value = first(var("x", X))
    pooled = relay.nn.softmax(relay.exp(relay.negative(relay.sqrt(a))), axis=1)
    out = relay.nn.relu(conv(pooled, "w"))
    value = np.exp(-np.sqrt(a_value))
    value = np.exp(value - value.max(1, keepdims=True))
    value /= value.sum(1, keepdims=True)
    _, plan = run(shared(out), [np.maximum(conv2d(value, W, ATTRS), 0)])
    assert plan["arena_bytes"] <= 2 * X.nbytes


@pytest.mark.parametrize("seed", range(4))
def test_random_networks_of_residuals(seed):
    """Blocks of convolutions, additions of any earlier value, and joins."""
    rng = np.random.default_rng(seed)
    x = var("x", X)
    values = [(x, X)]
    for _ in range(8):
        (a, a_value), (b, b_value) = (values[i] for i in rng.integers(len(values), size=2))
        name = "wv"[rng.integers(2)]
        scale = relay.const(np.float32(0.1))
        expr = conv(a * scale, name) + b
        value = conv2d(a_value * np.float32(0.1), {"w": W, "v": V}[name], ATTRS) + b_value
        if rng.integers(2):
            expr, value = relay.nn.relu(expr), np.maximum(value, 0)
        values.append((expr, value))
    run(shared(relay.nn.relu(values[-1][0])), [np.maximum(values[-1][1], 0)])
