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
"""Errors of results, and the error that rounding explains."""

from __future__ import annotations

import ml_dtypes
import numpy as np

#: Relative spacing of each floating-point type, by name.
EPSILON = {
    "float64": 2.0**-52,
    "float32": 2.0**-23,
    "float16": 2.0**-10,
    "bfloat16": 2.0**-7,
}
# An error of so many spacings of the largest element needs no explanation. Sums of thousands of
# terms in another order have a tenth of it, also through a hundred layers; in the short types the
# accumulation is in float32, so that few roundings add up.
_FREE = {"float64": 256, "float32": 256, "float16": 8, "bfloat16": 4}
#: Rounding explains this multiple of the change that random rounding of the same size causes.
MARGIN = 8.0


def is_float(array: np.ndarray) -> bool:
    """Whether the elements are floating-point numbers."""
    return str(array.dtype) in EPSILON


def coarsest(*dtypes: str) -> str:
    """Return the floating-point type with the largest spacing; float32 if none is given."""
    known = [dtype for dtype in dtypes if dtype in EPSILON]
    return max(known, key=EPSILON.__getitem__, default="float32")


def tells_anything(want: np.ndarray) -> bool:
    """Whether a result has a finite element, which another result can differ from."""
    return bool(want.size) and (not is_float(want) or bool(np.isfinite(_wide(want)).any()))


def largest_error(got: np.ndarray, want: np.ndarray) -> float:
    """Return the largest absolute difference of two results.

    Returns
    -------
    error : float
        Infinite if the shapes or dtypes differ, or a NaN or infinity is not in both.
    """
    if got.shape != want.shape or got.dtype != want.dtype:
        return np.inf
    if not is_float(want) or not want.size:
        # Integers may exceed what float64 has.
        differs = got != want
        if not differs.any():
            return 0.0
        return float(np.abs(_wide(got)[differs] - _wide(want)[differs]).max()) or 1.0
    got, want = _wide(got), _wide(want)
    finite = np.isfinite(want)
    if not finite.all():
        same = (got == want) | (np.isnan(got) & np.isnan(want))
        if not (same | finite).all():
            return np.inf
        got, want = got[finite], want[finite]
    if not got.size:
        return 0.0
    error = float(np.abs(got - want).max())
    return np.inf if np.isnan(error) else error


def free_bound(want: np.ndarray, dtype: str) -> float:
    """Return the error that a result computed in a floating-point type may have in any case."""
    if not is_float(want):
        # What is quantized may be rounded either way; zeros and ones are a mask.
        is_quantized = str(want.dtype) in ("int8", "uint8") and largest_value(want) > 1
        return 1.0 if is_quantized else 0.0
    dtype = coarsest(dtype, str(want.dtype))
    # The spacing of numbers below the smallest normal one is that of this.
    largest = max(largest_value(want), float(ml_dtypes.finfo(dtype).tiny))
    return _FREE[dtype] * EPSILON[dtype] * largest


def largest_value(array: np.ndarray) -> float:
    """Return the largest finite absolute value; 0 if there is none."""
    values = np.abs(_wide(array))
    return float(values.max(initial=0.0, where=np.isfinite(values)))


def rounded_at_random(array: np.ndarray, epsilon: float, rng: np.random.Generator) -> np.ndarray:
    """Return values with a random relative error; integral ones keep theirs, as they are exact."""
    if not is_float(array):
        return array
    wide = _wide(array)
    with np.errstate(invalid="ignore"):
        noisy = wide * (1 + epsilon * rng.uniform(-1, 1, array.shape))
        return np.where(wide == np.rint(wide), wide, noisy).astype(array.dtype)


def describe(got: np.ndarray, want: np.ndarray) -> str:
    """Say what is different, beyond the numbers; an empty string if nothing is."""
    if got.shape != want.shape:
        return f"shape {_shape(got)} instead of {_shape(want)}"
    if got.dtype != want.dtype:
        return f"dtype {got.dtype} instead of {want.dtype}"
    if is_float(want):
        nans = [int(np.isnan(_wide(each)).sum()) for each in (got, want)]
        if nans[0] != nans[1]:
            return f"{nans[0]} NaN instead of {nans[1]}"
    return ""


def _shape(array) -> str:
    return "x".join(map(str, array.shape)) or "scalar"


def _wide(array: np.ndarray) -> np.ndarray:
    if array.dtype == ml_dtypes.bfloat16:
        array = array.astype(np.float32)
    return array.astype(np.float64)
