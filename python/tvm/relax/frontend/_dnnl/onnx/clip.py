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
"""A converter of ONNX's Clip that writes one op.

TVM's writes six, two of them as functions of TIR, which take most of the time of the import of a
network with a clip after each convolution.
"""

from __future__ import annotations

import math

from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend

from ..backend import is_constant, value_of

_FLOATS = ("float16", "float32", "float64")


class Clip(onnx_frontend.Clip):
    """Clips to constant bounds by one op, and to others as TVM does."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        low, high = (attr.get(name) for name in ("min", "max"))
        if _are_bounds(inputs[0], low, high):
            return relax.op.clip(inputs[0], low, high)
        return super()._impl_v1(bb, inputs, attr, params)

    @classmethod
    def _impl_v13(cls, bb, inputs, attr, params):
        low, high = (_number(inputs[k]) for k in (1, 2))
        if _are_bounds(inputs[0], low, high):
            return relax.op.clip(inputs[0], low, high)
        return super()._impl_v13(bb, inputs, attr, params)


def _number(bound) -> float | None:
    is_known = bound is not None and is_constant(bound) and bound.ty.dtype in _FLOATS
    return float(value_of(bound).item()) if is_known and value_of(bound).size == 1 else None


def _are_bounds(data, low: float | None, high: float | None) -> bool:
    """Whether an op of Relax clips data to these bounds as ONNX does."""
    if low is None or high is None or str(data.ty.dtype) not in _FLOATS:
        return False
    # Of bounds in the wrong order, the ops return different ones.
    return math.isfinite(low) and math.isfinite(high) and low <= high


REPLACEMENTS = {"Clip": Clip}
