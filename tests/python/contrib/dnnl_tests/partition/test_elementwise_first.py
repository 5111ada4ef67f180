# SPDX-License-Identifier: Apache-2.0
"""Elementwise ops of views: they move before these where they are fused there."""

import ml_dtypes
import numpy as np
import pytest
from scipy.special import erf
from tvm import relay
from tvm.contrib.onednn import cpu
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from dnnl_tests import direct
from dnnl_tests.reference import conv2d, dense, rand
from dnnl_tests.relay import const, module, partition, var

nn = relay.nn
# What may be flushed to zero, a GELU that is NaN in sloppy code, and what overflows.
SPECIAL = np.array([0.0, -0.0, 1e-40, -6.0, -1e30, 3e38, np.inf, -np.inf, np.nan], "float32")


def gelu(x):
    """GELU as exporters write it, as an expression or of arrays."""
    is_expr = isinstance(x, relay.Expr)
    half, one, root = ((relay.const if is_expr else float)(v) for v in (0.5, 1.0, 2**0.5))
    return x * half * (one + (relay.erf if is_expr else erf)(x / root))


def tokens(image):
    """Return an image as rows of channels, as an expression or an array."""
    if not isinstance(image, relay.Expr):
        return image.reshape(*image.shape[:2], -1).transpose(0, 2, 1)
    return relay.transpose(relay.reshape(image, (0, 0, -1)), (0, 2, 1))


def composites(expr, **options):
    """Return the composites of an expression."""
    return dict(dnnl.offload_report(partition(module(expr), **options)).composites)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("groups", [1, 16])
def test_gelu_of_tokens(groups, dtype):
    """The MixFFN of SegFormer: GELU follows the reshape of a depthwise convolution's image."""
    if not cpu.computes(dtype):
        pytest.skip(f"{dtype} needs instructions that this CPU lacks")
    attrs = dict(kernel_size=(3, 3), channels=16, padding=(1, 1), groups=groups)
    attrs.update(data_layout="NCHW", kernel_layout="OIHW")
    x, w, last = rand(2, 16, 6, 7), rand(16, 16 // groups, 3, 3, seed=1), rand(8, 16, seed=2)
    # A window of one weight passes special values on as they are.
    x[0, :, 0, 2:] = 0
    x[0, 3, 4, 3] = np.inf
    conv = nn.conv2d(var("x", *x.shape), relay.const(w), **attrs)
    mod = module(nn.dense(gelu(tokens(conv)), relay.const(last)))
    partitioned = partition(mod, precision=dtype, prune=False)
    report = dnnl.offload_report(partitioned)
    assert report.composites["dnnl.conv2d_gelu_erf"] == 1, report
    assert report.offloaded == report.total
    runner = direct.Runner(partitioned)
    steps = [step for plan in testing.plans(runner) for step in plan["primitives"]]
    assert "eltwise" not in [step["kind"] for step in steps]
    (fused,) = [step["post_ops"] for step in steps if step["kind"] == "convolution"]
    assert fused == ["eltwise_gelu_erf"]
    if dtype == "bfloat16":
        x, w, last = (each.astype(ml_dtypes.bfloat16).astype("float64") for each in (x, w, last))
    with np.errstate(all="ignore"):
        expected = dense(gelu(tokens(conv2d(x, w, attrs).astype("float64"))), last)
    (got,) = runner({"x": x.astype("float32")})
    assert np.array_equal(np.isfinite(got), np.isfinite(expected))
    kept = np.isfinite(expected)
    assert kept.mean() > 0.5
    # The product, the activation and the result are rounded to 8 bits, or to 24.
    bound = {"bfloat16": 2**-7, "float32": 1e-5}[dtype]
    assert np.abs(got - expected)[kept].max() <= bound * np.abs(expected[kept]).max()


@pytest.mark.parametrize("op", ["gelu", "sigmoid", "clip", "tanh"])
def test_special_values(op):
    """The same as of the op alone, at each of them: a convolution of one weight passes them on."""
    make = {
        "gelu": gelu,
        "sigmoid": relay.sigmoid,
        "clip": lambda y: relay.clip(y, -1.0, 4.0),
        "tanh": relay.tanh,
    }[op]
    x = np.broadcast_to(SPECIAL, (1, 8, 2, len(SPECIAL))).astype("float32")
    weight = relay.const(np.ones((8, 1, 1, 1), "float32"))
    data = var("x", *x.shape)
    conv = nn.conv2d(data, weight, kernel_size=(1, 1), channels=8, groups=8)
    partitioned = partition(module(make(tokens(conv))), prune=False)
    (name,) = dnnl.offload_report(partitioned).composites
    assert name.startswith("dnnl.conv2d_")
    (got,) = direct.Runner(partitioned)({"x": x})
    alone = partition(module(make(data)), prune=False)
    (expected,) = direct.Runner(alone)({"x": x})
    np.testing.assert_allclose(got, tokens(expected), 1e-5, 1e-37)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_factor_of_heads_goes_into_the_weight(dtype):
    """Exporters multiply queries and keys by the root of the scale once they are heads."""
    if not cpu.computes(dtype):
        pytest.skip(f"{dtype} needs instructions that this CPU lacks")
    x, w, b = rand(5, 12), rand(24, 12, seed=1), rand(24, seed=2)
    out = nn.dense(var("x", *x.shape), relay.const(w)) + relay.const(b)
    heads = relay.transpose(relay.reshape(out, (5, 3, 8)), (1, 0, 2)) * relay.const(0.35)
    partitioned = partition(module(nn.batch_matmul(heads, heads)), precision=dtype, prune=False)
    report = dnnl.offload_report(partitioned)
    assert report.composites["dnnl.dense_bias"] == 1 and "multiply" not in report.ops
    (got,) = direct.Runner(partitioned)({"x": x})
    heads = (x.astype("float64") @ w.T + b).reshape(5, 3, 8).transpose(1, 0, 2) * np.float32(0.35)
    expected = np.einsum("bik,bjk->bij", heads, heads)
    bound = {"bfloat16": 2**-6, "float32": 1e-5}[dtype]
    assert np.abs(got - expected).max() <= bound * np.abs(expected).max()


def dense_of(shape=(6, 4, 10)):
    """Return a dense whose rows have other dimensions than it is read with."""
    return relay.transpose(relay.reshape(nn.dense(var("x", 24, 8), const(10, 8)), shape), (1, 0, 2))


def test_several_move():
    """Each of the ops that follow one view, then those that follow the next."""
    expr = relay.sigmoid(relay.clip(dense_of(), -1.0, 1.0))
    expr = relay.tanh(relay.expand_dims(expr, 0))
    assert composites(expr, prune=False) == {"dnnl.dense_clip_sigmoid_tanh": 1}


KEPT = {
    "a tensor of all elements": lambda y: relay.sigmoid(y * var("z", 4, 6, 10)),
    "a vector": lambda y: y * const(10),
    "two users of the view": lambda y: relay.Tuple([relay.sigmoid(y), y]),
    "a slice": lambda y: relay.sigmoid(relay.strided_slice(y, [0, 0, 0], [4, 3, 10])),
    "a broadcast": lambda y: relay.sigmoid(relay.broadcast_to(y, (2, 4, 6, 10))),
    "a factor of a higher rank": lambda y: y * relay.const(np.full((1, 1, 1, 1), 0.5, "float32")),
}


@pytest.mark.parametrize("case", KEPT)
def test_kept(case):
    """Only what is the same before the view moves."""
    assert not any(
        name.startswith("dnnl.dense_") for name in composites(KEPT[case](dense_of()), prune=False)
    )


def test_excluded():
    """An op that is to stay on TVM is no post-op."""
    partitioned = partition(module(relay.sigmoid(dense_of())), exclude=["sigmoid"], prune=False)
    assert dnnl.offload_report(partitioned).reasons["sigmoid"] == {"excluded by option": 1}
