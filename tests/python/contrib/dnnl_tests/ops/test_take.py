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
"""Gathers of many items, of each number of bytes that has a loop of its own."""

import numpy as np
import pytest

from dnnl_tests.kernel import run_kernel
from dnnl_tests.marks import json_only


@json_only
@pytest.mark.parametrize("mode", ["clip", "wrap"])
@pytest.mark.parametrize("inner", [1, 2, 3, 4, 16, 20])
@pytest.mark.parametrize("dtype", ["float32", "uint8"])
@pytest.mark.parametrize("outer, count", [(1, 5000), (70, 150), (300, 1)])
def test_many_items(outer, count, dtype, inner, mode):
    numbers = np.random.default_rng(0)
    x = numbers.integers(0, 256, (outer, 90, inner)).astype(dtype)
    indices = numbers.integers(-200, 200, count).astype("int32")
    got = run_kernel(
        "take", [x, indices], {"axis": ["1"], "mode": [mode]}, shape=(outer, count, inner)
    )
    np.testing.assert_array_equal(got, np.take(x, indices, 1, mode=mode))
