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
"""Convolutions and transposed convolutions."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from ..ir.dim import Size
from ..ir.numpy_types import Array, wide
from ..ir.op_view import OpView, Tensor, tensor_of
from .attrs import Attr, DType, Int, Ints, Text
from .draw import Call, Draw
from .schema import RESIDUAL_INT8, OpSchema, out_dtype, root
from .tensors import ints, known_product, open_reason, tensors_reason, text_of_shape
from .windows import (
    SPATIAL,
    both_sides,
    data_layout_reason,
    for_each,
    reordered,
    spatial_axes,
    taps_of,
    window_attrs,
    window_reason,
    windows,
)


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
    weight = dict(zip(attrs.kernel_layout, tensor_of(call.args[1]).shape))
    in_channels = tensor_of(call.args[0]).shape[attrs.data_layout.index("C")]
    out_channels = tensor_of(call.result).shape[conv_channel_axis(call)]
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
    weight = tensor_of(call.args[1]).shape
    reason = open_reason("data", "channels", conv.in_channels, tensor_of(call.args[0]).shape)
    for letter, size in zip(call.attrs.kernel_layout, weight):
        reason = reason or open_reason("weight", letter, size, weight)
    reason = reason or open_reason(
        "result", "channels", conv.out_channels, tensor_of(call.result).shape
    )
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
    weight = zip(call.attrs.kernel_layout, tensor_of(call.args[1]).shape)
    window = math.prod(size for letter, size in weight if letter in SPATIAL)
    data, result = tensor_of(call.args[0]).shape, tensor_of(call.result).shape
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


def _conv_type(args, attrs, is_transposed: bool = False):
    data, weight = args
    layout, kernel_layout = attrs.data_layout, attrs.kernel_layout
    kernel = dict(zip(kernel_layout, weight.dims))
    axes = spatial_axes(layout)
    count = len(axes)
    strides, dilation = (for_each(each, count) for each in (attrs.strides, attrs.dilation))
    padding = both_sides(attrs.padding, count)
    more = for_each(attrs.output_padding, count) if is_transposed else [0] * count
    dims = list(data.dims)
    for k, axis in enumerate(axes):
        window = (kernel[layout[axis]] - 1) * dilation[k] + 1
        if not is_transposed:
            dims[axis] = windows(dims[axis], padding[k], window, strides[k])
        elif dims[axis] is not None:
            dims[axis] = (dims[axis] - 1) * strides[k] + window - sum(padding[k]) + more[k]
    groups = attrs.groups
    if is_transposed:
        dims[layout.index("C")] = kernel["O"] * groups
    else:
        dims[layout.index("C")] = _out_channels(data.dims[layout.index("C")], kernel, groups)
    return Tensor(tuple(dims), out_dtype(attrs, data))


def _out_channels(channels: Size, kernel: dict[str, Size], groups: int) -> Size:
    outputs, inputs = kernel["O"], kernel["I"]
    if groups == 1 or inputs == 1:
        return outputs
    # A depthwise weight may have the outputs of each input channel in the place of I.
    is_known = all(isinstance(size, int) for size in (channels, outputs, inputs))
    return outputs * inputs * groups // channels if is_known else None


def _operands(attrs, data: Array, weight: Array, order: str) -> tuple[Array, Array, str]:
    """Return the data as N, C, spatial, the weight in an order, and the letters of the former."""
    letters = SPATIAL[5 - data.ndim :]
    source = reordered(wide(data), attrs.data_layout, "NC" + letters)
    return source, reordered(wide(weight), attrs.kernel_layout, order + letters), letters


def _conv_result(attrs, out: Array, letters: str) -> Array:
    return reordered(out, "NC" + letters, attrs.out_layout or attrs.data_layout)


def _conv(attrs, result_type, data, weight):
    source, weight, letters = _operands(attrs, data, weight, "OI")
    count, groups = len(letters), attrs.groups
    strides, dilation, padding = window_attrs(attrs, count)
    source = np.pad(source, [(0, 0), (0, 0), *padding])
    # A depthwise weight may have the outputs of each input channel in the place of I.
    kernel = weight.shape[2:]
    weight = weight.reshape(groups, -1, source.shape[1] // groups, *kernel)
    source = source.reshape(source.shape[0], groups, -1, *source.shape[2:])
    sizes = [
        (full - (taps - 1) * gap - 1) // stride + 1
        for full, taps, gap, stride in zip(source.shape[3:], kernel, dilation, strides)
    ]
    out = np.zeros((source.shape[0], groups, weight.shape[1], np.prod(sizes)), source.dtype)
    for tap, window in taps_of(kernel, sizes, strides, dilation):
        part = source[(..., *window)].reshape(*source.shape[:3], -1)
        out += weight[(..., *tap)] @ part
    return _conv_result(attrs, out.reshape(out.shape[0], -1, *sizes), letters)


def _conv_transpose(attrs, result_type, data, weight):
    """Add each value's multiple of the kernel to the output, and cut the padding off."""
    source, weight, letters = _operands(attrs, data, weight, "IO")
    count, groups = len(letters), attrs.groups
    strides, dilation, padding = window_attrs(attrs, count)
    more = for_each(attrs.output_padding, count)
    sizes, kernel = source.shape[2:], weight.shape[2:]
    source = source.reshape(source.shape[0], groups, source.shape[1] // groups, -1)
    weight = np.swapaxes(weight.reshape(groups, -1, *weight.shape[1:]), 1, 2)
    full = [
        (size - 1) * stride + (taps - 1) * gap + 1 + extra
        for size, stride, taps, gap, extra in zip(sizes, strides, kernel, dilation, more)
    ]
    out = np.zeros((source.shape[0], groups, weight.shape[1], *full), source.dtype)
    for tap, window in taps_of(kernel, sizes, strides, dilation):
        part = weight[(..., *tap)] @ source
        out[(..., *window)] += part.reshape(*part.shape[:3], *sizes)
    cut = tuple(slice(before, size - after) for size, (before, after) in zip(full, padding))
    return _conv_result(attrs, out.reshape(out.shape[0], -1, *full)[(..., *cut)], letters)


# The fields of the rows.
def _draw_conv(n: int, transposed: bool = False) -> Callable[[Draw], Call]:
    def draw(d):
        sizes, layout = d.image(n)
        channels = sizes["C"]
        groups = d.choice([g for g in (1, 1, 2, channels) if channels % g == 0])
        kernel = {letter: d.choice((1, 2, 3)) for letter in SPATIAL[-n:]}
        attrs = dict(d.window(n), groups=groups, out_layout="", out_dtype=d.choice(("", "float32")))
        features = d.features() if groups == 1 else groups * d.choice((1, 2, 3))
        attrs.update(kernel_size=list(kernel.values()), channels=features)
        kernel.update(O=attrs["channels"], I=channels // groups)
        if transposed:
            kernel.update(I=channels, O=kernel["O"] // groups)
            most = 0 if d.edges else 1
            attrs["output_padding"] = [d.integer(0, n - most) for n in attrs["strides"]]
        elif groups == channels and d.integer(0, 1):
            # As TFLite has a depthwise weight.
            kernel.update(O=groups, I=attrs["channels"] // groups)
        kernel_layout = "".join(d.random.sample(list(kernel), len(kernel)))
        attrs.update(data_layout=layout, kernel_layout=kernel_layout)
        weight = d.values([kernel[letter] for letter in kernel_layout])
        return Call([d.values([sizes[letter] for letter in layout]), weight], attrs)

    return draw


_FIELDS = dict(
    reason=conv_reason,
    channel_axis=conv_channel_axis,
    weight_axis=conv_weight_axis,
    reads_int8="constant weight",
    flops=conv_flops,
    scaled_weight=scaled_conv_weight,
)
_CONV = dict(_FIELDS, infer=_conv_type, numpy=_conv, padding="zero", skips_positions=True)
_CONV_TRANSPOSE = dict(
    _FIELDS, infer=partial(_conv_type, is_transposed=True), numpy=_conv_transpose
)


def _transposed(n: int) -> OpSchema:
    fields = dict(attrs=transposed_conv_attributes(n), draw=_draw_conv(n, True))
    return root(f"nn.conv{n}d_transpose", **_CONV_TRANSPOSE, **fields)


ROWS = [
    root("nn.conv1d", **_CONV, attrs=conv_attributes(1), draw=_draw_conv(1)),
    root(
        "nn.conv2d",
        **_CONV,
        attrs=conv_attributes(2),
        draw=_draw_conv(2),
        patterns="bias_sum_relu bias_sum bias_relu bias bias_sigmoid relu sigmoid",
        patterns_int8=RESIDUAL_INT8,
    ),
    root("nn.conv3d", **_CONV, attrs=conv_attributes(3), draw=_draw_conv(3)),
    *map(_transposed, (1, 2, 3)),
]

CONVS = [row.name for row in ROWS if not is_transposed(row.name)]
CONVS_TRANSPOSED = [row.name for row in ROWS if is_transposed(row.name)]
