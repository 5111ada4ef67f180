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
"""Converters of ops of which TVM compiles some types, sizes or constant shapes only."""

from __future__ import annotations

import numpy as np
from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend

from ..backend import is_constant, value_of
from .node import Node


def _from_start(bb, data: relax.Expr, indices: relax.Expr, axes: np.ndarray) -> relax.Expr:
    """Return indices of elements along axes, of which negative ones count from the end."""
    if is_constant(indices) and (value_of(indices) >= 0).all():
        return indices
    dtype = str(indices.ty.dtype)
    sizes = bb.emit(relax.op.shape_to_tensor(relax.op.shape_of(data)))
    size = bb.emit(relax.op.take(sizes, relax.const(axes), axis=0, mode="wrap"))
    from_end = relax.op.add(indices, relax.op.astype(size, dtype))
    return bb.emit(relax.op.where(relax.op.less(indices, relax.const(0, dtype)), from_end, indices))


class GatherElements(onnx_frontend.GatherElements):
    """Convert GatherElements with negative indices, which TVM 0.26 does not count from the end."""

    @classmethod
    def _impl_v13(cls, bb, inputs, attr, params):
        data, axis = inputs[0], attr.get("axis", 0)
        indices = _from_start(bb, data, inputs[1], np.array(axis, "int64"))
        return relax.op.gather_elements(data, indices, axis)


class GatherND(onnx_frontend.GatherND):
    """Convert GatherND, likewise."""

    @classmethod
    def _impl_v13(cls, bb, inputs, attr, params):
        data, first = inputs[0], attr.get("batch_dims", 0)
        axes = np.arange(first, first + int(inputs[1].ty.shape[-1]), dtype="int64")
        return relax.op.gather_nd(data, _from_start(bb, data, inputs[1], axes), first)


class Split(onnx_frontend.Split):
    """Convert Split into parts of which some are empty, and into a number of parts."""

    @classmethod
    def _impl_v13(cls, bb, inputs, attr, params):
        lengths, count = inputs[1], attr.get("num_outputs")
        if count is not None and lengths is None:
            size = Node("Split", bb, attr).shape(inputs[0])[attr.get("axis", 0)]
            if isinstance(size, int):
                # The last one is smaller.
                length = -(-size // count)
                ends = [min(k * length, size) for k in range(count + 1)]
                lengths = relax.const(np.diff(ends), "int64")
                inputs = onnx_frontend.onnx_input([inputs[0], lengths])
        if lengths is None or not is_constant(lengths) or value_of(lengths).all():
            return super()._impl_v13(bb, inputs, attr, params)
        parts, begin = [], 0
        for length in value_of(lengths).tolist():
            bounds = [attr.get("axis", 0)], [begin], [begin + length]
            parts.append(bb.emit(relax.op.strided_slice(inputs[0], *bounds)))
            begin += length
        return relax.Tuple(parts)


class ConstantOfShape(onnx_frontend.ConstantOfShape):
    """Convert ConstantOfShape of a shape that is computed when the model runs."""

    @classmethod
    def _impl_v9(cls, bb, inputs, attr, params):
        shape = onnx_frontend.get_constant(inputs[0], params)
        length = None if is_constant(shape) else onnx_frontend._get_known_tensor_length(shape)
        if length is None or isinstance(shape, relax.ShapeExpr):
            return super()._impl_v9(bb, inputs, attr, params)
        value = np.float32(0)
        if "value" in attr:
            value = onnx_frontend.get_numpy(attr["value"]).reshape(())
        sizes = onnx_frontend._tensor_to_shape_expr(bb, shape, length, "size")
        return relax.op.broadcast_to(relax.const(value), sizes)


REPLACEMENTS = {
    "ConstantOfShape": ConstantOfShape,
    "GatherElements": GatherElements,
    "GatherND": GatherND,
    "Split": Split,
}
