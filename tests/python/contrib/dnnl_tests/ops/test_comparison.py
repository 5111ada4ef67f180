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
"""Comparisons on oneDNN, whose results are bytes of 0 and 1, against numpy."""

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from dnnl_tests import direct
from dnnl_tests.reference import rand
from dnnl_tests.single_op import reasons, var

OPS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
SHAPES = [
    ((2, 3, 4), (2, 3, 4)),
    ((2, 3, 4), (4,)),
    ((2, 3, 4), ()),
    ((2, 8, 5, 6), (8, 1, 1)),
    ((2, 8, 5, 6), (2, 1, 1, 6)),
    ((70,), (1,)),
]


def run(expr, inputs):
    """Run an expression, all of which must be one partition."""
    mod = dnnl.partition_for_dnnl(tvm.IRModule.from_expr(expr), prune=False)
    offload = testing.offload(mod)
    assert offload.partitions == 1 and not offload.host_ops, f"{offload}\n{mod}"
    return direct.run(mod, inputs)[0]


def few(*shape, seed=0):
    """Return values of which many are equal."""
    return np.round(2 * rand(*shape, seed=seed))


@pytest.mark.parametrize("swapped", [False, True], ids=["", "swapped"])
@pytest.mark.parametrize("full, small", SHAPES, ids=str)
@pytest.mark.parametrize("op", OPS)
def test_broadcast(op, full, small, swapped):
    values = {"x": few(*full), "y": few(*small, seed=1)}
    args = [var(name, values[name].shape) for name in ("yx" if swapped else "xy")]
    want = getattr(np, op)(*(values[arg.name_hint] for arg in args))
    results = run(getattr(relay, op)(*args), values)
    assert results.dtype == bool and 0 < want.sum() < want.size
    np.testing.assert_array_equal(results, want)


@pytest.mark.parametrize("op", OPS)
def test_special_values(op):
    special = np.array([0.0, -0.0, 1.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40], "float32")
    x, y = (np.ascontiguousarray(v) for v in np.broadcast_arrays(special[:, None], special))
    results = run(getattr(relay, op)(var("x", x.shape), var("y", y.shape)), {"x": x, "y": y})
    np.testing.assert_array_equal(results, getattr(np, op)(x, y))


def test_behind_a_blocked_layout():
    x, w = rand(1, 16, 9, 9), rand(20, 16, 3, 3, seed=1)
    conv = relay.nn.conv2d(var("x", x.shape), relay.const(w), channels=20, kernel_size=(3, 3))
    expr = relay.greater(conv, relay.const(np.float32(0.5)))
    (want,) = direct.run(tvm.IRModule.from_expr(expr), {"x": x})
    results = run(expr, {"x": x})
    assert (results != want).mean() < 1e-3


def test_mask_of_numbers():
    """The truths go on as numbers."""
    x = few(4, 33)
    data = var("x", x.shape)
    truths = relay.cast(relay.less(data, relay.const(np.float32(0.5))), "float32")
    results = run(truths * data, {"x": x})
    np.testing.assert_array_equal(results, (x < 0.5) * x)


REFUSED = {
    "int32": (
        relay.equal(*(relay.var(n, shape=(4,), dtype="int32") for n in "ab")),
        "lhs is int32",
    ),
    "scalar": (relay.less(var("a", ()), var("b", ())), "the result is a scalar"),
    "both-broadcast": (
        relay.less(var("a", (4, 1)), var("b", (1, 4))),
        "both operands are broadcast",
    ),
}


@pytest.mark.parametrize("expr, text", REFUSED.values(), ids=REFUSED.keys())
def test_refused(expr, text):
    (reason,) = reasons(expr)
    assert text in reason
