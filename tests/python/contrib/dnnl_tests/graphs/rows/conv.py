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

from tvm import relay

from ..graph import Tensor
from ..row import Row, op

LETTERS = {1: "W", 2: "HW", 3: "DHW"}
# TVM has no kernel for other layouts, and so there would be nothing to compare with.
LAYOUTS = {"NC*": "OI*", "N*C": "*IO"}


def _window(draw, sizes, transposed=False):
    """Draw kernel, strides, dilation and padding for the sizes of the spatial axes."""
    kernel, strides, dilation, before, after = [], [], [], [], []
    same = draw.chance(0.5)
    for size in sizes:
        taps = draw.choice([1, 1, 2, 3, 3, 3, 5])
        gap = draw.choice([1, 1, 1, 2]) if not transposed else 1
        reach = (taps - 1) * gap + 1
        pads = [reach // 2] * 2 if same else [draw.integer(0, reach // 2) for _ in "ab"]
        if not transposed and size + sum(pads) < reach:
            taps = gap = 1
        kernel.append(taps)
        strides.append(draw.choice([1, 1, 1, 2, 3]))
        dilation.append(gap)
        before.append(pads[0])
        after.append(pads[1])
    return dict(
        kernel_size=tuple(kernel),
        strides=tuple(strides),
        dilation=tuple(dilation),
        padding=(*before, *after),
    )


def _groups(draw, channels):
    """Draw the groups and the output channels."""
    kind = draw.choice(["one", "one", "one", "depthwise", "some"])
    if kind == "one":
        return dict(groups=1, channels=draw.choice([1, 3, 8, 10, 16, 16, 20, 32]))
    divisors = [n for n in range(1, channels + 1) if channels % n == 0]
    groups = channels if kind == "depthwise" else draw.choice(divisors)
    return dict(groups=groups, channels=groups * draw.choice([1, 1, 2, 3]))


def _draw_conv(spatial):
    def draw_conv(draw):
        x = draw.data([spatial + 2])
        layout = draw.choice(["NC*", "NC*", "N*C"])
        shape = draw.tensor(x).shape
        channels = shape[1] if layout == "NC*" else shape[-1]
        sizes = shape[2:] if layout == "NC*" else shape[1:-1]
        attrs = {**_window(draw, sizes), **_groups(draw, channels), "layout": layout}
        if spatial == 3 or layout != "NC*":
            attrs["groups"] = 1
        return [x], attrs

    return draw_conv


def _conv(spatial):
    def build(b, x, layout, groups, channels, kernel_size, **attrs):
        letters = LETTERS[spatial]
        in_channels = x.shape[1] if layout == "NC*" else x.shape[-1]
        if in_channels % groups or channels % groups:
            raise ValueError("the groups do not divide the channels")
        sizes = dict(zip(letters, kernel_size), O=channels, I=in_channels // groups)
        kernel_layout = LAYOUTS[layout].replace("*", letters)
        fan_in = sizes["I"]
        for taps in kernel_size:
            fan_in *= taps
        weight = b.param([sizes[letter] for letter in kernel_layout], fan_in=fan_in)
        return op(f"nn.conv{spatial}d")(
            x.expr,
            weight,
            channels=channels,
            kernel_size=kernel_size,
            groups=groups,
            data_layout=layout.replace("*", letters),
            kernel_layout=kernel_layout,
            **attrs,
        )

    return build


def _draw_transpose(spatial):
    def draw_transpose(draw):
        x = draw.data([spatial + 2])
        shape = draw.tensor(x).shape
        attrs = {**_window(draw, shape[2:], transposed=True), **_groups(draw, shape[1])}
        if spatial != 2:
            attrs["groups"] = 1
        extra = [draw.integer(0, stride - 1) for stride in attrs["strides"]]
        attrs["output_padding"] = draw.choice([(0,) * spatial, tuple(extra)])
        return [x], attrs

    return draw_transpose


def _transpose(spatial):
    def build(b, x, groups, channels, kernel_size, **attrs):
        letters = LETTERS[spatial]
        if x.shape[1] % groups or channels % groups:
            raise ValueError("the groups do not divide the channels")
        shape = [x.shape[1], channels // groups, *kernel_size]
        weight = b.param(shape, fan_in=x.shape[1])
        return op(f"nn.conv{spatial}d_transpose")(
            x.expr,
            weight,
            channels=channels,
            kernel_size=kernel_size,
            groups=groups,
            data_layout=f"NC{letters}",
            kernel_layout=f"IO{letters}",
            **attrs,
        )

    return build


def _chain(name):
    """Make the row of a composite, whose name tells what a conv2d has after it."""
    parts = name.split("_")[1:]

    def build(b, x, **attrs):
        expr = _conv(2)(b, x, **attrs)
        if "bias" in parts:
            bias = b.param([attrs["channels"]])
            expr = relay.nn.bias_add(expr, bias, 1 if attrs["layout"] == "NC*" else 3)
        if "sum" in parts:
            expr = expr + b.param(Tensor.of(expr).shape)
        if "sigmoid" in parts:
            return relay.sigmoid(expr)
        return relay.nn.relu(expr) if "relu" in parts else expr

    return Row(name, _draw_conv(2), build)


ROWS = (
    *(Row(f"nn.conv{n}d", _draw_conv(n), _conv(n), 8 if n == 2 else 4) for n in (1, 2, 3)),
    *(Row(f"nn.conv{n}d_transpose", _draw_transpose(n), _transpose(n)) for n in (1, 2, 3)),
    _chain("dnnl.conv2d_bias_sum_relu"),
    _chain("dnnl.conv2d_bias_sum"),
    _chain("dnnl.conv2d_bias_relu")._replace(weight=4),
    _chain("dnnl.conv2d_bias"),
    _chain("dnnl.conv2d_bias_sigmoid"),
    _chain("dnnl.conv2d_relu"),
    _chain("dnnl.conv2d_sigmoid"),
)
