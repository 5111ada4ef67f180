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
"""Converters of interpolation and of samples of a grid.

TVM's ignore scale factors and antialiasing, and round coordinates otherwise than PyTorch.
"""

from __future__ import annotations

import torch
from tvm import relax, tirx

from .graphs import argument, aten


def _resize(node, importer):
    """Convert an interpolation: as `resize2d` where that is the same, else by its weights."""
    emit, x = importer.block_builder.emit, importer.env[node.args[0]]
    sizes, scales = list(x.ty.shape)[2:], _scales(node)
    outputs = list(node.meta["val"].shape)[2:]
    method = node.target._schema.name.split("::")[1]
    if len(sizes) == 2 and _is_resize2d(method, sizes, outputs, scales):
        size = [
            int(output) if isinstance(output, int) else size * int(scale)
            for size, output, scale in zip(sizes, outputs, scales)
        ]
        is_linear = "linear" in method
        corners = is_linear and argument(node, "align_corners")
        return emit(
            relax.op.image.resize2d(
                x,
                size,
                layout="NCHW",
                method="linear" if is_linear else "nearest_neighbor",
                coordinate_transformation_mode="align_corners" if corners else "half_pixel",
            )
        )
    if not all(isinstance(each, (int, tirx.IntImm)) for each in (*sizes, *outputs)):
        raise ValueError(f"{node.name}: an interpolation of open sizes {sizes} to {outputs}")
    for axis, size in enumerate(sizes):
        weights = _weights(node, axis, len(sizes), int(size), outputs[axis])
        if "nearest" in method:
            indices = weights.argmax(0).numpy()
            x = emit(relax.op.take(x, relax.const(indices, "int64"), axis + 2))
            continue
        matrix = relax.const(weights.numpy(), x.ty.dtype.dtype)
        # Multiply from the right, with the axis last.
        order = [i for i in range(len(sizes) + 2) if i != axis + 2] + [axis + 2]
        is_last = axis == len(sizes) - 1
        x = x if is_last else emit(relax.op.permute_dims(x, order))
        x = emit(relax.op.matmul(x, matrix))
        back = [order.index(i) for i in range(len(order))]
        x = x if is_last else emit(relax.op.permute_dims(x, back))
    return x


def _scales(node) -> list:
    """Return the scale factors that an interpolation is given, or None for each axis."""
    names = [each.name for each in node.target._schema.arguments]
    given = [argument(node, name) for name in names if name.startswith("scale")]
    rank = len(node.meta["val"].shape) - 2
    if names[-1] == "scale_factors":
        return list(given[0]) if given[0] is not None else [None] * rank
    return given


def _is_resize2d(method, sizes, outputs, scales) -> bool:
    """Whether Relax's resize2d has the coordinates of PyTorch."""
    for size, output, scale in zip(sizes, outputs, scales):
        if not isinstance(output, int) or not isinstance(size, tirx.IntImm):
            if scale is None or scale != int(scale):
                return False
        elif method == "upsample_nearest2d" and output % int(size):
            return False
        elif output == 1 or scale is not None and int(size) * scale != output:
            return False
    return method in ("upsample_nearest2d", "upsample_bilinear2d")


def _weights(node, axis: int, rank: int, size: int, output: int) -> torch.Tensor:
    """Return the weights of each input (row) in each output (column): an interpolated identity."""
    # PyTorch's antialiasing is wrong for images of one row or column, as of 2.13.
    shape, outputs = [2] * rank, [2] * rank
    shape[axis], outputs[axis] = size, output
    args, place = [], 0
    for each in node.target._schema.arguments:
        value = argument(node, each.name)
        if each.name == "output_size":
            value = outputs if value is not None else None
        elif each.name == "scale_factors":
            value = value and [value[axis] if i == axis else 1.0 for i in range(rank)]
        elif each.name.startswith("scales"):
            value, place = value if place == axis else None, place + 1
        args.append(value)
    ones = [size if i == axis else 1 for i in range(rank)]
    args[0] = torch.eye(size).reshape(1, size, *ones).expand(1, size, *shape).contiguous()
    rows = node.target(*args)[0].movedim(axis + 1, 1)
    return rows.reshape(size, output, -1)[..., 0].contiguous()


def _grid_sample(node, importer):
    """Convert a grid_sampler_2d: the coordinates of Relax's op are its second axis."""
    emit, x, grid = importer.block_builder.emit, *(importer.env[each] for each in node.args[:2])
    mode, padding, corners = node.args[2:]
    return emit(
        relax.op.image.grid_sample(
            x,
            emit(relax.op.permute_dims(grid, [0, 3, 1, 2])),
            method=("bilinear", "nearest", "bicubic")[mode],
            layout="NCHW",
            padding_mode=("zeros", "border", "reflection")[padding],
            align_corners=corners,
        )
    )


_NAMES = """upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d
    _upsample_nearest_exact2d _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d
    upsample_trilinear3d upsample_bicubic2d _upsample_bilinear2d_aa _upsample_bicubic2d_aa"""
#: The ops of this file, which PyTorch does not decompose then.
RESIZES = [
    getattr(getattr(aten, name), kind) for name in _NAMES.split() for kind in ("default", "vec")
]
CONVERTERS = {
    **{op.__name__: _resize for op in RESIZES},
    "grid_sampler_2d.default": _grid_sample,
}
