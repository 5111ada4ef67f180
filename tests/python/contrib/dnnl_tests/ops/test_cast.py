# SPDX-License-Identifier: Apache-2.0
"""Conversions between data types on oneDNN, against ml_dtypes."""

import numpy as np
import pytest
import tvm
from ml_dtypes import bfloat16
from tvm import relay
from tvm.contrib.onednn import cpu
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from dnnl_tests import direct
from dnnl_tests.reference import conv2d, rand
from dnnl_tests.single_op import reasons, run_alone, var

# Halfway between two bfloat16 values, just beside them, and at the ends of the range. Not
# denormals, which the CPU's instruction for it takes for zero.
SPECIAL = np.array(
    [1.00390625, 1.01171875, 1.0039063, 1.0117187, 0.0, -0.0, np.inf, -np.inf, 3.4e38, 1e-37],
    "float32",
)

needs_bfloat16 = pytest.mark.skipif(
    not cpu.computes("bfloat16"), reason="oneDNN has no bfloat16 on this CPU"
)


@needs_bfloat16
@pytest.mark.parametrize(
    "x", [SPECIAL, 100 * rand(2, 3, 4, 5), rand(7)], ids=["special", "4d", "1d"]
)
def test_to_bfloat16(x):
    """Numpy has no such type: TVM returns the bits."""
    mod = tvm.IRModule.from_expr(relay.cast(var("x", x.shape), "bfloat16"))
    partitioned = dnnl.partition_for_dnnl(mod, prune=False)
    assert testing.offload(partitioned).partitions == 1
    (got,) = direct.run(partitioned, {"x": x})
    np.testing.assert_array_equal(got, x.astype(bfloat16).view("uint16"))


@needs_bfloat16
@pytest.mark.parametrize("x", [SPECIAL, rand(2, 3, 4, 5)], ids=["special", "4d"])
def test_from_bfloat16(x):
    x = x.astype(bfloat16)
    expr = relay.cast(relay.var("x", shape=x.shape, dtype="bfloat16"), "float32")
    mod = dnnl.partition_for_dnnl(tvm.IRModule.from_expr(expr), prune=False)
    assert testing.offload(mod).partitions == 1
    (got,) = direct.run(mod, {"x": x.view("uint16")})
    np.testing.assert_array_equal(got, x.astype("float32"))


@needs_bfloat16
def test_there_and_back():
    x = 10 * rand(3, 5)
    expr = relay.cast(relay.cast(var("x", x.shape), "bfloat16"), "float32")
    reference = x.astype(bfloat16).astype("float32")
    run_alone(expr, {"x": x}, None, reference, kinds=[], rtol=0)


def test_to_the_same_type_does_nothing():
    x = rand(3, 5)
    expr = relay.tanh(relay.cast(var("x", x.shape), "float32"))
    run_alone(expr, {"x": x}, None, np.tanh(x), kinds=["eltwise"], rtol=1e-6)


def test_behind_a_convolution():
    """20 channels leave padding in the blocks."""
    x, w = rand(1, 20, 9, 9), rand(20, 20, 3, 3, seed=1)
    attrs = dict(kernel_size=(3, 3), channels=20)
    conv = relay.nn.conv2d(var("x", x.shape), var("w", w.shape), **attrs)
    mod = tvm.IRModule.from_expr(relay.cast(conv, "bfloat16"))
    (got,) = direct.run(dnnl.partition_for_dnnl(mod, {"w": w}), {"x": x})
    expected = conv2d(x, w, attrs)
    # Half a step of bfloat16, and what float32 leaves open near the middle of two values.
    testing.assert_close([got.view(bfloat16).astype("float32")], [expected], 2.0**-8)


def test_from_bool():
    x = rand(3, 7) > 0
    expr = relay.cast(relay.var("x", shape=x.shape, dtype="bool"), "float32")
    mod = dnnl.partition_for_dnnl(tvm.IRModule.from_expr(expr), prune=False)
    assert testing.offload(mod).partitions == 1
    (got,) = direct.run(mod, {"x": x})
    np.testing.assert_array_equal(got, x.astype("float32"))


def cast(dtype, to, shape=(4,)):
    return relay.cast(relay.var("x", shape=shape, dtype=dtype), to)


REFUSED = {
    "scalar": (cast("float32", "bfloat16", ()), "at least rank 1"),
}


@pytest.mark.parametrize("expr, text", REFUSED.values(), ids=REFUSED.keys())
def test_refused(expr, text):
    (reason,) = reasons(expr)
    assert text in reason
