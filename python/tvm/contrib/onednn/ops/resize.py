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
"""Ops that give images another size.

There are many ways to say which coordinate of the input a value of the output is read at, and
oneDNN has one: the runtime has kernels of its own for the others. TVM computes coordinates in
float32. Which value is the nearest may depend on their last bit, so the values are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..ir.dim import Size
from ..ir.numpy_types import UndefinedResult, along
from ..ir.op_view import OpView, Tensor, tensor_of
from .attrs import Attr, Bool, DType, Float, Int, Ints, Text
from .draw import Call, Draw
from .pool import pool_channel_axis
from .schema import OpSchema, light, out_dtype
from .tensors import tensors_reason
from .windows import SPATIAL, data_layout_reason, for_each, spatial_axes

# TVM adds this before it rounds a coordinate down, and subtracts it before it rounds up.
_EPSILON = 1e-5

ROUND = {
    "round": lambda x: np.sign(x) * np.floor(np.abs(x) + 0.5),
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": lambda x: np.floor(x + _EPSILON),
    "ceil": lambda x: np.ceil(x - _EPSILON),
}

_MODE = Text("coordinate_transformation_mode", "half_pixel")

# Upsampling has no attributes of cubic ones.
_UPSAMPLING_METHODS = ("nearest_neighbor", "linear", "bilinear", "trilinear")
_METHODS = (*_UPSAMPLING_METHODS, "cubic")


def resize_attributes(spatial: int) -> tuple[Attr, ...]:
    """Declare the attributes of a resize; where the size is open, factors may tell it."""
    letters = SPATIAL[3 - spatial :]
    return (
        *(Ints("size", None), Text("layout", f"NC{letters}"), Text("method", "linear")),
        *(_MODE, Text("rounding_method", ""), DType("out_dtype")),
        *(Float("cubic_alpha", -0.5), Int("cubic_exclude", 0)),
        *(Float(f"scale_{letter.lower()}", None) for letter in letters),
    )


_UPSAMPLING = Float("scale_h"), Float("scale_w"), Text("method", "nearest_neighbor")

_UPSAMPLING2D = (Text("layout", "NCHW"), *_UPSAMPLING, Bool("align_corners", False))

_UPSAMPLING3D = (Text("layout", "NCDHW"), Float("scale_d"), *_UPSAMPLING, _MODE)


def coordinates(mode: str, size: int, out: int, dtype: str) -> np.ndarray | None:
    """Return the coordinate in the input of each output; None for an unknown mode."""
    x, scale = np.arange(out, dtype=dtype), np.asarray(size / out, dtype)
    if mode == "half_pixel" or (mode == "pytorch_half_pixel" and out > 1):
        return (x + np.asarray(0.5, dtype)) * scale - np.asarray(0.5, dtype)
    if mode == "pytorch_half_pixel":
        return np.zeros(1, dtype)
    if mode == "align_corners":
        return x * np.asarray((size - 1) / max(out - 1, 1), dtype)
    if mode == "asymmetric":
        return x * scale
    if mode == "tf_half_pixel_for_nn":
        return (x + np.asarray(0.5, dtype)) * scale
    return None


def _is_settled(mode: str, rounding: str, size: int, out: int) -> bool:
    """Whether the nearest values along an axis are the same in float32, float64 and in TVM.

    TVM divides integers, whatever the rounding, where a factor is one.
    """
    values = [
        np.clip(ROUND[rounding](coordinates(mode, size, out, dtype)), 0, size - 1)
        for dtype in ("float32", "float64")
    ]
    if mode == "asymmetric" and out % size == 0:
        values.append(np.arange(out) // (out // size))
    return all(np.array_equal(values[0], other) for other in values[1:])


def _is_settled_for_all(mode: str, rounding: str, factor: float | None) -> bool:
    """Whether the nearest values are so for all sizes that are multiplied by a factor.

    By a power of two, of which float32 has the reciprocal: the coordinates are those of the first
    values, as far from the next value as these are.
    """
    is_exact = factor in (1, 2, 4, 8, 16) and mode in ("asymmetric", "half_pixel")
    return is_exact and all(
        _is_settled(mode, rounding, size, size * int(factor)) for size in (1, 2, 4)
    )


def sampling(name: str, attrs) -> tuple[str, str, str]:
    """Return the method of an op, what coordinates it reads at, and how these are rounded."""
    mode, rounding = "asymmetric", ""
    if name != "nn.upsampling":
        mode = attrs.coordinate_transformation_mode
    elif attrs.align_corners:
        mode = "align_corners"
    if name.startswith("image."):
        rounding = attrs.rounding_method
    return attrs.method, mode, rounding or ("round" if mode == "align_corners" else "floor")


def resize_reason(call: OpView) -> str | None:
    """Accept images, whose nearest values do not depend on the precision of coordinates."""
    reason = tensors_reason(call, min_rank=3)
    if reason:
        return reason
    attrs, data, result = call.attrs, tensor_of(call.args[0]).shape, tensor_of(call.result).shape
    reason = data_layout_reason(attrs, "layout", len(data) - 2)
    if reason:
        return reason
    method, mode, rounding = sampling(call.name, attrs)
    if method not in (_METHODS if call.name.startswith("image.") else _UPSAMPLING_METHODS):
        return f"oneDNN does not support method={method}"
    if coordinates(mode, 1, 1, "float32") is None or rounding not in ROUND:
        return f"oneDNN does not support coordinate_transformation_mode={mode}"
    if method != "nearest_neighbor":
        return None
    for letter in SPATIAL[5 - len(data) :]:
        axis = attrs.layout.index(letter)
        size, out = data[axis], result[axis]
        if size is None or out is None:
            factor = vars(attrs)[f"scale_{letter.lower()}"]
            if not _is_settled_for_all(mode, rounding, factor):
                return f"the values that {method} reads depend on {letter}, which is open"
        elif not _is_settled(mode, rounding, size, out):
            how = f"{mode} with {rounding} has other nearest values in TVM"
            return f"{how}, from {letter}={size} to {out}"
    return None


def _scaled_dims(dims: Sequence[Size], attrs) -> list[Size]:
    """Multiply the sizes of an image by the factors in the attributes."""
    scaled = list(dims)
    for axis in spatial_axes(attrs.layout):
        size, scale = scaled[axis], vars(attrs)[f"scale_{attrs.layout[axis].lower()}"]
        if isinstance(size, int):
            scaled[axis] = int(round(size * scale))
        else:
            scaled[axis] = size * int(scale) if size is not None and scale % 1 == 0 else None
    return scaled


def _upsampling_type(args, attrs):
    return Tensor(tuple(_scaled_dims(args[0].dims, attrs)), args[0].dtype)


def _resize_type(args, attrs):
    data = args[0]
    dims, axes = list(data.dims), spatial_axes(attrs.layout)
    if attrs.size:
        for axis, size in zip(axes, for_each(attrs.size, len(axes))):
            dims[axis] = size
    else:
        dims = _scaled_dims(dims, attrs)
    return Tensor(tuple(dims), out_dtype(attrs, data))


def _cubic_weights(t, alpha):
    """Return the weights of four neighbors, of which the second is t before the coordinate.

    Keys, "Cubic convolution interpolation for digital image processing", 1981.
    """
    outer = [alpha * (((x - 5) * x + 8) * x - 4) for x in (1 + t, 2 - t)]
    inner = [((alpha + 2) * x - (alpha + 3)) * x * x + 1 for x in (t, 1 - t)]
    return [outer[0], *inner, outer[1]]


def _neighbors(places, size, method, attrs) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the values that are summed at coordinates along an axis, and their weights."""
    low = np.floor(places)
    first, weights = 0, [1 - (places - low), places - low]
    if method == "cubic":
        first, weights = -1, _cubic_weights(places - low, attrs.cubic_alpha)
    indices = [low + first + i for i in range(len(weights))]
    if method == "cubic" and attrs.cubic_exclude:
        weights = [w * ((i >= 0) & (i < size)) for i, w in zip(indices, weights)]
        weights = [w / sum(weights) for w in weights]
    return [(np.clip(i, 0, size - 1).astype(int), w) for i, w in zip(indices, weights)]


def _resize(name: str):
    def compute(attrs, result_type, data):
        method, mode, rounding = sampling(name, attrs)
        if method not in _METHODS:
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
            terms = [
                np.take(data, index, axis) * along(weight, axis, data.ndim)
                for index, weight in _neighbors(places, size, method, attrs)
            ]
            data = sum(terms)
        return data

    return compute


def _draw_resize(n: int) -> Callable[[Draw], Call]:
    def draw(d):
        data, layout = d.laid_out(n)
        modes = ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel")
        rounding = ("", "round", "floor", "ceil", "round_prefer_floor")
        attrs = dict(
            size=[d.integer(1, 9) for _ in range(n)],
            layout=layout,
            method=d.choice(("linear", "nearest_neighbor", "cubic")),
            coordinate_transformation_mode=d.choice((*modes, *d.rare("tf_half_pixel_for_nn"))),
            rounding_method=d.choice((*rounding, *d.rare("round_prefer_ceil"))),
            cubic_alpha=d.choice((-0.5, -0.75)),
            cubic_exclude=d.choice((0, 1)),
            out_dtype="",
        )
        return Call([data], attrs)

    return draw


def _draw_upsampling(n: int) -> Callable[[Draw], Call]:
    def draw(d):
        data, layout = d.laid_out(n)
        linear = "bilinear" if n == 2 else "trilinear"
        attrs = {
            f"scale_{c.lower()}": d.choice((1.0, 2.0, 3.0, *d.rare(0.5, 1.5))) for c in SPATIAL[-n:]
        }
        attrs.update(layout=layout, method=d.choice(("nearest_neighbor", linear)))
        attrs.update(
            align_corners=d.choice((False, True)), coordinate_transformation_mode="half_pixel"
        )
        return Call([data], attrs)

    return draw


def _row(name: str, attrs: tuple[Attr, ...], infer=_resize_type, **fields) -> OpSchema:
    fields.update(attrs=attrs, infer=infer, numpy=_resize(name))
    return light(name, resize_reason, pool_channel_axis, **fields)


ROWS = [
    _row("image.resize1d", resize_attributes(1), draw=_draw_resize(1), relax=""),
    _row("image.resize2d", resize_attributes(2), draw=_draw_resize(2)),
    _row("image.resize3d", resize_attributes(3), draw=_draw_resize(3)),
    _row("nn.upsampling", _UPSAMPLING2D, _upsampling_type, draw=_draw_upsampling(2), relax=""),
    _row("nn.upsampling3d", _UPSAMPLING3D, _upsampling_type, draw=_draw_upsampling(3), relax=""),
]
