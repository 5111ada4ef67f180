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
"""The values of constants, those of bfloat16 included, which numpy does not have."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import tvm
from tvm import relay


def to_numpy(data: tvm.nd.NDArray) -> np.ndarray:
    """Return the values of a tensor in a numpy type of its own type's numbers."""
    values = data.numpy()
    # Some releases of TVM return the bits of a bfloat16.
    if data.dtype == "bfloat16" and values.dtype.kind == "u":
        values = values.view(ml_dtypes.bfloat16)
    return values


def to_constant(values: np.ndarray, dtype: str) -> relay.Constant:
    """Return a constant of a type; floating-point values are rounded to the nearest."""
    if dtype == "bfloat16":
        # By way of float32: oneDNN and TVM round these, too.
        values = values.astype("float32").astype(ml_dtypes.bfloat16)
    else:
        values = values.astype(dtype)
    # relay.const would halve the bits of an int64 or float64 numpy array.
    return relay.const(tvm.nd.array(values))
