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
"""Decompositions of ops of which a model reads results after the first.

TVM's importer has the first ones only. PyTorch itself reads the others for gradients.
"""

from __future__ import annotations

import math
import operator

import torch

from . import pools
from .graphs import aten


def table(program) -> dict:
    """Return the decompositions of the ops of which a program reads more than one result."""
    return {
        op: each
        for op, each in _DECOMPOSITIONS.items()
        if any(map(_reads_more, program.graph.find_nodes(op="call_function", target=op)))
    }


def _reads_more(node) -> bool:
    return any(
        user.target is operator.getitem and user.args[1] and user.users for user in node.users
    )


def _dropout(x, p, train):
    return NotImplemented if train else (x.clone(), torch.ones_like(x, dtype=torch.bool))


def _layer_norm(x, normalized_shape, weight, bias, eps):
    axes = list(range(x.dim() - len(normalized_shape), x.dim()))
    return _normalized(x, axes, eps, weight, bias)


def _group_norm(x, weight, bias, batch, channels, size, groups, eps):
    grouped = x.reshape(batch, groups, -1)
    result, mean, scale = _normalized(grouped, [2], eps)
    result = _scaled(result.reshape(x.shape), weight, bias)
    return result, mean.squeeze(2), scale.squeeze(2)


def _batch_norm(x, weight, bias, training, momentum, eps):
    axes = [axis for axis in range(x.dim()) if axis != 1]
    result, mean, scale = _normalized(x, axes, eps)
    return _scaled(result, weight, bias), mean.reshape(-1), scale.reshape(-1)


def _inference_batch_norm(x, weight, bias, mean, variance, momentum, eps):
    shape = [-1, *[1] * (x.dim() - 2)]
    scale = (variance + eps).rsqrt().reshape(shape)
    result = _scaled((x - mean.reshape(shape)) * scale, weight, bias)
    return result, x.new_zeros([0]), x.new_zeros([0])


def _normalized(x, axes, eps, weight=None, bias=None):
    """Return a tensor with mean 0 and variance 1, its mean, and what it was multiplied by."""
    mean = x.mean(axes, keepdim=True)
    scale = (x.var(axes, correction=0, keepdim=True) + eps).rsqrt()
    result = (x - mean) * scale
    result = result if weight is None else result * weight
    return result if bias is None else result + bias, mean, scale


def _scaled(x, weight, bias):
    """Multiply each channel and add to it."""
    shape = [-1, *[1] * (x.dim() - 2)]
    x = x if weight is None else x * weight.reshape(shape)
    return x if bias is None else x + bias.reshape(shape)


def _max_pool(rank):
    """Return the decomposition of a pool into the largest of the elements at constant indices."""

    def decompose(x, kernel, stride=(), padding=0, dilation=1, ceil_mode=False):
        lists = (pools.listed(each, rank) for each in (kernel, stride or kernel, padding, dilation))
        sizes = x.shape[-rank:]
        axes = [_positions(*each, ceil_mode) for each in zip(sizes, *lists)]
        flat = torch.zeros([1, 1], dtype=torch.int64)
        for size, each in zip(sizes, axes):
            # Positions and windows are one axis each; those in the padding stay -1.
            step = each.reshape(1, each.shape[0], 1, -1)
            flat = flat.reshape(flat.shape[0], 1, -1, 1)
            merged = torch.where((flat < 0) | (step < 0), -1, flat * size + step)
            flat = merged.reshape(flat.shape[0] * each.shape[0], -1)
        lead, outputs = x.shape[:-rank], [len(each) for each in axes]
        values = x.reshape(*lead, math.prod(sizes))
        windows = aten.index_select.default(values, -1, flat.clamp(min=0).reshape(-1))
        windows = windows.reshape(*lead, *flat.shape)
        windows = torch.where(flat < 0, -math.inf, windows)
        largest = windows.argmax(-1, keepdim=True)
        result = aten.gather.default(windows, -1, largest)
        indices = aten.gather.default(flat.expand(windows.shape), -1, largest)
        return tuple(each.reshape(*lead, *outputs) for each in (result, indices))

    return decompose


def _positions(size, kernel, stride, padding, dilation, ceil_mode) -> torch.Tensor:
    """Return the elements of each window of a pool along an axis, -1 where there is none."""
    count = pools.window_count(size, dilation * (kernel - 1) + 1, stride, padding, ceil_mode)
    begins = torch.arange(count) * stride - padding
    positions = begins[:, None] + torch.arange(kernel) * dilation
    return torch.where((positions < 0) | (positions >= size), -1, positions)


_DECOMPOSITIONS = {
    aten.native_dropout.default: _dropout,
    aten.native_layer_norm.default: _layer_norm,
    aten.native_group_norm.default: _group_norm,
    aten._native_batch_norm_legit.no_stats: _batch_norm,
    aten._native_batch_norm_legit_no_training.default: _inference_batch_norm,
    aten.max_pool2d_with_indices.default: _max_pool(2),
    aten.max_pool3d_with_indices.default: _max_pool(3),
}
