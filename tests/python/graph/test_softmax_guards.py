# SPDX-License-Identifier: Apache-2.0
"""A softmax and its guard are one op where that computes the same, and stay two where not."""

import numpy as np
import pytest
from graph_reader import Reader, ops, rewritten
from tvm.contrib.onednn.ir.op_view import Tensor
from tvm.contrib.onednn.ops.evaluate import evaluate
from tvm.contrib.onednn.ops.rules import Rules
from tvm.contrib.onednn.ops.table import TABLE
from tvm.contrib.onednn.options import Options
from tvm.contrib.onednn.rewrites.softmax_guards import fuse_softmax_guards

# Rows of numbers, with a masked score, masked, with NaN, and with an infinite score.
SCORES = np.float32(
    [
        [0.5, -1, 2],
        [0.5, -np.inf, 2],
        [-np.inf, -np.inf, -np.inf],
        [0.5, np.nan, -np.inf],
        [np.nan, np.nan, np.nan],
        [np.inf, 0, 1],
    ]
)


def _truths(r, name, operand, size=None, **attrs):
    """An op of truths, which has no row; its rows may have another size."""
    *batch, last = operand.type.shape
    node = r.call(name, operand, type_=Tensor((*batch, size or last), "bool"), **attrs)
    node.unsupported = "no rule for this op"
    return node


def nan_safe(r, x, value=0.0, axis=-1):
    softmax = r.call("nn.softmax", x, axis=axis)
    return [r.call("where", _truths(r, "isnan", softmax), r.constant(value), softmax)]


def masked(r, x, score=-np.inf, is_int8=True, axis=-1):
    softmax = r.call("nn.softmax", x, axis=-1)
    zeros = r.constant(np.zeros(softmax.type.shape))
    finite = _truths(r, "logical_not", r.call("equal", x, r.constant(score)))
    attrs = dict(axis=[axis], keepdims=True, exclude=False)
    if is_int8:
        largest = r.call("max", r.call("cast", finite, dtype="int8"), **attrs)
        any_ = r.call("cast", largest, dtype="bool")
    else:
        any_ = _truths(r, "any", finite, 1, **attrs)
    return [r.call("where", _truths(r, "logical_not", any_), zeros, softmax)]


def zeros_like(r, x):
    """Zeros of the shape of the softmax, which is open."""
    softmax = r.call("nn.softmax", x, axis=-1)
    zeros = r.call("zeros_like", softmax, type_=softmax.type)
    return [r.call("where", _truths(r, "isnan", softmax), zeros, softmax)]


def read_twice(r, x):
    (guarded,) = nan_safe(r, x)
    return [guarded, guarded.operands[0]]


def other_softmax(r, x):
    softmax, other = r.call("nn.softmax", x, axis=-1), r.call("nn.softmax", x, axis=-1)
    return [r.call("where", _truths(r, "isnan", other), r.constant(0.0), softmax)]


FUSED = {
    "nan-safe": (nan_safe, "dnnl.nan_safe_softmax"),
    "zeros-like": (zeros_like, "dnnl.nan_safe_softmax"),
    "masked-int8": (masked, "dnnl.masked_softmax"),
    "masked-any": (lambda r, x: masked(r, x, is_int8=False), "dnnl.masked_softmax"),
}
KEPT = {
    "another-value": lambda r, x: nan_safe(r, x, value=1.0),
    "another-axis": lambda r, x: nan_safe(r, x, axis=0),
    "condition-read-elsewhere": read_twice,
    "another-softmax": other_softmax,
    "another-score": lambda r, x: masked(r, x, score=-1e9),
    "mask-along-another-axis": lambda r, x: masked(r, x, axis=0),
}


def _graph(build):
    r = Reader()
    return r.returns(*build(r, r.input(*SCORES.shape)))


def _fused(graph, **options):
    """Fuse the guards, and return the ops of the calls."""
    return rewritten(fuse_softmax_guards, graph, Rules(TABLE, Options(**options)))


@pytest.mark.parametrize("case", FUSED)
def test_fused(case):
    build, name = FUSED[case]
    graph = _graph(build)
    # There is no numpy definition of `any`; the other spelling computes the same.
    (before,) = evaluate(_graph(masked) if case == "masked-any" else graph, [SCORES])
    assert _fused(graph) == [name]
    (after,) = evaluate(graph, [SCORES])
    np.testing.assert_array_equal(before, after)
    is_nan_safe = name == "dnnl.nan_safe_softmax"
    wanted = [False] * 6 if is_nan_safe else [False, False, False, True, True, True]
    assert np.isnan(after).all(-1).tolist() == wanted
    assert not after[2].any()


@pytest.mark.parametrize("case", KEPT)
def test_kept(case):
    graph = _graph(KEPT[case])
    before = ops(graph)
    assert _fused(graph) == before


@pytest.mark.parametrize("excluded", ["dnnl.nan_safe_softmax", "nn.softmax", "where", "isnan"])
def test_excluded(excluded):
    names = _fused(_graph(nan_safe), exclude=frozenset([excluded]))
    assert names == ["nn.softmax", "isnan", "where"]
