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
"""Pooling: windows of a size, or to a size of the result."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from .. import cpu
from ..ir.numpy_types import UndefinedResult, lowest, wide
from ..ir.op_view import OpView, Tensor, tensor_of
from .attrs import Attr, Bool, Ints, Text
from .draw import Call, Draw
from .schema import OpSchema, light
from .tensors import MOVED, data_elements, ints, known_product, tensors_reason, text_of_shape
from .windows import (
    SPATIAL,
    both_sides,
    data_layout_reason,
    for_each,
    reordered,
    spatial_axes,
    taps_of,
    window_attrs,
    window_reason,
    windows,
)

# The values of the padding that a window may hold; the runtime refuses more.
_MOST_PADDING = 4096


def adaptive_attributes(spatial: int) -> tuple[Attr, ...]:
    """Declare the attributes of a pooling to a given size."""
    layout = f"NC{SPATIAL[3 - spatial :]}"
    return Ints("output_size", ()), Text("layout", layout), Text("out_layout", "")


def pool_attributes(spatial: int) -> tuple[Attr, ...]:
    """Declare the attributes of a pooling; one integer of the first four stands for all."""
    return (
        *(Ints("pool_size"), Ints("strides", 1), Ints("padding", 0), Ints("dilation", 1)),
        *adaptive_attributes(spatial)[1:],
        Bool("ceil_mode", False),
    )


def average_attributes(spatial: int) -> tuple[Attr, ...]:
    """Declare the attributes of an average pooling, in which zeros of the padding may count."""
    return (*pool_attributes(spatial), Bool("count_include_pad", False))


def pool_channel_axis(call: OpView) -> int:
    """Return the channel axis of a pooling's result."""
    return call.attrs.layout.index("C")


def _layout_reason(call: OpView, dtypes: tuple[str, ...]) -> str | None:
    """Accept channels-first and channels-last data of the right rank."""
    spatial = _spatial(call)
    reason = data_layout_reason(call.attrs, "layout", spatial)
    if reason:
        return reason
    if call.attrs.out_layout not in ("", call.attrs.layout):
        return f"out_layout={call.attrs.out_layout} differs from layout={call.attrs.layout}"
    reason = tensors_reason(call, dtypes=dtypes)
    if reason:
        return reason
    data = tensor_of(call.args[0]).shape
    if len(data) != spatial + 2:
        return f"data has shape {text_of_shape(data)}; rank {spatial + 2} is required"
    return None


def _spatial(call: OpView) -> int:
    return int(re.search(r"pool(\d)d$", call.name).group(1))


def _sizes(call: OpView) -> list[tuple[str, int, int]]:
    """Return letter, input size and output size of each spatial axis."""
    layout, data, out = (
        call.attrs.layout,
        tensor_of(call.args[0]).shape,
        tensor_of(call.result).shape,
    )
    letters = SPATIAL[3 - _spatial(call) :]
    return [(c, data[layout.index(c)], out[layout.index(c)]) for c in letters]


def pool_reason(call: OpView, dtypes: tuple[str, ...] = cpu.REAL) -> str | None:
    """Accept windows without dilation that hold what TVM counts, whatever the open sizes are."""
    spatial, attrs = _spatial(call), call.attrs
    reason = _layout_reason(call, dtypes) or window_reason(attrs, spatial)
    if reason:
        return reason
    # As importers of local response norms write them.
    shape = tensor_of(call.args[0]).shape
    if spatial == 3 and shape[attrs.layout.index("C")] == 1:
        return f"data of {text_of_shape(shape)} has one channel: slow in oneDNN"
    kernel, strides, dilation, padding = (
        ints(vars(attrs)[name]) for name in ("pool_size", "strides", "dilation", "padding")
    )
    if kernel is None or len(kernel) not in (1, spatial) or min(kernel) < 1:
        return f"pool_size={list(attrs.pool_size)} is not {spatial} positive integers"
    kernel, strides = (
        values * spatial if len(values) == 1 else values for values in (kernel, strides)
    )
    if max(dilation) > 1:
        return f"dilation={list(dilation)}: dilated windows are slow in oneDNN"
    padding = padding * (2 * spatial // len(padding))
    both = [before + after for before, after in zip(padding, padding[spatial:])]
    data = math.prod(max(size - most, 0) for size, most in zip(kernel, both))
    if math.prod(kernel) - data > _MOST_PADDING:
        return f"padding={list(padding)}: oneDNN is slow for windows with much padding"
    counts_padding = "avg" in call.name and attrs.count_include_pad
    for axis, (letter, size, out) in enumerate(_sizes(call)):
        window = _Window(kernel[axis], strides[axis], padding[axis], padding[axis + spatial])
        if size is None or out is None:
            reason = window.open_reason(attrs.ceil_mode, counts_padding)
        else:
            reason = window.reason(size, out, counts_padding)
        if reason:
            return f"along {letter}, {reason}"
    return None


class _Window:
    """A window over one axis: its size, stride and the padding before and after."""

    def __init__(self, size: int, stride: int, before: int, after: int):
        self.size, self.stride, self.before, self.after = size, stride, before, after

    def reason(self, data: int, out: int, counts_padding: bool) -> str | None:
        """Say why oneDNN would not compute what TVM does for `out` windows over `data` values."""
        if self.size > self.before + data + self.after:
            return f"a window of {self.size} does not fit into {data} values plus padding"
        last = (out - 1) * self.stride - self.before
        if self.before >= self.size or last >= data:
            where = "first" if self.before >= self.size else "last"
            return f"the {where} window of {self.size} contains only padding"
        # TVM divides by the part of the window that is on data and padding, oneDNN by all of it.
        over = last + self.size - data - self.after
        if counts_padding and over > 0:
            return f"ceil_mode moves the last window {over} beyond the padding, which is counted"
        return None

    def open_reason(self, ceil_mode: bool, counts_padding: bool) -> str | None:
        """Say why oneDNN would not compute what TVM does for some size of the data."""
        # Rounded up, the last window may begin so much later.
        late = self.stride - 1 if ceil_mode else 0
        if self.before >= self.size:
            return f"the first window of {self.size} contains only padding"
        if self.after + late >= self.size:
            return f"the last window of {self.size} may contain only padding: the size is open"
        if counts_padding and late:
            return "ceil_mode may move the last window beyond the padding: the size is open"
        return None


def adaptive_reason(call: OpView, dtypes: tuple[str, ...] = cpu.REAL) -> str | None:
    """Accept data where all windows have one size and lie at even distances."""
    reason = _layout_reason(call, dtypes)
    if reason:
        return reason
    for letter, size, out in _sizes(call):
        if out == 1:
            continue
        if size is None or out is None:
            return f"the windows along {letter} depend on its size, which is open"
        starts = [i * size // out for i in range(out)]
        sizes = {-(-(i + 1) * size // out) - start for i, start in enumerate(starts)}
        steps = {b - a for a, b in zip(starts, starts[1:])}
        if len(sizes) > 1 or len(steps) > 1 or 0 in steps:
            return (
                f"{size} values along {letter} do not give {out} windows of equal size and stride"
            )
    return None


def pool_flops(call: OpView) -> int:
    """Count one operation for each element of the window of each element of the result."""
    window = ints(call.attrs.pool_size)
    window = window * _spatial(call) if len(window) == 1 else window
    return known_product(tensor_of(call.result).shape) * math.prod(window)


def _pool_type(args, attrs):
    (data,) = args
    axes = spatial_axes(attrs.layout)
    count = len(axes)
    window, strides = (for_each(each, count) for each in (attrs.pool_size, attrs.strides))
    dilation, padding = for_each(attrs.dilation, count), both_sides(attrs.padding, count)
    dims = list(data.dims)
    for k, axis in enumerate(axes):
        extent = (window[k] - 1) * dilation[k] + 1
        dims[axis] = windows(dims[axis], padding[k], extent, strides[k], attrs.ceil_mode)
    return Tensor(tuple(dims), data.dtype)


def _global_pool_type(args, attrs):
    axes = spatial_axes(attrs.layout)
    dims = (1 if axis in axes else dim for axis, dim in enumerate(args[0].dims))
    return Tensor(tuple(dims), args[0].dtype)


def _adaptive_pool_type(args, attrs):
    dims, axes = list(args[0].dims), spatial_axes(attrs.layout)
    given = attrs.output_size
    for axis, size in zip(axes, for_each(given, len(axes)) if given else dims):
        dims[axis] = size if given else dims[axis]
    return Tensor(tuple(dims), args[0].dtype)


def _pool(kind: str):
    def compute(attrs, result_type, data):
        layout, letters = attrs.layout, SPATIAL[5 - data.ndim :]
        source, count = reordered(wide(data), layout, "NC" + letters), data.ndim - 2
        kernel = for_each(attrs.pool_size, count)
        strides, dilation, padding = window_attrs(attrs, count)
        sizes, frame = [], [(0, 0), (0, 0)]
        for k, full in enumerate(source.shape[2:]):
            before, after = padding[k]
            reach = (kernel[k] - 1) * dilation[k] + 1
            # Relay and Relax count differently, see `windows`.
            sizes.append(result_type.shape[layout.index(letters[k])])
            # Rounded up, the last window may reach beyond the padding.
            end = (sizes[k] - 1) * strides[k] + reach
            frame.append((before, max(end - full - before, after)))
        parts = [part for _, part in taps_of(kernel, sizes, strides, dilation)]
        if kind == "max":
            # The maximum of nothing is the lowest value of the type.
            fill = lowest(result_type.dtype)
            padded = np.pad(source, frame, constant_values=fill)
            out = np.full((*source.shape[:2], *sizes), fill, source.dtype)
            for part in parts:
                out = np.maximum(out, padded[(..., *part)])
            return reordered(out, "NC" + letters, layout)
        padded = np.pad(source, frame)
        is_counted = np.zeros(padded.shape[2:])
        is_counted[_counted(attrs, source.shape[2:], padding)] = 1
        numbers = sum(is_counted[part] for part in parts)
        if not numbers.all():
            raise UndefinedResult("a window holds nothing to average")
        out = sum(padded[(..., *part)] for part in parts) / numbers
        return reordered(out, "NC" + letters, layout)

    return compute


def _counted(attrs, sizes: Sequence[int], padding: list[tuple[int, int]]) -> tuple[slice, ...]:
    """Return what of padded data an average counts; what is beyond the padding never."""
    if attrs.count_include_pad:
        return tuple(slice(0, size + sum(both)) for size, both in zip(sizes, padding))
    return tuple(slice(before, before + size) for size, (before, _) in zip(sizes, padding))


def _adaptive_pool(kind: str):
    def compute(attrs, result_type, data):
        data, fill = wide(data), lowest(result_type.dtype)
        for axis in spatial_axes(attrs.layout):
            size, count = data.shape[axis], result_type.shape[axis]
            parts = []
            for i in range(count):
                window = range(i * size // count, -(-(i + 1) * size // count))
                part = np.take(data, window, axis)
                if kind == "max":
                    # As of other pools, the lowest value is that of infinities alone.
                    parts.append(part.max(axis, keepdims=True, initial=fill))
                else:
                    parts.append(part.mean(axis, keepdims=True))
            data = np.concatenate(parts, axis)
        return data

    return compute


# The fields of the rows.
def _draw_pool(kind: str, n: int) -> Callable[[Draw], Call]:
    def draw(d):
        data, layout = d.laid_out(n)
        attrs = dict(
            d.window(n),
            pool_size=[d.choice((2, 3, *d.rare(1, 4))) for _ in range(n)],
            ceil_mode=bool(d.integer(0, 1)),
            layout=layout,
            out_layout="",
        )
        if kind == "avg":
            # The last window may hold nothing to average.
            is_ceil = d.edges and attrs["ceil_mode"]
            attrs.update(count_include_pad=bool(d.integer(0, 1)), ceil_mode=is_ceil)
        return Call([data], attrs)

    return draw


def _draw_adaptive(n: int, is_global: bool = False) -> Callable[[Draw], Call]:
    def draw(d):
        data, layout = d.laid_out(n)
        size = d.choice((None, [1], [d.integer(1, 3) for _ in range(n)], *d.rare([], [8] * n)))
        attrs = {} if is_global else {"output_size": size}
        return Call([data], {**attrs, "layout": layout, "out_layout": ""})

    return draw


_FIELDS = dict(channel_axis=pool_channel_axis, reads_int8="data")
POOL = dict(_FIELDS, reason=pool_reason, flops=pool_flops, infer=_pool_type, numpy=_pool("avg"))
ADAPTIVE = dict(
    _FIELDS,
    reason=adaptive_reason,
    flops=data_elements,
    infer=_adaptive_pool_type,
    numpy=_adaptive_pool("avg"),
)
# The greatest of integers is one of them; their average is to be rounded, which Relay's is not.
_MAX_POOL = dict(
    POOL, keeps_values=True, reason=partial(pool_reason, dtypes=MOVED), numpy=_pool("max")
)
_MAX_ADAPTIVE = dict(
    ADAPTIVE,
    keeps_values=True,
    reason=partial(adaptive_reason, dtypes=MOVED),
    numpy=_adaptive_pool("max"),
)
_GLOBAL = dict(
    infer=_global_pool_type, attrs=adaptive_attributes(2)[1:], draw=_draw_adaptive(2, True)
)

_DIMS = range(1, len(SPATIAL) + 1)


def _max_pool(n: int) -> OpSchema:
    fields = dict(attrs=pool_attributes(n), draw=_draw_pool("max", n), padding="lowest")
    return light(f"nn.max_pool{n}d", **_MAX_POOL, **fields)


def _average_pool(n: int) -> OpSchema:
    fields = dict(attrs=average_attributes(n), draw=_draw_pool("avg", n), padding="average")
    return light(f"nn.avg_pool{n}d", **POOL, **fields)


def _adaptive_row(kind: str, n: int, **fields) -> OpSchema:
    fields.update(attrs=adaptive_attributes(n), draw=_draw_adaptive(n))
    return light(f"nn.adaptive_{kind}_pool{n}d", **fields)


ROWS = [
    *map(_max_pool, _DIMS),
    *map(_average_pool, _DIMS),
    light("nn.global_max_pool2d", **{**_MAX_ADAPTIVE, **_GLOBAL}, relax="max"),
    light("nn.global_avg_pool2d", **{**ADAPTIVE, **_GLOBAL}, relax="mean"),
    *(_adaptive_row("max", n, **_MAX_ADAPTIVE, relax="") for n in _DIMS),
    *(_adaptive_row("avg", n, **ADAPTIVE) for n in _DIMS),
]

POOLS = [row.name for row in ROWS if row.infer is _pool_type]
GLOBAL_POOLS = [row.name for row in ROWS if row.infer is _global_pool_type]
ADAPTIVE_POOLS = [row.name for row in ROWS if row.infer is _adaptive_pool_type]
