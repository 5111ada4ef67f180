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
"""A converter of ONNX's Resize that has all of its attributes.

TVM's ops have no antialiasing, resize the last axes only, and compute positions from the sizes of
input and result, where ONNX has a scale that need not be their quotient.
"""

from __future__ import annotations

import functools

import numpy as np
from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend

from ..backend import is_constant, sizes, value_of
from .quantized_node import QuantizedNode
from .resized_axis import Kernel, ResizedAxis

_RADIUS = {"linear": 1, "cubic": 2}


class Resize(onnx_frontend.Resize):
    """Resizes by an op of Relax where one does the same, else axis by axis."""

    @classmethod
    def _impl_v10(cls, bb, inputs, attr, params):
        """Convert the op that has scales as its second input, and no attributes but the mode."""
        node, scales = QuantizedNode("Resize", bb, attr), inputs[1]
        grows = is_constant(scales) and (value_of(scales) >= 1).all()
        node.require(grows, "before opset 11, scales that are not constant or below 1")
        attr = {**attr, "coordinate_transformation_mode": b"asymmetric", "nearest_mode": b"floor"}
        given = onnx_frontend.onnx_input([inputs[0], None, scales, None])
        return cls._impl_v18(bb, given, attr, params)

    @classmethod
    def _impl_v11(cls, bb, inputs, attr, params):
        return cls._impl_v18(bb, inputs, attr, params)

    @classmethod
    def _impl_v18(cls, bb, inputs, attr, params):
        node = QuantizedNode("Resize", bb, attr)
        axes = _axes(node, inputs)
        if axes is None:
            unsupported = [name for name in ("antialias", "axes") if attr.get(name)]
            node.require(
                not unsupported,
                f"{' and '.join(unsupported)} with sizes or a roi that "
                "are not constant cannot be imported",
            )
        if axes is None or _has_op(inputs[0], axes, attr):
            return super()._impl_v18(bb, inputs, attr, params)
        return _resized(node, inputs[0], axes)


def _text(attr: dict, name: str, default: str) -> str:
    return attr[name].decode("ascii") if name in attr else default


def _coordinates(attr: dict) -> str:
    return _text(attr, "coordinate_transformation_mode", "half_pixel")


def _axes(node: QuantizedNode, inputs) -> list[ResizedAxis] | None:
    """Return the axes that are resized, None if their sizes are not known."""
    shape, attr = sizes(inputs[0].ty), node.attr
    given = [each for each in inputs[1:4] if each is not None]
    if shape is None or None in shape or not all(map(is_constant, given)):
        return None
    roi, scales, new_sizes = (
        None if each is None or not value_of(each).size else value_of(each) for each in inputs[1:4]
    )
    node.require(
        (scales is None) != (new_sizes is None), "it has neither scales nor sizes, or both"
    )
    numbers = [axis % len(shape) for axis in attr.get("axes", range(len(shape)))]
    old = np.array([shape[axis] for axis in numbers])
    if new_sizes is None:
        # In float32, as in onnxruntime: 0.7 times 10 is 7.
        new_sizes = np.floor(scales.astype("float32") * old.astype("float32"))
    else:
        scales = new_sizes / old
        policy = _text(attr, "keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            scale = scales.min() if policy == "not_larger" else scales.max()
            scales, new_sizes = np.full(len(old), scale), np.floor(scale * old + 0.5)
    bounds = [(0.0, 1.0)] * len(old) if roi is None else zip(*np.split(roi, 2))
    axes = [
        ResizedAxis(axis, int(size), int(new_size), float(scale), tuple(map(float, each)))
        for axis, size, new_size, scale, each in zip(numbers, old, new_sizes, scales, bounds)
    ]
    is_cropped = _coordinates(attr) == "tf_crop_and_resize"
    return [axis for axis in axes if axis.scale != 1.0 or (is_cropped and axis.roi != (0.0, 1.0))]


def _has_op(data, axes: list[ResizedAxis], attr: dict) -> bool:
    """Whether an op of Relax computes the same."""
    rank, mode = data.ty.ndim, _coordinates(attr)
    if mode == "align_corners":
        # TVM divides by the new size minus one.
        has_positions = all(axis.new_size > 1 for axis in axes)
    else:
        has_positions = all(axis.scale * axis.size == axis.new_size for axis in axes)
    return (
        rank in (3, 4, 5)
        and "axes" not in attr
        and all(axis.number >= 2 for axis in axes)
        and has_positions
        and not attr.get("antialias", 0)
        and mode not in ("half_pixel_symmetric", "tf_crop_and_resize")
    )


def _resized(node: QuantizedNode, data, axes: list[ResizedAxis]) -> relax.Expr:
    """Return the data with one axis after the other resized."""
    attr, coordinates = node.attr, _coordinates(node.attr)
    mode, dtype = _text(attr, "mode", "nearest"), str(data.ty.dtype)
    is_supported = mode == "nearest" or dtype in ("float16", "float32", "float64")
    node.require(is_supported, f"mode={mode} of data of the type {dtype} is not supported")
    result = data
    for axis in axes:
        if mode == "nearest":
            rounding = _text(attr, "nearest_mode", "round_prefer_floor")
            indices = relax.const(axis.nearest(coordinates, rounding))
            result = node.bb.emit(relax.op.take(result, indices, axis.number))
            continue
        kernel = Kernel(_RADIUS[mode], attr.get("cubic_coeff_a", -0.75))
        flags = (bool(attr.get(name, 0)) for name in ("antialias", "exclude_outside"))
        weights = axis.weights(coordinates, kernel, *flags).astype(dtype)
        result = _weighted(node.bb, result, axis.number, weights)
    outside = [(axis.number, axis.outside(coordinates)) for axis in axes]
    if not any(each.any() for _, each in outside):
        return result
    rank = data.ty.ndim
    masks = [each.reshape([-1] + [1] * (rank - 1 - axis)) for axis, each in outside]
    is_outside = relax.const(functools.reduce(np.logical_or, masks))
    value = relax.const(np.array(attr.get("extrapolation_value", 0.0), dtype))
    return node.bb.emit(relax.op.where(is_outside, value, result))


def _weighted(bb: relax.BlockBuilder, data, axis: int, weights: np.ndarray) -> relax.Expr:
    """Return the product of a matrix and an axis of a tensor."""
    rank = data.ty.ndim
    if axis == rank - 2:
        return bb.emit(relax.op.matmul(relax.const(weights), data))
    columns = relax.const(np.ascontiguousarray(weights.T))
    if axis == rank - 1:
        return bb.emit(relax.op.matmul(data, columns))
    order = [*(each for each in range(rank) if each != axis), axis]
    moved = bb.emit(relax.op.matmul(bb.emit(relax.op.permute_dims(data, order)), columns))
    return bb.emit(relax.op.permute_dims(moved, np.argsort(order).tolist()))


class Upsample(onnx_frontend.Upsample):
    """Convert Upsample, whose scales are an input since opset 9."""

    @classmethod
    def _impl_v7(cls, bb, inputs, attr, params):
        return super()._impl_v9(bb, inputs, attr, params)

    @classmethod
    def _impl_v9(cls, bb, inputs, attr, params):
        return Resize._impl_v10(bb, inputs, attr, params)


REPLACEMENTS = {"Resize": Resize, "Upsample": Upsample}
