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
"""Reductions of axes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..ir.op_view import OpView, Tensor, tensor_of
from .attrs import Bool, Ints
from .draw import Call, Draw
from .schema import OpSchema, light
from .tensors import data_elements, tensors_reason, text_of_shape

REDUCE_ATTRS = Ints("axis", None), Bool("keepdims", False), Bool("exclude", False)


def axes_reason(axes, exclude: bool, data: tuple[int | None, ...]) -> str | None:
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
    return axes_reason(call.attrs.axis, call.attrs.exclude, tensor_of(call.args[0]).shape)


def reduced_axes(attrs, rank: int) -> list[int]:
    """Return the axes that an op reduces, counted from the front: no axis means all of them."""
    axes = {axis % rank for axis in attrs.axis or ()} or set(range(rank))
    if attrs.axis and attrs.exclude:
        axes = set(range(rank)) - axes
    return sorted(axes)


def _reduce_type(args, attrs):
    dims = args[0].dims
    axes = reduced_axes(attrs, len(dims))
    kept = [(axis, 1 if axis in axes else dim) for axis, dim in enumerate(dims)]
    if not attrs.keepdims:
        kept = [(axis, dim) for axis, dim in kept if axis not in axes]
    return Tensor(tuple(dim for _, dim in kept), args[0].dtype)


def reduce_by(function: Callable):
    """Define a reduction by numpy's function."""

    def compute(attrs, result_type, data):
        axes = tuple(reduced_axes(attrs, data.ndim))
        return function(data, axis=axes, keepdims=attrs.keepdims)

    return compute


def _draw_reduce(d: Draw) -> Call:
    shape = d.shape()
    axes = d.choice((None, d.axes(shape, 1), *d.rare(d.axis(shape), [])))
    exclude = bool(axes and axes != -1 and isinstance(axes, list) and len(axes) < len(shape))
    attrs = {"axis": axes, "keepdims": d.chance(0.5), "exclude": exclude and d.chance(0.3)}
    return Call([d.values(shape)], attrs)


def _row(name: str, **fields) -> OpSchema:
    fields.update(attrs=REDUCE_ATTRS, infer=_reduce_type, draw=_draw_reduce)
    fields.update(numpy=reduce_by(getattr(np, name)))
    return light(name, reduce_reason, flops=data_elements, **fields)


ROWS = [_row("max"), _row("mean"), _row("min"), _row("prod", grows=True), _row("sum", grows=True)]
