# SPDX-License-Identifier: Apache-2.0
"""Depthwise and 1x1 convolutions that keep the blocks of channels which they find."""

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from dnnl_tests import direct
from dnnl_tests.marks import json_only
from dnnl_tests.reference import RTOL, rand

pytestmark = json_only
X = rand(1, 3, 30, 26)
BLOCKS, KEPT, CHOSEN = "aBcd16b", "the source's blocks", "oneDNN's layouts"


def conv(data, cin, cout, kernel=1, dtype="float32", groups=1, **attrs):
    """A convolution with a weight of its own."""
    shape = (cout, cin // groups, kernel, kernel)
    seed = sum(shape) + groups
    weight = relay.const(rand(*shape, seed=seed).astype(dtype) / np.sqrt(np.prod(shape[1:])))
    attrs.setdefault("padding", kernel // 2)
    size = dict(kernel_size=(kernel, kernel), channels=cout, groups=groups)
    return relay.nn.conv2d(data, weight, **size, **attrs)


def depthwise(data, channels, **attrs):
    return conv(data, channels, channels, 3, groups=channels, **attrs)


def stem(channels=32):
    return relay.nn.relu(conv(relay.var("x", shape=X.shape), 3, channels, 3, strides=(2, 2)))


def run(expr):
    """Compare with TVM; return layouts and variants of the convolutions, and how many reorders.

    The reorders are those between steps: the last one makes the row-major output.
    """
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(expr))
    partitioned = dnnl.partition_for_dnnl(mod)
    assert testing.offload(partitioned).partitions == 1
    assert not testing.offload(partitioned).host_ops
    runner = direct.Runner(partitioned)
    expected = direct.run(mod, {"x": X})
    for _ in range(2):
        testing.assert_close(runner({"x": X}), expected, 10 * RTOL)
    (plan,) = testing.plans(runner)
    steps = plan["primitives"]
    convs = [step for step in steps if step["kind"] == "convolution"]
    if convs[0]["dst"] != BLOCKS:
        pytest.skip("the blocks of this CPU are not those of AVX-512")
    return convs, sum(step["kind"] == "reorder" for step in steps)


def variants(convs):
    return [step["variant"] for step in convs]


@pytest.mark.parametrize("channels", [32, 24, 20], ids="{}-channels".format)
def test_a_chain_stays_in_blocks(channels):
    data = relay.nn.relu(depthwise(stem(channels), channels))
    data = relay.clip(conv(data, channels, 2 * channels), 0, 6)
    data = relay.nn.relu(depthwise(data, 2 * channels, strides=(2, 2)))
    convs, reorders = run(conv(data, 2 * channels, channels))
    assert variants(convs) == [CHOSEN] + 4 * [KEPT]
    assert all(step["dst"] == BLOCKS and step["impl"].startswith("jit") for step in convs)
    assert reorders == 1


def test_padding_on_one_side():
    data = depthwise(stem(), 32, padding=(0, 1, 2, 1), strides=(1, 2))
    convs, reorders = run(relay.nn.relu(conv(data, 32, 16)))
    assert variants(convs) == [CHOSEN, KEPT, KEPT] and reorders == 1


def test_a_residual_in_blocks():
    data = conv(depthwise(stem(), 32), 32, 24)
    wide = relay.clip(conv(data, 24, 144), 0, 6)
    data = conv(relay.clip(depthwise(wide, 144), 0, 6), 144, 24) + data
    convs, reorders = run(relay.nn.relu(conv(data, 24, 48)))
    assert variants(convs)[1:] == 6 * [KEPT] and reorders == 1
    assert any(names & {"sum", "binary_add"} for names in map(set, [c["post_ops"] for c in convs]))


@pytest.mark.parametrize("pool", [relay.nn.global_avg_pool2d, relay.nn.global_max_pool2d])
def test_weights_of_channels(pool):
    """Squeeze and excite: a factor for each channel, computed from the image itself."""
    data = relay.nn.relu(depthwise(stem(24), 24))
    squeezed = relay.nn.relu(conv(pool(data), 24, 8))
    data = data * relay.sigmoid(conv(squeezed, 8, 24))
    convs, reorders = run(relay.nn.relu(conv(data, 24, 40)))
    assert variants(convs) == [CHOSEN] + 4 * [KEPT] and reorders == 1


def test_what_others_read_is_row_major():
    inner = relay.nn.relu(depthwise(stem(), 32))
    outer = relay.nn.relu(conv(inner, 32, 48))
    convs, reorders = run(relay.Tuple([outer, inner]))
    assert variants(convs) == [CHOSEN, KEPT, KEPT] and reorders == 2


def test_no_depthwise_convolution_before():
    """A network of ordinary convolutions, which are faster with the channels last."""
    convs, _ = run(relay.nn.relu(conv(relay.nn.max_pool2d(stem(), (2, 2), (2, 2)), 32, 64)))
    assert variants(convs) == [CHOSEN, CHOSEN] and convs[1]["dst"] != BLOCKS


@pytest.mark.parametrize(
    "attrs",
    [
        dict(kernel=3),
        dict(groups=4),
        dict(kernel=3, groups=32, cout=64),
    ],
    ids=["3x3", "groups", "two filters for each channel"],
)
def test_other_convolutions_are_left_to_onednn(attrs):
    data = relay.nn.relu(depthwise(stem(), 32))
    convs, _ = run(relay.nn.relu(conv(data, 32, **{"cout": 64, **attrs})))
    assert variants(convs) == [CHOSEN, KEPT, CHOSEN]


def test_a_factor_for_each_column():
    """OneDNN has no fast code for it in blocks; so it is not fused to one that keeps them."""
    data = relay.nn.relu(depthwise(stem(), 32))
    factors = relay.const(rand(1, 1, 1, 13, seed=3))
    convs, _ = run(relay.nn.relu(conv(data, 32, 64) * factors))
    assert variants(convs)[:2] == [CHOSEN, KEPT]
    assert not any(step["reference"] for step in convs)
