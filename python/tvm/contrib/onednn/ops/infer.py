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
"""The types of what ops compute, from the types of their operands and their attributes.

Ops that are not here have theirs in their row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from types import SimpleNamespace

from ..ir.dim import Dim, Size, broadcast, divided, product
from ..ir.op_view import Tensor, Value
from . import infer_recurrent, infer_windows
from .infer_windows import out_dtype

# From the operands and the attributes.
Inference = Callable[[Sequence[Value], SimpleNamespace], Value]


def _cast(args, attrs):
    return Tensor(args[0].dims, attrs.dtype)


def _converted(args, attrs):
    return Tensor(args[0].dims, attrs.out_dtype or "float32")


def _where(args, attrs):
    return Tensor(broadcast(*(arg.dims for arg in args)), args[1].dtype)


def _broadcast_to(args, attrs):
    dims = args[0].dims
    missing = len(attrs.shape) - len(dims)
    sizes = [dims[k - missing] if size == -1 else size for k, size in enumerate(attrs.shape)]
    return Tensor(tuple(size if _is_size(size) else None for size in sizes), args[0].dtype)


def _is_size(size) -> bool:
    return size is None or isinstance(size, (int, Dim))


def _take(args, attrs):
    (data, indices), axis = args, attrs.axis
    if axis is None:
        return Tensor(indices.dims, data.dtype)
    axis %= len(data.dims)
    return Tensor((*data.dims[:axis], *indices.dims, *data.dims[axis + 1 :]), data.dtype)


def _dense(args, attrs):
    return Tensor((*args[0].dims[:-1], args[1].dims[0]), out_dtype(attrs, args[0]))


def _quantized_dense(args, attrs):
    return Tensor((*args[0].dims[:-1], args[1].dims[0]), "float32")


def _matmul(args, attrs):
    left, right = args
    rows = left.dims[-1 if attrs.transpose_a else -2]
    columns = right.dims[-2 if attrs.transpose_b else -1]
    batch = broadcast(left.dims[:-2], right.dims[:-2])
    return Tensor((*batch, rows, columns), out_dtype(attrs, left))


def _attention(args, attrs):
    query, _, value = args[:3]
    return Tensor((*query.dims[:-1], value.dims[-1]), query.dtype)


def _batch_norm(args, attrs):
    return tuple(Tensor(arg.dims, arg.dtype) for arg in (args[0], *args[3:]))


def reduced_axes(attrs: SimpleNamespace, rank: int) -> list[int]:
    """Return the axes that an op reduces, counted from the front: no axis means all of them."""
    axes = {axis % rank for axis in attrs.axis or ()} or set(range(rank))
    if attrs.axis and getattr(attrs, "exclude", False):
        axes = set(range(rank)) - axes
    return sorted(axes)


def _reduce(args, attrs):
    dims = args[0].dims
    axes = reduced_axes(attrs, len(dims))
    kept = [(axis, 1 if axis in axes else dim) for axis, dim in enumerate(dims)]
    if not attrs.keepdims:
        kept = [(axis, dim) for axis, dim in kept if axis not in axes]
    return Tensor(tuple(dim for _, dim in kept), args[0].dtype)


def _reshape(args, attrs):
    return Tensor(reshaped(args[0].dims, attrs.newshape), args[0].dtype)


def _reverse_reshape(args, attrs):
    reverse = reshaped(args[0].dims[::-1], attrs.newshape[::-1])
    return Tensor(reverse[::-1], args[0].dtype)


def reshaped(dims: Sequence[Size], newshape: Sequence[int]) -> tuple[Size, ...]:
    """Return the shape that Relay's `reshape` gives, by its codes.

    Of a positive number it is that; 0 keeps the dimension, -1 is what is left, -2 keeps all that
    follow, -3 joins two, and -4 splits one into the next two numbers.
    """
    result: list[Size] = []
    codes, k, inferred = list(newshape), 0, None
    while codes:
        code = codes.pop(0)
        if code == -4:
            parts, k = [codes.pop(0), codes.pop(0)], k + 1
            size = dims[k - 1]
            if -1 in parts:
                other = parts[1 - parts.index(-1)]
                parts[parts.index(-1)] = None if size is None else divided(size, other)
            result += parts
            continue
        if code == -2:
            result += dims[k:]
            k = len(dims)
        elif code == -3:
            result.append(product(dims[k : k + 2]))
            k += 2
        elif code == 0:
            result.append(dims[k])
            k += 1
        else:
            inferred = len(result) if code == -1 else inferred
            result.append(None if code == -1 else code)
            k += 1
    if inferred is not None:
        others = product([dim for axis, dim in enumerate(result) if axis != inferred])
        size = product(dims)
        if size is not None and others:
            result[inferred] = divided(size, others)
    return tuple(result)


def _flatten(args, attrs):
    dims = args[0].dims
    return Tensor((dims[0], product(dims[1:])), args[0].dtype)


def _expand_dims(args, attrs):
    dims, count = args[0].dims, attrs.num_newaxis
    axis = attrs.axis % (len(dims) + 1)
    return Tensor((*dims[:axis], *(1,) * count, *dims[axis:]), args[0].dtype)


def _squeeze(args, attrs):
    dims = args[0].dims
    axes = attrs.axis if attrs.axis is not None else [a for a, dim in enumerate(dims) if dim == 1]
    gone = {axis % len(dims) for axis in axes}
    return Tensor(tuple(dim for axis, dim in enumerate(dims) if axis not in gone), args[0].dtype)


def _transpose(args, attrs):
    dims = args[0].dims
    axes = attrs.axes or range(len(dims))[::-1]
    return Tensor(tuple(dims[axis] for axis in axes), args[0].dtype)


def _concatenate(args, attrs):
    fields = args[0]
    axis = attrs.axis % len(fields[0].dims)
    total: Size = 0
    for field in fields:
        size = field.dims[axis]
        total = None if None in (total, size) else total + size
    dims = list(fields[0].dims)
    dims[axis] = total
    return Tensor(tuple(dims), fields[0].dtype)


def _stack(args, attrs):
    fields = args[0]
    axis = attrs.axis % (len(fields[0].dims) + 1)
    dims = (*fields[0].dims[:axis], len(fields), *fields[0].dims[axis:])
    return Tensor(dims, fields[0].dtype)


def _split(args, attrs):
    dims, axis = list(args[0].dims), attrs.axis
    axis, given = axis % len(dims), attrs.indices_or_sections
    if isinstance(given, int):
        sizes = [dims[axis] // given] * given
    else:
        ends = [0, *given, dims[axis]]
        sizes = [end - start for start, end in zip(ends, ends[1:])]
    parts = ((*dims[:axis], size, *dims[axis + 1 :]) for size in sizes)
    return tuple(Tensor(part, args[0].dtype) for part in parts)


def sliced(attrs: SimpleNamespace, rank: int) -> list[tuple[int, slice]]:
    """Return what a strided slice takes of each of its axes, counted from the front."""
    begin, end = list(attrs.begin), list(attrs.end)
    axes = range(len(begin)) if attrs.axes is None else attrs.axes
    is_size = attrs.slice_mode == "size"
    steps = [] if is_size else list(attrs.strides or ())
    steps += [1] * (len(begin) - len(steps))
    end += [None] * (len(begin) - len(end))
    parts = []
    for axis, first, last, step in zip(axes, begin, end, steps):
        if is_size and last is not None:
            last = None if last < 0 or first < 0 <= first + last else first + last
        parts.append((axis % rank, slice(first, last, step)))
    return parts


def _strided_slice(args, attrs):
    dims = list(args[0].dims)
    for axis, part in sliced(attrs, len(dims)):
        if isinstance(dims[axis], int):
            dims[axis] = len(range(dims[axis])[part])
        elif dims[axis] is not None:
            dims[axis] = _sliced_size(dims[axis], part)
    return Tensor(tuple(dims), args[0].dtype)


def _sliced_size(size: Size, part: slice) -> Size:
    """Return how much is left of an open size, None where that depends on how large it is."""
    first, last, step = part.start or 0, part.stop, part.step
    is_end = last is None or last >= 2**31 - 1
    return size if first == 0 and is_end and step == 1 else None


def _pad(args, attrs):
    dims = (
        None if dim is None else dim + sum(width)
        for dim, width in zip(args[0].dims, attrs.pad_width)
    )
    return Tensor(tuple(dims), args[0].dtype)


def _layout_transform(args, attrs):
    source, target = (
        re.findall(r"(\d*)([A-Za-z])", layout) for layout in (attrs.src_layout, attrs.dst_layout)
    )
    sizes: dict[str, Size] = {}
    for (_, letter), dim in zip(source, args[0].dims):
        sizes[letter.upper()] = product([sizes.get(letter.upper(), 1), dim])
    blocks = {letter.upper(): int(block) for block, letter in target if block}
    dims = (
        (
            int(block)
            if block
            else (None if sizes[letter] is None else sizes[letter] // blocks.get(letter, 1))
        )
        for block, letter in target
    )
    return Tensor(tuple(dims), args[0].dtype)


INFERENCES: dict[str, Inference] = {
    "where": _where,
    "broadcast_to": _broadcast_to,
    "take": _take,
    "cast": _cast,
    "qnn.quantize": _converted,
    "qnn.dequantize": _converted,
    **infer_windows.INFERENCES,
    **infer_recurrent.INFERENCES,
    "nn.dense": _dense,
    "dnnl.block_quantized_dense": _quantized_dense,
    "dnnl.dynamic_quantize_scale": lambda args, attrs: Tensor((1,), "float32"),
    "dnnl.dynamic_quantized_dense": _quantized_dense,
    "nn.matmul": _matmul,
    "nn.batch_matmul": _matmul,
    "dnnl.attention": _attention,
    "nn.batch_norm": _batch_norm,
    **dict.fromkeys("max mean min prod sum".split(), _reduce),
    "reshape": _reshape,
    "contrib_reverse_reshape": _reverse_reshape,
    "nn.batch_flatten": _flatten,
    "expand_dims": _expand_dims,
    "squeeze": _squeeze,
    "transpose": _transpose,
    "concatenate": _concatenate,
    "stack": _stack,
    "split": _split,
    "strided_slice": _strided_slice,
    "nn.pad": _pad,
    "layout_transform": _layout_transform,
}
