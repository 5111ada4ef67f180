# SPDX-License-Identifier: Apache-2.0
"""Logical ops and tests for NaN, which are written as comparisons and selections."""

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.contrib.onednn import cpu
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from dnnl_tests import direct
from dnnl_tests.relay import conv, module

X = np.array([[1, np.nan, np.inf, -2.5], [0.5, 1.5, -np.inf, -2.5]], "float32")
Y = np.array([1, 0.5, 2, -2.5], "float32")
LESS, EQUAL = np.less(X, Y), np.equal(X, Y)

# By case: a function of two tests and x, and what it is in numpy.
CASES = {
    "and": (lambda a, b, x: relay.logical_and(a, b), LESS & EQUAL),
    "or": (lambda a, b, x: relay.logical_or(a, b), LESS | EQUAL),
    "xor": (lambda a, b, x: relay.logical_xor(a, b), LESS ^ EQUAL),
    "not": (lambda a, b, x: relay.logical_not(a), ~LESS),
    "isnan": (lambda a, b, x: relay.logical_or(a, relay.isnan(x)), LESS | np.isnan(X)),
    "isinf": (lambda a, b, x: relay.logical_or(a, relay.isinf(x)), LESS | np.isinf(X)),
    "isfinite": (lambda a, b, x: relay.logical_and(b, relay.isfinite(x)), EQUAL & np.isfinite(X)),
}


@pytest.mark.parametrize("build, expected", CASES.values(), ids=CASES)
def test_logic(build, expected):
    """Each partition has only ops of the runtime: an op of the same operands is not put back."""
    x, y = relay.var("x", shape=X.shape), relay.var("y", shape=Y.shape)
    out = build(relay.less(x, y), relay.equal(x, y), x)
    mod = dnnl.partition_for_dnnl(tvm.IRModule.from_expr(relay.Function([x, y], out)), prune=False)
    report = dnnl.offload_report(mod)
    assert report.partitions == 1 and report.offloaded == report.total
    (result,) = direct.run(mod, {"x": X, "y": Y})
    np.testing.assert_array_equal(result, expected)


def guarded(extremum, a, b):
    """An extremum that is NaN where an operand is, as of ONNX."""
    out = extremum(a, b)
    for each in (a, b):
        out = relay.where(relay.isnan(each), each, out)
    return out


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("shapes", [[(2, 9, 7, 5)] * 2, [(3, 40), (40,)], [(2, 1, 7), (3, 1)]])
@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_guarded_extremum(name, shapes, precision):
    """One kernel, also for infinities and both signs of NaN."""
    if not cpu.computes(precision):
        pytest.skip(f"no {precision}")
    x, y = (relay.var(name, shape=shape) for name, shape in zip("xy", shapes))
    out = guarded(getattr(relay, name), x, y)
    function = relay.Function([x, y], out)
    options = dict(prune=False, precision=precision)
    mod = dnnl.partition_for_dnnl(tvm.IRModule.from_expr(function), **options)
    assert testing.offload(mod).composites[f"dnnl.nan_{name}"] == 1
    report = dnnl.offload_report(mod)
    assert report.offloaded == report.total
    values = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -1.5, 2.0], "float32")
    numbers = np.random.default_rng(0)
    operands = [numbers.choice(values, shape) for shape in shapes]
    (result,) = direct.run(mod, dict(zip("xy", operands)))
    np.testing.assert_array_equal(result, getattr(np, name)(*operands))


def test_guarded_extremum_of_blocks():
    """Of convolutions, whose results are in blocks that 20 channels do not fill."""
    x = relay.var("x", shape=(1, 8, 6, 6))
    a, b = (conv(x, 20, seed=seed) for seed in (1, 2))
    mod = dnnl.partition_for_dnnl(module(guarded(relay.maximum, a, b), a, b))
    assert testing.offload(mod).composites["dnnl.nan_maximum"] == 1
    largest, *operands = direct.run(mod, {"x": np.random.default_rng(0).normal(size=(1, 8, 6, 6))})
    np.testing.assert_array_equal(largest, np.maximum(*operands))


@pytest.mark.parametrize(
    "scale, ops", [(0.05, {"maximum"}), (np.inf, {"maximum", "isnan", "where"})]
)
def test_guards_of_integers_are_dropped(scale, ops):
    """0 times an infinite scale is NaN."""
    x, y = (relay.var(name, shape=(4, 8), dtype="int8") for name in "xy")
    zero = relay.const(0)
    a, b = (relay.qnn.op.dequantize(each, relay.const(np.float32(scale)), zero) for each in (x, y))
    out = guarded(relay.maximum, a, b)
    values = np.arange(-16, 16, dtype="int8").reshape(4, 8)
    mod = dnnl.partition_for_dnnl(tvm.IRModule.from_expr(relay.Function([x, y], out)), prune=False)
    assert {each for each in testing.offload(mod).ops if "dequantize" not in each} == ops
    (result,) = direct.run(mod, {"x": values, "y": -values})
    with np.errstate(invalid="ignore"):
        a, b = (np.float32(scale) * each for each in (values, -values))
    np.testing.assert_array_equal(result, np.maximum(a, b))
