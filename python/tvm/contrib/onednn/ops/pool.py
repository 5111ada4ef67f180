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
"""When oneDNN can run a pooling."""

from __future__ import annotations

import math
import re
from functools import partial

from .. import cpu
from ..ir.op_view import OpView
from .attrs import Attr, Bool, Ints, Text
from .conv import SPATIAL, data_layout_reason, window_reason
from .tensors import MOVED, data_elements, ints, known_product, tensors_reason, text_of_shape

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
    data = call.args[0].shape
    if len(data) != spatial + 2:
        return f"data has shape {text_of_shape(data)}; rank {spatial + 2} is required"
    return None


def _spatial(call: OpView) -> int:
    return int(re.search(r"pool(\d)d$", call.name).group(1))


def _sizes(call: OpView) -> list[tuple[str, int, int]]:
    """Return letter, input size and output size of each spatial axis."""
    layout, data, out = call.attrs.layout, call.args[0].shape, call.result.shape
    letters = SPATIAL[3 - _spatial(call) :]
    return [(c, data[layout.index(c)], out[layout.index(c)]) for c in letters]


def pool_reason(call: OpView, dtypes: tuple[str, ...] = cpu.REAL) -> str | None:
    """Accept windows without dilation that hold what TVM counts, whatever the open sizes are."""
    spatial, attrs = _spatial(call), call.attrs
    reason = _layout_reason(call, dtypes) or window_reason(attrs, spatial)
    if reason:
        return reason
    # As importers of local response norms write them.
    if spatial == 3 and call.args[0].shape[attrs.layout.index("C")] == 1:
        return f"data of {text_of_shape(call.args[0].shape)} has one channel: slow in oneDNN"
    kernel, strides, dilation, padding = (
        ints(getattr(attrs, name)) for name in ("pool_size", "strides", "dilation", "padding")
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
    return known_product(call.result.shape) * math.prod(window)


# The fields of the rows.
_FIELDS = dict(channel_axis=pool_channel_axis, reads_int8="data")
POOL = dict(_FIELDS, reason=pool_reason, flops=pool_flops)
ADAPTIVE = dict(_FIELDS, reason=adaptive_reason, flops=data_elements)
# The greatest of integers is one of them; their average is to be rounded, which Relay's is not.
MAX_POOL = dict(POOL, keeps_values=True, reason=partial(pool_reason, dtypes=MOVED))
MAX_ADAPTIVE = dict(ADAPTIVE, keeps_values=True, reason=partial(adaptive_reason, dtypes=MOVED))
