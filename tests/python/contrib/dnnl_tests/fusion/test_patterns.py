# SPDX-License-Identifier: Apache-2.0
"""What is fused: each composite by name, and what only looks like one."""

import pytest
from tvm import relay
from tvm.relay.op.contrib import dnnl

from dnnl_tests.relay import composites, const, conv, module, partition, var

NCHW, NHWC = (1, 8, 6, 6), (1, 6, 6, 8)


def conv_nhwc(data):
    return relay.nn.conv2d(
        data, const(3, 3, 8, 8), padding=(1, 1), data_layout="NHWC", kernel_layout="HWIO"
    )


def dense(data, units=8):
    return relay.nn.dense(data, const(units, 8))


def x(*shape):
    return var("x", *(shape or NCHW))


relu = relay.nn.relu
# By name: the composite without its prefix, and what becomes it. `test_composites.py` runs more.
FUSED = {
    "conv2d-bias-4d": ("conv2d_bias", lambda: conv(x()) + const(1, 8, 1, 1)),
    "conv2d-bias-var-left": ("conv2d_bias", lambda: relay.add(var("b", 8, 1, 1), conv(x()))),
    "conv2d-bias-computed": (
        "conv2d_bias",
        lambda: conv(x()) + relay.sinh(var("b", 8, 1, 1)),
    ),
    "conv2d-bias-add-axis-negative": (
        "conv2d_bias",
        lambda: relay.nn.bias_add(conv(x()), const(8), axis=-3),
    ),
    "conv2d-bias-add-var": ("conv2d_bias", lambda: relay.nn.bias_add(conv(x()), var("b", 8))),
    "conv2d-one-channel-scalar": ("conv2d_bias", lambda: conv(x(), 1) + relay.const(0.5)),
    "conv2d-one-channel-size-1": ("conv2d_bias", lambda: conv(x(), 1) + const(1)),
    "conv2d-bias-left-relu": (
        "conv2d_bias_relu",
        lambda: relu(relay.add(var("b", 8, 1, 1), conv(x()))),
    ),
    "conv2d-NHWC-bias-4d": ("conv2d_bias", lambda: conv_nhwc(x(*NHWC)) + const(1, 1, 1, 8)),
    "dense-relu": ("dense_relu", lambda: relu(dense(x(2, 8)))),
    "dense-bias-2d": ("dense_bias", lambda: dense(x(2, 8)) + const(1, 8)),
    "dense-bias-add": ("dense_bias", lambda: relay.nn.bias_add(dense(x(2, 8)), var("b", 8))),
    "dense-one-unit-scalar": ("dense_bias", lambda: dense(x(2, 8), 1) + relay.const(1.0)),
}


@pytest.mark.parametrize("name", FUSED)
def test_fused(name):
    composite, build = FUSED[name]
    mod = module(build())
    report = dnnl.offload_report(partition(mod, prune=False))
    assert report.composites == {f"dnnl.{composite}": 1}
    computed = report.ops.get("sinh", 0)
    assert (report.offloaded, report.partitions) == (report.total - computed, 1)


def bias_of_itself():
    y = conv(x(1, 8, 1, 1), kernel=1)
    return y + relay.sinh(y)


def twice_itself():
    y = conv(x(1, 8, 1, 1), kernel=1)
    return y + y


# By name: the composites in what looks like a bias and is none, and how it is made.
NOT_A_BIAS = {
    # Traps: a (W,) constant after NCHW when W is the number of channels; a residual; a scalar.
    "conv2d-row": ({}, lambda: conv(x(1, 8, 6, 8)) + const(8)),
    "conv2d-column": ({}, lambda: conv(x(1, 8, 8, 6)) + const(8, 1)),
    "conv2d-plane": ({}, lambda: conv(x()) + const(6, 6)),
    "conv2d-size-1": ({"dnnl.conv2d_add": 1}, lambda: conv(x()) + const(1)),
    "conv2d-per-batch": ({}, lambda: conv(x(2, 8, 6, 6)) + const(2, 1, 1, 1)),
    "conv2d-channel-and-row": ({}, lambda: conv(x()) + const(8, 1, 6)),
    "conv2d-more-dimensions": ({}, lambda: conv(x()) + const(1, 1, 8, 1, 1)),
    "conv2d-broadcast-itself": ({}, lambda: conv(x(), 1) + var("b", 1, 8, 1, 1)),
    "conv2d-residual-left": ({"dnnl.conv2d_sum": 1}, lambda: relay.add(var("r", *NCHW), conv(x()))),
    "conv2d-residual-atan": (
        {"dnnl.conv2d_sum": 1},
        lambda: relay.atan(conv(x()) + var("r", *NCHW)),
    ),
    "conv2d-bias-twice": (
        {"dnnl.conv2d_bias_add_relu": 1},
        lambda: relu(conv(x()) + const(8, 1, 1) + const(8, 1, 1)),
    ),
    "conv2d-NHWC-column": ({}, lambda: conv_nhwc(x(1, 8, 6, 8)) + const(8, 1, 1)),
    "conv2d-bias-add-width": (
        {},
        lambda: relay.nn.bias_add(conv(x(1, 8, 6, 8)), const(8), axis=3),
    ),
    "conv2d-twice": ({"dnnl.conv2d_sum": 1}, lambda: conv(x()) + conv(x(), seed=1)),
    "conv2d-plus-itself": ({}, twice_itself),
    "conv2d-bias-of-itself": ({}, bias_of_itself),
    "conv2d-bias-float64": (
        {},
        lambda: relay.cast(conv(x()), "float64") + const(8, 1, 1, dtype="float64"),
    ),
    "dense-residual": ({"dnnl.dense_sum": 1}, lambda: dense(x(2, 8)) + var("r", 2, 8)),
    "dense-residual-relu": (
        {"dnnl.dense_sum_relu": 1},
        lambda: relu(dense(x(2, 8)) + var("r", 2, 8)),
    ),
    "dense-scalar": ({"dnnl.dense_add": 1}, lambda: dense(x(2, 8)) + relay.const(0.5)),
    "dense-per-row": ({}, lambda: dense(x(2, 8)) + const(2, 1)),
    "dense-rank-3-bias-add-axis-1": (
        {},
        lambda: relay.nn.bias_add(dense(x(2, 8, 8)), const(8), axis=1),
    ),
    "conv2d-float64-bias": (
        {},
        lambda: (
            relay.nn.conv2d(var("x", *NCHW, dtype="float64"), const(8, 8, 1, 1, dtype="float64"))
            + const(8, 1, 1, dtype="float64")
        ),
    ),
}


@pytest.mark.parametrize("name", NOT_A_BIAS)
def test_not_a_bias(name):
    expected, build = NOT_A_BIAS[name]
    assert composites(module(build())) == expected


# These have an op that is refused on its own, too.
REFUSED = ("conv2d-broadcast-itself", "conv2d-bias-float64", "conv2d-float64-bias")


@pytest.mark.parametrize("name", [name for name in NOT_A_BIAS if name not in REFUSED])
def test_what_is_no_bias_is_offloaded(name):
    report = dnnl.offload_report(partition(module(NOT_A_BIAS[name][1]()), prune=False))
    without_rule = sum(report.ops.get(op, 0) for op in ("atan", "sinh"))
    assert report.offloaded == report.total - without_rule


def test_result_used_twice_is_not_hidden():
    """A convolution whose own result is wanted cannot vanish in a composite."""
    y = conv(x())
    assert composites(module(relu(y), y)) == {}
    assert composites(module(y + const(8, 1, 1), relay.atan(y))) == {}


def test_biased_result_used_twice_is_fused_up_to_there():
    biased = conv(x()) + const(8, 1, 1)
    assert composites(module(relu(biased), biased)) == {"dnnl.conv2d_bias": 1}


def test_chain_of_layers():
    y = x()
    for seed in range(3):
        y = relu(conv(y, seed=seed) + const(8, 1, 1, seed=seed))
    mod = partition(module(conv(y, seed=3)))
    report = dnnl.offload_report(mod)
    assert report.composites == {"dnnl.conv2d_bias_relu": 3}
    assert (report.total, report.offloaded, report.partitions) == (10, 10, 1)


def test_residual_block():
    data = x()
    y = relu(conv(data, seed=1) + const(8, 1, 1))
    y = conv(y, seed=2) + const(8, 1, 1)
    report = dnnl.offload_report(partition(module(relu(y + data))))
    assert report.composites == {"dnnl.conv2d_bias_relu": 1, "dnnl.conv2d_bias_sum_relu": 1}
    assert (report.total, report.offloaded, report.partitions) == (7, 7, 1)


def test_constants_stay_arguments_of_composites():
    """The code generator finds the constants in the partition, outside of the composite."""
    mod = partition(module(relu(conv(x()) + const(8, 1, 1))))
    (func,) = (func for var, func in mod.functions.items() if var.name_hint != "main")
    call = func.body
    assert [type(arg) for arg in call.args] == [relay.Var, relay.Constant, relay.Constant]
    assert not relay.analysis.free_vars(call.op)
