# SPDX-License-Identifier: Apache-2.0
"""Factors and summands of channels folded into the convolution or matmul before them."""

import numpy as np
import pytest
from tvm import relay
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from dnnl_tests import direct
from dnnl_tests.reference import rand
from dnnl_tests.relay import const, conv, module, partition, var

SHAPE = (2, 8, 5, 6)
x = var("x", *SHAPE)
scalar = relay.const
FACTOR = relay.const(rand(8, 1, 1, seed=7) + np.float32(2))


def batch_norm(data):
    values = [relay.const(np.abs(rand(8, seed=seed)) + np.float32(0.5)) for seed in range(4)]
    return relay.nn.batch_norm(data, *values)[0]


# By name: the expression, the composite that is left and the calls that have gone.
FOLDED = {
    "scalar": (conv(x) * scalar(0.3), {}, {"multiply": 1}),
    "channel": (FACTOR * conv(x), {}, {"multiply": 1}),
    "divide": (conv(x) / FACTOR, {}, {"divide": 1}),
    "negative": (relay.negative(conv(x)), {}, {"negative": 1}),
    "constant-minus": (
        scalar(2.0) - conv(x) * scalar(3.0),
        {"dnnl.conv2d_bias": 1},
        {"multiply": 1},
    ),
    "bias-then-factor": (
        (conv(x) + const(8, 1, 1)) * FACTOR,
        {"dnnl.conv2d_bias": 1},
        {"multiply": 1},
    ),
    "factor-then-bias": (
        relay.nn.bias_add(conv(x) * FACTOR, const(8)),
        {"dnnl.conv2d_bias": 1},
        {"multiply": 1},
    ),
    "affine-and-relu": (
        relay.nn.relu(conv(x) * FACTOR + const(8, 1, 1)),
        {"dnnl.conv2d_bias_relu": 1},
        {"multiply": 1},
    ),
    "batch-norm-and-factor": (
        relay.nn.relu(batch_norm(conv(x) + const(8, 1, 1)) * scalar(0.5) - scalar(0.1)),
        {"dnnl.conv2d_bias_relu": 1},
        {"nn.batch_norm": 1, "multiply": 1, "subtract": 1},
    ),
    "factor-and-residual": (conv(x) * FACTOR + x, {"dnnl.conv2d_sum": 1}, {"multiply": 1}),
    "dense": (
        relay.nn.dense(var("x", 3, 8), const(5, 8)) * const(5, seed=3),
        {},
        {"multiply": 1},
    ),
    "matmul": (
        relay.nn.matmul(var("x", 3, 8), const(8, 5)) * const(5, seed=3) + const(5, seed=4),
        {"dnnl.dense_bias": 1},
        {"multiply": 1},
    ),
    "matmul-transposed": (
        relay.nn.matmul(var("x", 3, 8), const(5, 8), transpose_b=True) * const(5, seed=3),
        {},
        {"multiply": 1},
    ),
    "transpose": (
        relay.nn.conv2d_transpose(x, const(8, 4, 3, 3), channels=4, kernel_size=(3, 3))
        * const(4, 1, 1, seed=3),
        {},
        {"multiply": 1},
    ),
}


@pytest.mark.parametrize("name", FOLDED)
def test_folded(name):
    expr, composites, folded = FOLDED[name]
    mod = module(expr)
    (param,) = mod["main"].params
    partitioned = direct.check(
        mod, {"x": rand(*map(int, param.checked_type.shape))}, composites=composites, partitions=1
    )
    report = dnnl.offload_report(partitioned)
    assert report.folded == folded and report.offloaded == report.total


def test_power_of_two_is_exact():
    data = {"x": rand(*SHAPE)}
    (want,) = direct.run(partition(module(conv(x))), data)
    (got,) = direct.run(partition(module(conv(x) * scalar(0.25))), data)
    np.testing.assert_array_equal(got, want * np.float32(0.25))


y = conv(x)
KEPT = {
    "addition-only": relay.nn.relu(conv(x) + scalar(0.5)),
    "used-twice": relay.concatenate([y, y * scalar(2.0)], axis=1),
    "varies-on-rows": conv(x) * const(6, seed=3),
    "not-constant": conv(x) * var("f", 8, 1, 1),
    # The divisor is far from zero, near which a quotient magnifies the rounding of the sum.
    "constant-divided": scalar(2.0) / (conv(x) + scalar(50.0)),
    "infinite": relay.clip(conv(x) * scalar(np.inf), -1.0, 1.0),
    "more-dimensions": conv(x) * const(1, 1, 8, 1, 1, seed=3),
    "residual-before": (conv(x) + x) * scalar(2.0),
    "weight-not-constant": relay.nn.conv2d(x, var("w", 8, 8, 3, 3)) * scalar(2.0),
}


@pytest.mark.parametrize("name", KEPT)
def test_kept(name):
    mod = module(KEPT[name])
    partitioned = partition(mod, prune=False)
    report = dnnl.offload_report(partitioned)
    assert not report.folded and report.ops == dnnl.offload_report(mod).ops
    inputs = {p.name_hint: rand(*map(int, p.checked_type.shape)) for p in mod["main"].params}
    testing.assert_close(direct.run(partitioned, inputs), direct.run(mod, inputs))


def test_excluded_op_is_kept():
    report = dnnl.offload_report(partition(module(conv(x) * FACTOR), exclude=["multiply"]))
    assert not report.folded and report.reasons == {"multiply": {"excluded by option": 1}}
