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
"""Repairs of ONNX ops that change shapes."""

from __future__ import annotations

import numpy as np

from ... import expr as _expr
from ... import op as _op
from .incremental import fold_constant, infer_shape, infer_type, shape_of

# A bound that stands for all sizes: the largest of int32.
_LAST = 2**31 - 1


def _values(expr):
    """Return the integers of a constant as a list, None of what is computed."""
    return expr.data.numpy().ravel().tolist() if isinstance(expr, _expr.Constant) else None


def _nothing_of(data, axes):
    """Return a tensor without the elements along some axes."""
    zeros = [0] * len(axes)
    return _op.strided_slice(data, zeros, zeros, [1] * len(axes), axes)


def _is_empty(size, start, end, step):
    """Whether a slice of an axis is empty, whatever the size of an open axis."""
    if isinstance(size, int):
        return not range(size)[start:end:step]
    return (start < 0) == (end < 0) and (end <= start if step > 0 else end >= start)


def _is_in_order(size, start, end, step):
    """Whether TVM reads constant bounds correctly for each size that an open axis may have."""
    if isinstance(size, int):
        return start >= -size
    if step < 0:
        return (start == -1 or start >= _LAST) and end <= -_LAST
    return end >= _LAST if start == -1 else 0 <= start <= end


def part(name, convert, inputs, attrs, params):
    """Convert Slice. TVM assumes that no end precedes the start, and no start the tensor."""
    data, shape = inputs[0], infer_shape(inputs[0])
    given = [inputs[k] for k in range(1, 5)]
    given = [each if _values(each) is None else _values(each) for each in given]
    if "starts" in attrs:
        given = [attrs.get(key) and list(attrs[key]) for key in ("starts", "ends", "axes", "steps")]
    count = len(given[0]) if isinstance(given[0], list) else infer_shape(given[0])[0]
    if not isinstance(count, int):
        return convert(inputs, attrs, params)
    defaults = ([], [], [*range(count)], [1] * count)
    starts, ends, axes, steps = (b if a is None else a for a, b in zip(given, defaults))
    if not all(isinstance(each, list) for each in (starts, ends, axes, steps)):
        # The rewrites make those static that keep the first elements.
        if isinstance(starts, list) and not any(starts) and steps == [1] * count:
            return convert(inputs, attrs, params)
        return _sliced(data, starts, ends, axes, steps)
    parts = {axis % len(shape): each for axis, *each in zip(axes, starts, ends, steps)}
    empty = [axis for axis, each in parts.items() if _is_empty(shape[axis], *each)]
    others = [axis for axis in parts if axis not in empty]
    is_fixed = all(isinstance(shape[axis], int) for axis in others)
    is_in_order = is_fixed or all(_is_in_order(shape[axis], *parts[axis]) for axis in others)
    if is_in_order and not empty:
        return convert(inputs, attrs, params)
    data = _nothing_of(data, empty) if empty else data
    if not others:
        return data
    starts, ends, steps = map(list, zip(*(parts[axis] for axis in others)))
    if is_in_order:
        return _op.strided_slice(data, starts, ends, steps, others)
    return _sliced(data, starts, ends, others, steps)


def _sliced(data, starts, ends, axes, steps):
    """Return a slice whose bounds are computed; each is a list or an expression."""
    rank, zero = len(infer_shape(data)), _expr.const(0, "int64")
    is_backward = [step < 0 for step in steps] if isinstance(steps, list) else [False, True]
    if isinstance(axes, list):
        # The axes after the last keep their size.
        axes = [axis % rank for axis in axes]
        rank = max(axes) + 1
    starts, ends, axes, steps = (
        _expr.const(each, "int64") if isinstance(each, list) else _op.cast(each, "int64")
        for each in (starts, ends, axes, steps)
    )
    axes = _op.where(axes < zero, axes + _expr.const(rank, "int64"), axes)
    shape = shape_of(data)
    sizes = _op.take(shape, axes)
    bounds = [_op.where(each < zero, each + sizes, each) for each in (starts, ends)]
    forward, backward = _forward(*bounds, sizes), _backward(*bounds, sizes)
    if not any(is_backward):
        bounds = forward
    elif all(is_backward):
        bounds = backward
    else:
        bounds = [_op.where(steps < zero, *pair) for pair in zip(backward, forward)]
    all_axes = ([0] * rank, _op.strided_slice(shape, [0], [rank]), [1] * rank)
    begin, end, steps = (
        fold_constant(
            _op.scatter_elements(
                _expr.const(whole, "int64") if isinstance(whole, list) else whole, axes, some, 0
            )
        )
        for whole, some in zip(all_axes, (*bounds, steps))
    )
    return _op.strided_slice(data, begin, end, steps)


def _forward(start, end, size):
    """Return the bounds of a slice with a positive step in the tensor, the end not before start."""
    start = _op.maximum(_op.minimum(start, size), _expr.const(0, "int64"))
    return [start, _op.maximum(_op.minimum(end, size), start)]


def _backward(start, end, size):
    """Return the bounds of a slice with a negative step, as TVM reads them.

    It adds the size to a negative end: minus one is the last element, not the one before the first.
    """
    zero, one, none = (_expr.const(k, "int64") for k in (0, 1, -1))
    first, last = (_op.maximum(_op.minimum(each, size - one), none) for each in (start, end))
    start = _op.maximum(first, zero)
    end = _op.where(last < zero, none - size, last)
    return [start, _op.where(last >= first, _op.minimum(start, size - one), end)]


def tile(name, convert, inputs, attrs, params):
    """Convert Tile, which TVM refuses to repeat zero times."""
    counts = _values(inputs[1])
    if counts is None or all(counts):
        return convert(inputs, attrs, params)
    data = _nothing_of(inputs[0], [axis for axis, count in enumerate(counts) if not count])
    return _op.tile(data, [count or 1 for count in counts])


def pad(name, convert, inputs, attrs, params):
    """Convert Pad with `axes`, which TVM ignores, as it then does the value."""
    if len(inputs) < 2:
        return convert(inputs, attrs, params)
    data, pads, value, axes = (inputs[k] for k in range(4))
    if axes is not None:
        rank = len(infer_shape(data))
        axes = np.array(_values(axes)) % rank
        at, dtype = np.concatenate([axes, axes + rank]), infer_type(pads).checked_type.dtype
        zeros = _expr.const(np.zeros(2 * rank), dtype)
        pads = _op.scatter_elements(zeros, _expr.const(at, "int64"), pads, 0)
    return convert(type(inputs)([data, pads, *([] if value is None else [value])]), attrs, params)


def reshape(name, convert, inputs, attrs, params):
    """Convert Reshape with `allowzero`, which TVM ignores."""
    if not attrs.get("allowzero", 0):
        return convert(inputs, attrs, params)
    sizes = _values(inputs[1])
    if sizes is None:
        return _op.reshape(inputs[0], inputs[1], allowzero=True)
    if 0 in sizes:
        return _op.zeros(sizes, infer_type(inputs[0]).checked_type.dtype)
    return _op.reshape(inputs[0], sizes)
