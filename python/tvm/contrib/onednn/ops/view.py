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
"""Ops that name or order elements in another way: splits, slices, transposes, layouts."""

from __future__ import annotations

import math
import re

import numpy as np

from ..ir.dim import Size, product
from ..ir.op_view import OpView, Tensor, tensor_of
from .attrs import Int, Ints, Sections, Text
from .draw import Call, Draw
from .schema import view
from .tensors import ints, known_product, open_reason, text_of_shape, view_reason

# Importers write these for the end of an axis.
_TO_THE_END = 2**31 - 1


def _transposed_axis(call: OpView, axis: int) -> int:
    """Return the axis of a transpose's result that is an axis of its data."""
    rank = len(tensor_of(call.args[0]).shape)
    axes = ints(call.attrs.axes or range(rank)[::-1])
    return [each % rank for each in axes].index(axis % rank)


def _split_axis(call: OpView, axis: int) -> int | None:
    """Return the same axis, if it is not the one that is split."""
    rank = len(tensor_of(call.args[0]).shape)
    return None if call.attrs.axis % rank == axis % rank else axis % rank


def _layout(text: str) -> dict[str, int] | None:
    """Read a layout such as NCHW16c: for each axis its block, or 1; None if it is no layout."""
    if not re.fullmatch(r"([A-Z]|[1-9][0-9]*[a-z])+", text):
        return None
    axes = re.findall(r"[A-Z]", text)
    blocks = {axis.upper(): int(size) for size, axis in re.findall(r"([0-9]+)([a-z])", text)}
    if len(set(axes)) != len(axes) or not set(blocks) <= set(axes):
        return None
    if len(re.findall(r"[a-z]", text)) != len(blocks):
        return None
    return {axis: blocks.get(axis, 1) for axis in axes}


def layout_transform_reason(call: OpView) -> str | None:
    """Accept layouts of the same axes, each with at most one block, which divides it."""
    reason = view_reason(call)
    if reason:
        return reason
    texts = call.attrs.src_layout, call.attrs.dst_layout
    source, target = (_layout(text) for text in texts)
    for text, layout in zip(texts, (source, target)):
        if layout is None:
            return f"{text} is not a layout with at most one block per axis"
    if set(source) != set(target):
        return f"{texts[0]} and {texts[1]} have different axes"
    data = tensor_of(call.args[0]).shape
    letters = re.findall(r"[A-Za-z]", texts[0])
    if len(letters) != len(data):
        return f"data of shape {text_of_shape(data)} does not have the rank of {texts[0]}"
    for axis, block in target.items():
        parts = [dim for letter, dim in zip(letters, data) if letter.upper() == axis]
        if block > 1 and None in parts:
            return open_reason("data", axis, None, data)
        size = known_product(parts)
        if size % block:
            return f"{texts[1]} has blocks of {block}, which do not divide {axis}={size}"
    return None


def strided_slice_reason(call: OpView) -> str | None:
    """Accept tensors and steps forward between numbers that are known."""
    reason = view_reason(call)
    if reason:
        return reason
    attrs = call.attrs
    for name in ("begin", "end", "strides", "axes"):
        if vars(attrs)[name] is not None and ints(vars(attrs)[name]) is None:
            return f"{name} is not constant"
    if attrs.begin is None:
        return "begin is not constant"
    steps = ints(attrs.strides) if attrs.strides is not None else ()
    begin, end = ints(attrs.begin), ints(attrs.end or ())
    axes = ints(attrs.axes) if attrs.axes is not None else range(len(begin))
    data, result = tensor_of(call.args[0]).shape, tensor_of(call.result).shape
    for axis, first, last in zip(axes, begin, end):
        is_rest = last >= _TO_THE_END or attrs.slice_mode != "end"
        # The last positions of a sequence that has any, as the logits of a prompt are.
        keeps_some = first == 0 or (first < 0 and call.is_filled(0, axis))
        if result[axis] is None and not (is_rest and keeps_some):
            return f"the slice along axis {axis}, whose size is open, may be empty"
    if attrs.slice_mode != "end":
        return None
    if any(step < 1 for step in steps):
        return f"strides={list(steps)} are not all positive"
    for axis, step in zip(axes, steps):
        # oneDNN counts memory after an element, up to the next one, as the tensor's.
        if step > 1 and None in (data[axis], result[axis]):
            return f"stride {step} along axis {axis}, whose size is open"
        if step > 1 and step * result[axis] > data[axis]:
            return (
                f"{result[axis]} steps of {step} extend beyond the {data[axis]} values of an axis"
            )
    return None


def sliced(attrs, rank: int) -> list[tuple[int, slice]]:
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


def _transpose_type(args, attrs):
    dims = args[0].dims
    axes = attrs.axes or range(len(dims))[::-1]
    return Tensor(tuple(dims[axis] for axis in axes), args[0].dtype)


def _split_type(args, attrs):
    dims, axis = list(args[0].dims), attrs.axis
    axis, given = axis % len(dims), attrs.indices_or_sections
    if isinstance(given, int):
        sizes = [dims[axis] // given] * given
    else:
        ends = [0, *given, dims[axis]]
        sizes = [end - start for start, end in zip(ends, ends[1:])]
    parts = ((*dims[:axis], size, *dims[axis + 1 :]) for size in sizes)
    return tuple(Tensor(part, args[0].dtype) for part in parts)


def _strided_slice_type(args, attrs):
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


def _layout_transform_type(args, attrs):
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


def _transpose(attrs, result_type, data):
    return np.transpose(data, [*attrs.axes] if attrs.axes else None)


def _split(attrs, result_type, data):
    given = attrs.indices_or_sections
    return np.split(data, given if isinstance(given, int) else list(given), attrs.axis)


def _strided_slice(attrs, result_type, data):
    index = [slice(None)] * data.ndim
    for axis, part in sliced(attrs, data.ndim):
        index[axis] = part
    return data[tuple(index)]


def _layout_transform(attrs, result_type, data):
    """Split the axes of blocks, and join them again."""
    source, target = (
        re.findall(r"(\d*)([A-Za-z])", layout) for layout in (attrs.src_layout, attrs.dst_layout)
    )
    axes = [letter for _, letter in source if letter.isupper()]
    # Each axis whole, in the order of the source, with the block, which is the inner part, last.
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


def _draw_split(d: Draw) -> Call:
    shape = d.shape()
    axis = d.axis(shape)
    ends = sorted(d.integer(0, shape[axis]) for _ in range(d.integer(1 - d.edges, 2 + d.edges)))
    parts = d.choice((d.groups(shape[axis]), ends))
    return Call([d.values(shape)], {"indices_or_sections": parts, "axis": axis})


def _draw_strided_slice(d: Draw) -> Call:
    shape = d.shape()
    axes = d.random.sample(range(len(shape)), d.integer(1, len(shape)))
    begin = [d.choice((0, 0, d.integer(-shape[axis], shape[axis] - 1))) for axis in axes]
    end = [d.choice((shape[axis], -1, 1 << 31, d.integer(0, shape[axis]))) for axis in axes]
    mode = d.choice(("end", "end", "size"))
    if mode == "size":
        end = [d.choice((1, -1)) for _ in axes]
    strides = [d.choice((1, 1, 1, 2, -1)) for _ in axes][: d.choice((0, 1, len(axes), len(axes)))]
    axes = d.choice((axes, [axis - len(shape) for axis in axes]))
    attrs = {"begin": begin, "end": end, "strides": strides, "axes": axes, "slice_mode": mode}
    return Call([d.values(shape)], attrs)


def _draw_layout_transform(d: Draw) -> Call:
    source, target = d.choice(
        [("NCHW", "NHWC"), ("NHWC", "NCHW"), ("NCHW", "NCHW2c"), ("NCHW4c", "NHWC")]
        + [("OIHW", "OIHW2i4o"), ("NCHW2c", "NCHW4c"), ("NCHW", "NCHW")]
        + [*d.rare(("NCHW", "NCHW8c"))]
    )
    shape = d.shape(4)
    if not (source + target).isalpha():
        # Of whole blocks.
        shape[:2] = 4, 4
    shape += [int(letter) for letter in source if letter.isdigit()]
    return Call([d.values(shape)], {"src_layout": source, "dst_layout": target})


def _draw_transpose(d: Draw) -> Call:
    shape = d.shape(*range(1, 7))
    axes = d.choice((None, [], d.axes(shape, len(shape))))
    return Call([d.values(shape)], {"axes": axes})


ROWS = [
    view(
        "split",
        view_reason,
        attrs=(Sections("indices_or_sections"), Int("axis", 0)),
        infer=_split_type,
        numpy=_split,
        draw=_draw_split,
        output_axis=_split_axis,
    ),
    view(
        "strided_slice",
        strided_slice_reason,
        attrs=(
            *(Ints("begin"), Ints("end"), Ints("strides", None), Ints("axes", None)),
            Text("slice_mode", "end"),
        ),
        infer=_strided_slice_type,
        numpy=_strided_slice,
        draw=_draw_strided_slice,
    ),
    view(
        "layout_transform",
        layout_transform_reason,
        attrs=(Text("src_layout"), Text("dst_layout")),
        infer=_layout_transform_type,
        numpy=_layout_transform,
        draw=_draw_layout_transform,
        relax="",
    ),
    view(
        "transpose",
        view_reason,
        attrs=(Ints("axes", None),),
        infer=_transpose_type,
        numpy=_transpose,
        draw=_draw_transpose,
        output_axis=_transposed_axis,
        relax="permute_dims",
    ),
]
