# SPDX-License-Identifier: Apache-2.0
"""Normalization by the root of the mean of squares, in the spellings of exporters."""

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from dnnl_tests import direct
from dnnl_tests.reference import rand
from dnnl_tests.single_op import run_alone, var

F = relay.const
EPSILON = 1e-5


def mean(square, **attrs):
    attrs = {"axis": [-1], "keepdims": True, **attrs}
    return relay.mean(square, **attrs) + F(np.float32(EPSILON))


def squared(x):
    return relay.power(x, F(2.0))


NORMAL = {
    "rsqrt": lambda x: x * relay.rsqrt(mean(x * x)),
    "power": lambda x: relay.rsqrt(mean(squared(x))) * x,
    "sqrt": lambda x: x / relay.sqrt(mean(squared(x))),
    "reciprocal": lambda x: x * (F(1.0) / relay.sqrt(mean(squared(x)))),
    "power-of-minus-half": lambda x: x * relay.power(mean(squared(x)), F(-0.5)),
    "last-axis-by-number": lambda x: x / relay.sqrt(mean(squared(x), axis=[2])),
}


def reference(x, gamma):
    x = x.astype("float64")
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + EPSILON) * gamma


@pytest.mark.parametrize("name", NORMAL)
@pytest.mark.parametrize("gamma", [None, (32,), (1, 1, 32)], ids=["no-factor", "vector", "rank-3"])
def test_spellings(name, gamma):
    x = rand(2, 7, 32)
    expr = NORMAL[name](var("x", x.shape))
    factor = 1.0
    if gamma is not None:
        factor = rand(*gamma, seed=3)
        expr = F(factor) * expr
    run_alone(
        expr,
        {"x": x},
        None,
        reference(x, factor),
        kinds=["rms_norm"],
        rtol=1e-6,
        composites={"dnnl.rms_norm": 1},
    )


@pytest.mark.parametrize("shape", [(5,), (3, 64), (2, 3, 4, 5), (2, 200), (4, 1)], ids=str)
def test_shapes(shape):
    x, gamma = rand(*shape), rand(shape[-1], seed=1)
    expr = NORMAL["rsqrt"](var("x", shape)) * var("g", gamma.shape)
    run_alone(
        expr,
        {"x": x, "g": gamma},
        None,
        reference(x, gamma),
        kinds=["rms_norm"],
        rtol=1e-6,
        composites={"dnnl.rms_norm": 1},
    )


x = var("x", (2, 7, 32))
y = mean(x * x)
OTHERS = {
    "cube": x * relay.rsqrt(mean(relay.power(x, F(3.0)) * x)),
    "other-axis": x * relay.rsqrt(mean(x * x, axis=[1])),
    "all-axes": x * relay.rsqrt(mean(x * x, axis=None)),
    "not-kept": x * relay.expand_dims(relay.rsqrt(mean(x * x, keepdims=False)), 2),
    "of-another": var("z", (2, 7, 32)) * relay.rsqrt(mean(x * x)),
    "squares-used": relay.concatenate([x * relay.rsqrt(y), y * x], axis=2),
    "numerator": x * (F(2.0) / relay.sqrt(mean(x * x))),
    "exponent": x * relay.power(mean(x * x), F(-0.4)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_others_are_not_taken_for_it(name):
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(OTHERS[name]))
    partitioned = dnnl.partition_for_dnnl(mod, prune=False)
    assert "dnnl.rms_norm" not in dnnl.offload_report(partitioned).composites
    inputs = {p.name_hint: rand(2, 7, 32) for p in mod["main"].params}
    testing.assert_close(direct.run(partitioned, inputs), direct.run(mod, inputs))


@pytest.mark.parametrize("exclude", ["dnnl.rms_norm", "rsqrt"])
def test_excluded(exclude):
    expr = NORMAL["rsqrt"](x)
    mod = dnnl.partition_for_dnnl(tvm.IRModule.from_expr(expr), prune=False, exclude=[exclude])
    assert "dnnl.rms_norm" not in dnnl.offload_report(mod).composites


def test_transformer_block_is_one_partition():
    data = var("x", (8, 32))
    normal = F(rand(32, seed=2)) * NORMAL["rsqrt"](data)
    up, gate = (relay.nn.dense(normal, F(rand(64, 32, seed=seed))) for seed in (3, 4))
    out = relay.nn.dense(gate * relay.sigmoid(gate) * up, F(rand(32, 64, seed=5))) + data
    mod = direct.check(tvm.IRModule.from_expr(out), {"x": rand(8, 32)}, partitions=1, rtol=1e-5)
    report = dnnl.offload_report(mod)
    assert report.offloaded == report.total and report.composites["dnnl.rms_norm"] == 1
