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
"""Pools with ceil_mode: a last window that would hold nothing but padding is none, as in PyTorch.

Relay counts such a window, and leaves it to TVM.
"""

import numpy as np
import pytest
import tvm_dnnl
from dnnl_modules import check, compiled, composites, module, rand, run, var
from tvm import relax
from tvm.relax import op

# Data along each axis, window, stride, padding before and after.
CASES = {
    "one-of-two": (8, 1, 2, 0, 0),
    "one-of-two-and-padding-behind": (2, 1, 2, 0, 1),
    "two-of-odd": (7, 2, 2, 1, 1),
    "two-of-even": (8, 2, 2, 1, 1),
    "two-far-apart": (7, 2, 3, 1, 1),
    "three-of-even": (8, 3, 2, 1, 1),
}


def _reference(x, kind, size, window, stride, before, after):
    """Pool both axes in float64; PyTorch's number of windows."""
    count = -(-(size + before + after - window) // stride) + 1
    count -= (count - 1) * stride >= size + before
    reduce = {"max": np.max, "avg": np.mean}[kind]
    starts = [k * stride - before for k in range(count)]
    parts = [slice(max(start, 0), start + window) for start in starts]
    rows = [[reduce(x[:, :, i, j].astype("float64"), axis=(2, 3)) for j in parts] for i in parts]
    return np.stack([np.stack(row, -1) for row in rows], -2)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kind", ["max", "avg"])
def test_ceil_mode(kind, case):
    size, window, stride, before, after = CASES[case]
    x = rand(2, 8, size, size)

    def build(builder, data):
        pool = getattr(op.nn, f"{kind}_pool2d")
        pads = (before, before, after, after)
        return pool(data, (window,) * 2, (stride,) * 2, pads, ceil_mode=True)

    partitioned = check(module(build, var("x", *x.shape)), {f"dnnl.{kind}_pool2d": 1}, x)
    (got,) = run(compiled(partitioned), x)
    # A mean of up to nine numbers below one.
    np.testing.assert_allclose(got, _reference(x, kind, *CASES[case]), rtol=0, atol=1e-6)


def test_an_open_size_that_is_one_of_two():
    """TVM cannot copy the type of such a tensor into a function of its own."""

    def build(builder, data):
        pooled = builder.emit(op.nn.max_pool1d(data, (2,), (2,), (1, 1), ceil_mode=True))
        return op.nn.relu(pooled)

    mod = module(build, var("x", 1, 8, "n"))
    assert not composites(tvm_dnnl.partition_for_dnnl(mod, prune=False))


def test_exact_nan():
    """Each result that an element of the input reaches is NaN if that is; others are as before."""

    def build(b, x):
        pooled = b.emit(op.nn.max_pool2d(b.emit(op.nn.relu(x)), (3, 3), strides=(2, 2), padding=1))
        return op.maximum(b.emit(op.clip(pooled, -1.0, 0.9)), relax.const(0.1))

    mod, x = module(build, var("x", 1, 6, 12, 16)), rand(1, 6, 12, 16)
    x[0, 2, 3, 5] = np.nan
    reached = np.zeros((1, 6, 6, 8), bool)
    reached[0, 2, 1:3, 2:4] = True
    for exact in (False, True):
        partitioned = tvm_dnnl.partition_for_dnnl(mod, prune=False, exact_nan=exact)
        report = tvm_dnnl.offload_report(partitioned)
        assert report.partitions == 1 and report.offloaded == report.total
        (got,) = run(compiled(partitioned), x)
        np.testing.assert_array_equal(np.isnan(got), reached if exact else np.zeros_like(reached))
    (expected,) = run(mod, np.nan_to_num(x))
    np.testing.assert_array_equal(got[~reached], expected[~reached])
