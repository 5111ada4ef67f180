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
"""When oneDNN can reduce axes, or normalize along them."""

from __future__ import annotations

import math

import numpy as np

from ..ir.op_view import OpView
from .attrs import Bool, Float, Int, Ints, Text
from .tensors import data_elements, open_reason, tensor_reason, tensors_reason, text_of_shape

# Any other power is a call of powf for each element.
LRN_BETAS = (0.75, 1.0)


def axes_reason(axes, exclude: bool, data: tuple[int, ...]) -> str | None:
    """Say why a list of axes cannot be reduced; None or no axis means all of them.

    Parameters
    ----------
    axes : Sequence[int] | None
        The axes, or with `exclude` all others.
    exclude : bool
        See `axes`.
    data : tuple[int, ...]
        The shape of what is reduced.
    """
    listed = list(axes or ())
    for axis in listed:
        if not -len(data) <= axis < len(data):
            return f"axis={axis} is out of range for data of shape {text_of_shape(data)}"
    if len({axis % len(data) for axis in listed}) != len(listed):
        return f"axis={listed} has duplicates for data of shape {text_of_shape(data)}"
    if exclude and len(listed) == len(data):
        return f"axis={listed} excludes all axes of {text_of_shape(data)}"
    return None


def reduce_reason(call: OpView) -> str | None:
    """Accept tensors and any axes that leave at least one dimension."""
    reason = tensors_reason(call, min_rank=1)
    if reason:
        return reason
    return axes_reason(call.attrs.axis, call.attrs.exclude, call.args[0].shape)


def axis_reason(call: OpView) -> str | None:
    """Accept tensors of rank 1 or more, and any axis of the first."""
    reason = tensors_reason(call, min_rank=1)
    if reason:
        return reason
    data, axis = call.args[0].shape, call.attrs.axis
    if not -len(data) <= axis < len(data):
        return f"axis={axis} is out of range for data of shape {text_of_shape(data)}"
    return None


def batch_norm_affine(
    attrs, gamma: np.ndarray, beta: np.ndarray, mean: np.ndarray, var: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return what a batch_norm multiplies each channel by, and what it adds then.

    Parameters
    ----------
    attrs : object
        The op's attributes.
    gamma, beta, mean, var : numpy.ndarray
        The op's operands behind the data, in double precision.
    """
    with np.errstate(all="ignore"):
        scale = (gamma if attrs.scale else 1.0) / np.sqrt(var + attrs.epsilon)
        return scale, (beta if attrs.center else 0.0) - mean * scale


def batch_norm_reason(call: OpView) -> str | None:
    """Accept data of rank 2 or more, any channel axis."""
    reason = axis_reason(call)
    if reason:
        return reason
    data = call.args[0].shape
    if len(data) < 2:
        return f"data has shape {text_of_shape(data)}; at least rank 2 is required"
    return None


def group_norm_reason(call: OpView) -> str | None:
    """Accept tensors and groups of the same number of channels."""
    reason = axis_reason(call)
    if reason:
        return reason
    data, groups = call.args[0].shape, call.attrs.num_groups
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
    return axes_reason(call.attrs.axis, False, call.args[0].shape)


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
    attrs, data = call.attrs, call.args[0].shape
    if len(data) != 4 or attrs.axis not in (1, 3):
        return f"axis={attrs.axis} of data of shape {text_of_shape(data)} is not 1 or 3 of rank 4"
    if attrs.size < 1 or attrs.size % 2 == 0:
        return f"size={attrs.size} is not odd"
    if attrs.beta not in LRN_BETAS:
        return f"beta={attrs.beta:g} is not 0.75 or 1; oneDNN is slow for others"
    return None


# The attributes of the rows.
SOFTMAX = (Int("axis", -1),)
_AFFINE = Float("epsilon", 1e-5), Bool("center", True), Bool("scale", True)
LAYER_NORM = Int("axis", -1), *_AFFINE
CHANNEL_NORM = Int("axis", 1), *_AFFINE
GROUP_NORM = Int("num_groups"), *CHANNEL_NORM
RMS_NORM = (Float("epsilon", 1e-5),)
L2_NORMALIZE = Float("eps"), Ints("axis", None)
LRN = (
    *(Int("size", 5), Int("axis", 1), Float("bias", 2.0), Float("alpha", 1e-4)),
    *(Float("beta", 0.75), Text("norm_region", "ACROSS_CHANNELS")),
)

# The fields of the rows.
REDUCE = dict(
    reason=reduce_reason,
    attrs=(Ints("axis", None), Bool("keepdims", False), Bool("exclude", False)),
    flops=data_elements,
)
