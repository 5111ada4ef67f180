# SPDX-License-Identifier: Apache-2.0
"""A pad before a convolution or pool becomes its padding, where that is exact."""

import numpy as np
import pytest
from tvm import relay
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from dnnl_tests import direct
from dnnl_tests.reference import RTOL, rand
from dnnl_tests.relay import assert_same_result, const, conv, module, partition
from dnnl_tests.single_op import var

SHAPE = (1, 8, 9, 10)
SIDES = ((0, 0), (0, 0), (1, 2), (0, 3))
MIN = float(np.finfo("float32").min)


def pad(x, sides=SIDES, value=0.0, **attrs):
    return relay.nn.pad(x, sides, relay.const(value), **attrs)


def pool(kind, size=3, **attrs):
    op = getattr(relay.nn, f"{kind}_pool2d")
    return lambda y: op(y, (size, size), (2, 2), **attrs)


X = var("x", SHAPE)
FOLDED = {
    "conv2d": conv(pad(X), padding=(0, 0)),
    "conv2d-padded": conv(pad(X), padding=(1, 0, 2, 1)),
    "conv2d-strided": conv(pad(X), padding=(0, 0), strides=(2, 2)),
    "conv2d-nhwc": relay.nn.conv2d(
        pad(var("x", (1, 9, 10, 8)), ((0, 0), (1, 2), (0, 3), (0, 0))),
        const(3, 3, 8, 8),
        channels=8,
        kernel_size=(3, 3),
        data_layout="NHWC",
        kernel_layout="HWIO",
    ),
    "conv1d": relay.nn.conv1d(
        pad(var("x", (2, 8, 9)), ((0, 0), (0, 0), (2, 1))),
        const(4, 8, 3),
        channels=4,
        kernel_size=3,
    ),
    "conv3d": relay.nn.conv3d(
        pad(var("x", (1, 8, 5, 6, 7)), ((0, 0), (0, 0), (1, 1), (0, 1), (1, 0))),
        const(4, 8, 3, 3, 3),
        channels=4,
        kernel_size=(3, 3, 3),
    ),
    "max-infinity": pool("max")(pad(conv(X), ((0, 0), (0, 0), (1, 1), (1, 1)), -np.inf)),
    "max-of-relu": pool("max")(pad(relay.nn.relu(conv(X)), ((0, 0), (0, 0), (1, 1), (1, 1)))),
    "max-of-clip": pool("max")(pad(relay.clip(conv(X), 0, 6), ((0, 0), (0, 0), (0, 1), (0, 1)))),
    "avg": pool("avg")(pad(conv(X), ((0, 0), (0, 0), (1, 1), (1, 1)))),
    "avg-counted": pool("avg", padding=(1, 1), count_include_pad=True)(
        pad(conv(X), ((0, 0), (0, 0), (1, 0), (0, 1)))
    ),
}


@pytest.mark.parametrize("expr", FOLDED.values(), ids=FOLDED.keys())
def test_folded(expr):
    mod = module(expr)
    x = rand(*(int(dim) for dim in mod["main"].params[0].type_annotation.shape))
    partitioned = direct.check(mod, {"x": x}, partitions=1, rtol=RTOL)
    report = dnnl.offload_report(partitioned)
    assert report.folded == {"nn.pad": 1} and "nn.pad" not in report.ops
    assert_same_result(mod, partitioned, {"x": x})


KEPT = {
    "value": conv(pad(X, value=1.0), padding=(0, 0)),
    "edge": conv(pad(X, pad_mode="edge"), padding=(0, 0)),
    "reflect": conv(pad(X, pad_mode="reflect"), padding=(0, 0)),
    "variable": conv(relay.nn.pad(X, SIDES, relay.var("v", shape=())), padding=(0, 0)),
    "channels": conv(pad(X, ((0, 0), (0, 1), (1, 1), (1, 1))), padding=(0, 0), in_channels=9),
    "negative": conv(pad(X, ((0, 0), (0, 0), (-1, 0), (1, 1))), padding=(0, 0)),
    "max": pool("max")(pad(conv(X), ((0, 0), (0, 0), (1, 1), (1, 1)))),
    "max-only-padding": pool("max")(pad(relay.nn.relu(conv(X)), ((0, 0), (0, 0), (4, 1), (1, 1)))),
    "avg-own-padding": pool("avg", padding=(1, 1))(pad(conv(X), ((0, 0), (0, 0), (1, 1), (1, 1)))),
    "avg-value": pool("avg")(pad(conv(X), ((0, 0), (0, 0), (1, 1), (1, 1)), MIN)),
    "transpose": relay.nn.conv2d_transpose(
        pad(X), const(8, 8, 3, 3), channels=8, kernel_size=(3, 3)
    ),
}


@pytest.mark.parametrize("expr", KEPT.values(), ids=KEPT.keys())
def test_kept(expr):
    mod = module(expr)
    partitioned = partition(mod)
    report = dnnl.offload_report(partitioned)
    assert not report.folded and report.ops["nn.pad"] == 1
    inputs = {"x": rand(*SHAPE), "v": np.float32(0.5)}
    inputs = {v.name_hint: inputs[v.name_hint] for v in mod["main"].params}
    # Compiled: a sum of padding may exceed float32, but not numpy's float64.
    want = testing.run(mod, inputs, opt_level=1)
    testing.assert_close(direct.run(partitioned, inputs), want, RTOL)


def test_a_pad_of_two():
    """One use is folded, the other keeps the pad."""
    y = pad(X)
    mod = module(conv(y, padding=(0, 0)), relay.atan(y))
    report = dnnl.offload_report(direct.check(mod, {"x": rand(*SHAPE)}, rtol=RTOL))
    assert (
        not report.folded and report.ops["nn.pad"] == 1 and report.offloaded_ops["nn.conv2d"] == 1
    )


def test_two_uses_are_folded():
    y = pad(X)
    mod = module(conv(y, padding=(0, 0)), conv(y, padding=(1, 1), seed=1))
    report = dnnl.offload_report(direct.check(mod, {"x": rand(*SHAPE)}, rtol=RTOL))
    assert report.folded == {"nn.pad": 1}


@pytest.mark.parametrize("exclude", ["nn.pad", "nn.conv2d"])
def test_exclude(exclude):
    report = dnnl.offload_report(partition(module(FOLDED["conv2d"]), exclude=[exclude]))
    assert not report.folded and report.ops["nn.pad"] == 1
