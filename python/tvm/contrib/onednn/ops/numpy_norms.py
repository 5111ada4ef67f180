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
"""Numpy definitions of matmuls, reductions and normalizations."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from ..ir.numpy_types import Array, wide
from .infer import reduced_axes
from .quantize import along


def _dense(attrs, result_type, data, weight):
    return wide(data) @ wide(weight).T


def _matmul(attrs, result_type, data, weight):
    data, weight = wide(data), wide(weight)
    data = np.swapaxes(data, -1, -2) if attrs.transpose_a else data
    return data @ (np.swapaxes(weight, -1, -2) if attrs.transpose_b else weight)


def _reduce(name: str):
    function = getattr(np, name)

    def compute(attrs, result_type, data):
        axes = tuple(reduced_axes(attrs, data.ndim))
        keepdims = bool(getattr(attrs, "keepdims", False))
        return function(data, axis=axes, keepdims=keepdims)

    return compute


def _variance(attrs, result_type, data, *mean):
    axes = tuple(reduced_axes(attrs, data.ndim))
    keepdims = bool(getattr(attrs, "keepdims", False))
    center = mean[0] if mean else data.mean(axes, keepdims=True)
    if center.ndim < data.ndim:
        center = np.expand_dims(center, axes)
    count = np.prod([data.shape[axis] for axis in axes]) - bool(getattr(attrs, "unbiased", False))
    return ((data - center) ** 2).sum(axes, keepdims=keepdims) / count


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
    # The axes in front of the channels, and the groups, keep statistics of their own.
    axes = tuple(range(axis + 1, split.ndim))
    return _affine(attrs, _normalized(split, axes, attrs.epsilon).reshape(data.shape), gamma, beta)


def _rms_norm(attrs, result_type, data, *gamma):
    normal = data / np.sqrt((data**2).mean(-1, keepdims=True) + attrs.epsilon)
    return normal * gamma[0] if gamma else normal


def _l2_normalize(attrs, result_type, data):
    square = (data**2).sum(tuple(reduced_axes(attrs, data.ndim)), keepdims=True)
    return data / np.sqrt(np.maximum(square, attrs.eps))


def _lrn(attrs, result_type, data):
    axis, size = attrs.axis % data.ndim, attrs.size
    width = [(size // 2,) * 2 if i == axis else (0, 0) for i in range(data.ndim)]
    square, lines = np.pad(data**2, width), data.shape[axis]
    total = sum(np.take(square, range(i, i + lines), axis) for i in range(size))
    return data / (attrs.bias + attrs.alpha * total / size) ** attrs.beta


def _softmax(attrs, result_type, data):
    exponential = np.exp(data - data.max(attrs.axis, keepdims=True))
    return exponential / exponential.sum(attrs.axis, keepdims=True)


def _log_softmax(attrs, result_type, data):
    shifted = data - data.max(attrs.axis, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(attrs.axis, keepdims=True))


def _nan_safe_softmax(attrs, result_type, data):
    return np.nan_to_num(_along_last_axis(data), nan=0.0)


def _masked_softmax(attrs, result_type, data):
    masked = np.all(data == -np.inf, axis=-1, keepdims=True)
    return np.where(masked, 0.0, _along_last_axis(data))


def _along_last_axis(data):
    return _softmax(SimpleNamespace(axis=-1), None, data)


DEFINITIONS = {
    "nn.dense": _dense,
    "nn.matmul": _matmul,
    "nn.batch_matmul": _matmul,
    **{name: _reduce(name) for name in ("all", "any", "max", "mean", "min", "prod", "sum")},
    "variance": _variance,
    "nn.batch_norm": _batch_norm,
    "nn.group_norm": _group_norm,
    "nn.instance_norm": _instance_norm,
    "nn.l2_normalize": _l2_normalize,
    "nn.layer_norm": _layer_norm,
    "nn.lrn": _lrn,
    "dnnl.rms_norm": _rms_norm,
    "nn.softmax": _softmax,
    "nn.fast_softmax": _softmax,
    "dnnl.nan_safe_softmax": _nan_safe_softmax,
    "dnnl.masked_softmax": _masked_softmax,
    "nn.log_softmax": _log_softmax,
}
