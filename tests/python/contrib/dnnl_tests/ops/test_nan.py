# SPDX-License-Identifier: Apache-2.0
"""What NaN and infinities become, alike on each CPU and in each version of oneDNN."""

import numpy as np
import pytest
from tvm.contrib.onednn import cpu

from dnnl_tests.kernel import run_kernel
from dnnl_tests.marks import json_only
from dnnl_tests.ops.test_accuracy import FUNCTIONS, WAYS

pytestmark = json_only

NAN, INF = np.nan, np.inf


def softmax(x, axis):
    """Return what numpy makes of it: all NaN where one number of a row is, or is infinite."""
    with np.errstate(invalid="ignore"):
        e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def log_softmax(x, axis):
    with np.errstate(invalid="ignore"):
        shifted = x - x.max(axis, keepdims=True)
        return shifted - np.log(np.exp(shifted).sum(axis, keepdims=True))


SOFTMAX = {"nn.softmax": softmax, "nn.log_softmax": log_softmax, "nn.fast_softmax": softmax}


@pytest.mark.parametrize("shape, axis", [((250, 21), -1), ((2, 20, 13, 9), 1), ((5, 6, 7), 0)])
@pytest.mark.parametrize("name", SOFTMAX)
def test_a_row_with_nan_or_infinity_is_all_nan(name, shape, axis):
    """Each place of a row in turn: oneDNN's vectors and their tails differ."""
    x = np.linspace(-3, 3, np.prod(shape), dtype="float32").reshape(shape)
    rows = np.moveaxis(x, axis, -1).reshape(-1, shape[axis])
    for i, row in enumerate(rows):
        row[i % len(row)] = (NAN, 2, INF, -INF, 1, 0, 3, 2, 1, 0, 1)[i % 11]
    rows[-1] = -INF
    rows[-2, 0] = rows[-2, -1] = NAN
    ends = [shape[i] for i in range(len(shape)) if i != axis % len(shape)]
    x = np.moveaxis(rows.reshape(*ends, shape[axis]), -1, axis)
    expected = SOFTMAX[name](x.astype("float64"), axis)
    assert 0 < np.isnan(expected).sum() < expected.size
    got = run_kernel(name, [np.ascontiguousarray(x)], {"axis": [str(axis)]})
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-5)


def test_a_masked_row_of_a_softmax_is_right():
    """Zeros at the start show neither that a row is right nor that it is not."""
    x = np.full((3, 40), -INF, "float32")
    x[0, 39] = 1
    x[1, 38], x[1, 39] = 1, NAN
    x[2, :] = -1e9
    x[2, 20] = 0
    got = run_kernel("nn.softmax", [x], {"axis": ["-1"]})
    np.testing.assert_array_equal(got[0], [0] * 39 + [1])
    assert np.isnan(got[1]).all()
    np.testing.assert_array_equal(got[2], [0] * 20 + [1] + [0] * 19)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_row_of_a_softmax_in_reduced_precision(dtype):
    if not cpu.computes(dtype):
        pytest.skip(f"this CPU has no {dtype}")
    x = np.ones((3, 37), "float32")
    x[0, 5], x[2, 36] = NAN, INF
    got = run_kernel("nn.softmax", [x], {"axis": ["-1"]}, dtype=dtype, reads=dtype)
    assert np.isnan(got[[0, 2]]).all()
    np.testing.assert_allclose(got[1], 1 / 37, rtol=2**-8)


# What unary ops that select a number make of NaN, as docs/numerics.md tells; of others it is NaN.
SELECTED = {"nn.relu": 0, "clip": -1, "dnnl.hard_sigmoid": 1}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("op", FUNCTIONS)
def test_unary_functions_of_nan_and_infinities(op, way):
    """In each place of a vector and of its tail."""
    function, attrs, _ = FUNCTIONS[op]
    x = np.array([NAN, INF, -INF, 1, 0] * 9, "float32")
    with np.errstate(all="ignore"):
        expected = function(x.astype("float64"))
    expected[::5] = SELECTED.get(op, NAN)
    got = WAYS[way](op, x, {name: [value] for name, value in attrs.items()})
    if op == "dnnl.gelu_erf":
        # The code for AVX-512 gives NaN, others infinity.
        assert not np.isfinite(got[1::5]).any()
        got[1::5] = INF
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("groups", [1, 2])
def test_a_fused_sigmoid_of_a_convolution(groups):
    """Convolutions of few channels in groups are a GEMM, whose sigmoid is portable code."""
    x, weight = np.ones((1, 6, 5, 5), "float32"), np.ones((6, 6 // groups, 3, 3), "float32")
    x[0, 0, 0, 0], x[0, 5, 4, 4] = NAN, -INF
    attrs = {"kernel_size": ["3", "3"], "groups": [str(groups)], "kernel_layout": ["OIHW"]}
    attrs.update(channels=["6"], data_layout=["NCHW"])
    got = run_kernel("nn.conv2d", [x, weight], attrs, ["sigmoid"], (1, 6, 3, 3))
    assert np.isnan(got[0, : 6 // groups, 0, 0]).all()
    np.testing.assert_array_equal(got[0, 6 - 6 // groups :, 2, 2], 0)


@pytest.mark.parametrize("shape, axis", [((4, 7), 1), ((2, 5, 3), 1)])
def test_l2_normalize_of_nan(shape, axis):
    """The least sum of squares must not hide it."""
    x = np.ones(shape, "float32")
    x[0, 1], x[-1, 0] = NAN, INF
    got = run_kernel("nn.l2_normalize", [x], {"axis": [str(axis)], "eps": ["1e-6"]})
    assert np.isnan(got[0]).all() and np.isnan(got[-1, 0]).all()
    np.testing.assert_array_equal(got[-1, 1:], 0)


POOL = {
    (NAN, NAN, NAN, NAN): np.finfo("float32").min,
    (NAN, 5, 1, NAN): 5,
    (1, 2, 3, NAN): 3,
    (INF, NAN, 1, -INF): INF,
}


@pytest.mark.parametrize("channels", [1, 16, 20])
def test_max_pool_of_nan(channels):
    """The greatest of the other numbers, as docs/numerics.md tells."""
    windows = np.array(list(POOL), "float32").reshape(4, 2, 2)
    x = np.concatenate(list(windows), axis=1)
    x = np.ascontiguousarray(np.broadcast_to(x, (1, channels, 2, 8)))
    attrs = {"pool_size": ["2", "2"], "strides": ["2", "2"], "layout": ["NCHW"]}
    got = run_kernel("nn.max_pool2d", [x], attrs, shape=(1, channels, 1, 4))
    np.testing.assert_array_equal(got[0, :, 0], [list(POOL.values())] * channels)
