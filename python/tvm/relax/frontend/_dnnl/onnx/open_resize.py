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
"""Resize of images to sizes that are computed from open dimensions."""

from __future__ import annotations

from tvm import relax, tirx

from ..backend import is_constant, size_from, value_of
from .shape_values import ShapeValue


def with_sizes(inputs) -> list:
    """Return the inputs of a Resize, with sizes in place of constant scales of open sizes."""
    data, roi, scales, sizes = (*inputs, None, None, None)[:4]
    if scales is None or sizes is not None or not is_constant(scales):
        return [data, roi, scales, sizes]
    factors = value_of(scales)
    is_whole = factors.size == len(data.ty.shape) and (factors == factors.round()).all()
    if not is_whole or all(isinstance(size, tirx.IntImm) for size in data.ty.shape):
        return [data, roi, scales, sizes]
    wanted = ShapeValue.of([size_from(size) * int(by) for size, by in zip(data.ty.shape, factors)])
    return [data, roi, None, wanted]


def resized_to_open_sizes(data, sizes, attrs):
    """Resize images to sizes that are open."""
    if len(sizes) != 4:
        raise ValueError(f"Resize of rank {len(sizes)} to open sizes is not supported")
    for axis in (0, 1):
        if size_from(data.ty.shape[axis]) != sizes[axis]:
            raise ValueError(f"Resize of axis {axis} to an open size is not supported")
    unsupported = {"antialias": 0, "keep_aspect_ratio_policy": b"stretch"}
    for name, default in unsupported.items():
        if attrs.get(name, default) != default:
            raise ValueError(f"Resize with {name}={attrs[name]} to open sizes is not supported")
    mode = attrs.get("mode", b"nearest").decode()
    return relax.op.image.resize2d(
        data,
        size=ShapeValue.of(sizes[2:]).shape(),
        roi=[0.0] * 4,
        layout="NCHW",
        method="nearest_neighbor" if mode == "nearest" else mode,
        coordinate_transformation_mode=attrs.get(
            "coordinate_transformation_mode", b"half_pixel"
        ).decode(),
        rounding_method=attrs.get("nearest_mode", b"round_prefer_floor").decode(),
        cubic_alpha=attrs.get("cubic_coeff_a", -0.75),
        cubic_exclude=attrs.get("exclude_outside", 0),
        extrapolation_value=attrs.get("extrapolation_value", 0.0),
    )
