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
"""What convolutions, pooling and resizing share: layouts, windows along axes, and their checks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ..ir.dim import Size
from ..ir.numpy_types import Array
from .tensors import ints

SPATIAL = "DHW"


def for_each(values: int | Sequence[int], count: int) -> list[int]:
    """Return an attribute's values, of which one may stand for all, or for both sides."""
    values = [values] if isinstance(values, int) else list(values)
    return values * (count // len(values))


def both_sides(padding: int | Sequence[int], count: int) -> list[tuple[int, int]]:
    """Return what is padded before and after each of some axes."""
    padding = for_each(padding, 2 * count)
    return list(zip(padding[:count], padding[count:]))


def spatial_axes(layout: str) -> list[int]:
    """Return the axes of depth, height and width in a layout."""
    return [layout.index(letter) for letter in layout if letter in SPATIAL]


def window_reason(attrs, spatial: int) -> str | None:
    """Say why strides, dilation or padding of a window over `spatial` dimensions are not legal."""
    for name in ("strides", "dilation"):
        values = ints(vars(attrs)[name])
        if values is None or len(values) not in (1, spatial) or min(values) < 1:
            return f"{name}={list(vars(attrs)[name])} is not {spatial} positive integers"
    padding = ints(attrs.padding)
    if padding is None or len(padding) not in (1, spatial, 2 * spatial):
        return f"padding={list(attrs.padding)} is not 1, {spatial} or {2 * spatial} integers"
    if min(padding) < 0:
        return f"padding={list(padding)} is negative"
    return None


def data_layout_reason(attrs, name: str, spatial: int) -> str | None:
    """Say why a layout is neither channels-first nor channels-last.

    oneDNN blocks tensors itself, so that no model needs a blocked layout.
    """
    letters = SPATIAL[3 - spatial :]
    layouts = (f"NC{letters}", f"N{letters}C")
    layout = vars(attrs)[name]
    return None if layout in layouts else f"{name}={layout} is not {' or '.join(layouts)}"


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


def reordered(values: Array, layout: str, wanted: str) -> Array:
    """Transpose a tensor of a layout to another one."""
    return np.transpose(values, [layout.index(letter) for letter in wanted])


def taps_of(
    sizes: Sequence[int], counts: Sequence[int], strides: Sequence[int], dilation: Sequence[int]
) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
    """Yield each tap of a window, and where `counts` windows have it in their data."""
    for tap in np.ndindex(*sizes):
        yield (
            tap,
            tuple(
                slice(t * gap, t * gap + (count - 1) * stride + 1, stride)
                for t, gap, count, stride in zip(tap, dilation, counts, strides)
            ),
        )


def window_attrs(attrs, count: int) -> tuple[list[int], list[int], list[tuple[int, int]]]:
    """Return strides, dilation and the padding of both sides for each spatial axis."""
    strides, dilation = (for_each(each, count) for each in (attrs.strides, attrs.dilation))
    return strides, dilation, both_sides(attrs.padding, count)
