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
"""Converters of ops of which TVM reads some versions, or some bounds, wrongly."""

from __future__ import annotations

import operator

import numpy as np
from tvm import relax, tirx
from tvm.relax.frontend.onnx import onnx_frontend

from ..backend import is_constant, value_of

# Ends beyond any size stand for the size.
_LARGE = 2**31 - 1


class Slice(onnx_frontend.Slice):
    """Convert Slice; before opset 10, the bounds are attributes.

    Of an end such as the largest int64, TVM computes an open size that overflows.
    """

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

    @classmethod
    def _impl_v13(cls, bb, inputs, attr, params):
        data, shape = inputs[0], getattr(inputs[0].ty, "shape", None)
        bounds = [onnx_frontend.get_constant(inputs[k], params) for k in range(1, 5)]
        is_known = all(each is None or is_constant(each) for each in bounds)
        if shape is None or not is_known or isinstance(data, relax.ShapeExpr):
            return super()._impl_v13(bb, inputs, attr, params)
        starts, ends, axes, steps = (None if each is None else value_of(each) for each in bounds)
        axes = [*range(len(starts))] if axes is None else [int(k) % len(shape) for k in axes]
        steps = [1] * len(starts) if steps is None else steps.tolist()
        is_changed = False
        starts, ends = starts.tolist(), ends.tolist()
        for k, part in enumerate(map(slice, starts, ends, steps)):
            size = shape[axes[k]]
            if isinstance(size, tirx.IntImm) and not range(int(size))[part]:
                # TVM refuses bounds in the other order.
                starts[k], ends[k], steps[k], is_changed = 0, 0, 1, True
        # The reader knows a slice of a symbol by constant bounds.
        is_open = [not isinstance(shape[axis], (tirx.IntImm, tirx.Var)) for axis in axes]
        is_last = [end >= _LARGE and step > 0 for end, step in zip(ends, steps)]
        is_changed = is_changed or any(map(operator.and_, is_open, is_last))
        if not is_changed:
            return super()._impl_v13(bb, inputs, attr, params)
        ends = [
            shape[axis] if is_size else int(end) for axis, end, is_size in zip(axes, ends, is_last)
        ]
        return relax.op.strided_slice(data, axes, starts, ends, steps)


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
