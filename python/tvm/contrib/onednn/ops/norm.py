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
"""Normalization of channels, groups and rows."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ..ir.numpy_types import Array, along
from ..ir.op_view import OpView, Tensor, tensor_of
from .attrs import Bool, Float, Int, Ints, Text
from .draw import Call, Draw
from .reduce import axes_reason
from .schema import OpSchema, function
from .tensors import (
    axis_reason,
    data_elements,
    open_reason,
    tensor_reason,
    tensors_reason,
    text_of_shape,
)

# Any other power is a call of powf for each element.
LRN_BETAS = (0.75, 1.0)


def batch_norm_affine(
    attrs, gamma: np.ndarray, beta: np.ndarray, mean: np.ndarray, var: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return what a batch_norm multiplies each channel by, and what it adds then.

    Parameters
    ----------
    attrs : object
        The op's attributes.
    gamma, beta, mean, var : numpy.ndarray
        The op's operands after the data, in double precision.
    """
    with np.errstate(all="ignore"):
        scale = (gamma if attrs.scale else 1.0) / np.sqrt(var + attrs.epsilon)
        return scale, (beta if attrs.center else 0.0) - mean * scale


def batch_norm_reason(call: OpView) -> str | None:
    """Accept data of rank 2 or more, any channel axis."""
    reason = axis_reason(call)
    if reason:
        return reason
    data = tensor_of(call.args[0]).shape
    if len(data) < 2:
        return f"data has shape {text_of_shape(data)}; at least rank 2 is required"
    return None


def group_norm_reason(call: OpView) -> str | None:
    """Accept tensors and groups of the same number of channels."""
    reason = axis_reason(call)
    if reason:
        return reason
    data, groups = tensor_of(call.args[0]).shape, call.attrs.num_groups
    channels = data[call.attrs.axis]
    reason = open_reason("data", "channels", channels, data)
    if reason:
        return reason
    if groups < 1 or channels % groups:
        return f"num_groups={groups} does not divide {channels} channels"
    return None


def l2_normalize_reason(call: OpView) -> str | None:
    """Accept tensors and any axes."""
    reason = tensors_reason(call, min_rank=1)
    if reason:
        return reason
    if math.isnan(call.attrs.eps):
        return "eps is NaN"
    return axes_reason(call.attrs.axis, False, tensor_of(call.args[0]).shape)


def rms_norm_reason(call: OpView) -> str | None:
    """Accept tensors of rank 1 or more."""
    for arg in call.args:
        reason = tensor_reason("data", arg, min_rank=1)
        if reason:
            return reason
    return None


def lrn_reason(call: OpView) -> str | None:
    """Accept NCHW and NHWC with an odd window and a power that oneDNN is fast at."""
    reason = tensors_reason(call)
    if reason:
        return reason
    attrs, data = call.attrs, tensor_of(call.args[0]).shape
    if len(data) != 4 or attrs.axis not in (1, 3):
        return f"axis={attrs.axis} of data of shape {text_of_shape(data)} is not 1 or 3 of rank 4"
    if attrs.size < 1 or attrs.size % 2 == 0:
        return f"size={attrs.size} is not odd"
    if attrs.beta not in LRN_BETAS:
        return f"beta={attrs.beta:g} is not 0.75 or 1; oneDNN is slow for others"
    return None


def _batch_norm_type(args, attrs):
    return tuple(Tensor(arg.dims, arg.dtype) for arg in (args[0], *args[3:]))


def _normalized(data: Array, axes, epsilon: float) -> Array:
    mean = data.mean(axes, keepdims=True)
    return (data - mean) / np.sqrt(data.var(axes, keepdims=True) + epsilon)


def _affine(attrs, data: Array, gamma: Array, beta: Array) -> Array:
    axis = attrs.axis
    data = data * along(gamma, axis, data.ndim) if attrs.scale else data
    return data + along(beta, axis, data.ndim) if attrs.center else data


def _batch_norm(attrs, result_type, data, gamma, beta, mean, variance):
    shift, square = (along(each, attrs.axis, data.ndim) for each in (mean, variance))
    normal = (data - shift) / np.sqrt(square + attrs.epsilon)
    return [_affine(attrs, normal, gamma, beta), mean, variance]


def _layer_norm(attrs, result_type, data, gamma, beta):
    return _affine(attrs, _normalized(data, attrs.axis, attrs.epsilon), gamma, beta)


def _instance_norm(attrs, result_type, data, gamma, beta):
    axes = tuple(axis for axis in range(1, data.ndim) if axis != attrs.axis % data.ndim)
    return _affine(attrs, _normalized(data, axes, attrs.epsilon), gamma, beta)


def _group_norm(attrs, result_type, data, gamma, beta):
    axis = attrs.axis % data.ndim
    split = data.reshape(*data.shape[:axis], attrs.num_groups, -1, *data.shape[axis + 1 :])
    # Each index along the axes before the channels, and each group, has its own statistics.
    axes = tuple(range(axis + 1, split.ndim))
    return _affine(attrs, _normalized(split, axes, attrs.epsilon).reshape(data.shape), gamma, beta)


def _rms_norm(attrs, result_type, data, *gamma):
    normal = data / np.sqrt((data**2).mean(-1, keepdims=True) + attrs.epsilon)
    return normal * gamma[0] if gamma else normal


def _l2_normalize(attrs, result_type, data):
    axes = tuple(attrs.axis) if attrs.axis else None
    square = (data**2).sum(axes, keepdims=True)
    return data / np.sqrt(np.maximum(square, attrs.eps))


def _lrn(attrs, result_type, data):
    axis, size = attrs.axis % data.ndim, attrs.size
    width = [(size // 2,) * 2 if i == axis else (0, 0) for i in range(data.ndim)]
    square, lines = np.pad(data**2, width), data.shape[axis]
    total = sum(np.take(square, range(i, i + lines), axis) for i in range(size))
    return data / (attrs.bias + attrs.alpha * total / size) ** attrs.beta


def _draw_affine(count: int, *ranks: int, **others) -> Callable[[Draw], Call]:
    def draw(d):
        shape = d.shape(*ranks)
        axis = d.axis(shape)
        params = [d.values([shape[axis]]) for _ in range(count)]
        attrs = {"axis": axis, "epsilon": d.choice((1e-5, 0.1))}
        attrs.update((name, d.chance(0.8)) for name in ("scale", "center"))
        attrs.update((key, value(d, shape[axis])) for key, value in others.items())
        return Call([d.values(shape), *params], attrs)

    return draw


def _draw_rms_norm(d: Draw) -> Call:
    shape = d.shape()
    gamma = [d.values(shape[-1:])]
    return Call([d.values(shape), *gamma[: d.integer(0, 1)]], {"epsilon": 1e-5})


def _draw_l2_normalize(d: Draw) -> Call:
    axes = d.choice(([1], [3], [1, 2, 3], *d.rare([], [-1], [0, -2], [0, 1, 2, 3], [7])))
    eps = d.choice((1e-6, 0.1, *d.rare(float("nan"))))
    return Call([d.values(d.shape(4))], {"axis": axes, "eps": eps})


def _draw_lrn(d: Draw) -> Call:
    attrs = dict(
        axis=d.choice((1, 3, *d.rare(0, 2, -1))),
        size=d.choice((1, 3, 5, *d.rare(2, 9))),
        bias=d.choice((1.0, 2.0)),
        alpha=d.choice((1e-4, 0.1)),
        beta=d.choice((0.75, 0.75, 1.0, *d.rare(0.5))),
    )
    return Call([d.values(d.shape(4))], attrs)


_AFFINE = Float("epsilon", 1e-5), Bool("center", True), Bool("scale", True)

_CHANNEL_NORM = Int("axis", 1), *_AFFINE

ROWS = [
    OpSchema(
        "nn.batch_norm",
        batch_norm_reason,
        attrs=_CHANNEL_NORM,
        infer=_batch_norm_type,
        numpy=_batch_norm,
        draw=_draw_affine(4, 2, 3, 4),
        fuses=("nn.relu",),
        flops=data_elements,
    ),
    function(
        "nn.group_norm",
        group_norm_reason,
        attrs=(Int("num_groups"), *_CHANNEL_NORM),
        numpy=_group_norm,
        draw=_draw_affine(2, 2, 3, 4, num_groups=Draw.groups),
    ),
    function(
        "nn.instance_norm",
        axis_reason,
        attrs=_CHANNEL_NORM,
        numpy=_instance_norm,
        draw=_draw_affine(2, 3, 4),
    ),
    function(
        "nn.l2_normalize",
        l2_normalize_reason,
        attrs=(Float("eps"), Ints("axis", None)),
        numpy=_l2_normalize,
        draw=_draw_l2_normalize,
        relax="",
    ),
    function(
        "nn.layer_norm",
        axis_reason,
        attrs=(Int("axis", -1), *_AFFINE),
        numpy=_layer_norm,
        draw=_draw_affine(2),
        normalizes=True,
    ),
    function(
        "nn.lrn",
        lrn_reason,
        attrs=(
            *(Int("size", 5), Int("axis", 1), Float("bias", 2.0), Float("alpha", 1e-4)),
            *(Float("beta", 0.75), Text("norm_region", "ACROSS_CHANNELS")),
        ),
        numpy=_lrn,
        draw=_draw_lrn,
        relax="",
    ),
    function(
        "dnnl.rms_norm",
        rms_norm_reason,
        attrs=(Float("epsilon", 1e-5),),
        numpy=_rms_norm,
        draw=_draw_rms_norm,
        relax="nn.rms_norm",
        normalizes=True,
    ),
]
