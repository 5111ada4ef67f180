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
"""Decompositions of pooling whose arguments or second results TVM's importer misreads."""

from __future__ import annotations

import itertools
import math

import torch

from .graphs import aten
from .promotion import cast


def average(op, rank):
    """Return the decomposition of an average pool over the last `rank` dimensions.

    TVM's counts other elements than PyTorch where a window exceeds the padded image, and it has no
    divisor: such a pool is one of an image that is padded here, times a factor per position.
    """

    def decompose(
        x, kernel, stride=(), padding=0, ceil_mode=False, count_include_pad=True, divisor=None
    ):
        stride = stride or kernel
        if x.dim() == rank + 1:
            args = kernel, stride, padding, ceil_mode, count_include_pad, divisor
            return op(x.unsqueeze(0), *args).squeeze(0)
        lists = [listed(each, rank) for each in (kernel, stride, padding)]
        if not all(isinstance(size, int) for size in x.shape[2:]):
            if divisor is None and not ceil_mode:
                return NotImplemented
            return _average_of_open_sizes(op, x, lists, ceil_mode, count_include_pad, divisor)
        axes = [_Axis(*each, ceil_mode) for each in zip(x.shape[2:], *lists)]
        if divisor is None and not any(axis.is_exceeded for axis in axes):
            return NotImplemented
        pads = [pad for axis in reversed(axes) for pad in (axis.padding, axis.after)]
        x = aten.constant_pad_nd.default(x, pads) if any(pads) else x
        x = op(x, [axis.kernel for axis in axes], [axis.stride for axis in axes])
        size = math.prod(axis.kernel for axis in axes)
        if divisor is not None:
            return x * (size / divisor)
        for i, axis in enumerate(axes):
            if axis.is_partial(count_include_pad):
                factors = axis.kernel / axis.counted(count_include_pad)
                x = x * cast(factors.reshape(-1, *[1] * (rank - 1 - i)), x.dtype)
        return x

    return decompose


def _average_of_open_sizes(op, x, lists, ceil_mode, count_include_pad, divisor):
    """Average an image of open sizes, and divide by the share of each window that is counted."""
    kernel, stride, padding = lists
    # No window of these begins after the image and the padding before it.
    after = [
        min(pad + step - 1, size - 1) if ceil_mode else pad
        for size, step, pad in zip(kernel, stride, padding)
    ]

    def pooled(data, before, after):
        pads = [pad for pair in zip(reversed(before), reversed(after)) for pad in pair]
        return op(aten.constant_pad_nd.default(data, pads), kernel, stride)

    result = pooled(x, padding, after)
    if divisor is not None:
        return result * (math.prod(kernel) / divisor)
    before, sizes = padding, x.shape[2:]
    if count_include_pad:
        before, sizes = [0] * len(padding), [n + 2 * pad for n, pad in zip(sizes, padding)]
        after = [end - pad for end, pad in zip(after, padding)]
    counted = aten.full.default([1, 1, *sizes], 1.0, dtype=x.dtype)
    return result / pooled(counted, before, after)


def average_1d(x, kernel, stride=(), padding=0, ceil_mode=False, count_include_pad=True):
    """Average along an axis as over two, the first of them of 1."""
    if not ceil_mode:
        return NotImplemented
    lists = (listed(each, 1) for each in (kernel, stride or kernel, padding))
    lists = [[one, *each] for one, each in zip((1, 1, 0), lists)]
    return aten.avg_pool2d.default(x.unsqueeze(-2), *lists, True, count_include_pad).squeeze(-2)


def window_count(size, kernel, stride, padding, ceil_mode) -> int:
    """Return the number of windows of a pool along an axis."""
    span = size + 2 * padding - kernel
    count = (-(-span // stride) if ceil_mode else span // stride) + 1
    # PyTorch drops a window that begins in the padding after the image.
    return count - bool(ceil_mode and (count - 1) * stride >= size + padding)


def adaptive_average(op, rank):
    """Return the decomposition of an adaptive average pool over the last `rank` dimensions.

    oneDNN has pools of equal windows only: others are products with the weights of each element.
    """

    def decompose(x, outputs):
        if x.dim() == rank + 1:
            return op(x.unsqueeze(0), outputs).squeeze(0)
        sizes = x.shape[2:]
        if not all(isinstance(size, int) and size for size in (*sizes, *outputs, x.numel())):
            return NotImplemented
        if all(map(_has_equal_windows, sizes, outputs)):
            return NotImplemented
        for axis, (size, count) in enumerate(zip(sizes, outputs), 2 - x.dim()):
            places, windows = torch.arange(size)[:, None], torch.arange(count)
            begins, ends = windows * size // count, ((windows + 1) * size + count - 1) // count
            counted = cast((places >= begins) & (places < ends), x.dtype)
            x = (x.movedim(axis, -1) @ (counted / (ends - begins))).movedim(-1, axis)
        return x

    return decompose


def _has_equal_windows(size: int, count: int) -> bool:
    """Whether the windows of an adaptive pool have one size, and lie at even distances."""
    begins = [i * size // count for i in range(count)]
    sizes = {-(-(i + 1) * size // count) - begin for i, begin in enumerate(begins)}
    steps = {after - before for before, after in itertools.pairwise(begins)}
    return len(sizes) == 1 and len(steps) <= 1 and 0 not in steps


class _Axis:
    """The windows of a pool along an axis of known size."""

    def __init__(self, size, kernel, stride, padding, ceil_mode):
        self.size, self.stride, self.padding = size, stride, padding
        self.count = window_count(size, kernel, stride, padding, ceil_mode)
        end = (self.count - 1) * stride + kernel
        #: Whether the last window exceeds the padded image.
        self.is_exceeded = end > size + 2 * padding
        # The only window of an axis need not be larger than the padded image.
        self.length, self.kernel = kernel, kernel
        if self.count == 1:
            self.kernel = min(kernel, size + 2 * padding)
            end = self.kernel
        self.after = max(end - size - padding, 0)

    def is_partial(self, count_include_pad) -> bool:
        """Whether fewer elements than the pooled ones are counted in a window."""
        begin = self.stride * (self.count - 1) - self.padding
        return (
            bool(self.padding and not count_include_pad)
            or begin + self.kernel > self.size + self.padding * count_include_pad
        )

    def counted(self, count_include_pad) -> torch.Tensor:
        """Return the number of elements of each window that are counted."""
        begins = torch.arange(self.count) * self.stride - self.padding
        ends = (begins + self.length).clamp(max=self.size + self.padding)
        if not count_include_pad:
            begins, ends = begins.clamp(min=0), ends.clamp(max=self.size)
        return ends - begins


def listed(value, rank: int) -> list[int]:
    """Return a value for each axis of an argument that may be one for all."""
    value = [value] if isinstance(value, int) else list(value)
    return value if len(value) == rank else value * rank
