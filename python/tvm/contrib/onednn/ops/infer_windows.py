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
"""The types of convolutions, pools and resizes; see `infer`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace

from ..ir.dim import Size
from ..ir.op_view import Tensor

_SPATIAL = "DHW"


def for_each(values: int | Sequence[int], count: int) -> list[int]:
    """Return an attribute's values, of which one may stand for all, or for both sides."""
    values = [values] if isinstance(values, int) else list(values)
    return values * (count // len(values))


def out_dtype(attrs: SimpleNamespace, data: Tensor) -> str:
    """Return the type of a result: that of the data, unless the attributes say another one."""
    return attrs.out_dtype or data.dtype


def windows(
    size: Size,
    padding: tuple[int, int],
    window: Size,
    stride: int,
    is_ceil: bool = False,
) -> Size:
    """Count the windows along an axis.

    Rounded up, the last one may begin in the padding after the data. Relax leaves it out, as
    PyTorch does, and so does this. Relay counts it: the rule refuses such a call.

    Parameters
    ----------
    size : int | Dim | None
        The size of the data.
    padding : tuple[int, int]
        What is padded before and after it.
    window : int | Dim
        From the first to the last value of a window.
    stride : int
        From window to window.
    is_ceil : bool
        Whether to round up.
    """
    before, after = padding
    if None in (size, window):
        return None
    more = stride - 1 if is_ceil else 0
    if more and not (isinstance(size, int) and isinstance(window, int)):
        # Whether the last one is left out depends on the size.
        if not isinstance(window, int) or after + more >= window:
            return None
    count = (size + (before + after + more) - window) // stride + 1
    if more and isinstance(count, int) and (count - 1) * stride >= size + before:
        count -= 1
    return count


def both_sides(padding: int | Sequence[int], count: int) -> list[tuple[int, int]]:
    """Return what is padded before and after each of some axes."""
    padding = for_each(padding, 2 * count)
    return list(zip(padding[:count], padding[count:]))


def spatial_axes(layout: str) -> list[int]:
    """Return the axes of depth, height and width in a layout."""
    return [layout.index(letter) for letter in layout if letter in _SPATIAL]


def _conv(args, attrs, is_transposed=False):
    data, weight = args
    layout, kernel_layout = attrs.data_layout, attrs.kernel_layout
    kernel = dict(zip(kernel_layout, weight.dims))
    axes = spatial_axes(layout)
    count = len(axes)
    strides, dilation = (for_each(each, count) for each in (attrs.strides, attrs.dilation))
    padding = both_sides(attrs.padding, count)
    more = for_each(attrs.output_padding, count) if is_transposed else [0] * count
    dims = list(data.dims)
    for k, axis in enumerate(axes):
        window = (kernel[layout[axis]] - 1) * dilation[k] + 1
        if not is_transposed:
            dims[axis] = windows(dims[axis], padding[k], window, strides[k])
        elif dims[axis] is not None:
            dims[axis] = (dims[axis] - 1) * strides[k] + window - sum(padding[k]) + more[k]
    groups = attrs.groups
    if is_transposed:
        dims[layout.index("C")] = kernel["O"] * groups
    else:
        dims[layout.index("C")] = _out_channels(data.dims[layout.index("C")], kernel, groups)
    return Tensor(tuple(dims), out_dtype(attrs, data))


def _out_channels(channels: Size, kernel: dict[str, Size], groups: int) -> Size:
    outputs, inputs = kernel["O"], kernel["I"]
    if groups == 1 or inputs == 1:
        return outputs
    # A depthwise weight may have the outputs of each input channel in the place of I.
    is_known = all(isinstance(size, int) for size in (channels, outputs, inputs))
    return outputs * inputs * groups // channels if is_known else None


def _pool(args, attrs):
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


def _global_pool(args, attrs):
    axes = spatial_axes(attrs.layout)
    dims = (1 if axis in axes else dim for axis, dim in enumerate(args[0].dims))
    return Tensor(tuple(dims), args[0].dtype)


def _adaptive_pool(args, attrs):
    dims, axes = list(args[0].dims), spatial_axes(attrs.layout)
    given = attrs.output_size
    for axis, size in zip(axes, for_each(given, len(axes)) if given else dims):
        dims[axis] = size if given else dims[axis]
    return Tensor(tuple(dims), args[0].dtype)


def _resize(args, attrs):
    data, layout = args[0], attrs.layout
    dims, axes = list(data.dims), spatial_axes(layout)
    given = getattr(attrs, "size", None)  # an upsampling has none
    for k, axis in enumerate(axes):
        if given:
            dims[axis] = for_each(given, len(axes))[k]
            continue
        scale = getattr(attrs, f"scale_{layout[axis].lower()}")
        size = dims[axis]
        if isinstance(size, int):
            dims[axis] = int(round(size * scale))
        else:
            dims[axis] = size * int(scale) if size is not None and scale % 1 == 0 else None
    return Tensor(tuple(dims), getattr(attrs, "out_dtype", "") or data.dtype)


_DIMENSIONS = (1, 2, 3)
CONVS = [f"nn.conv{n}d" for n in _DIMENSIONS]
CONVS_TRANSPOSED = [f"nn.conv{n}d_transpose" for n in _DIMENSIONS]
POOLS = [f"nn.{kind}_pool{n}d" for n in _DIMENSIONS for kind in ("max", "avg")]
GLOBAL_POOLS = [f"nn.global_{kind}_pool2d" for kind in ("max", "avg")]
ADAPTIVE_POOLS = [f"nn.adaptive_{kind}_pool{n}d" for n in _DIMENSIONS for kind in ("max", "avg")]
_RESIZES = ["nn.upsampling", "nn.upsampling3d", *(f"image.resize{n}d" for n in _DIMENSIONS)]

# By op, as in `infer`.
INFERENCES = {
    **dict.fromkeys(CONVS, _conv),
    **dict.fromkeys(CONVS_TRANSPOSED, partial(_conv, is_transposed=True)),
    **dict.fromkeys(POOLS, _pool),
    **dict.fromkeys(GLOBAL_POOLS, _global_pool),
    **dict.fromkeys(ADAPTIVE_POOLS, _adaptive_pool),
    **dict.fromkeys(_RESIZES, _resize),
}
