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
from ..common import infer_shape, infer_type


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


def part(name, convert, inputs, attrs, params):
    """Convert Slice with empty slices, whose bounds TVM does not accept in the other order."""
    data, shape = inputs[0], infer_shape(inputs[0])
    if "starts" in attrs:
        starts, ends = attrs["starts"], attrs["ends"]
        axes, steps = attrs.get("axes", range(len(starts))), [1] * len(starts)
    else:
        starts, ends = _values(inputs[1]), _values(inputs[2])
        if starts is None or ends is None:
            return convert(inputs, attrs, params)
        axes = [*range(len(starts))] if inputs[3] is None else _values(inputs[3])
        steps = [1] * len(starts) if inputs[4] is None else _values(inputs[4])
        if axes is None or steps is None:
            return convert(inputs, attrs, params)
    parts = {axis % len(shape): each for axis, *each in zip(axes, starts, ends, steps)}
    empty = [axis for axis, each in parts.items() if _is_empty(shape[axis], *each)]
    if not empty:
        return convert(inputs, attrs, params)
    others = [axis for axis in parts if axis not in empty]
    data = _nothing_of(data, empty)
    if not others:
        return data
    starts, ends, steps = map(list, zip(*(parts[axis] for axis in others)))
    return _op.strided_slice(data, starts, ends, steps, others)


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
