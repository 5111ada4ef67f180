# SPDX-License-Identifier: Apache-2.0
"""Attention with a guard after its softmax is one partition, with the results of numpy."""

import numpy as np
import pytest
import tvm_dnnl
from tvm import relax
from tvm.contrib.onednn import cpu
from tvm.relax import op

from dnnl_relax.modules import compiled, composites, module, partitions, rand, run, var

X, Y = var("x", 2, 4, 16, 32), var("y", 2, 4, 32, 16)
MASK = var("mask", 2, 1, 16, 16)
INF = np.float32(np.inf)


def _scores(builder, x, y, mask):
    return builder.emit(op.add(builder.emit(op.matmul(x, y)), mask))


def _constant(value):
    return relax.const(np.array(value, "float32"))


def nan_safe(builder, x, y, mask):
    """As ONNX exporters write it."""
    softmax = builder.emit(op.nn.softmax(_scores(builder, x, y, mask)))
    is_nan = builder.emit(op.isnan(softmax))
    return op.matmul(builder.emit(op.where(is_nan, _constant(0.0), softmax)), x)


def masked(builder, x, y, mask):
    """As TVM imports PyTorch's decomposition of an attention with a mask."""
    scores = _scores(builder, x, y, mask)
    softmax = builder.emit(op.nn.softmax(scores))
    finite = builder.emit(op.logical_not(builder.emit(op.equal(scores, _constant(-INF)))))
    largest = op.max(builder.emit(op.astype(finite, "int8")), -1, keepdims=True)
    any_ = builder.emit(op.astype(builder.emit(largest), "bool"))
    condition = builder.emit(op.logical_not(any_))
    zeros = builder.emit(op.zeros_like(softmax))
    return op.matmul(builder.emit(op.where(condition, zeros, softmax)), x)


def selected(builder, x, y, mask):
    """Scores that a condition selects instead of a sum."""
    scores = builder.emit(op.matmul(x, y))
    condition = builder.emit(op.less(mask, _constant(0.0)))
    scores = builder.emit(op.where(condition, _constant(-1e9), scores))
    return op.matmul(builder.emit(op.nn.softmax(scores)), x)


def _inputs():
    x, y, mask = rand(*X[1]), rand(*Y[1], seed=1), np.zeros(MASK[1], "float32")
    mask[0, 0, 3:6], mask[1, 0, 2, 1:] = -INF, -INF
    x[1, 2, 5, 0] = np.nan
    return x, y, mask


def _softmax(scores):
    with np.errstate(invalid="ignore"):
        exponential = np.exp(scores - scores.max(-1, keepdims=True))
        return exponential / exponential.sum(-1, keepdims=True)


def _wanted(name, x, y, mask):
    scores = x.astype("float64") @ y
    if name == "selected":
        return _softmax(np.where(mask < 0, -1e9, scores)) @ x
    softmax = _softmax(scores + mask)
    is_zero = np.isnan(softmax)
    if name == "masked":
        is_zero = (scores + mask == -INF).all(-1, keepdims=True)
    return np.where(is_zero, 0.0, softmax) @ x


CASES = {
    "nan-safe": (nan_safe, "dnnl.nan_safe_softmax"),
    "masked": (masked, "dnnl.masked_softmax"),
    "selected": (selected, "dnnl.where"),
}


@pytest.mark.parametrize("name", CASES)
def test_one_partition(name):
    build, composite = CASES[name]
    mod = tvm_dnnl.partition_for_dnnl(module(build, X, Y, MASK))
    assert partitions(mod) == 1
    counts = composites(mod)
    # A guard is an attribute of the attention.
    is_fused = name != "selected"
    assert (counts["dnnl.attention"], counts[composite]) == (is_fused, not is_fused), counts
    report = tvm_dnnl.offload_report(mod)
    assert report.total == report.offloaded, report
    inputs = _inputs()
    (got,) = run(compiled(mod), *inputs)
    wanted = _wanted(name, *inputs)
    # Sums of 32 products; NaN in the same places.
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)
    assert np.isnan(wanted).any()


@pytest.mark.parametrize("name", CASES)
@pytest.mark.skipif(not cpu.computes("bfloat16"), reason="the CPU has no bfloat16")
def test_in_reduced_precision(name):
    """The condition of a selection has no precision to reduce, and -inf is a bfloat16."""
    mod = tvm_dnnl.partition_for_dnnl(module(CASES[name][0], X, Y, MASK), precision="bfloat16")
    assert partitions(mod) == 1
    # x, y and the mask become bfloat16 once each; nothing is cast in between.
    counts = composites(mod)
    assert counts["dnnl.cast"] <= 3, counts
    x, y, mask = _inputs()
    x = np.nan_to_num(x)
    (got,) = run(compiled(mod), x, y, mask)
    wanted = _wanted(name, x, y, mask)
    # bfloat16 has 8 bits, and the scores are sums of 32 products of numbers up to 1.
    np.testing.assert_allclose(got, wanted, rtol=0.05, atol=0.05)


def test_layers_share_a_mask():
    """A mask of truths, such as a causal one with padding, is selected once for all layers."""
    kept = ("kept", (2, 1, 16, 16), "bool")

    def build(builder, x, y, mask):
        bias = builder.emit(op.where(mask, _constant(0.0), _constant(-INF)))
        for _ in range(3):
            x = builder.emit(masked(builder, x, y, bias))
        return x

    mod = tvm_dnnl.partition_for_dnnl(module(build, X, Y, var(*kept[:1], *kept[1], dtype="bool")))
    counts = composites(mod)
    assert (partitions(mod), counts["dnnl.attention"], counts["dnnl.where"]) == (1, 3, 1)
    x, y, _ = _inputs()
    x, truths = np.nan_to_num(x), np.tril(np.ones(kept[1], bool))
    truths[1, 0, :, :3] = False
    wanted = x
    for _ in range(3):
        wanted = _wanted("masked", wanted, y, np.where(truths, 0, -INF))
    (got,) = run(compiled(mod), x, y, truths)
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)
