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
"""Ops that put elements together in another way: concatenation, pads, broadcasts, gathers."""

from __future__ import annotations

import numpy as np

from .. import cpu
from ..ir.dim import Dim, Size, is_same
from ..ir.numpy_types import Array, UndefinedResult
from ..ir.op_view import OpView, Tensor, tensor_of
from .attrs import Int, Ints, Pairs, Text
from .draw import SIZES, Call, Draw
from .schema import copy
from .tensors import EIGHT_BITS, MOVED, VIEWED, ints, known_product, tensor_reason, text_of_shape

# The lines that a pad copies; the runtime refuses more.
MAX_LINES = 64


def concat_reason(call: OpView) -> str | None:
    """Accept tensors that are given one by one."""
    if not isinstance(call.args[0], tuple):
        return "the tuple of tensors is the result of another call"
    axis = call.attrs.axis
    # Along its own axis a stack has as many as there are tensors.
    is_open = tensor_of(call.result).shape[axis] is None
    filled = []
    for i, field in enumerate(call.args[0]):
        reason = tensor_reason(f"tensor {i}", field, 1, VIEWED)
        if reason:
            return reason
        if is_open:
            filled.append(field.shape[axis] is not None or call.is_filled(i, axis))
        if False in filled:
            return f"tensor {i} may be empty: its size along axis {axis} is open"
    if is_open and True not in filled:
        # As what a loop collects is, before its first turn.
        return f"each tensor may be empty: their sizes along axis {axis} are open"
    return tensor_reason("result", call.result, 1, VIEWED)


def pad_reason(call: OpView) -> str | None:
    """Accept frames of one constant, of the type of the data, or float32 as a plain number is.

    And the data's own lines, each of which a primitive copies, while they are few.
    """
    mode, widths = call.attrs.pad_mode, [ints(width) for width in call.attrs.pad_width]
    if mode not in ("constant", "edge", "reflect"):
        return f"pad_mode={mode} is not supported"
    if None in widths or any(min(width) < 0 for width in widths):
        return "pad_width is not constant, or is negative"
    lines = sum(map(sum, widths))
    if mode != "constant" and lines > MAX_LINES:
        return f"pad_mode={mode} copies {lines} lines one by one; more than {MAX_LINES} are slow"
    dims = tensor_of(call.args[0]).shape
    if mode == "reflect" and any(dim and max(width) >= dim for dim, width in zip(dims, widths)):
        return "pad_width is too large for the reflected data"
    data, value = call.args
    reason = tensor_reason("data", data, 1, MOVED) or tensor_reason("result", call.result, 1, MOVED)
    if reason:
        return reason
    if not value.is_constant or known_product(value.shape) != 1:
        return "pad_value is not a constant with one element"
    if mode == "constant" and not _becomes(value, data.dtype):
        return f"pad_value of type {value.dtype} is not a value of {data.dtype}"
    return None


def _becomes(value: Tensor, dtype: str) -> bool:
    """Whether what pads has the type of the data, or is a plain number that has a value there."""
    if value.dtype == dtype or (value.dtype == "float32" and dtype in cpu.REAL):
        return True
    if value.dtype != "int32":
        return False
    kind = np.iinfo(dtype) if dtype in EIGHT_BITS else np.finfo("float16")
    return bool(kind.min <= float(value.value.reshape(())) <= kind.max)


def broadcast_to_reason(call: OpView) -> str | None:
    """Accept sizes that are known, or the data's own."""
    data, result = call.args[0], call.result
    reason = tensor_reason("data", data, dtypes=VIEWED)
    reason = reason or tensor_reason("result", result, dtypes=VIEWED)
    if reason:
        return reason
    result = tensor_of(result)
    missing = len(result.dims) - len(data.dims)
    for axis, size in enumerate(result.dims):
        own = 1 if axis < missing else data.dims[axis - missing]
        if result.shape[axis] is None and not is_same(size, own):
            return f"the size along axis {axis} of {text_of_shape(result.shape)} is computed"
        if result.shape[axis] is not None and own != 1 and not isinstance(own, int):
            return f"the size of data along axis {axis - missing} is open"
    return None


def take_reason(call: OpView) -> str | None:
    """Accept int32 indices of the items of one axis."""
    data, indices = call.args
    reason = tensor_reason("data", data, 1, VIEWED)
    reason = reason or tensor_reason("indices", indices, dtypes=("int32",))
    reason = reason or tensor_reason("result", call.result, dtypes=VIEWED)
    if reason:
        return reason
    attrs = call.attrs
    if attrs.axis is None and len(data.shape) > 1:
        return f"axis is not given for data of shape {text_of_shape(data.shape)}"
    if attrs.batch_dims:
        return f"batch_dims={attrs.batch_dims} is not supported"
    if attrs.mode not in ("clip", "wrap", "fast"):
        return f"mode={attrs.mode} is not supported"
    return None


def _concatenate_type(args, attrs):
    fields = args[0]
    axis = attrs.axis % len(fields[0].dims)
    total: Size = 0
    for field in fields:
        size = field.dims[axis]
        total = None if None in (total, size) else total + size
    dims = list(fields[0].dims)
    dims[axis] = total
    return Tensor(tuple(dims), fields[0].dtype)


def _stack_type(args, attrs):
    fields = args[0]
    axis = attrs.axis % (len(fields[0].dims) + 1)
    dims = (*fields[0].dims[:axis], len(fields), *fields[0].dims[axis:])
    return Tensor(dims, fields[0].dtype)


def _pad_type(args, attrs):
    dims = (
        None if dim is None else dim + sum(width)
        for dim, width in zip(args[0].dims, attrs.pad_width)
    )
    return Tensor(tuple(dims), args[0].dtype)


def _broadcast_to_type(args, attrs):
    dims = args[0].dims
    missing = len(attrs.shape) - len(dims)
    sizes = [dims[k - missing] if size == -1 else size for k, size in enumerate(attrs.shape)]
    return Tensor(tuple(size if _is_size(size) else None for size in sizes), args[0].dtype)


def _is_size(size) -> bool:
    return size is None or isinstance(size, (int, Dim))


def _take_type(args, attrs):
    (data, indices), axis = args, attrs.axis
    if axis is None:
        return Tensor(indices.dims, data.dtype)
    axis %= len(data.dims)
    return Tensor((*data.dims[:axis], *indices.dims, *data.dims[axis + 1 :]), data.dtype)


def _concatenate(attrs, result_type, fields):
    return np.concatenate(fields, attrs.axis)


def _stack(attrs, result_type, fields):
    return np.stack(fields, attrs.axis)


def _pad(attrs, result_type, data, value):
    if attrs.pad_mode != "constant":
        return np.pad(data, attrs.pad_width, attrs.pad_mode)
    return np.pad(data, attrs.pad_width, constant_values=value.reshape(()).astype(data.dtype))


def _take(attrs, result_type, data, indices):
    if attrs.batch_dims:
        raise UndefinedResult(f"batch_dims={attrs.batch_dims}")
    mode = "raise" if attrs.mode == "fast" else attrs.mode
    return np.take(data, indices, attrs.axis, mode=mode)


def filled(value: int | None = None):
    """Define an op that fills a tensor: with a number, or with its last operand."""

    def compute(attrs, result_type, *args) -> Array:
        return np.broadcast_to(args[-1] if value is None else value, result_type.shape)

    return compute


def _draw_concatenate(d: Draw) -> Call:
    shape = d.shape()
    axis, fields = d.axis(shape), []
    for _ in range(d.integer(1, 3)):
        shape[axis] = d.choice(SIZES)
        fields.append(d.values(shape))
    return Call([fields], {"axis": axis})


def _draw_stack(d: Draw) -> Call:
    shape = d.shape(1, 2, 3, *d.rare(4, 5))
    fields = [d.values(shape) for _ in range(d.integer(1, 3))]
    return Call([fields], {"axis": d.integer(-len(shape) - 1, len(shape))})


def _draw_pad(d: Draw) -> Call:
    shape = d.shape()
    width = [[d.choice((0, 0, 1, 2, *d.rare(-1, 5))) for _ in "ab"] for _ in shape]
    mode = d.choice(("constant", "constant", "edge", *d.rare("reflect", "circular")))
    value = np.float32(d.choice((0.5, 0.0, *d.rare(float("-inf")))))
    return Call([d.values(shape), np.asarray(value)], {"pad_width": width, "pad_mode": mode})


def _draw_broadcast_to(d: Draw) -> Call:
    shape = d.shape()
    target = [d.choice((2, 3)) for _ in range(d.integer(0, 2))]
    # Relay's function has no -1.
    target += [d.choice((n if d.edges else -1, 3 if n == 1 else n)) for n in shape]
    return Call([d.values(shape)], {"shape": target})


def _draw_take(d: Draw) -> Call:
    shape = d.shape(1, 2, 3)
    axis = d.axis(shape)
    indices = d.numbers.integers(0, shape[axis], d.shape(1, 2, *d.rare(0)))
    attrs = {"axis": axis, "batch_dims": 0, "mode": d.choice(("clip", "wrap", "fast"))}
    dtype = d.choice(("int32", *d.rare("int64", "int8")))
    return Call([d.values(shape), np.asarray(indices, dtype)], attrs)


ROWS = [
    copy(
        "concatenate",
        concat_reason,
        attrs=(Int("axis", 0),),
        infer=_concatenate_type,
        numpy=_concatenate,
        draw=_draw_concatenate,
        relax="concat",
    ),
    copy(
        "stack",
        concat_reason,
        attrs=(Int("axis", 0),),
        infer=_stack_type,
        numpy=_stack,
        draw=_draw_stack,
    ),
    copy(
        "nn.pad",
        pad_reason,
        attrs=(Pairs("pad_width"), Text("pad_mode", "constant")),
        infer=_pad_type,
        numpy=_pad,
        draw=_draw_pad,
    ),
    copy(
        "broadcast_to",
        broadcast_to_reason,
        attrs=(Ints("shape", None),),
        infer=_broadcast_to_type,
        numpy=filled(),
        draw=_draw_broadcast_to,
    ),
    copy(
        "take",
        take_reason,
        attrs=(Int("axis", None), Int("batch_dims", 0), Text("mode", "clip")),
        infer=_take_type,
        numpy=_take,
        draw=_draw_take,
        relax="",
    ),
]
