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
"""What the numpy definitions of ops share: element types, an error, and the sigmoid."""

from __future__ import annotations

import ml_dtypes
import numpy as np

Array = np.ndarray


class UndefinedResult(ValueError):
    """An op has no result for some values, or its definition does not cover its attributes."""


def numpy_type(dtype: str) -> np.dtype:
    """Return numpy's type of a name; bfloat16 is that of `ml_dtypes`."""
    if dtype != "bfloat16":
        return np.dtype(dtype)
    return np.dtype(ml_dtypes.bfloat16)


def lowest(dtype: str) -> float:
    """Return the lowest finite value of a type."""
    if np.dtype(numpy_type(dtype)).kind in "iu":
        return int(np.iinfo(dtype).min)
    return float(ml_dtypes.finfo(numpy_type(dtype)).min)


def wide(values: Array) -> Array:
    """Return values in a type that sums of many products do not leave."""
    return values.astype("int64" if values.dtype.kind in "iub" else "float64")


def rounded(values: np.ndarray, dtype: str) -> np.ndarray:
    """Return values as a type has them."""
    if dtype == "bfloat16":
        # By way of float32, as oneDNN and TVM round.
        with np.errstate(over="ignore"):
            return values.astype("float32").astype(ml_dtypes.bfloat16)
    with np.errstate(over="ignore"):
        return values.astype(dtype, copy=False)


def sigmoid(x: Array) -> Array:
    """Return 1 / (1 + exp(-x)), without an overflow, and accurate where it is small."""
    return np.where(x < 0, np.exp(x), 1.0) / (1.0 + np.exp(-np.abs(x)))


def along(values: np.ndarray, axis: int, rank: int) -> np.ndarray:
    """Return one value, or one for each item of an axis, in a shape that broadcasts to a tensor."""
    return values.reshape([-1 if i == axis % rank else 1 for i in range(rank)])
