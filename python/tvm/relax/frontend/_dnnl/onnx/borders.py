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

from collections.abc import Callable, Sequence

import numpy as np
from tvm import relax, te, tirx
from tvm.relax.frontend.onnx import onnx_frontend

from ..backend import is_constant, value_of
from .node import Node


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


def _zero(dtype):
    return tirx.const(0, dtype)


class _Windows:
    """The windows of a pool or convolution that pads open sizes automatically.

    Parameters
    ----------
    node : Node
        The node.
    data : relax.Expr
        Its operand, of shape (batch, channels, ...).
    attr : dict
        Its attributes, with an `auto_pad` of SAME_UPPER or SAME_LOWER.
    kernel : Sequence[int]
        The size of a window.
    """

    def __init__(self, node: Node, data: relax.Expr, attr, kernel: Sequence[int]):
        self._node, self._data, self._shape = node, data, node.shape(data)
        self._kernel, sizes = kernel, self._shape[2:]
        ones = [1] * len(self._kernel)
        self._strides, self._dilations = attr.get("strides", ones), attr.get("dilations", ones)
        spans = [(k - 1) * step + 1 for k, step in zip(self._kernel, self._dilations)]
        self._counts = [
            tirx.floordiv(size + stride - 1, stride) for size, stride in zip(sizes, self._strides)
        ]
        # The windows cover exactly this.
        self._covered = [
            (count - 1) * stride + span
            for count, stride, span in zip(self._counts, self._strides, spans)
        ]
        is_lower = attr["auto_pad"] == b"SAME_LOWER"
        totals = [tirx.max(cover - size, 0) for size, cover in zip(sizes, self._covered)]
        self._begins = [tirx.floordiv(total + is_lower, 2) for total in totals]

    def padded(self, value: Callable = _zero) -> relax.Expr:
        """Return the data with a value of its dtype around it."""

        def pad(x):
            def element(*index):
                places = zip(index[2:], self._begins)
                at = [*index[:2], *(k - begin for k, begin in places)]
                is_inside = tirx.all(*map(_is_inside, at[2:], self._shape[2:]))
                return tirx.if_then_else(is_inside, x(*at), value(x.dtype))

            return te.compute([*self._shape[:2], *self._covered], element, name="pad")

        return self._node.compute(pad, self._data)

    def shares(self) -> relax.Expr:
        """Return what part of each window is in the data, of shape (1, 1, ...)."""

        def share(x):
            def element(*index):
                result = tirx.const(1.0, x.dtype)
                axes = self._shape[2:], self._begins, self._kernel, self._strides, self._dilations
                for k, size, begin, length, stride, step in zip(index[2:], *axes):
                    inside = (
                        tirx.if_then_else(_is_inside(k * stride + j * step - begin, size), 1, 0)
                        for j in range(length)
                    )
                    result *= sum(inside).astype(x.dtype) / tirx.const(float(length), x.dtype)
                return result

            return te.compute([1, 1, *self._counts], element, name="share")

        return self._node.compute(share, self._data)


def _is_inside(at, size):
    return tirx.all(at >= 0, at < size)


def _pads_open_sizes(node: Node, data: relax.Expr, attr) -> bool:
    is_padded = attr.get("auto_pad", b"NOTSET").startswith(b"SAME")
    return is_padded and not all(isinstance(size, int) for size in node.shape(data)[2:])


class MaxPool(onnx_frontend.MaxPool):
    """Converts MaxPool that pads open sizes automatically."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        node, data = Node("MaxPool", bb, attr), inputs[0]
        if not _pads_open_sizes(node, data, attr):
            return super()._impl_v1(bb, inputs, attr, params)
        padded = _Windows(node, data, attr, attr["kernel_shape"]).padded(tirx.min_value)
        attr = attr.replaced(auto_pad=b"VALID")
        return super()._impl_v1(bb, onnx_frontend.onnx_input([padded]), attr, params)


class AveragePool(onnx_frontend.AveragePool):
    """Converts AveragePool that pads open sizes automatically."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        node, data = Node("AveragePool", bb, attr), inputs[0]
        if not _pads_open_sizes(node, data, attr):
            return super()._impl_v1(bb, inputs, attr, params)
        windows = _Windows(node, data, attr, attr["kernel_shape"])
        is_counted, attr = attr.get("count_include_pad", 0), attr.replaced(auto_pad=b"VALID")
        padded = onnx_frontend.onnx_input([windows.padded()])
        result = super()._impl_v1(bb, padded, attr, params)
        if is_counted:
            return result
        return relax.op.divide(bb.normalize(result), windows.shares())


class Conv(onnx_frontend.Conv):
    """Converts Conv that pads open sizes automatically."""

    @classmethod
    def _impl_v11(cls, bb, inputs, attr, params):
        node, (data, weight, *rest) = Node("Conv", bb, attr), inputs
        kernel = node.shape(weight)[2:]
        is_known = all(isinstance(size, int) for size in kernel)
        if not is_known or not _pads_open_sizes(node, data, attr):
            return super()._impl_v11(bb, inputs, attr, params)
        padded = _Windows(node, data, attr, kernel).padded()
        attr = attr.replaced(auto_pad=b"VALID")
        return super()._impl_v11(bb, type(inputs)([padded, weight, *rest]), attr, params)


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


REPLACEMENTS = {
    "AveragePool": AveragePool,
    "Conv": Conv,
    "Expand": Expand,
    "GridSample": GridSample,
    "MaxPool": MaxPool,
}
