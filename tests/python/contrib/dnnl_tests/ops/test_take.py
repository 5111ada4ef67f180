# SPDX-License-Identifier: Apache-2.0
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
