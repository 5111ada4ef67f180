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
"""Numpy definitions of convolutions, poolings and resizing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ..ir.numpy_types import Array, UndefinedResult, lowest, wide
from .infer_windows import both_sides, for_each, spatial_axes
from .quantize import along
from .resize import ROUND, coordinates, sampling

_SPATIAL = "DHW"


def _reordered(values: Array, layout: str, wanted: str) -> Array:
    return np.transpose(values, [layout.index(letter) for letter in wanted])


def _operands(attrs, data: Array, weight: Array, order: str) -> tuple[Array, Array, str]:
    """Return the data as N, C, spatial, the weight in an order, and the letters of the former."""
    letters = _SPATIAL[5 - data.ndim :]
    source = _reordered(wide(data), attrs.data_layout, "NC" + letters)
    return source, _reordered(wide(weight), attrs.kernel_layout, order + letters), letters


def _taps(
    sizes: Sequence[int], counts: Sequence[int], strides: Sequence[int], dilation: Sequence[int]
) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
    """Yield each tap of a window, and where `counts` windows have it in their data."""
    for tap in np.ndindex(*sizes):
        yield tap, tuple(
            slice(t * gap, t * gap + (count - 1) * stride + 1, stride)
            for t, gap, count, stride in zip(tap, dilation, counts, strides)
        )


def _window_attrs(attrs, count: int) -> tuple[list[int], list[int], list[tuple[int, int]]]:
    """Return strides, dilation and the padding of both sides for each spatial axis."""
    strides, dilation = (for_each(each, count) for each in (attrs.strides, attrs.dilation))
    return strides, dilation, both_sides(attrs.padding, count)


def _conv_result(attrs, out: Array, letters: str) -> Array:
    return _reordered(out, "NC" + letters, attrs.out_layout or attrs.data_layout)


def _conv(attrs, result_type, data, weight):
    source, weight, letters = _operands(attrs, data, weight, "OI")
    count, groups = len(letters), attrs.groups
    strides, dilation, padding = _window_attrs(attrs, count)
    source = np.pad(source, [(0, 0), (0, 0), *padding])
    # A depthwise weight may have the outputs of each input channel in the place of I.
    kernel = weight.shape[2:]
    weight = weight.reshape(groups, -1, source.shape[1] // groups, *kernel)
    source = source.reshape(source.shape[0], groups, -1, *source.shape[2:])
    sizes = [
        (full - (taps - 1) * gap - 1) // stride + 1
        for full, taps, gap, stride in zip(source.shape[3:], kernel, dilation, strides)
    ]
    out = np.zeros((source.shape[0], groups, weight.shape[1], np.prod(sizes)), source.dtype)
    for tap, window in _taps(kernel, sizes, strides, dilation):
        part = source[(..., *window)].reshape(*source.shape[:3], -1)
        out += weight[(..., *tap)] @ part
    return _conv_result(attrs, out.reshape(out.shape[0], -1, *sizes), letters)


def _conv_transpose(attrs, result_type, data, weight):
    """Add each value's multiple of the kernel to the output, and cut the padding off."""
    source, weight, letters = _operands(attrs, data, weight, "IO")
    count, groups = len(letters), attrs.groups
    strides, dilation, padding = _window_attrs(attrs, count)
    more = for_each(attrs.output_padding, count)
    sizes, kernel = source.shape[2:], weight.shape[2:]
    source = source.reshape(source.shape[0], groups, source.shape[1] // groups, -1)
    weight = np.swapaxes(weight.reshape(groups, -1, *weight.shape[1:]), 1, 2)
    full = [
        (size - 1) * stride + (taps - 1) * gap + 1 + extra
        for size, stride, taps, gap, extra in zip(sizes, strides, kernel, dilation, more)
    ]
    out = np.zeros((source.shape[0], groups, weight.shape[1], *full), source.dtype)
    for tap, window in _taps(kernel, sizes, strides, dilation):
        part = weight[(..., *tap)] @ source
        out[(..., *window)] += part.reshape(*part.shape[:3], *sizes)
    cut = tuple(slice(before, size - after) for size, (before, after) in zip(full, padding))
    return _conv_result(attrs, out.reshape(out.shape[0], -1, *full)[(..., *cut)], letters)


def _pool(kind: str):
    def compute(attrs, result_type, data):
        layout, letters = attrs.layout, _SPATIAL[5 - data.ndim :]
        source, count = _reordered(wide(data), layout, "NC" + letters), data.ndim - 2
        kernel = for_each(attrs.pool_size, count)
        strides, dilation, padding = _window_attrs(attrs, count)
        sizes, frame = [], [(0, 0), (0, 0)]
        for k, full in enumerate(source.shape[2:]):
            before, after = padding[k]
            reach = (kernel[k] - 1) * dilation[k] + 1
            # Relay and Relax count differently, see `infer.windows`.
            sizes.append(result_type.shape[layout.index(letters[k])])
            # Rounded up, the last window may reach beyond the padding.
            end = (sizes[k] - 1) * strides[k] + reach
            frame.append((before, max(end - full - before, after)))
        parts = [part for _, part in _taps(kernel, sizes, strides, dilation)]
        if kind == "max":
            # The maximum of nothing is the lowest value of the type.
            fill = lowest(result_type.dtype)
            padded = np.pad(source, frame, constant_values=fill)
            out = np.full((*source.shape[:2], *sizes), fill, source.dtype)
            for part in parts:
                out = np.maximum(out, padded[(..., *part)])
            return _reordered(out, "NC" + letters, layout)
        padded = np.pad(source, frame)
        is_counted = np.zeros(padded.shape[2:])
        is_counted[_counted(attrs, source.shape[2:], padding)] = 1
        numbers = sum(is_counted[part] for part in parts)
        if not numbers.all():
            raise UndefinedResult("a window holds nothing to average")
        out = sum(padded[(..., *part)] for part in parts) / numbers
        return _reordered(out, "NC" + letters, layout)

    return compute


def _counted(attrs, sizes: Sequence[int], padding: list[tuple[int, int]]) -> tuple[slice, ...]:
    """Return what of padded data an average counts; what is beyond the padding never."""
    if attrs.count_include_pad:
        return tuple(slice(0, size + sum(both)) for size, both in zip(sizes, padding))
    return tuple(slice(before, before + size) for size, (before, _) in zip(sizes, padding))


def _adaptive_pool(kind: str):
    def compute(attrs, result_type, data):
        data = wide(data)
        for axis in spatial_axes(attrs.layout):
            size, count = data.shape[axis], result_type.shape[axis]
            parts = []
            for i in range(count):
                window = range(i * size // count, -(-(i + 1) * size // count))
                part = np.take(data, window, axis)
                reduce = part.max if kind == "max" else part.mean
                parts.append(reduce(axis=axis, keepdims=True))
            data = np.concatenate(parts, axis)
        return data

    return compute


def _resize(name: str):
    def compute(attrs, result_type, data):
        method, mode, rounding = sampling(name, attrs)
        if method not in ("nearest_neighbor", "linear", "bilinear", "trilinear"):
            raise UndefinedResult(f"method={method}")
        for axis in spatial_axes(attrs.layout):
            size, out = data.shape[axis], result_type.shape[axis]
            places = coordinates(mode, size, out, "float64")
            if places is None:
                raise UndefinedResult(f"coordinate_transformation_mode={mode}")
            if method == "nearest_neighbor":
                nearest = np.clip(ROUND[rounding](places), 0, size - 1)
                data = np.take(data, nearest.astype(int), axis)
                continue
            low = np.floor(places)
            share = along(places - low, axis, data.ndim)
            low, high = (np.clip(low + i, 0, size - 1).astype(int) for i in (0, 1))
            data = np.take(data, low, axis) * (1 - share) + np.take(data, high, axis) * share
        return data

    return compute


_RESIZES = (
    "image.resize1d",
    "image.resize2d",
    "image.resize3d",
    "nn.upsampling",
    "nn.upsampling3d",
)

DEFINITIONS = {
    **{f"nn.conv{n}d": _conv for n in (1, 2, 3)},
    **{f"nn.conv{n}d_transpose": _conv_transpose for n in (1, 2, 3)},
    **{f"nn.{kind}_pool{n}d": _pool(kind) for kind in ("max", "avg") for n in (1, 2, 3)},
    **{f"nn.global_{kind}_pool2d": _adaptive_pool(kind) for kind in ("max", "avg")},
    **{
        f"nn.adaptive_{kind}_pool{n}d": _adaptive_pool(kind)
        for kind in ("max", "avg")
        for n in (1, 2, 3)
    },
    **{name: _resize(name) for name in _RESIZES},
}
