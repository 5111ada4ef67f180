# SPDX-License-Identifier: Apache-2.0
"""The option `exact_nan`: ops that select a value give NaN where an operand is NaN."""

import numpy as np
import pytest
from tvm import relay
from tvm.relay.op.contrib import dnnl

from dnnl_tests import direct
from dnnl_tests.reference import rand
from dnnl_tests.relay import const, conv, module, partition, var

SHAPE = (1, 8, 9, 11)
X, Y = var("x", *SHAPE), var("y", *SHAPE)
nn = relay.nn


def hard_sigmoid(x):
    return relay.clip(x + relay.const(3.0), 0.0, 6.0) / relay.const(6.0)


def celu(x):
    one = relay.const(1.0)
    return nn.relu(x) + relay.minimum(relay.exp(x) - one, relay.const(0.0))


def pool(x, **attrs):
    return nn.max_pool2d(x, pool_size=(3, 3), strides=(2, 2), padding=(1, 1), **attrs)


CASES = {
    "relu": nn.relu(X),
    "clip": relay.clip(X, -1.0, 2.0),
    "hard-sigmoid": hard_sigmoid(X),
    "celu": celu(X),
    "maximum": relay.maximum(X, Y),
    "maximum-row": relay.maximum(X, const(11)),
    "minimum": relay.minimum(relay.const(0.5), X),
    "max": relay.max(X, axis=[2, 3]),
    "min": relay.min(X, axis=1, keepdims=True),
    "max-pool": pool(X),
    "max-pool-ceil": pool(X, ceil_mode=True),
    "global-max-pool": nn.global_max_pool2d(X),
    "adaptive-max-pool": nn.adaptive_max_pool2d(X, (3, 1)),
    "conv-relu-pool": pool(nn.relu(conv(X))),
}


def first_output(mod, inputs):
    (got,) = direct.run(mod, inputs)
    return got


def reaches(mod, inputs):
    """Return which results change with an element of x, so that NaN there must reach them."""
    other = {**inputs, "x": np.where(np.isnan(inputs["x"]), np.float32(1e4), inputs["x"])}
    finite = {**inputs, "x": np.where(np.isnan(inputs["x"]), np.float32(-1e4), inputs["x"])}
    with_large, with_small = (first_output(mod, each) for each in (other, finite))
    return with_large != with_small


@pytest.mark.parametrize("name", CASES)
def test_nan_reaches_what_depends_on_it(name):
    mod = module(CASES[name])
    plain, exact = (partition(mod, prune=False, exact_nan=flag) for flag in (False, True))
    report = dnnl.offload_report(exact)
    assert report.partitions == 1 and report.offloaded == report.total

    inputs = {"x": rand(*SHAPE), "y": rand(*SHAPE, seed=1)}
    inputs = {key: inputs[key] for key in [var.name_hint for var in mod["main"].params]}
    # Finite numbers and infinities are as they were; a convolution makes NaN of infinities.
    inputs["x"][0, 0, 0, :2] = (1e30, -1e30) if name.startswith("conv") else (np.inf, -np.inf)
    np.testing.assert_array_equal(first_output(exact, inputs), first_output(plain, inputs))

    inputs["x"][0, 0, 0, :2] = 0
    inputs["x"].flat[::61] = np.nan
    wanted = reaches(plain, inputs)
    assert wanted.any()
    np.testing.assert_array_equal(np.isnan(first_output(exact, inputs)), wanted)


def test_a_window_of_nan_is_nan():
    exact = partition(module(pool(X)), prune=False, exact_nan=True)
    assert np.isnan(first_output(exact, {"x": np.full(SHAPE, np.nan, "float32")})).all()


def test_integers_and_what_is_quantized_stay():
    """They have no NaN, and nothing is added to them."""
    scale, zero = relay.const(0.1), relay.const(3)
    relu = nn.relu(conv(X))
    for mod in (
        module(nn.relu(var("x", 4, 5, dtype="int32"))),
        module(relay.qnn.quantize(relu, scale, zero, out_dtype="uint8")),
    ):
        exact, plain = (partition(mod, prune=False, exact_nan=flag) for flag in (True, False))
        assert dnnl.offload_report(exact).composites == dnnl.offload_report(plain).composites


def test_what_is_excluded_stays():
    exact = partition(module(nn.relu(conv(X))), prune=False, exact_nan=True, exclude=["nn.relu"])
    report = dnnl.offload_report(exact)
    assert (report.offloaded, report.partitions) == (1, 1)
    assert report.reasons == {"nn.relu": {"excluded by option": 1}}
