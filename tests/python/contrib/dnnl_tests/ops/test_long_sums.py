# SPDX-License-Identifier: Apache-2.0
"""How far each reduction and norm may be off, for many values far from zero.

The bounds are those of docs/numerics.md: of what is summed, or of the largest result of a norm.
"""

import numpy as np
import pytest
from tvm.contrib.onednn.ops.pool import ADAPTIVE
from tvm.contrib.onednn.ops.reduce import reduce_reason
from tvm.contrib.onednn.ops.table import TABLE

from dnnl_tests.kernel import run_kernel
from dnnl_tests.marks import json_only

pytestmark = json_only

BOUND = 4e-6


def normalized(x, axes):
    mean = x.mean(axes, keepdims=True)
    return (x - mean) / np.sqrt(x.var(axes, keepdims=True) + 1e-5)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def log_softmax(x):
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


# By op: the numpy function of the values, and what the bound is relative to.
REDUCTIONS = {
    "sum": (lambda x, axes: x.sum(axes), lambda x, axes: np.abs(x).sum(axes)),
    "mean": (lambda x, axes: x.mean(axes), lambda x, axes: np.abs(x).mean(axes)),
    "max": (lambda x, axes: x.max(axes), lambda x, axes: 0),
    "min": (lambda x, axes: x.min(axes), lambda x, axes: 0),
}
AXES = {
    "all-but-one": ((2, 1024, 1024), (1, 2)),
    "rows": ((3, 1 << 20), (1,)),
    "columns": ((1 << 18, 5), (0,)),
    "wide-columns": ((1 << 13, 200), (0,)),
    "images": ((2, 3, 700, 500), (2, 3)),
}
OFFSETS = (0.0, 1.0, 1e6)


def values(shape, offset):
    return np.random.default_rng(1).standard_normal(shape).astype("float32") + np.float32(offset)


def strings(numbers):
    return [str(number) for number in numbers]


@pytest.mark.parametrize("offset", OFFSETS)
@pytest.mark.parametrize("case", AXES)
@pytest.mark.parametrize("op", REDUCTIONS)
def test_reduction(op, case, offset):
    (shape, axes), (function, scale) = AXES[case], REDUCTIONS[op]
    x = values(shape, offset)
    want = function(x.astype("float64"), axes)
    attrs = {"axis": strings(axes), "keepdims": ["0"], "exclude": ["0"]}
    got = run_kernel(op, [x], attrs, shape=want.shape).astype("float64")
    assert (np.abs(got - want) <= BOUND * scale(x.astype("float64"), axes)).all()


def test_product():
    x = 1 + values((3, 4096), 0) * np.float32(1e-3)
    attrs = {"axis": ["1"], "keepdims": ["0"], "exclude": ["0"]}
    got = run_kernel("prod", [x], attrs, shape=(3,))
    want = x.astype("float64").prod(1)
    # Each multiplication rounds.
    assert (np.abs(got - want) <= 4096 * 2.0**-24 * want).all()


@pytest.mark.parametrize(
    "op, size", [("nn.global_avg_pool2d", None), ("nn.adaptive_avg_pool2d", 1)]
)
@pytest.mark.parametrize("offset", OFFSETS)
def test_average_of_an_image(op, size, offset):
    x = values((1, 3, 1024, 1024), offset)
    attrs = {"layout": ["NCHW"], **({} if size is None else {"output_size": ["1", "1"]})}
    got = run_kernel(op, [x], attrs, shape=(1, 3, 1, 1))
    want = x.astype("float64").mean((2, 3), keepdims=True)
    size = np.abs(x.astype("float64")).mean((2, 3), keepdims=True)
    assert (np.abs(got - want) <= BOUND * size).all()


FLAGS = {"epsilon": ["1e-5"], "scale": ["1"], "center": ["1"]}
# By op: shape, attributes, numpy function.
NORMS = {
    "nn.layer_norm": ((3, 1 << 18), {"axis": ["-1"], **FLAGS}, lambda x: normalized(x, (1,))),
    "nn.group_norm": (
        (2, 4, 256, 300),
        {"axis": ["1"], "num_groups": ["2"], **FLAGS},
        lambda x: normalized(x.reshape(2, 2, -1), (2,)).reshape(x.shape),
    ),
    "nn.instance_norm": (
        (2, 4, 256, 300),
        {"axis": ["1"], **FLAGS},
        lambda x: normalized(x, (2, 3)),
    ),
    "dnnl.rms_norm": (
        (3, 1 << 18),
        {"epsilon": ["1e-5"]},
        lambda x: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5),
    ),
    "nn.l2_normalize": (
        (3, 1 << 18),
        {"axis": ["1"], "eps": ["1e-12"]},
        lambda x: x / np.sqrt((x * x).sum(-1, keepdims=True)),
    ),
    "nn.softmax": ((3, 1 << 14), {"axis": ["-1"]}, softmax),
    "nn.fast_softmax": ((3, 1 << 14), {"axis": ["-1"]}, softmax),
    "nn.log_softmax": ((3, 1 << 14), {"axis": ["-1"]}, log_softmax),
}


def test_each_reduction_and_norm_is_here():
    """Others either add no more than a window, or nothing."""
    reduced = {name for name, op in TABLE.items() if op.reason is reduce_reason}
    assert reduced == {*REDUCTIONS, "prod"}
    functions = {name for name in TABLE if name.endswith(("_norm", "_normalize", "softmax"))}
    of_guards = {"dnnl.masked_softmax", "dnnl.nan_safe_softmax"}
    assert functions == {*NORMS, *of_guards, "nn.batch_norm"}
    assert TABLE["nn.global_avg_pool2d"].reason is ADAPTIVE["reason"]


@pytest.mark.parametrize("offset", OFFSETS)
@pytest.mark.parametrize("op", NORMS)
def test_norm(op, offset):
    shape, attrs, function = NORMS[op]
    x = values(shape, offset)
    inputs = [x]
    if "scale" in attrs:
        channels = shape[int(attrs["axis"][0])]
        inputs += [np.ones(channels, "float32"), np.zeros(channels, "float32")]
    want = function(x.astype("float64"))
    got = run_kernel(op, inputs, attrs).astype("float64")
    assert np.abs(got - want).max() <= BOUND * max(np.abs(want).max(), 1e-30)


@pytest.mark.parametrize("op", [op for op, (_, attrs, _) in NORMS.items() if "scale" in attrs])
def test_norm_of_one_value(op):
    """The mean of equal values is the value: what is left of it would be divided by little."""
    shape, attrs, _ = NORMS[op]
    x = np.full(shape, 1e6 + 0.4, "float32")
    channels = shape[int(attrs["axis"][0])]
    shift = np.linspace(-1, 1, channels, dtype="float32")
    got = run_kernel(op, [x, np.ones(channels, "float32"), shift], attrs)
    at = [-1 if axis == int(attrs["axis"][0]) % len(shape) else 1 for axis in range(len(shape))]
    np.testing.assert_allclose(got, np.broadcast_to(shift.reshape(at), shape), atol=BOUND, rtol=0)
