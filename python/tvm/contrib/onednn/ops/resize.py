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
"""Rules of the ops that give images another size.

Relay has many ways to say which coordinate of the input a value of the output is read at, and
oneDNN has one. Whether the two agree depends on the sizes, so the coordinates are computed and
compared.
"""

from __future__ import annotations

import numpy as np

from ..ir.op_view import OpView
from .attrs import Attr, Bool, DType, Float, Ints, Text
from .conv import SPATIAL, data_layout_reason
from .pool import pool_channel_axis
from .tensors import tensors_reason

# TVM adds this before it rounds a coordinate down, and subtracts it before it rounds up.
_EPSILON = 1e-5

# The largest difference of two coordinates between neighbours, in parts of their distance.
_TOLERANCE = 1e-6

ROUND = {
    "round": lambda x: np.sign(x) * np.floor(np.abs(x) + 0.5),
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": lambda x: np.floor(x + _EPSILON),
    "ceil": lambda x: np.ceil(x - _EPSILON),
}


_MODE = Text("coordinate_transformation_mode", "half_pixel")


def resize_attributes(spatial: int) -> tuple[Attr, ...]:
    """Declare the attributes of a resize; where the size is open, factors may tell it."""
    letters = SPATIAL[3 - spatial :]
    return (
        *(Ints("size", None), Text("layout", f"NC{letters}"), Text("method", "linear")),
        *(_MODE, Text("rounding_method", ""), DType("out_dtype")),
        *(Float(f"scale_{letter.lower()}", None) for letter in letters),
    )


_UPSAMPLING = Float("scale_h"), Float("scale_w"), Text("method", "nearest_neighbor")
UPSAMPLING = (Text("layout", "NCHW"), *_UPSAMPLING, Bool("align_corners", False))
UPSAMPLING3D = (Text("layout", "NCDHW"), Float("scale_d"), *_UPSAMPLING, _MODE)


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


def _is_same_nearest(mode: str, rounding: str, size: int, out: int) -> bool:
    """Whether oneDNN reads the same values as nearest ones, along one axis."""
    wanted = ROUND["round"](coordinates("half_pixel", size, out, "float64"))
    wanted = np.clip(wanted, 0, size - 1)
    # TVM computes in float32. Where float64 gives another value, too little hangs on too much.
    for dtype in ("float32", "float64"):
        values = np.clip(ROUND[rounding](coordinates(mode, size, out, dtype)), 0, size - 1)
        if not np.array_equal(values, wanted):
            return False
    return True


def _repeats(mode: str, rounding: str, factor: float | None) -> bool:
    """Whether the nearest values are oneDNN's for all sizes that are multiplied by a factor.

    By a power of two, of which float32 has the reciprocal: the coordinates are those of the first
    values, as far from the next value as these are.
    """
    is_exact = factor in (1, 2, 4, 8, 16) and mode in ("asymmetric", "half_pixel")
    return is_exact and all(
        _is_same_nearest(mode, rounding, size, size * int(factor)) for size in (1, 2, 4)
    )


def _is_same_linear(mode: str, size: int, out: int) -> bool:
    """Whether oneDNN interpolates at the same coordinates, along one axis."""
    both = (coordinates(m, size, out, "float64") for m in ("half_pixel", mode))
    return bool(np.allclose(*(np.clip(x, 0, size - 1) for x in both), 0, _TOLERANCE))


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
    """Accept images, resized with oneDNN's coordinates for the given sizes, or for all."""
    reason = tensors_reason(call, min_rank=3)
    if reason:
        return reason
    attrs, data, result = call.attrs, call.args[0].shape, call.result.shape
    reason = data_layout_reason(attrs, "layout", len(data) - 2)
    if reason:
        return reason
    method, mode, rounding = sampling(call.name, attrs)
    if method not in ("nearest_neighbor", "linear", "bilinear", "trilinear"):
        return f"oneDNN does not support method={method}"
    if coordinates(mode, 1, 1, "float32") is None or rounding not in ROUND:
        return f"oneDNN does not support coordinate_transformation_mode={mode}"
    for letter in SPATIAL[5 - len(data) :]:
        axis = attrs.layout.index(letter)
        size, out = data[axis], result[axis]
        if size is None or out is None:
            if method != "nearest_neighbor" and mode == "half_pixel":
                continue
            factor = getattr(attrs, f"scale_{letter.lower()}")
            if method == "nearest_neighbor" and _repeats(mode, rounding, factor):
                continue
            return f"the values that {method} reads depend on {letter}, which is open"
        if method == "nearest_neighbor" and not _is_same_nearest(mode, rounding, size, out):
            how = f"{mode} with {rounding} reads other values than oneDNN's nearest mode"
        elif method != "nearest_neighbor" and not _is_same_linear(mode, size, out):
            how = f"{mode} samples at other coordinates than oneDNN"
        else:
            continue
        return f"{how}, from {letter}={size} to {out}"
    return None


# The fields of the rows.
RESIZE = dict(reason=resize_reason, channel_axis=pool_channel_axis)
