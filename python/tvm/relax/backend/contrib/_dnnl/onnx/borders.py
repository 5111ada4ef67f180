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
"""Converters of ops that TVM reads for fixed sizes, or for windows that do not cross a border."""

from __future__ import annotations

import numpy as np
from tvm import relax, te, tirx
from tvm.relax.frontend.onnx import onnx_frontend

from ..reading import is_constant, value_of
from .attention_parts import Node


class Expand(onnx_frontend.Expand):
    """Converts Expand of data with open sizes to a constant shape."""

    @classmethod
    def _impl_v13(cls, bb, inputs, attr, params):
        node, (data, shape) = Node("Expand", bb, attr), inputs[:2]
        is_open = data.ty.shape is not None and not all(
            isinstance(size, tirx.IntImm) for size in data.ty.shape
        )
        if not is_constant(shape) or not is_open:
            return super()._impl_v13(bb, inputs, attr, params)
        sizes, wanted = node.shape(data), value_of(shape).tolist()
        rank = max(len(sizes), len(wanted))
        sizes, wanted = ([1] * (rank - len(each)) + each for each in (sizes, wanted))
        # An open size that turns out to be 1 is not broadcast.
        pairs = list(zip(sizes, wanted))
        given = [size if isinstance(size, int) or want == 1 else want for size, want in pairs]
        data = node.checked(node.reshape(data, sizes), given, "data")
        result = [want if size == 1 else size for size, want in zip(given, wanted)]
        return bb.normalize(relax.op.broadcast_to(data, relax.ShapeExpr(result)))


class MaxPool(onnx_frontend.MaxPool):
    """Converts MaxPool that pads open sizes automatically."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        node, data = Node("MaxPool", bb, attr), inputs[0]
        mode = attr.get("auto_pad", b"NOTSET").decode()
        sizes = node.shape(data)
        if not mode.startswith("SAME") or all(isinstance(size, int) for size in sizes[2:]):
            return super()._impl_v1(bb, inputs, attr, params)
        kernel = attr["kernel_shape"]
        strides, dilations = (
            attr.get(name, [1] * len(kernel)) for name in ("strides", "dilations")
        )
        spans = [(size - 1) * dilation + 1 for size, dilation in zip(kernel, dilations)]
        # The windows cover exactly this.
        covered = [
            (tirx.floordiv(size + stride - 1, stride) - 1) * stride + span
            for size, stride, span in zip(sizes[2:], strides, spans)
        ]
        begins = []
        for size, cover in zip(sizes[2:], covered):
            total = tirx.max(cover - size, 0)
            begins.append(tirx.floordiv(total + (mode == "SAME_LOWER"), 2))

        def pad(x):
            lowest = tirx.min_value(x.dtype)

            def element(*index):
                at = [*index[:2], *(k - begin for k, begin in zip(index[2:], begins))]
                is_inside = tirx.all(
                    *(tirx.all(k >= 0, k < size) for k, size in zip(at[2:], sizes[2:]))
                )
                return tirx.if_then_else(is_inside, x(*at), lowest)

            return te.compute([*sizes[:2], *covered], element, name="pad")

        padded = onnx_frontend.onnx_input([node.compute(pad, data)])
        return super()._impl_v1(bb, padded, attr.replaced(auto_pad=b"VALID"), params)


class GridSample(onnx_frontend.GridSample):
    """Converts GridSample that reflects an axis of one element.

    TVM divides by the distance of the borders. Every position reads the element, which is that of
    the first of two equal elements here.
    """

    @classmethod
    def _impl_v16(cls, bb, inputs, attr, params):
        node, (data, grid) = Node("GridSample", bb, attr), inputs[:2]
        sizes = node.shape(data)[2:]
        is_reflected = attr.get("padding_mode", b"zeros") == b"reflection"
        is_divided = attr.get("align_corners", 0) and is_reflected
        if not is_divided or 1 not in sizes:
            return super()._impl_v16(bb, inputs, attr, params)
        for axis, size in enumerate(sizes, 2):
            if size == 1:
                data = bb.emit(relax.op.concat([data, data], axis))
        # The grid has the last axis first.
        is_single = np.array([size == 1 for size in reversed(sizes)])
        first = relax.const(np.array(-1, grid.ty.dtype.dtype))
        grid = bb.emit(relax.op.where(relax.const(is_single), first, grid))
        return super()._impl_v16(bb, onnx_frontend.onnx_input([data, grid]), attr, params)


REPLACEMENTS = {"Expand": Expand, "GridSample": GridSample, "MaxPool": MaxPool}
