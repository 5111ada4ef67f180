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
"""When oneDNN can run a convolution or a transposed convolution."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ..ir.op_view import OpView
from .attrs import Attr, DType, Int, Ints, Text
from .tensors import ints, known_product, open_reason, tensors_reason, text_of_shape

SPATIAL = "DHW"


def conv_attributes(spatial: int, order: str = "OI") -> tuple[Attr, ...]:
    """Declare the attributes of a convolution over `spatial` dimensions, with weights in an order.

    One integer of `strides`, `padding` or `dilation` stands for all.
    """
    letters = SPATIAL[3 - spatial :]
    return (
        *(Ints("strides", 1), Ints("padding", 0), Ints("dilation", 1), Int("groups", 1)),
        *(Text("data_layout", f"NC{letters}"), Text("kernel_layout", f"{order}{letters}")),
        *(Text("out_layout", ""), DType("out_dtype")),
    )


def transposed_conv_attributes(spatial: int) -> tuple[Attr, ...]:
    """Declare the attributes of a transposed convolution over `spatial` dimensions."""
    return (*conv_attributes(spatial, "IO"), Ints("output_padding", (0,) * spatial))


class ConvGeometry(NamedTuple):
    """The sizes of a convolution, whatever its layouts."""

    in_channels: int
    out_channels: int
    groups: int
    # The weight's dimensions by letter. Relay writes a depthwise weight either as usual, O being
    # the output channels, or as O = input channels and I = outputs per input channel. That of a
    # transposed convolution has O = outputs per group and I = all input channels.
    weight: dict
    is_multiplier: bool


def is_transposed(op: str) -> bool:
    """Whether a convolution is a transposed one."""
    return op.endswith("_transpose")


def conv_channel_axis(call: OpView) -> int:
    """Return the channel axis of a convolution's result."""
    return call.attrs.data_layout.index("C")


def conv_geometry(call: OpView) -> ConvGeometry:
    """Read the sizes of a convolution whose layouts and shapes are known to be accepted."""
    attrs = call.attrs
    weight = dict(zip(attrs.kernel_layout, call.args[1].shape))
    in_channels = call.args[0].shape[attrs.data_layout.index("C")]
    out_channels = call.result.shape[conv_channel_axis(call)]
    groups = attrs.groups
    is_multiplier = (
        not is_transposed(call.name) and groups > 1 and groups == in_channels == weight["O"]
    )
    return ConvGeometry(in_channels, out_channels, groups, weight, is_multiplier)


def conv_weight_axis(call: OpView) -> int | None:
    """Return the axis of a weight that has an item for each output channel, if it has one."""
    conv = conv_geometry(call)
    if conv.weight["O"] != conv.out_channels:
        return None
    return call.attrs.kernel_layout.index("O")


def merged_weight_shape(call: OpView) -> tuple[int, ...] | None:
    """Return the shape in which the weight of a depthwise convolution has all outputs on one axis.

    It is that of a convolution of groups, with the same values in the same order; None for other
    weights, and for those of another order.
    """
    conv, layout = conv_geometry(call), call.attrs.kernel_layout
    if not conv.is_multiplier or "OI" not in layout:
        return None
    return tuple(dict(conv.weight, O=conv.out_channels, I=1)[letter] for letter in layout)


def window_reason(attrs, spatial: int) -> str | None:
    """Say why strides, dilation or padding of a window over `spatial` dimensions are not legal."""
    for name in ("strides", "dilation"):
        values = ints(getattr(attrs, name))
        if values is None or len(values) not in (1, spatial) or min(values) < 1:
            return f"{name}={list(getattr(attrs, name))} is not {spatial} positive integers"
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
    layout = getattr(attrs, name)
    return None if layout in layouts else f"{name}={layout} is not {' or '.join(layouts)}"


def conv_reason(call: OpView) -> str | None:
    """Accept any order of the weight's dimensions, any groups; batch and image may be open."""
    spatial = int(call.name[len("nn.conv")])
    attrs = call.attrs
    reason = data_layout_reason(attrs, "data_layout", spatial)
    if reason:
        return reason
    letters = "OI" + SPATIAL[3 - spatial :]
    if sorted(attrs.kernel_layout) != sorted(letters):
        return f"kernel_layout={attrs.kernel_layout} is not a permutation of {letters}"
    if attrs.out_layout not in ("", attrs.data_layout):
        return f"out_layout={attrs.out_layout} differs from data_layout={attrs.data_layout}"
    reason = window_reason(attrs, spatial) or tensors_reason(call)
    if reason:
        return reason
    for name, arg in zip(("data", "weight"), call.args):
        if len(arg.shape) != spatial + 2:
            shape = text_of_shape(arg.shape)
            return f"{name} has shape {shape}; rank {spatial + 2} is required"
    reason = _channels_reason(call)
    if reason is None and is_transposed(call.name):
        reason = _output_padding_reason(attrs, spatial)
    return reason


def _channels_reason(call: OpView) -> str | None:
    """Check that groups, channels and the weight's shape agree; Relay's typing is lenient here."""
    conv = conv_geometry(call)
    weight = call.args[1].shape
    reason = open_reason("data", "channels", conv.in_channels, call.args[0].shape)
    for letter, size in zip(call.attrs.kernel_layout, weight):
        reason = reason or open_reason("weight", letter, size, weight)
    reason = reason or open_reason("result", "channels", conv.out_channels, call.result.shape)
    if reason:
        return reason
    if conv.groups < 1:
        return f"groups={conv.groups} is not positive"
    for name, channels in (("input", conv.in_channels), ("output", conv.out_channels)):
        if channels % conv.groups:
            return f"groups={conv.groups} does not divide {channels} {name} channels"
    if is_transposed(call.name):
        expected = (conv.out_channels // conv.groups, conv.in_channels)
    elif conv.is_multiplier:
        expected = (conv.in_channels, conv.out_channels // conv.in_channels)
    else:
        expected = (conv.out_channels, conv.in_channels // conv.groups)
    actual = (conv.weight["O"], conv.weight["I"])
    if actual != expected:
        return (
            f"the weight has O, I = {actual}, but {conv.in_channels} input and "
            f"{conv.out_channels} output channels with groups={conv.groups} need {expected}"
        )
    return None


def _output_padding_reason(attrs, spatial: int) -> str | None:
    """Check what is added to the end of a transposed convolution's result."""
    extra = ints(attrs.output_padding)
    if extra is None or len(extra) != spatial or min(extra) < 0:
        return f"output_padding={list(attrs.output_padding)} is not {spatial} non-negative integers"
    strides = ints(attrs.strides)
    strides = strides * spatial if len(strides) == 1 else strides
    if any(end >= stride for end, stride in zip(extra, strides)):
        return f"output_padding={list(extra)} is not less than strides={list(strides)}"
    return None


def conv_flops(call: OpView) -> int:
    """Count two operations for each value that an element of the result needs.

    Of a transposed convolution, for each element of the result that a value goes to.
    """
    layout, groups = call.attrs.data_layout, call.attrs.groups
    weight = zip(call.attrs.kernel_layout, call.args[1].shape)
    window = math.prod(size for letter, size in weight if letter in SPATIAL)
    data, result = call.args[0].shape, call.result.shape
    one, other = (data, result) if is_transposed(call.name) else (result, data)
    return 2 * known_product(one) * other[layout.index("C")] // groups * window


def scaled_conv_weight(call: OpView, weight: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Multiply the output channels of a convolution's weight by factors."""
    layout, conv = call.attrs.kernel_layout, conv_geometry(call)
    if conv.is_multiplier or is_transposed(call.name):
        kept = "OI"
        if conv.is_multiplier:
            # Output channel = O * (outputs per input channel) + I.
            scale = scale.reshape(conv.weight["O"], conv.weight["I"])
        else:
            # Output channel = group * (outputs per group) + O, where I tells the group.
            per_group = scale.reshape(conv.groups, conv.weight["O"])
            scale = np.repeat(per_group, conv.weight["I"] // conv.groups, axis=0).T
        if layout.index("I") < layout.index("O"):
            scale = scale.T
    else:
        kept = "O"
    dims = [size if letter in kept else 1 for letter, size in zip(layout, weight.shape)]
    return weight * scale.reshape(dims)


# The fields of the rows.
_FIELDS = dict(
    reason=conv_reason,
    channel_axis=conv_channel_axis,
    weight_axis=conv_weight_axis,
    reads_int8="constant weight",
    flops=conv_flops,
    scaled_weight=scaled_conv_weight,
)
CONV = dict(_FIELDS, padding="zero", skips_positions=True)
CONV_TRANSPOSE = dict(_FIELDS)
