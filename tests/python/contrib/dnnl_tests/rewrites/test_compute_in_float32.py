# SPDX-License-Identifier: Apache-2.0
"""Models in bfloat16 or float16 on a CPU that lacks the type run in float32."""

import numpy as np
import pytest
from tvm import relay
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from dnnl_tests.marks import json_only
from dnnl_tests.pretended_cpu import only_float32
from dnnl_tests.reference import rand
from dnnl_tests.relay import const, module, partition

nn = relay.nn


@pytest.fixture(autouse=True)
def any_cpu():
    with only_float32():
        yield


def half(name, *shape):
    return relay.var(name, shape=shape, dtype="float16")


def dense(x, units=8, width=8, seed=0):
    return nn.dense(x, const(units, width, seed=seed, dtype="float16"))


def casts(mod):
    """Return the types that the casts of a module make, on TVM or not."""
    types = []

    def visit(expr):
        if isinstance(expr, relay.Call) and expr.op == relay.op.get("cast"):
            types.append(str(expr.attrs.dtype))

    for func in mod.functions.values():
        relay.analysis.post_order_visit(func, visit)
    return sorted(types)


def block(x):
    """Return a network with an island of float32, as exporters write it for accuracy."""
    y = nn.relu(dense(x) + const(8, seed=1, dtype="float16"))
    y = relay.cast(nn.softmax(relay.cast(y, "float32")), "float16")
    y = relay.transpose(relay.reshape(y, (2, 2, 4)), (1, 0, 2))
    return dense(relay.reshape(y, (4, 4)), 4, 4)


@json_only
def test_a_network_is_one_partition():
    mod = module(block(half("x", 2, 8)))
    partitioned = partition(mod, prune=False)
    report = dnnl.offload_report(partitioned)
    assert report.partitions == 1 and casts(partitioned) == ["float16", "float32"], partitioned
    assert report.offloaded == report.total - 2, f"{report}\n{partitioned}"
    assert report.in_float32["ops in float16, which oneDNN does not support on this CPU"] == 4
    x = rand(2, 8).astype("float16")
    (got,), (want,) = (testing.run(each, {"x": x}) for each in (partitioned, mod))
    assert got.dtype == "float16"
    np.testing.assert_allclose(got, want, rtol=0, atol=2.0**-9 * np.abs(want).max())


SUMS = {
    "sum": (lambda x: relay.sum(x, axis=1), lambda x: x.sum(1)),
    "mean": (lambda x: relay.mean(x, axis=1), lambda x: x.mean(1)),
    "variance": (lambda x: relay.variance(x, axis=1), lambda x: x.var(1)),
    "softmax": (nn.softmax, lambda x: np.exp(x) / np.exp(x).sum(1, keepdims=True)),
    "dense": (
        lambda x: nn.dense(x, relay.const(np.full((2, 10_000), 0.5, "float16"))),
        lambda x: np.repeat(x.sum(1, keepdims=True) / 2, 2, 1),
    ),
}


@pytest.mark.parametrize("prune", [False, True])
@pytest.mark.parametrize("name", SUMS)
def test_sums(name, prune):
    """TVM sums in float16; also where oneDNN would not be faster, the sum is one of float32."""
    build, define = SUMS[name]
    x = np.random.default_rng(0).random((1, 10_000)).astype("float16")
    (got,) = testing.run(partition(module(build(half("x", *x.shape))), prune=prune), {"x": x})
    # One rounding to float16.
    np.testing.assert_allclose(got.astype("float64"), define(x.astype("float64")), rtol=2.0**-10)


def test_what_is_excluded_stays():
    mod = module(dense(nn.softmax(dense(half("x", 2, 8)))))
    partitioned = partition(mod, prune=False, exclude=["nn.softmax"])
    assert casts(partitioned) == ["float16", "float16", "float32", "float32"]
    assert "nn.softmax" in testing.offload(partitioned).host_ops


@pytest.mark.parametrize(
    "expr",
    [relay.reshape(half("x", 2, 8), (4, 4)), relay.cast(half("x", 2, 8), "float32")],
    ids=["view", "cast"],
)
def test_what_nothing_computes_with_stays(expr):
    assert not dnnl.offload_report(partition(module(expr), prune=False)).partitions


def test_a_tuple_that_is_returned():
    """Nothing reads its fields: they are cast one by one, and the rest runs on oneDNN."""
    x = rand(2, 8).astype("float16")
    parts = relay.split(dense(half("x", *x.shape)), 2, axis=1).astuple()
    mod = module(parts)
    partitioned = partition(mod, prune=False)
    assert set(testing.offload(partitioned).host_ops) == {"cast"}
    got, want = (testing.run(each, {"x": x}) for each in (partitioned, mod))
    assert len(got) == 2
    for one, other in zip(got, want):
        np.testing.assert_allclose(one, other, rtol=0, atol=2.0**-9 * np.abs(other).max())


def test_each_branch_has_its_casts():
    x, flag = half("x", 2, 8), relay.var("flag", shape=(), dtype="bool")
    first = dense(x)
    body = relay.If(flag, dense(first, seed=2), nn.relu(first))
    mod = module(dense(body, seed=3))
    partitioned = partition(mod, prune=False)
    assert set(testing.offload(partitioned).host_ops) == {"cast"}
    data = rand(2, 8).astype("float16")
    for value in (True, False):
        inputs = {"x": data, "flag": np.array(value)}
        # TVM's change of layouts has no rule for branches.
        (got,), (want,) = (
            testing.run(each, inputs, executor="vm", opt_level=2) for each in (partitioned, mod)
        )
        np.testing.assert_allclose(got, want, rtol=0, atol=2.0**-9 * np.abs(want).max())
