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
"""Converters of ops whose older versions TVM reads as the newest one."""

from __future__ import annotations

import numpy as np
from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend


class Slice(onnx_frontend.Slice):
    """Convert Slice; before opset 10, the bounds are attributes."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        bounds = [attr["starts"], attr["ends"], attr.get("axes", range(len(attr["starts"])))]
        bounds = [relax.const(np.array(each, "int64")) for each in bounds]
        given = onnx_frontend.onnx_input()
        given.extend([inputs[0], *bounds])
        return cls._impl_v13(bb, given, attr, params)

    @classmethod
    def _impl_v10(cls, bb, inputs, attr, params):
        return cls._impl_v13(bb, inputs, attr, params)


class PRelu(onnx_frontend.PRelu):
    """Convert PRelu; before opset 7, a vector is a slope for each channel."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        x, slope = inputs[:2]
        if slope.ty.ndim == 1 and x.ty.ndim > 2:
            slope = bb.emit(relax.op.reshape(slope, [-1] + [1] * (x.ty.ndim - 2)))
        return cls._impl_v7(bb, [x, slope], attr, params)

    @classmethod
    def _impl_v7(cls, bb, inputs, attr, params):
        x, slope = inputs[:2]
        if 1 < slope.ty.ndim < x.ty.ndim:
            # TVM 0.26 requires the rank of x.
            missing = list(range(x.ty.ndim - slope.ty.ndim))
            slope = bb.emit(relax.op.expand_dims(slope, missing))
        return super()._impl_v1(bb, [x, slope], attr, params)


REPLACEMENTS = {"PRelu": PRelu, "Slice": Slice}
