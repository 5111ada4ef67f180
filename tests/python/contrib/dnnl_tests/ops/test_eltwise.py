# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.  See the NOTICE file
# distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file
# to you under the Apache License, Version 2.0 (the
# "License"); you may not use this file except in compliance
# with the License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing,
# software distributed under the License is distributed on an
# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
# KIND, either express or implied.  See the License for the
# specific language governing permissions and limitations
# under the License.
"""Unary elementwise ops on oneDNN, against float64."""

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from dnnl_tests import direct
from dnnl_tests.reference import rand
from dnnl_tests.single_op import reasons, run_alone, run_planned, var

# Rounding to float32 alone is 2**-24 = 6e-8 of a result. oneDNN's polynomials are up to five such
# steps off: the largest error measured over the ranges below is 3.8e-7 (exp near 88), relative to
# the largest output 2e-7.
RTOL = 4e-7


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


# name: (op, numpy function, lowest input, highest input)
ELTWISE = {
    "abs": (relay.abs, np.abs, -10, 10),
    "clip": (lambda x: relay.clip(x, -1.5, 3), lambda x: np.clip(x, -1.5, 3), -10, 10),
    "clip-below": (lambda x: relay.clip(x, 0, np.inf), lambda x: np.maximum(x, 0), -10, 10),
    "clip-one-value": (lambda x: relay.clip(x, 2, 2), lambda x: np.full_like(x, 2), -10, 10),
    "exp": (relay.exp, np.exp, -10, 10),
    "exp-of-large": (relay.exp, np.exp, -87, 88),
    "leaky_relu": (
        lambda x: relay.nn.leaky_relu(x, 0.1),
        lambda x: np.where(x > 0, x, x * np.float64(np.float32(0.1))),
        -10,
        10,
    ),
    "log": (relay.log, np.log, 1e-6, 100),
    "negative": (relay.negative, np.negative, -10, 10),
    "rsqrt": (relay.rsqrt, lambda x: 1 / np.sqrt(x), 1e-6, 10),
    "sigmoid": (relay.sigmoid, sigmoid, -20, 20),
    "sqrt": (relay.sqrt, np.sqrt, 0, 100),
    "tanh": (relay.tanh, np.tanh, -10, 10),
    "tanh-of-small": (relay.tanh, np.tanh, -1e-3, 1e-3),
}
# What is not rounded at all.
EXACT = ("abs", "clip", "clip-below", "clip-one-value", "negative")


@pytest.mark.parametrize("name", ELTWISE)
def test_accuracy(name):
    """All of a range, so that no piece of oneDNN's polynomials is left out."""
    op, function, low, high = ELTWISE[name]
    x = np.linspace(low, high, 1 << 16, dtype="float32").reshape(64, 1024)
    reference = function(x.astype("float64"))
    kinds = ["eltwise", "eltwise"] if name == "rsqrt" else ["eltwise"]
    rtol = 0 if name in EXACT else RTOL
    # Comparing float32 outputs with float64 would need their rounding in the tolerance.
    expected = reference.astype("float32") if name in EXACT else reference
    run_alone(op(var("x", x.shape)), {"x": x}, None, expected, kinds=kinds, rtol=rtol)


@pytest.mark.parametrize("name", ["exp", "sigmoid", "clip-one-value", "tanh", "negative"])
def test_in_the_layout_of_a_convolution(name):
    """20 channels in blocks of 8 or 16 leave padding, which must stay zero."""
    op, function, _, _ = ELTWISE[name]
    x, w = rand(1, 20, 9, 9), rand(20, 20, 3, 3, seed=1)
    conv = relay.nn.conv2d(var("x", x.shape), var("w", w.shape), kernel_size=(3, 3), channels=20)
    middle = op(conv)
    expr = relay.nn.conv2d(middle, var("v", w.shape), kernel_size=(3, 3), channels=20)
    mod = tvm.IRModule.from_expr(relay.Tuple([middle, expr]))
    partitioned = dnnl.partition_for_dnnl(mod, {"w": w, "v": w}, prune=False)
    steps = run_planned(partitioned, {"x": x}, direct.run(mod, {"x": x}, {"w": w, "v": w}), 2e-5)
    assert not [step for step in steps if step["reference"]]


SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, 1e30, -1e30, 1e-30, 3e38, -3e38], "float32")
# -inf * 0 is not a number in all that multiply x by a function of it.
SPECIAL_CASES = ["abs", "clip", "clip-below", "leaky_relu", "negative", "sigmoid", "tanh"]


@pytest.mark.parametrize("name", SPECIAL_CASES)
def test_zeros_infinities_and_large_values(name):
    op, function, _, _ = ELTWISE[name]
    with np.errstate(over="ignore"):
        reference = function(SPECIAL.astype("float64")).astype("float32")
    expr = op(var("x", SPECIAL.shape))
    mod = dnnl.partition_for_dnnl(tvm.IRModule.from_expr(expr), prune=False)
    assert testing.offload(mod).partitions == 1
    (got,) = direct.run(mod, {"x": SPECIAL})
    np.testing.assert_allclose(got, reference, rtol=1e-6, atol=0)


def test_negative_of_zero_has_the_sign_that_tvm_gives():
    x = np.array([0.0, -0.0], "float32")
    mod = tvm.IRModule.from_expr(relay.negative(var("x", x.shape)))
    (got,) = direct.run(dnnl.partition_for_dnnl(mod, prune=False), {"x": x})
    assert list(np.signbit(got)) == [True, False]


PRELU_CASES = {
    "nchw": ((2, 16, 5, 7), 1),
    "nhwc": ((2, 5, 7, 16), 3),
    "middle-axis": ((2, 5, 7, 6), 2),
    "first-axis": ((6, 5, 7), 0),
    "odd-channels": ((2, 13, 5, 7), 1),
    "one-slope": ((2, 1, 5, 7), 1),
    "vector": ((35,), 0),
    "matrix": ((3, 8), 1),
    "volume": ((1, 8, 3, 4, 5), 1),
    "rank-6": ((1, 8, 3, 2, 2, 2), 1),
}


@pytest.mark.parametrize("constant", [True, False], ids=["const", "var"])
@pytest.mark.parametrize("shape, axis", PRELU_CASES.values(), ids=PRELU_CASES.keys())
def test_prelu(shape, axis, constant):
    x, alpha = rand(*shape), rand(shape[axis], seed=1)
    expr = relay.nn.prelu(var("x", shape), var("a", alpha.shape), axis=axis)
    slopes = alpha.reshape([-1 if i == axis else 1 for i in range(len(shape))])
    inputs, params = ({"x": x}, {"a": alpha}) if constant else ({"x": x, "a": alpha}, None)
    reference = np.where(x > 0, x, x * slopes)
    # One slope that is known is that of a leaky relu.
    kind = "eltwise" if constant and alpha.size == 1 else "prelu"
    run_alone(expr, inputs, params, reference, kinds=[kind], rtol=0)


X = relay.var("x", shape=(4, 5), dtype="float32")
REFUSED = {
    "round": (relay.round(X), "half to even"),
    "erf": (relay.erf(X), "only as a part of GELU"),
    "clip": (relay.clip(X, 3, -1), "a_min=3 is not below a_max=-1"),
    "clip-nan": (relay.clip(X, np.nan, 1), "a_min=nan is not below"),
    "float64": (
        relay.tanh(relay.var("x", shape=(4,), dtype="float64")),
        "float64, not float32, bfloat16 or float16",
    ),
    "int32": (
        relay.abs(relay.var("x", shape=(4,), dtype="int32")),
        "int32, not float32, bfloat16 or float16",
    ),
    "scalar": (relay.sqrt(relay.var("x", shape=(), dtype="float32")), "at least rank 1"),
    "empty": (relay.exp(relay.var("x", shape=(0, 4), dtype="float32")), "no elements"),
}


@pytest.mark.parametrize("expr, text", REFUSED.values(), ids=REFUSED.keys())
def test_refused(expr, text):
    (reason,) = reasons(expr)
    assert text in reason
