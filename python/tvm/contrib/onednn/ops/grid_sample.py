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
"""Images sampled at computed coordinates."""

from __future__ import annotations

import numpy as np

from ..ir.op_view import OpView, Tensor, tensor_of
from .attrs import Bool, Text
from .draw import SIZES, Call, Draw
from .schema import OpSchema
from .tensors import open_reason, tensor_reason, text_of_shape

_PADDINGS = ("zeros", "border")


def grid_sample_reason(call: OpView) -> str | None:
    """Accept float32 images and coordinates, of which each has a linear mix of four values."""
    reason = None
    for name, arg in zip(("data", "grid"), call.args):
        reason = reason or tensor_reason(name, arg, 4, ("float32",))
    if reason:
        return reason
    attrs, (data, grid) = call.attrs, map(tensor_of, call.args)
    if len(data.shape) != 4 or len(grid.shape) != 4:
        return f"data has rank {len(data.shape)}, and only images of rank 4 are supported"
    if (attrs.method, attrs.layout) != ("bilinear", "NCHW"):
        return f"method={attrs.method} with layout={attrs.layout}; expected: bilinear with NCHW"
    if attrs.padding_mode not in _PADDINGS:
        return f"padding_mode={attrs.padding_mode}; expected: {' or '.join(_PADDINGS)}"
    reason = open_reason("grid", "coordinates", grid.shape[1], grid.shape)
    if reason:
        return reason
    batches = data.shape[0], grid.shape[0]
    if grid.shape[1] != 2 or (None not in batches and len(set(batches)) > 1):
        shapes = " and ".join(map(text_of_shape, (data.shape, grid.shape)))
        return f"shapes {shapes}; expected: (N, C, H, W) and (N, 2, rows, columns)"
    return None


def _grid_sample_type(args, attrs):
    data, grid = args
    return Tensor((*data.dims[:2], *grid.dims[2:]), data.dtype)


def _pixels(coordinate: np.ndarray, size: int, attrs) -> np.ndarray:
    """Return coordinates from -1 to 1 as those of the elements of an axis."""
    if attrs.align_corners:
        position = (coordinate + 1) * (size - 1) / 2
    else:
        position = ((coordinate + 1) * size - 1) / 2
    return position if attrs.padding_mode == "zeros" else np.clip(position, 0, size - 1)


def _grid_sample(attrs, result_type, data, grid):
    height, width = data.shape[2:]
    x, y = (_pixels(grid[:, i], size, attrs) for i, size in enumerate((width, height)))
    left, top = np.floor(x), np.floor(y)
    result = np.zeros(result_type.shape, data.dtype)
    batch = np.arange(len(data))[:, None, None]
    for row, column in ((0, 0), (0, 1), (1, 0), (1, 1)):
        at_x, at_y = left + column, top + row
        inside = (at_x >= 0) & (at_x < width) & (at_y >= 0) & (at_y < height)
        share = (1 - abs(x - at_x)) * (1 - abs(y - at_y))
        at_x, at_y = (np.where(inside, each, 0).astype(int) for each in (at_x, at_y))
        values = data[batch, :, at_y, at_x].transpose(0, 3, 1, 2)
        result += np.where(inside, share, 0)[:, None] * values
    return result


def _draw_grid_sample(d: Draw) -> Call:
    data = d.shape(4)
    grid = [data[0], d.choice((2, *d.rare(3))), d.choice(SIZES), d.choice(SIZES)]
    attrs = {
        "method": d.choice(("bilinear", *d.rare("nearest", "bicubic"))),
        "layout": "NCHW",
        "padding_mode": d.choice((*_PADDINGS, *d.rare("reflection"))),
        "align_corners": d.choice((True, False)),
    }
    return Call([d.values(data), d.values(grid)], attrs)


ROWS = [
    OpSchema(
        "image.grid_sample",
        grid_sample_reason,
        attrs=(
            *(Text("method", "bilinear"), Text("layout", "NCHW")),
            *(Text("padding_mode", "zeros"), Bool("align_corners", True)),
        ),
        infer=_grid_sample_type,
        numpy=_grid_sample,
        draw=_draw_grid_sample,
        cost_weight=16,
        only_float32=True,
    ),
]
