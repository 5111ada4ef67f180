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
"""A batch_norm that is not folded takes in the relu behind it."""

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from dnnl_tests import direct
from dnnl_tests.reference import RTOL, batch_norm, rand
from dnnl_tests.single_op import run_alone, var

NAMES = ("gamma", "beta", "mean", "variance")


def normal(x, axis):
    """Return a batch_norm of a variable with variables for its statistics."""
    return relay.nn.batch_norm(x, *(var(name, (8,)) for name in NAMES), axis=axis)


def values():
    return {n: np.abs(rand(8, seed=i)) + np.float32(0.5) for i, n in enumerate(NAMES)}


@pytest.mark.parametrize(
    "shape, axis",
    [((2, 8, 5, 6), 1), ((2, 5, 6, 8), 3), ((3, 8), 1), ((2, 3, 8, 2, 2, 2), 2)],
    ids=["NCHW", "NHWC", "rows", "rank-6"],
)
def test_fused(shape, axis):
    x = rand(*shape)
    expr = relay.nn.relu(normal(var("x", shape), axis)[0])
    want = np.maximum(batch_norm(x, *values().values(), {"axis": axis}), 0)
    (step,) = run_alone(
        expr,
        {"x": x, **values()},
        {},
        want,
        kinds=["batch_normalization"],
        rtol=RTOL,
        composites={"dnnl.batch_norm_relu": 1},
    )
    assert step["post_ops"] == ["eltwise_relu"]


@pytest.mark.parametrize("shape", [(2, 8, 5, 6), (3, 8), (2, 8, 1, 1), (2, 8, 3)], ids=str)
def test_fused_with_constants(shape):
    """Then it is a factor and a summand of each channel."""
    x = rand(*shape)
    (step,) = run_alone(
        relay.nn.relu(normal(var("x", shape), 1)[0]),
        {"x": x},
        values(),
        np.maximum(batch_norm(x, *values().values(), {"axis": 1}), 0),
        kinds=["binary"],
        rtol=RTOL,
        composites={"dnnl.multiply_add_relu": 1},
    )
    assert step["post_ops"] == ["binary_add", "eltwise_relu"]


def composites(expr, **options):
    mod = dnnl.partition_for_dnnl(tvm.IRModule.from_expr(expr), prune=False, **options)
    report = dnnl.offload_report(mod)
    return mod, report.composites


def test_other_results_in_use():
    """A batch norm passes its statistics on: it is fused all the same."""
    x = var("x", (2, 8, 5, 6))
    bn = normal(x, 1)
    mod, counts = composites(relay.Tuple([relay.nn.relu(bn[0]), bn[1]]))
    assert counts == {"dnnl.batch_norm_relu": 1}
    data = {"x": rand(2, 8, 5, 6), **values()}
    relu, mean = direct.run(mod, data)
    want = np.maximum(batch_norm(data["x"], *values().values(), {}), 0)
    testing.assert_close([relu, mean], [want, data["mean"]], RTOL)


def test_other_functions_are_not_fused():
    assert not composites(relay.tanh(normal(var("x", (2, 8, 5, 6)), 1)[0]))[1]


def test_excluded():
    expr = relay.nn.relu(normal(var("x", (2, 8, 5, 6)), 1)[0])
    assert not composites(expr, exclude=["nn.relu"])[1]


def test_more_behind_it():
    """The relu is fused, what comes next runs on its own."""
    expr = relay.nn.relu(normal(var("x", (2, 8, 5, 6)), 1)[0]) + relay.const(1.0)
    mod, counts = composites(expr)
    assert counts == {"dnnl.batch_norm_relu": 1}
    data = {"x": rand(2, 8, 5, 6), **values()}
    want = np.maximum(batch_norm(data["x"], *values().values(), {}), 0) + 1
    testing.assert_close(direct.run(mod, data), [want], RTOL)
