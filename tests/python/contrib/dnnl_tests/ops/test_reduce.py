# SPDX-License-Identifier: Apache-2.0
"""Reductions on oneDNN, against float64."""

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.relay.op.contrib import dnnl

from dnnl_tests import direct
from dnnl_tests.reference import conv2d, rand
from dnnl_tests.single_op import reasons, run_alone, run_planned, var

# Sums of up to a few hundred terms in float32.
RTOL = 2e-6

OPS = {"sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min, "prod": np.prod}


@pytest.mark.parametrize("then", [lambda y: y, relay.negative], ids=["alone", "post-op"])
@pytest.mark.parametrize("op", ["max", "min"])
def test_rows_of_infinities(op, then):
    """A mask may have the lowest or highest float, too; NaN stays."""
    infinity, limit = np.float32(np.inf), np.finfo("float32").max
    rows = [infinity, -infinity, limit, -limit]
    x = np.stack([np.full(40, value, "float32") for value in rows] + [rand(40)])
    x[0, 7], x[1, 7] = np.nan, np.nan
    values = OPS[op](x, axis=1)
    expr = then(getattr(relay, op)(var("x", x.shape), axis=1))
    mod = dnnl.partition_for_dnnl(tvm.IRModule.from_expr(expr), prune=False)
    expected = values if then is not relay.negative else -values
    (result,) = direct.run(mod, {"x": x})
    np.testing.assert_array_equal(result, expected)
    assert dnnl.offload_report(mod).partitions == 1


POST_OPS = {
    "rsqrt": (lambda y, z: relay.rsqrt(y + relay.const(1.5))),
    "binary": (lambda y, z: relay.sqrt((y + z) * z)),
    "clip": (lambda y, z: relay.clip(y, 1.0, 1.02)),
}


@pytest.mark.parametrize("keepdims", [False, True], ids=["drop", "keep"])
@pytest.mark.parametrize("name", POST_OPS)
def test_post_ops(name, keepdims):
    x = np.float32(1) + np.float32(0.1) * rand(4, 5, 6)
    y = relay.mean(var("x", x.shape), axis=1, keepdims=keepdims)
    z = np.float32(2) + rand(*((4, 1, 6) if keepdims else (4, 6)), seed=1)
    expr = POST_OPS[name](y, var("z", z.shape))
    values = {"x": x, "z": z}
    values = {v.name_hint: values[v.name_hint] for v in relay.analysis.free_vars(expr)}
    reference = direct.run(tvm.IRModule.from_expr(expr), values)
    run_alone(expr, values, None, reference, kinds=["reduction", "binary"], rtol=RTOL)


def test_post_ops_of_a_reduction_over_nothing():
    x = rand(4, 1, 6)
    expr = relay.tanh(relay.sum(var("x", x.shape), axis=1))
    reference = np.tanh(x.astype("float64")).reshape(4, 6)
    run_alone(expr, {"x": x}, None, reference, kinds=["eltwise"], rtol=RTOL)


SHAPES = {
    "outer": ((3, 80, 96), 0),
    "middle": ((1, 80, 3, 96), 2),
    "short-rows": ((80, 96, 3), 2),
    "pairs": ((9, 77, 2), 2),
    "quads": ((5, 300, 4), 2),
    "rows": ((5, 700), 1),
    "all-but-channels": ((7, 3, 33, 29), (0, 2, 3)),
    "narrow": ((2, 4000, 5), 1),
    "long": ((3, 400, 501), (1, 2)),
    "long-outer": ((70000, 9), 0),
    "alternating": ((6, 5, 7, 4, 9), (0, 2, 4)),
}


@pytest.mark.parametrize("shape, axis", SHAPES.values(), ids=SHAPES.keys())
@pytest.mark.parametrize("op", OPS)
def test_axes(op, shape, axis):
    """Whatever axes are reduced, it is one step, without a copy of the data."""
    x = 1 + rand(*shape) * np.float32(1e-3 if op == "prod" else 1)
    expr = getattr(relay, op)(var("x", shape), axis=axis)
    reference = OPS[op](x.astype("float64"), axis)
    # Each multiplication rounds.
    rtol = RTOL * 50 if op == "prod" else RTOL
    run_alone(expr, {"x": x}, None, reference, kinds=["reduction"], rtol=rtol, reorders=True)


@pytest.mark.parametrize("op", OPS)
def test_of_a_transposed_slice(op):
    x = 1 + rand(6, 40, 30) * np.float32(0.1)
    data = relay.transpose(
        relay.strided_slice(var("x", x.shape), [1, 3, 2], [5, 39, 28]), (2, 0, 1)
    )
    values = x[1:5, 3:39, 2:28].transpose(2, 0, 1).astype("float64")
    expr = getattr(relay, op)(data, axis=[0])
    run_alone(expr, {"x": x}, None, OPS[op](values, 0), kinds=["reduction"], rtol=RTOL)


@pytest.mark.parametrize("op", ["mean", "max"])
def test_in_the_layout_of_a_convolution(op):
    x, w = rand(1, 20, 9, 9), rand(20, 20, 3, 3, seed=1)
    attrs = dict(kernel_size=(3, 3), channels=20)
    conv = relay.nn.conv2d(var("x", x.shape), var("w", w.shape), **attrs)
    mod = tvm.IRModule.from_expr(getattr(relay, op)(conv, axis=[2, 3]))
    reference = OPS[op](conv2d(x, w, attrs).astype("float64"), (2, 3))
    steps = run_planned(dnnl.partition_for_dnnl(mod, {"w": w}), {"x": x}, [reference], 2e-5)
    assert not [step for step in steps if step["reference"]]


X = var("x", (2, 6, 5))
REFUSED = {
    "bool": (relay.all(relay.var("x", shape=(2, 6), dtype="bool"), axis=1), "no rule"),
    "nothing": (relay.sum(X, axis=[0, 1, 2], exclude=True), "excludes all axes of (2, 6, 5)"),
}


@pytest.mark.parametrize("expr, text", REFUSED.values(), ids=REFUSED.keys())
def test_refused(expr, text):
    (reason,) = reasons(expr)
    assert text in reason
