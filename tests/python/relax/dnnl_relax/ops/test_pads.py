# SPDX-License-Identifier: Apache-2.0
"""Pads: those of ONNX, and what is folded into the convolution or pool after it; and pools.

With ceil_mode a last window that would hold nothing but padding is none, as in PyTorch. Relay
counts such a window, and leaves it to TVM.
"""

import numpy as np
import pytest
import tvm_dnnl
from tvm import relax, te, tirx
from tvm.relax import op
from tvm.relax.frontend.onnx import from_onnx

from dnnl_relax.modules import (
    X4,
    check,
    compiled,
    composites,
    conv,
    module,
    rand,
    run,
    var,
)
from dnnl_relax.onnx.nodes import node_model


def _pad_of_onnx(shape, widths, mode, value):
    """Return a pad as ONNX's importer writes it: a function of TIR."""
    data = np.zeros([1 if isinstance(size, str) else size for size in shape], "float32")
    operands = {"x": data, "widths": np.array(widths, "int64"), "value": np.float32(value)}
    options = dict(domain="", opset=18, consts=("widths", "value"), dims={"x": shape})
    model = node_model("Pad", operands, mode=mode, **options)
    return from_onnx(model, keep_params_in_input=False)


@pytest.mark.parametrize("widths", [(0, 0, 1, 2, 0, 0, 0, 3), (0, 1, 0, 0, 0, 0, 2, 0)], ids=str)
@pytest.mark.parametrize("mode, value", [("constant", 1.5), ("reflect", 0.0), ("edge", 0.0)])
def test_pad_of_onnx(mode, value, widths):
    mod = _pad_of_onnx([2, 6, 5, 4], widths, mode, value)
    assert "call_tir" in mod.script()
    check(mod, {"dnnl.pad": 1}, rand(2, 6, 5, 4), tolerance=0)


@pytest.mark.parametrize("mode", ["constant", "reflect"])
def test_pad_of_onnx_of_any_batch(mode):
    mod = _pad_of_onnx(["n", 6, 5, 4], (0, 0, 1, 1, 0, 0, 1, 1), mode, 0.0)
    check(mod, {"dnnl.pad": 1}, rand(3, 6, 5, 4), tolerance=0)


def _not_before(row):
    """Return what is a pad but for the rows that it leaves out."""

    def write(data):
        def at(i, j):
            inside = tirx.all(i >= row, i < 6, j >= 1)
            return tirx.if_then_else(inside, data[i - 1, j - 1], 0.0)

        return te.compute((7, 9), at, name="PadInput")

    return lambda builder, x: builder.emit_te(write, x)


@pytest.mark.parametrize("row", [2, 3])
def test_what_is_no_pad_stays(row):
    check(module(_not_before(row), var("x", 6, 8)), {}, rand(6, 8))


def _pad(builder, x, value=0.0):
    return builder.emit(op.nn.pad(x, (0, 0, 0, 0, 1, 2, 0, 1), "constant", value))


CONV = {"dnnl.conv2d": 1}
# What is before the pad stays on TVM. What is folded at all is in `rewrites/test_fold_pad.py`.
BEHIND_OTHERS = {
    "refused": lambda b, x: b.emit(op.nn.softplus(x, beta=2.0)),
    "without-a-row": lambda b, x: b.emit(op.atan(x)),
}


@pytest.mark.parametrize("case", BEHIND_OTHERS)
def test_folded_behind_what_stays(case):
    mod = module(lambda b, x: conv(b, _pad(b, BEHIND_OTHERS[case](b, x))), X4)
    check(mod, CONV, rand(2, 6, 9, 9))


def test_folded_with_open_sizes():
    mod = module(lambda b, x: conv(b, _pad(b, x)), var("x", "n", 6, "h", 9))
    partitioned = tvm_dnnl.partition_for_dnnl(mod, prune=False)
    assert composites(partitioned) == CONV
    x = rand(2, 6, 7, 9)
    got, want = run(compiled(partitioned), x), run(mod, x)
    np.testing.assert_allclose(got[0], want[0], rtol=1e-5, atol=1e-5)


# Data along each axis, window, stride, padding before and after.
CEIL_MODES = {
    "one-of-two": (8, 1, 2, 0, 0),
    "one-of-two-and-padding-behind": (2, 1, 2, 0, 1),
    "two-of-odd": (7, 2, 2, 1, 1),
    "two-of-even": (8, 2, 2, 1, 1),
    "two-far-apart": (7, 2, 3, 1, 1),
    "three-of-even": (8, 3, 2, 1, 1),
}


def _reference(x, kind, size, window, stride, before, after):
    """Pool both axes in float64; PyTorch's number of windows."""
    count = -(-(size + before + after - window) // stride) + 1
    count -= (count - 1) * stride >= size + before
    reduce = {"max": np.max, "avg": np.mean}[kind]
    starts = [k * stride - before for k in range(count)]
    parts = [slice(max(start, 0), start + window) for start in starts]
    rows = [[reduce(x[:, :, i, j].astype("float64"), axis=(2, 3)) for j in parts] for i in parts]
    return np.stack([np.stack(row, -1) for row in rows], -2)


@pytest.mark.parametrize("case", CEIL_MODES)
@pytest.mark.parametrize("kind", ["max", "avg"])
def test_ceil_mode(kind, case):
    size, window, stride, before, after = CEIL_MODES[case]
    x = rand(2, 8, size, size)

    def build(builder, data):
        pool = getattr(op.nn, f"{kind}_pool2d")
        pads = (before, before, after, after)
        return pool(data, (window,) * 2, (stride,) * 2, pads, ceil_mode=True)

    partitioned = check(module(build, var("x", *x.shape)), {f"dnnl.{kind}_pool2d": 1}, x)
    (got,) = run(compiled(partitioned), x)
    # A mean of up to nine numbers below one.
    np.testing.assert_allclose(got, _reference(x, kind, *CEIL_MODES[case]), rtol=0, atol=1e-6)


def test_an_open_size_that_is_one_of_two():
    """TVM cannot copy the type of such a tensor into a function of its own."""

    def build(builder, data):
        pooled = builder.emit(op.nn.max_pool1d(data, (2,), (2,), (1, 1), ceil_mode=True))
        return op.nn.relu(pooled)

    mod = module(build, var("x", 1, 8, "n"))
    assert not composites(tvm_dnnl.partition_for_dnnl(mod, prune=False))


def test_exact_nan():
    """Each result that an element of the input reaches is NaN if that is; others are as before."""

    def build(b, x):
        pooled = b.emit(op.nn.max_pool2d(b.emit(op.nn.relu(x)), (3, 3), strides=(2, 2), padding=1))
        return op.maximum(b.emit(op.clip(pooled, -1.0, 0.9)), relax.const(0.1))

    mod, x = module(build, var("x", 1, 6, 12, 16)), rand(1, 6, 12, 16)
    x[0, 2, 3, 5] = np.nan
    reached = np.zeros((1, 6, 6, 8), bool)
    reached[0, 2, 1:3, 2:4] = True
    for exact in (False, True):
        partitioned = tvm_dnnl.partition_for_dnnl(mod, prune=False, exact_nan=exact)
        report = tvm_dnnl.offload_report(partitioned)
        assert report.partitions == 1 and report.offloaded == report.total
        (got,) = run(compiled(partitioned), x)
        np.testing.assert_array_equal(np.isnan(got), reached if exact else np.zeros_like(reached))
    (expected,) = run(mod, np.nan_to_num(x))
    np.testing.assert_array_equal(got[~reached], expected[~reached])
