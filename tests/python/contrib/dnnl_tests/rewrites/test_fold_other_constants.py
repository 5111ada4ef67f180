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
"""TVM computes the ops of constants that have no numpy definition, one function for each."""

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from dnnl_tests.relay import const, module, partition, var


@pytest.fixture
def folded(monkeypatch):
    """Return the ops that TVM compiles a function for, as they are folded."""
    ops, fold = [], relay.transform.FoldConstantExpr

    def counted(expr, *args):
        ops.append(expr.op.name)
        return fold(expr, *args)

    monkeypatch.setattr(relay.transform, "FoldConstantExpr", counted)
    return ops


def _weight():
    """Return a weight as TFLite models in float16 have it, and its value."""
    half = np.linspace(-1, 1, 24, dtype="float16").reshape(4, 6)
    return relay.cast(relay.const(half), "float32"), half.astype("float32")


def _dense(columns):
    """Return what oneDNN computes, of a number of columns."""
    return relay.nn.dense(var("x", 2, 6), const(columns, 6))


def test_only_what_numpy_does_not_know_is_compiled(folded):
    x = var("x", 2, 6)
    weight, _ = _weight()
    bias = relay.cast(relay.cumsum(relay.cast(relay.const([1, 2, 3, 4]), "int32"), 0), "float32")
    mod = module(relay.nn.bias_add(relay.nn.dense(x, weight), bias))
    partitioned = partition(mod)
    assert folded == ["cumsum"]
    report = dnnl.offload_report(partitioned)
    assert (report.offloaded, report.partitions) == (report.total, 1), report
    x = np.linspace(-2, 2, 12, dtype="float32").reshape(2, 6)
    expected = x @ _weight()[1].T + np.float32([1, 3, 6, 10])
    testing.assert_close(testing.run(partitioned, {"x": x}), [expected], 1e-5)


def test_the_fields_of_a_tuple_are_folded(folded):
    parts = relay.split(const(4, 6), 2, axis=1)
    largest = relay.topk(relay.reshape(parts[1], (12,)), k=3, ret_type="values")
    partitioned = partition(module(relay.add(_dense(3), largest)))
    assert folded == ["topk"]
    report = dnnl.offload_report(partitioned)
    assert (report.offloaded, report.partitions) == (report.total, 1), report


def test_nothing_is_compiled_for_what_numpy_knows(folded):
    slopes = relay.reshape(relay.broadcast_to(const(1, 8), (5, 8)), (-1,))
    partitioned = partition(module(relay.nn.prelu(_dense(40), slopes, axis=1)))
    assert not folded
    assert not testing.offload(partitioned).host_ops


def test_what_tvm_cannot_compute_stays(monkeypatch):
    def fail(*args):
        raise tvm.TVMError("no code for this")

    monkeypatch.setattr(relay.transform, "FoldConstantExpr", fail)
    sums = relay.cumsum(const(8), 0)
    partitioned = partition(module(relay.add(_dense(8), sums)))
    assert testing.offload(partitioned).host_ops == {"cumsum": 1}
