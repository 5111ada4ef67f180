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
"""Rules of the ops that name, order or gather elements in another way."""

from __future__ import annotations

import itertools
import math
import re

import numpy as np

from .. import cpu
from ..ir.op_view import OpView, Tensor
from .attrs import Bool, Int, Ints, Pairs, Sections, Text
from .tensors import (
    EIGHT_BITS,
    MOVED,
    VIEWED,
    ints,
    known_product,
    named_tensors,
    open_reason,
    tensor_reason,
    text_of_shape,
)


def view_reason(call: OpView) -> str | None:
    """Accept tensors of real numbers, of integers in 8 bits, or of truths."""
    for name, tensor in named_tensors(call):
        reason = tensor_reason(name, tensor, dtypes=VIEWED)
        if reason:
            return reason
    return None


def copied_at_end(call: OpView, rank: int) -> int:
    """Count the last dimensions of data of a rank that a reshape keeps, as its codes tell."""
    codes = ints(call.attrs.newshape) or ()
    # How many dimensions each code reads; a number after -4 is a part of the split dimension.
    read, parts = 0, 0
    for code in codes:
        if parts:
            parts -= 1
        elif code == -2:
            # All that is left.
            return rank - read if code == codes[-1] else 0
        else:
            read += 2 if code == -3 else 1
            parts = 2 if code == -4 else 0
    if read != rank:
        return 0
    return len(list(itertools.takewhile(lambda code: code == 0, reversed(codes))))


def _transposed_axis(call: OpView, axis: int) -> int:
    """Return the axis of a transpose's result that is an axis of its data."""
    rank = len(call.args[0].shape)
    axes = ints(call.attrs.axes or range(rank)[::-1])
    return [each % rank for each in axes].index(axis % rank)


def _split_axis(call: OpView, axis: int) -> int | None:
    """Return the same axis, if it is not the one that is split."""
    rank = len(call.args[0].shape)
    return None if call.attrs.axis % rank == axis % rank else axis % rank


def _reshaped_axis(call: OpView, axis: int) -> int | None:
    """Return the axis of a reshape's result that has the items of an axis of its data.

    The order of the elements stays: as many must be before an item, and as many items be there.
    """
    data, shape = call.args[0].shape, call.result.shape
    axis %= len(data)
    for k, size in enumerate(shape):
        if None in (size, *data[: axis + 1], *shape[:k]):
            return None
        if size == data[axis] and math.prod(shape[:k]) == math.prod(data[:axis]):
            return k
    return None


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
    data = call.args[0].shape
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


# Importers write these for the end of an axis.
_TO_THE_END = 2**31 - 1
# The lines that a pad copies; the runtime refuses more.
MAX_LINES = 64


def concat_reason(call: OpView) -> str | None:
    """Accept tensors that are given one by one."""
    if not isinstance(call.args[0], tuple):
        return "the tuple of tensors is the result of another call"
    axis = call.attrs.axis
    # Along its own axis a stack has as many as there are tensors.
    is_open = call.result.shape[axis] is None
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
    dims = call.args[0].shape
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
    return kind.min <= float(value.value.reshape(())) <= kind.max


def strided_slice_reason(call: OpView) -> str | None:
    """Accept tensors and steps forward between numbers that are known."""
    reason = view_reason(call)
    if reason:
        return reason
    attrs = call.attrs
    for name in ("begin", "end", "strides", "axes"):
        if getattr(attrs, name) is not None and ints(getattr(attrs, name)) is None:
            return f"{name} is not constant"
    if attrs.begin is None:
        return "begin is not constant"
    steps = ints(attrs.strides) if attrs.strides is not None else ()
    begin, end = ints(attrs.begin), ints(attrs.end or ())
    axes = ints(attrs.axes) if attrs.axes is not None else range(len(begin))
    data, result = call.args[0].shape, call.result.shape
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
        # oneDNN counts memory behind an element, up to the next one, as the tensor's.
        if step > 1 and None in (data[axis], result[axis]):
            return f"stride {step} along axis {axis}, whose size is open"
        if step > 1 and step * result[axis] > data[axis]:
            return (
                f"{result[axis]} steps of {step} extend beyond the {data[axis]} values of an axis"
            )
    return None


# The attributes of the rows.
CONCATENATE = (Int("axis", 0),)
PAD = Pairs("pad_width"), Text("pad_mode", "constant")
STRIDED_SLICE = (
    *(Ints("begin"), Ints("end"), Ints("strides", None), Ints("axes", None)),
    Text("slice_mode", "end"),
)
LAYOUT_TRANSFORM = Text("src_layout"), Text("dst_layout")
NEWSHAPE = Ints("newshape"), Bool("allowzero", False)
EXPAND_DIMS = Int("axis"), Int("num_newaxis", 1)
SQUEEZE = (Ints("axis", None),)

# The fields of the rows.
RESHAPE = dict(reason=view_reason, reshapes=True, axis_behind=_reshaped_axis)
SPLIT = dict(
    reason=view_reason,
    attrs=(Sections("indices_or_sections"), Int("axis", 0)),
    axis_behind=_split_axis,
)
TRANSPOSE = dict(reason=view_reason, attrs=(Ints("axes", None),), axis_behind=_transposed_axis)
