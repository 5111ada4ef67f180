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
"""Decomposes ops that repeat or gather elements."""

from __future__ import annotations

import math

import numpy as np

from ..ir.node import Node
from ..ir.op_view import Tensor
from ..ops.attrs import attribute
from ..ops.copy import MAX_LINES
from ..ops.tensors import ints, text_of_shape
from ..ops.view import sliced
from .maker import Maker, UnsupportedOp, check_moved


def _take(make: Maker, node: Node) -> Node:
    """Write a `take` with evenly spaced indices as a slice; any other gets int32 indices."""
    axis = attribute(node.attrs, "axis", None)
    data, indices = node.operands
    check_moved(node)
    if axis is None and set(data.tensor.shape) == {1} and _is_first(indices):
        # As ONNX's importer reads the condition of an If.
        return make.reshape(data, node.tensor.dims)
    if axis is None and len(data.tensor.dims) > 1:
        raise UnsupportedOp("axis is not given")
    if not data.tensor.dims:
        raise UnsupportedOp("data is a scalar")
    if attribute(node.attrs, "batch_dims", 0):
        raise UnsupportedOp(f"batch_dims={node.attrs.batch_dims} is not supported")
    axis = int(axis or 0) % len(data.tensor.dims)
    if indices.is_constant:
        return _of_constant(make, node, axis)
    mode = node.attrs.mode
    if node.is_call and indices.tensor.dtype == "int32":
        # Already as its row has it.
        return None
    return _gathered(make, node, axis, _as_int32(make, indices, data.tensor.dims[axis], mode), mode)


def _is_first(indices: Node) -> bool:
    """Whether the indices are a single zero."""
    return indices.is_constant and indices.value.size == 1 and not indices.value.any()


def _as_int32(make: Maker, indices: Node, size, mode: str) -> Node:
    """Return computed indices in int32, which TVM converts."""
    if indices.tensor.dtype == "int32":
        return indices
    if indices.tensor.dtype not in ("int64", "uint8", "int8"):
        raise UnsupportedOp(f"indices are {indices.tensor.dtype}")
    if indices.tensor.dtype == "int64" and mode == "wrap":
        raise UnsupportedOp("indices are int64 with mode=wrap")
    if indices.tensor.dtype == "int64" and mode == "clip":
        # What int32 cannot hold must be clipped before.
        if not isinstance(size, int):
            raise UnsupportedOp("int64 indices with mode=clip, and the size of the axis is open")
        bounds = [make.graph.constant(np.array(each), "int64") for each in (0, size - 1)]
        indices = make("minimum", make("maximum", indices, bounds[0]), bounds[1])
    return make("cast", indices, dtype="int32")


def _gathered(make: Maker, node: Node, axis: int, indices: Node, mode: str) -> Node:
    data = node.operands[0]
    return make.graph.call(
        "take", [data, indices], node, node.type, axis=axis, batch_dims=0, mode=mode
    )


def _of_constant(make: Maker, node: Node, axis: int) -> Node | None:
    """Write a `take` with constant indices, as a slice if they are evenly spaced."""
    data, indices = node.operands
    size, mode = data.tensor.shape[axis], node.attrs.mode
    # In the mode "fast" any element may be read for an index out of range. PyTorch's importer
    # writes -1 so, of which TVM's kernel reads what is before the tensor; so the last is read.
    wraps = size and mode == "fast"
    values = [
        index + size if index < 0 and wraps else index for index in indices.value.ravel().tolist()
    ]
    if not values:
        raise UnsupportedOp("there are no indices")
    # Others depend on the mode. Where the size is open, there is one element at least.
    for each in values:
        if not 0 <= each < (size or 1):
            raise UnsupportedOp(f"index {each} may be out of range")
    sliced = _slice(make, node, axis, values)
    if sliced is not None:
        return sliced
    constant = np.array(values, "int32").reshape(indices.value.shape)
    return _gathered(make, node, axis, make.graph.constant(constant, "int32"), mode)


def _slice(make: Maker, node: Node, axis: int, values: list[int]) -> Node | None:
    """Return a slice of an axis; None unless the indices are evenly spaced."""
    data, indices = node.operands
    rank = indices.value.ndim
    first, *others = values
    steps = {after - before for before, after in zip(values, others)}
    is_slice = len(steps) == 1 and min(steps) > 0 and rank == 1
    if (others and not is_slice) or (rank > 1 and None in data.tensor.shape):
        return None
    step = others[0] - first if others else 1
    bounds = dict(begin=[first], end=[values[-1] + 1], strides=[step], axes=[axis])
    dims = list(data.tensor.dims)
    dims[axis] = len(values)
    type_ = Tensor(tuple(dims), data.tensor.dtype)
    part = make.graph.call("strided_slice", [data], node, type_, **bounds, slice_mode="end")
    if rank == 1:
        return part
    return make.reshape(part, node.tensor.dims) if rank else make.squeeze(part, [axis])


def _repeat(make: Maker, node: Node) -> Node:
    """Write a repetition of each item of an axis, as of grouped key heads, as a broadcast."""
    (data,), axis = node.operands, node.attrs.axis
    check_moved(node)
    dims, count = data.tensor.dims, node.attrs.repeats
    if axis is None and len(dims) > 1:
        raise UnsupportedOp("axis is not given")
    axis = int(axis or 0) % len(dims)
    data = make.expand_dims(data, axis + 1)
    data = _broadcast(make, data, (*dims[: axis + 1], count, *dims[axis + 1 :]))
    return make.reshape(data, node.tensor.dims)


def _tile(make: Maker, node: Node) -> Node:
    """Write a repetition of whole axes as a broadcast between reshapes."""
    (data,) = node.operands
    check_moved(node)
    counts = [int(count) for count in attribute(node.attrs, "reps", None) or node.attrs.repeats]
    dims = data.tensor.dims
    rank = max(len(counts), len(dims))
    counts = [1] * (rank - len(counts)) + counts
    dims = (1,) * (rank - len(dims)) + tuple(dims)
    split, target = [], []
    for count, size in zip(counts, dims):
        if count != 1:
            split.append(1)
            target.append(count)
        split.append(size)
        target.append(size)
    if len(split) != rank or rank != len(data.tensor.dims):
        data = make.reshape(data, split)
    return make.reshape(_broadcast(make, data, target), node.tensor.dims)


def _broadcast(make: Maker, data: Node, dims) -> Node:
    shape = [size if isinstance(size, int) else -1 for size in dims]
    type_ = Tensor(tuple(dims), data.tensor.dtype)
    return make.graph.call("broadcast_to", [data], make.node, type_, shape=shape)


def _stepped_slice(make: Maker, node: Node) -> Node | None:
    """Write a slice as a `take` of each axis if one is in reverse, or its last step ends outside.

    Rows of slices have steps forward, and oneDNN counts the memory up to the next element.
    """
    attrs, data = node.attrs, node.operands[0]
    given = (attrs.begin, attrs.end, attrs.strides, attrs.axes)
    if attrs.slice_mode != "end" or None in [ints(each or ()) for each in given]:
        return None
    orders, is_stepped = {}, False
    for axis, part in sliced(attrs, len(data.tensor.dims)):
        size, step = data.tensor.shape[axis], part.step
        if size is None:
            return None
        order = range(size)[part]
        if not order or len(order) != node.tensor.shape[axis]:
            return None
        is_stepped |= step < 1 or step > 1 and step * len(order) > size
        if order != range(size):
            orders[axis] = order
    for axis, order in orders.items() if is_stepped else ():
        data = _ordered(make, node, data, axis, order)
    return data if is_stepped and orders else None


def _flip(make: Maker, node: Node) -> Node:
    """Write an axis in reverse as a `take`."""
    (data,) = node.operands
    check_moved(node)
    axis = node.attrs.axis % len(data.tensor.dims)
    size = data.tensor.shape[axis]
    if size is None:
        raise UnsupportedOp("the size of the axis is open")
    return _ordered(make, node, data, axis, range(size)[::-1])


def _mirrored_pad(make: Maker, node: Node) -> Node | None:
    """Write a pad of many lines that the data have as a `take`, which copies them in one go."""
    mode, data = node.attrs.pad_mode, node.operands[0]
    widths = [ints(pair) for pair in node.attrs.pad_width]
    sizes = data.tensor.shape
    if mode not in ("edge", "reflect") or None in widths or sum(map(sum, widths)) <= MAX_LINES:
        return None
    for axis, (size, pair) in enumerate(zip(sizes, widths)):
        if not any(pair):
            continue
        if size is None or min(pair) < 0 or (mode == "reflect" and max(pair) >= size):
            return None
        data = _ordered(make, node, data, axis, np.pad(np.arange(size), pair, mode))
    return data


def _gather_elements(make: Maker, node: Node) -> Node:
    """Write a gather of elements by constant indices as a `take` of the flattened data."""
    data, indices = node.operands
    check_moved(node)
    if not indices.is_constant:
        raise UnsupportedOp("the indices are not constant")
    shape = data.tensor.shape
    if None in shape:
        raise UnsupportedOp(f"the shape {text_of_shape(shape)} is open")
    axis, values = node.attrs.axis % len(shape), indices.value
    if not values.size or values.min() < 0 or values.max() >= shape[axis]:
        raise UnsupportedOp(f"there is no index, or one is out of range of axis {axis}")
    positions = list(np.indices(values.shape))
    positions[axis] = values
    order = np.ravel_multi_index(tuple(positions), shape)
    flat = make.reshape(data, [math.prod(shape)])
    return make.reshape(_ordered(make, node, flat, 0, order.ravel()), node.tensor.dims)


def _ordered(make: Maker, node: Node, data: Node, axis: int, order) -> Node:
    """Permute the elements along an axis."""
    dims = list(data.tensor.dims)
    dims[axis] = len(order)
    indices = make.graph.constant(np.array(order, "int32"), "int32")
    attrs = {"axis": axis, "batch_dims": 0, "mode": "clip"}
    return make.graph.call(
        "take", [data, indices], node, Tensor(tuple(dims), data.tensor.dtype), **attrs
    )


_OPS = {
    "take": _take,
    "repeat": _repeat,
    "tile": _tile,
    "strided_slice": _stepped_slice,
    "nn.pad": _mirrored_pad,
}

COPIES = {
    **{f"{prefix}{name}": write for name, write in _OPS.items() for prefix in ("", "relax.")},
    "reverse": _flip,
    "relax.flip": _flip,
    "gather": _gather_elements,
    "relax.gather_elements": _gather_elements,
}
