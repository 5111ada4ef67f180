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
"""Numpy references for what the DNNL backend computes."""

import numpy as np

# f32 sums of a few hundred products of order one: the error grows with the square root of the
# number of terms, 2**-24 * sqrt(1000) * 10, relative to the largest output.
RTOL = 2e-5


def rand(*shape, seed=0):
    """Return values in [-1, 1] that are the same in every run."""
    return np.random.default_rng((seed, *shape)).uniform(-1, 1, shape).astype("float32")


def _transpose(array, layout, wanted):
    return np.transpose(array, [layout.index(letter) for letter in wanted])


def _letters(rank):
    return "DHW"[5 - rank :]


def _per_axis(value, spatial):
    return [value] * spatial if isinstance(value, int) else list(value) * (spatial // len(value))


def _padding(attrs, spatial):
    """Return what is padded before and after each spatial axis."""
    padding = attrs.get("padding", 0)
    padding = [padding] if isinstance(padding, int) else list(padding)
    padding = padding * (2 * spatial // len(padding))
    return padding[:spatial], padding[spatial:]


def _conv_operands(data, weight, attrs, weight_order):
    """Return data in N, C, spatial order and the weight in `weight_order` as float64."""
    letters = _letters(data.ndim)
    src = _transpose(
        data.astype("float64"), attrs.get("data_layout", "NC" + letters), "NC" + letters
    )
    layout = attrs.get("kernel_layout", weight_order + letters)
    return src, _transpose(weight.astype("float64"), layout, weight_order + letters)


def _conv_result(out, data, attrs):
    letters = _letters(data.ndim)
    layout = attrs.get("out_layout") or attrs.get("data_layout", "NC" + letters)
    return _transpose(out, "NC" + letters, layout).astype(data.dtype)


def conv(data, weight, attrs):
    """Compute Relay's nn.conv1d, conv2d or conv3d in float64.

    Parameters
    ----------
    data, weight : numpy.ndarray
        In the layouts that `attrs` names.
    attrs : dict
        The attributes as passed to Relay; absent ones have Relay's defaults.

    Returns
    -------
    numpy.ndarray
        Of the type of `data`, in the layout of `data` unless `attrs` has an `out_layout`.
    """
    src, wei = _conv_operands(data, weight, attrs, "OI")
    spatial, groups = src.ndim - 2, attrs.get("groups", 1)
    channels = attrs.get("channels", wei.shape[0])
    strides, dilation = (_per_axis(attrs.get(k, 1), spatial) for k in ("strides", "dilation"))
    src = np.pad(src, [(0, 0), (0, 0), *zip(*_padding(attrs, spatial))])
    # Weights as (G, O/G, I/G, ...); TFLite's depthwise layout has the multiplier in the place of I.
    wei = wei.reshape(groups, channels // groups, src.shape[1] // groups, *wei.shape[2:])
    src = src.reshape(src.shape[0], groups, -1, *src.shape[2:])
    kernel = wei.shape[3:]
    size = [
        (full - (taps - 1) * gap - 1) // stride + 1
        for full, taps, gap, stride in zip(src.shape[3:], kernel, dilation, strides)
    ]
    out = np.zeros((src.shape[0], groups, wei.shape[1], *size))
    for tap in np.ndindex(*kernel):
        window = tuple(
            slice(t * gap, t * gap + (n - 1) * stride + 1, stride)
            for t, gap, n, stride in zip(tap, dilation, size, strides)
        )
        out += np.einsum("ngi...,goi->ngo...", src[(..., *window)], wei[(..., *tap)])
    return _conv_result(out.reshape(src.shape[0], channels, *size), data, attrs)


def conv2d(data, weight, attrs):
    """Compute Relay's nn.conv2d in float64, see `conv`."""
    return conv(data, weight, attrs)


def conv_transpose(data, weight, attrs):
    """Compute Relay's nn.conv1d_transpose, conv2d_transpose or conv3d_transpose in float64.

    Every input value adds its multiple of the kernel to the output; the padding is cut off.
    """
    src, wei = _conv_operands(data, weight, attrs, "IO")
    spatial, groups = src.ndim - 2, attrs.get("groups", 1)
    strides, dilation = (_per_axis(attrs.get(k, 1), spatial) for k in ("strides", "dilation"))
    extra = _per_axis(attrs.get("output_padding", 0), spatial)
    src = src.reshape(src.shape[0], groups, -1, *src.shape[2:])
    wei = wei.reshape(groups, -1, *wei.shape[1:])
    full = [
        (n - 1) * stride + (taps - 1) * gap + 1 + more
        for n, stride, taps, gap, more in zip(
            src.shape[3:], strides, wei.shape[3:], dilation, extra
        )
    ]
    out = np.zeros((src.shape[0], groups, wei.shape[2], *full))
    for tap in np.ndindex(*wei.shape[3:]):
        window = tuple(
            slice(t * gap, t * gap + (n - 1) * stride + 1, stride)
            for t, gap, n, stride in zip(tap, dilation, src.shape[3:], strides)
        )
        out[(..., *window)] += np.einsum("ngi...,gio->ngo...", src, wei[(..., *tap)])
    cut = tuple(slice(a, n - b) for n, a, b in zip(full, *_padding(attrs, spatial)))
    out = out.reshape(out.shape[0], -1, *full)[(..., *cut)]
    return _conv_result(out, data, attrs)


def pool(data, kind, attrs):
    """Compute Relay's nn.max_pool or nn.avg_pool over one to three dimensions in float64.

    Parameters
    ----------
    data : numpy.ndarray
        In the layout that `attrs` names.
    kind : str
        "max" or "avg".
    attrs : dict
        The attributes as passed to Relay, with tuples for `pool_size` and `strides`.
    """
    letters = _letters(data.ndim)
    spatial, layout = data.ndim - 2, attrs.get("layout", "NC" + letters)
    src = _transpose(data.astype("float64"), layout, "NC" + letters)
    kernel, strides = attrs["pool_size"], attrs["strides"]
    begin, end = _padding(attrs, spatial)
    size = []
    for full, k, stride, a, b in zip(src.shape[2:], kernel, strides, begin, end):
        free = full + a + b - k
        size.append((-(-free // stride) if attrs.get("ceil_mode") else free // stride) + 1)
    out = np.empty((*src.shape[:2], *size))
    for place in np.ndindex(*size):
        starts = [i * stride - a for i, stride, a in zip(place, strides, begin)]
        window = src[(..., *[slice(max(s, 0), s + k) for s, k in zip(starts, kernel)])]
        axes = tuple(range(2, 2 + spatial))
        if kind == "max":
            # Of nothing, when ceil_mode moves a window behind the padding, it is the lowest number.
            out[(..., *place)] = window.max(axes, initial=-np.inf)
        elif attrs.get("count_include_pad"):
            # A window that ceil_mode moves beyond the padding counts its part inside.
            limits = [full + b for full, b in zip(src.shape[2:], end)]
            counts = [min(s + k, limit) - s for s, k, limit in zip(starts, kernel, limits)]
            out[(..., *place)] = window.sum(axes) / np.prod(counts)
        else:
            out[(..., *place)] = window.mean(axes)
    return _transpose(out, "NC" + letters, layout).astype(data.dtype)


def dense(data, weight):
    """Compute Relay's nn.dense in float64: (..., I) by (O, I) to (..., O)."""
    return (data.astype("float64") @ weight.astype("float64").T).astype(data.dtype)


def batch_norm(data, gamma, beta, mean, variance, attrs):
    """Compute Relay's nn.batch_norm at inference in float64."""
    shape = [1] * data.ndim
    shape[attrs.get("axis", 1)] = -1
    gamma, beta, mean, variance = (
        x.astype("float64").reshape(shape) for x in (gamma, beta, mean, variance)
    )
    out = (data - mean) / np.sqrt(variance + attrs.get("epsilon", 1e-5))
    out = out * (gamma if attrs.get("scale", True) else 1)
    return (out + (beta if attrs.get("center", True) else 0)).astype(data.dtype)
