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
"""Relay ops in numpy, in the type of their operands: the reference of tests and random graphs."""

import itertools

import ml_dtypes
import numpy as np
from scipy import special

from dnnl_tests import reference


def numpy_type(dtype):
    """Return numpy's type of a name; numpy itself has no bfloat16."""
    return np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def _attributes(call):
    """Return the attributes of a call as plain numbers, texts and lists."""
    attributes = {}
    for key in call.attrs.keys():
        value = call.attrs[key]
        if hasattr(value, "__len__") and not isinstance(value, str):
            value = [item.value if hasattr(item, "value") else item for item in value]
        attributes[key] = value.value if hasattr(value, "value") else value
    return attributes


def _shape(call):
    return tuple(int(dim) for dim in call.checked_type.shape)


def _conv(call, data, weight):
    attrs = {key: value for key, value in _attributes(call).items() if value is not None}
    transposed = call.op.name.endswith("_transpose")
    function = reference.conv_transpose if transposed else reference.conv
    return function(data, weight, attrs)


def _pool(call, data):
    kind = "max" if "max" in call.op.name else "avg"
    result = reference.pool(data, kind, _attributes(call))
    # The maximum of nothing is the lowest number of the type.
    lowest = ml_dtypes.finfo(numpy_type(call.checked_type.dtype)).min
    return np.maximum(result, float(lowest)) if kind == "max" else result


def _adaptive(call, data):
    out = _shape(call)
    first = 2 if call.attrs.layout[1] == "C" else 1
    for axis in range(first, first + data.ndim - 2):
        size, count = data.shape[axis], out[axis]
        parts = []
        for i in range(count):
            window = range(i * size // count, -(-(i + 1) * size // count))
            part = np.take(data, list(window), axis)
            reduce = part.max if "max" in call.op.name else part.mean
            parts.append(reduce(axis=axis, keepdims=True))
        data = np.concatenate(parts, axis)
    return data


def _along(values, data, axis):
    """Shape a vector so that it lies along an axis of the data."""
    shape = [1] * data.ndim
    shape[axis] = -1
    return values.reshape(shape)


def _batch_norm(call, data, *stats):
    result = reference.batch_norm(data, *stats, _attributes(call))
    return [result, stats[2], stats[3]]


def _normalize(data, axes, epsilon):
    mean = data.mean(axes, keepdims=True)
    return (data - mean) / np.sqrt(data.var(axes, keepdims=True) + epsilon)


def _affine(data, gamma, beta, attrs):
    axis = attrs["axis"]
    data = data * _along(gamma, data, axis) if attrs["scale"] else data
    return data + _along(beta, data, axis) if attrs["center"] else data


def _layer_norm(call, data, gamma, beta):
    attrs = _attributes(call)
    return _affine(_normalize(data, attrs["axis"], attrs["epsilon"]), gamma, beta, attrs)


def _instance_norm(call, data, gamma, beta):
    attrs = _attributes(call)
    axes = tuple(axis for axis in range(1, data.ndim) if axis != attrs["axis"] % data.ndim)
    return _affine(_normalize(data, axes, attrs["epsilon"]), gamma, beta, attrs)


def _group_norm(call, data, gamma, beta):
    attrs = _attributes(call)
    axis, groups = attrs["axis"] % data.ndim, attrs["num_groups"]
    split = data.reshape(*data.shape[:axis], groups, -1, *data.shape[axis + 1 :])
    # The axes in front of the channels, and the groups, keep statistics of their own.
    axes = tuple(range(axis + 1, split.ndim))
    return _affine(
        _normalize(split, axes, attrs["epsilon"]).reshape(data.shape), gamma, beta, attrs
    )


def _l2_normalize(call, data):
    attrs = _attributes(call)
    square = (data**2).sum(tuple(attrs["axis"]), keepdims=True)
    return data / np.sqrt(np.maximum(square, attrs["eps"]))


def _lrn(call, data):
    attrs = _attributes(call)
    axis, half = attrs["axis"], attrs["size"] // 2
    width = [(half, half) if i == axis else (0, 0) for i in range(data.ndim)]
    square = np.pad(data**2, width)
    total = sum(np.take(square, range(i, i + data.shape[axis]), axis) for i in range(attrs["size"]))
    return data / (attrs["bias"] + attrs["alpha"] * total / attrs["size"]) ** attrs["beta"]


def _softmax(call, data):
    axis = _attributes(call)["axis"]
    shifted = data - data.max(axis, keepdims=True)
    log = shifted - np.log(np.exp(shifted).sum(axis, keepdims=True))
    return log if "log" in call.op.name else np.exp(log)


def _reduce(call, data):
    attrs = _attributes(call)
    axes = [axis % data.ndim for axis in attrs["axis"] or []] or list(range(data.ndim))
    if attrs["exclude"]:
        axes = [axis for axis in range(data.ndim) if axis not in axes]
    return getattr(np, call.op.name)(data, axis=tuple(axes), keepdims=bool(attrs["keepdims"]))


def _dense(call, data, weight):
    return data @ weight.T


def _matmul(call, data, weight):
    attrs = _attributes(call)
    data = np.swapaxes(data, -1, -2) if attrs["transpose_a"] else data
    return data @ (np.swapaxes(weight, -1, -2) if attrs["transpose_b"] else weight)


def _bias_add(call, data, bias):
    return data + _along(bias, data, _attributes(call)["axis"])


def _prelu(call, data, alpha):
    return np.where(data > 0, data, data * _along(alpha, data, _attributes(call)["axis"]))


def _clip(call, data):
    attrs = _attributes(call)
    return np.clip(data, attrs["a_min"], attrs["a_max"])


def _leaky_relu(call, data):
    return np.where(data > 0, data, data * _attributes(call)["alpha"])


def _reshape(call, data):
    return data.reshape(_shape(call))


def _transpose(call, data):
    return np.transpose(data, _attributes(call)["axes"])


def _layout_transform(call, data):
    attrs = _attributes(call)
    return np.transpose(data, [attrs["src_layout"].index(c) for c in attrs["dst_layout"]])


def _split(call, data):
    attrs = _attributes(call)
    parts = attrs["indices_or_sections"]
    return np.split(data, parts, attrs["axis"])


def _strided_slice(call, data):
    attrs, index = _attributes(call), [slice(None)] * data.ndim
    bounds = zip(attrs["begin"], attrs["end"], attrs["strides"])
    for axis, bound in zip(attrs["axes"] or range(data.ndim), bounds):
        index[axis] = slice(*bound)
    return data[tuple(index)]


def _pad(call, data, value):
    width = [[int(n) for n in pair] for pair in call.attrs.pad_width]
    mode = str(call.attrs.pad_mode)
    others = {"constant_values": float(value)} if mode == "constant" else {}
    return np.pad(data, width, mode, **others)


def _resize(call, data):
    return _resample(call, data, _attributes(call)["coordinate_transformation_mode"])


def _upsampling(call, data):
    attrs = _attributes(call)
    plain = "align_corners" if attrs.get("align_corners") else "asymmetric"
    return _resample(call, data, attrs.get("coordinate_transformation_mode", plain))


def _resample(call, data, mode):
    attrs, out = _attributes(call), _shape(call)
    first = 2 if attrs["layout"][1] == "C" else 1
    for axis in range(first, first + data.ndim - 2):
        old, new = data.shape[axis], out[axis]
        place = np.arange(new, dtype="float64")
        if mode == "align_corners":
            place *= (old - 1) / (new - 1) if new > 1 else 0
        elif mode == "half_pixel":
            place = (place + 0.5) * old / new - 0.5
        else:
            place *= old / new
        if attrs["method"] == "nearest_neighbor":
            left, share = np.floor(place + 1e-5), 0.0
        else:
            left = np.floor(place)
            share = _along(place - left, data, axis)
        low, high = (np.clip(left + i, 0, old - 1).astype(int) for i in (0, 1))
        data = np.take(data, low, axis) * (1 - share) + np.take(data, high, axis) * share
    return data


def _plain(function):
    return lambda call, *args: function(*args)


# By op; a function gets the call, for its attributes, and the values of its arguments.
OPS = {
    **{f"nn.conv{n}d{t}": _conv for n, t in itertools.product((1, 2, 3), ("", "_transpose"))},
    **{f"nn.{kind}_pool{n}d": _pool for kind in ("max", "avg") for n in (1, 2, 3)},
    **{f"nn.global_{kind}_pool2d": _adaptive for kind in ("max", "avg")},
    **{f"nn.adaptive_{kind}_pool{n}d": _adaptive for kind in ("max", "avg") for n in (1, 2, 3)},
    **{name: _reduce for name in ("max", "mean", "min", "prod", "sum")},
    **{f"nn.{name}": _softmax for name in ("softmax", "fast_softmax", "log_softmax")},
    "nn.dense": _dense,
    "nn.matmul": _matmul,
    "nn.batch_matmul": _matmul,
    "nn.batch_norm": _batch_norm,
    "nn.layer_norm": _layer_norm,
    "nn.instance_norm": _instance_norm,
    "nn.group_norm": _group_norm,
    "nn.l2_normalize": _l2_normalize,
    "nn.lrn": _lrn,
    "nn.bias_add": _bias_add,
    "nn.prelu": _prelu,
    "nn.leaky_relu": _leaky_relu,
    "clip": _clip,
    "cast": lambda call, data: data,
    "nn.relu": _plain(lambda x: np.maximum(x, 0)),
    "rsqrt": _plain(lambda x: 1 / np.sqrt(x)),
    "sigmoid": _plain(special.expit),
    "erf": _plain(special.erf),
    **{name: _plain(getattr(np, name)) for name in ("abs", "negative", "exp", "log", "sqrt")},
    **{name: _plain(getattr(np, name)) for name in ("tanh", "sin", "power", "multiply", "add")},
    **{name: _plain(getattr(np, name)) for name in ("subtract", "divide", "maximum", "minimum")},
    **{name: _plain(getattr(np, name)) for name in ("equal", "not_equal", "less", "greater")},
    **{name: _plain(getattr(np, name)) for name in ("less_equal", "greater_equal")},
    **{name: _reshape for name in ("reshape", "expand_dims", "squeeze", "nn.batch_flatten")},
    "transpose": _transpose,
    "layout_transform": _layout_transform,
    "broadcast_to": lambda call, data: np.broadcast_to(data, _shape(call)),
    "concatenate": lambda call, parts: np.concatenate(parts, _attributes(call)["axis"]),
    "stack": lambda call, parts: np.stack(parts, _attributes(call)["axis"]),
    "contrib_reverse_reshape": _reshape,
    "split": _split,
    "strided_slice": _strided_slice,
    "nn.pad": _pad,
    **{f"image.resize{n}d": _resize for n in (1, 2, 3)},
    **{f"nn.upsampling{n}": _upsampling for n in ("", "3d")},
}
