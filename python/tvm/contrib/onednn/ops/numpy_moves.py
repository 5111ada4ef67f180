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
"""Numpy definitions of ops that move elements, and of those that make constant tensors."""

from __future__ import annotations

import math
import re

import numpy as np

from ..ir.numpy_types import Array, UndefinedResult
from .infer import sliced


def _reshape(attrs, result_type, data):
    return data.reshape(result_type.shape)


def _transpose(attrs, result_type, data):
    return np.transpose(data, [*attrs.axes] if attrs.axes else None)


def _concatenate(attrs, result_type, fields):
    return np.concatenate(fields, attrs.axis)


def _stack(attrs, result_type, fields):
    return np.stack(fields, attrs.axis)


def _split(attrs, result_type, data):
    given = attrs.indices_or_sections
    return np.split(data, given if isinstance(given, int) else list(given), attrs.axis)


def _strided_slice(attrs, result_type, data):
    index = [slice(None)] * data.ndim
    for axis, part in sliced(attrs, data.ndim):
        index[axis] = part
    return data[tuple(index)]


def _pad(attrs, result_type, data, value):
    if attrs.pad_mode != "constant":
        return np.pad(data, attrs.pad_width, attrs.pad_mode)
    return np.pad(data, attrs.pad_width, constant_values=value.reshape(()).astype(data.dtype))


def _layout_transform(attrs, result_type, data):
    """Split the axes of blocks, and join them again."""
    source, target = (
        re.findall(r"(\d*)([A-Za-z])", layout) for layout in (attrs.src_layout, attrs.dst_layout)
    )
    axes = [letter for _, letter in source if letter.isupper()]
    # Each axis whole, in the order of the source: with the block, which is the inner part, behind.
    letters = [letter for _, letter in source]
    order = [letters.index(c) for axis in axes for c in (axis, axis.lower()) if c in letters]
    sizes = [
        math.prod(size for size, letter in zip(data.shape, letters) if letter.upper() == axis)
        for axis in axes
    ]
    data = data.transpose(order).reshape(sizes)
    blocks = {letter.upper(): int(block) for block, letter in target if block}
    parts, names = [], []
    for axis, size in zip(axes, sizes):
        block = blocks.get(axis)
        parts += [size] if block is None else [size // block, block]
        names += [axis] if block is None else [axis, axis.lower()]
    return data.reshape(parts).transpose([names.index(letter) for _, letter in target])


def _take(attrs, result_type, data, indices):
    if attrs.batch_dims:
        raise UndefinedResult(f"batch_dims={attrs.batch_dims}")
    mode = "raise" if attrs.mode == "fast" else attrs.mode
    return np.take(data, indices, attrs.axis, mode=mode)


def _filled(value: int | None = None):
    """Define an op that fills a tensor: with a number, or with its last operand."""

    def compute(attrs, result_type, *args) -> Array:
        return np.broadcast_to(args[-1] if value is None else value, result_type.shape)

    return compute


DEFINITIONS = {
    **dict.fromkeys(
        (
            "reshape",
            "contrib_reverse_reshape",
            "expand_dims",
            "squeeze",
            "nn.batch_flatten",
        ),
        _reshape,
    ),
    "transpose": _transpose,
    "layout_transform": _layout_transform,
    "concatenate": _concatenate,
    "stack": _stack,
    "split": _split,
    "strided_slice": _strided_slice,
    "nn.pad": _pad,
    "take": _take,
    "broadcast_to": _filled(),
    "full": _filled(),
    "full_like": _filled(),
    "zeros": _filled(0),
    "zeros_like": _filled(0),
    "ones": _filled(1),
    "ones_like": _filled(1),
}
