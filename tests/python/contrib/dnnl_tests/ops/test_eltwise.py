# SPDX-License-Identifier: Apache-2.0
"""Unary elementwise ops in blocked layouts, PReLU, and what is refused."""

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.relay.op.contrib import dnnl

from dnnl_tests import direct
from dnnl_tests.reference import rand
from dnnl_tests.single_op import reasons, run_alone, run_planned, var

ELTWISE = {
    "clip-one-value": lambda x: relay.clip(x, 2, 2),
    "exp": relay.exp,
    "negative": relay.negative,
    "sigmoid": relay.sigmoid,
    "tanh": relay.tanh,
}


@pytest.mark.parametrize("op", ELTWISE.values(), ids=ELTWISE)
def test_in_the_layout_of_a_convolution(op):
    """20 channels in blocks of 8 or 16 leave padding, which must stay zero."""
    x, w = rand(1, 20, 9, 9), rand(20, 20, 3, 3, seed=1)
    conv = relay.nn.conv2d(var("x", x.shape), var("w", w.shape), kernel_size=(3, 3), channels=20)
    middle = op(conv)
    expr = relay.nn.conv2d(middle, var("v", w.shape), kernel_size=(3, 3), channels=20)
    mod = tvm.IRModule.from_expr(relay.Tuple([middle, expr]))
    partitioned = dnnl.partition_for_dnnl(mod, {"w": w, "v": w}, prune=False)
    steps = run_planned(partitioned, {"x": x}, direct.run(mod, {"x": x}, {"w": w, "v": w}), 2e-5)
    assert not [step for step in steps if step["reference"]]


def test_negative_of_zero_has_the_sign_that_tvm_gives():
    x = np.array([0.0, -0.0], "float32")
    mod = tvm.IRModule.from_expr(relay.negative(var("x", x.shape)))
    (got,) = direct.run(dnnl.partition_for_dnnl(mod, prune=False), {"x": x})
    assert list(np.signbit(got)) == [True, False]


PRELU_CASES = {
    "nchw": ((2, 16, 5, 7), 1),
    "one-slope": ((2, 1, 5, 7), 1),
    "channels-last": ((2, 70, 70, 3), 3),
    "many-channels": ((3, 4099), 1),
    "first-axis": ((7, 2, 1, 3, 1, 5), 0),
}


@pytest.mark.parametrize("constant", [True, False], ids=["const", "var"])
@pytest.mark.parametrize("shape, axis", PRELU_CASES.values(), ids=PRELU_CASES.keys())
def test_prelu(shape, axis, constant):
    x, alpha = rand(*shape), rand(shape[axis], seed=1)
    if alpha.size > 1:
        alpha[[0, -1]] = np.inf, np.nan
    expr = relay.nn.prelu(var("x", shape), var("a", alpha.shape), axis=axis)
    slopes = alpha.reshape([-1 if i == axis else 1 for i in range(len(shape))])
    inputs, params = ({"x": x}, {"a": alpha}) if constant else ({"x": x, "a": alpha}, None)
    reference = np.where(x > 0, x, x * slopes)
    # One slope that is known is that of a leaky relu.
    kind = "eltwise" if constant and alpha.size == 1 else "prelu"
    run_alone(expr, inputs, params, reference, kinds=[kind], rtol=0)


def test_prelu_with_a_slope_of_zero():
    """An infinity times zero is NaN; oneDNN's relu with that slope gives zero."""
    x = np.asarray([[-np.inf, np.nan, -1.0, 2.0]], "float32")
    expr = relay.nn.prelu(var("x", x.shape), var("a", (1,)), axis=0)
    reference = np.where(x > 0, x, x * 0)
    run_alone(expr, {"x": x}, {"a": np.zeros(1, "float32")}, reference, kinds=["prelu"], rtol=0)


def test_prelu_in_the_layout_of_a_convolution():
    x, w, alpha = rand(2, 20, 9, 9), rand(20, 20, 3, 3, seed=1), rand(20, seed=2)
    alpha[3:5] = -np.inf, np.nan
    y = relay.nn.conv2d(var("x", x.shape), var("w", w.shape), kernel_size=(3, 3), channels=20)
    middle = relay.nn.prelu(relay.nn.max_pool2d(y, (2, 2)), var("a", alpha.shape))
    expr = relay.nn.conv2d(relay.nn.relu(middle), var("v", w.shape), channels=20)
    mod, params = tvm.IRModule.from_expr(relay.Tuple([middle, expr])), {"w": w, "v": w, "a": alpha}
    partitioned = dnnl.partition_for_dnnl(mod, params, prune=False)
    steps = run_planned(partitioned, {"x": x}, direct.run(mod, {"x": x}, params), 2e-5)
    assert "prelu" in [step["kind"] for step in steps]


X = relay.var("x", shape=(4, 5), dtype="float32")
REFUSED = {
    "clip": (relay.clip(X, 3, -1), "a_min=3 is not below a_max=-1"),
    "clip-nan": (relay.clip(X, np.nan, 1), "a_min=nan is not below"),
    "leaky-relu": (relay.nn.leaky_relu(X, 0.0), "alpha=0 is zero"),
    "scalar": (relay.sqrt(relay.var("x", shape=(), dtype="float32")), "at least rank 1"),
}


@pytest.mark.parametrize("expr, text", REFUSED.values(), ids=REFUSED.keys())
def test_refused(expr, text):
    (reason,) = reasons(expr)
    assert text in reason
