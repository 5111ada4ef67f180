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
"""Calls of Relax that are written as several of the table, such as an attention."""

from __future__ import annotations

import math
from collections.abc import Callable

import ml_dtypes
import numpy as np
from tvm import relax, tirx
from tvm.contrib.onednn.policy import cpu
from tvm.contrib.onednn.policy.tensors import MOVED

from .reading import (
    Analyzer,
    Unread,
    constant_of,
    dims,
    is_constant,
    is_same,
    number,
    value_of,
    with_attrs,
)

Emit = Callable[[relax.Expr], relax.Expr]

# From (batch, length, heads, size) to (batch, heads, length, size), and back.
_HEADS_FIRST = [0, 2, 1, 3]

# A selu's factors of what is below zero, and of all.
_SELU = 1.6732632423543772848, 1.0507009873554804934


def check_attention(call: relax.Call) -> None:
    """Raise Unread, unless an attention can be written as matmuls and a softmax."""
    lengths = [dims(arg)[1] for arg in call.args[:2]]
    heads, *others = (dims(arg)[2] for arg in call.args[:3])
    if not all(Analyzer().can_prove_equal(each, heads) for each in others):
        queries, keys, values = (number(each) or each for each in (heads, *others))
        raise Unread(f"{queries} heads of queries, {keys} of keys and {values} of values")
    dtype, mask = str(call.ty.dtype), call.attrs.causal_mask
    if call.attrs.window_size is not None:
        raise Unread(f"window_size={call.attrs.window_size}: oneDNN has no sliding window")
    if dtype not in cpu.REAL or not cpu.computes(dtype):
        raise Unread(f"query is {dtype}, which oneDNN cannot compute with on this CPU")
    if call.attrs.scale is None and number(dims(call.args[0])[3]) is None:
        raise Unread("the size of the heads is open")
    if mask not in (None, "TopLeft", "BottomRight"):
        raise Unread(f"causal_mask={mask}")
    if mask == "BottomRight" and None in map(number, lengths) and not is_same(*lengths):
        raise Unread("causal_mask=BottomRight with open lengths")


def check_take(call: relax.Call) -> None:
    """Raise Unread, unless a `take` is that of one constant index, or of some at equal steps."""
    data, indices = call.args
    if not is_constant(indices):
        raise Unread("the indices are not constant, and oneDNN has no look-up")
    index, shape = value_of(indices), [number(dim) for dim in dims(data)]
    first, *others = _indices(call)
    steps = {after - before for before, after in zip([first, *others], others)}
    is_slice = len(steps) == 1 and min(steps) > 0 and index.ndim == 1
    if (others and not is_slice) or (index.ndim > 1 and None in shape):
        raise Unread(f"{index.size} indices, and oneDNN has no look-up")
    # Others depend on the mode. Where the size is open, there is one element at least.
    for each in (first, *others):
        if not 0 <= each < (shape[int(call.attrs.axis or 0)] or 1):
            raise Unread(f"index {each} may be out of range")
    _check_moved(data)


def _check_moved(data: relax.Expr) -> None:
    dtype = str(data.ty.dtype)
    if dtype not in MOVED or (dtype in cpu.REAL and not cpu.computes(dtype)):
        raise Unread(f"data is {dtype}")


def _indices(call: relax.Call) -> list[int]:
    """Return the constant indices of a `take`.

    In the mode "fast" any may be read for one that is out of range. PyTorch's importer writes -1
    so, of which TVM's kernel reads what is before the tensor; so the last is read.
    """
    size = number(dims(call.args[0])[int(call.attrs.axis or 0)])
    wraps = size and call.attrs.mode == "fast"
    indices = value_of(call.args[1]).ravel().tolist()
    return [index + size if index < 0 and wraps else index for index in indices]


def attention(call: relax.Call, emit: Emit) -> relax.Expr:
    """Write an attention that `check_attention` accepts as two matmuls and what is between them.

    Parameters
    ----------
    call : relax.Call
        The call.
    emit : Emit
        Binds an expression to a variable.
    """
    query, key, value, *bias = call.args
    dtype = str(query.ty.dtype)
    key = emit(relax.op.permute_dims(key, [0, 2, 3, 1]))
    query, value = (emit(relax.op.permute_dims(each, _HEADS_FIRST)) for each in (query, value))
    scale = number(call.attrs.scale)
    scale = 1.0 / math.sqrt(number(dims(query)[3])) if scale is None else scale
    scores = emit(relax.op.matmul(query, key))
    scores = emit(relax.op.multiply(scores, constant_of(scale, dtype)))
    for each in bias:
        scores = emit(relax.op.add(scores, each))
    if call.attrs.causal_mask is not None:
        mask = _causal_mask(dims(scores)[2:], call.attrs.causal_mask == "BottomRight", dtype, emit)
        scores = emit(relax.op.add(scores, mask))
    weights = emit(relax.op.nn.softmax(scores, axis=-1))
    return relax.op.permute_dims(emit(relax.op.matmul(weights, value)), _HEADS_FIRST)


def _causal_mask(lengths: list, is_at_end: bool, dtype: str, emit: Emit) -> relax.Expr:
    """Return what makes zeros of the weights of later positions when it is added to scores."""
    known = [number(length) for length in lengths]
    # Half of it: a sum with a score must not be infinite.
    lowest = float(ml_dtypes.finfo(dtype).min) / 2
    if None not in known:
        first = 1 + (abs(known[0] - known[1]) if is_at_end else 0)
        return constant_of(np.triu(np.full(known, lowest), first), dtype)
    lowest = emit(relax.op.full(lengths, constant_of(lowest, dtype), dtype))
    return emit(relax.op.triu(lowest, 1))


def take(call: relax.Call, emit: Emit) -> relax.Expr:
    """Write a `take` that `check_take` accepts as a slice."""
    data, indices = call.args
    (first, *others), axis = _indices(call), int(call.attrs.axis or 0)
    step, last = others[0] - first if others else 1, [first, *others][-1]
    part = relax.op.strided_slice(data, [axis], [first], [last + 1], [step])
    rank = value_of(indices).ndim
    if rank == 1:
        return part
    return (
        relax.op.reshape(emit(part), dims(call)) if rank else relax.op.squeeze(emit(part), [axis])
    )


def check_vectors(call: relax.Call) -> None:
    """Raise Unread, unless a matmul reads a vector."""
    if all(len(dims(arg)) > 1 for arg in call.args):
        raise Unread("no operand is a vector")


def of_vectors(call: relax.Call, emit: Emit) -> relax.Expr:
    """Write a matmul that reads a vector as one of a row or a column."""
    data, weight = call.args
    ones = []
    if len(dims(data)) == 1:
        data = emit(relax.op.expand_dims(data, [0]))
        ones.append(-2)
    if len(dims(weight)) == 1:
        weight = emit(relax.op.expand_dims(weight, [-1]))
        ones.append(-1)
    product = emit(relax.Call(call.op, [data, weight], call.attrs, call.ty_args))
    return relax.op.squeeze(product, ones)


def check_last_axes(call: relax.Call) -> None:
    """Raise Unread, unless a norm is along several axes, the last ones, whose sizes are known."""
    axes, shape = [int(axis) for axis in call.attrs.axes], dims(call.args[0])
    if len(axes) < 2:
        raise Unread("along one axis")
    if [axis % len(shape) for axis in axes] != list(range(len(shape)))[-len(axes) :]:
        raise Unread(f"axes={axes} are not the last in order")
    if None in map(number, shape[-len(axes) :]):
        raise Unread(f"the sizes of axes={axes} are open")


def along_one_axis(call: relax.Call, emit: Emit) -> relax.Expr:
    """Write a norm that `check_last_axes` accepts as one along the last axis, between reshapes."""
    data, *params = call.args
    shape, rank = dims(data), len(call.attrs.axes)
    size = math.prod(map(number, shape[-rank:]))
    data = emit(relax.op.reshape(data, [*shape[:-rank], size]))
    params = [emit(relax.op.reshape(param, [size])) for param in params]
    norm = with_attrs(relax.Call(call.op, [data, *params], call.attrs), axes=[-1])
    return relax.op.reshape(emit(norm), shape)


def check_group_axes(call: relax.Call) -> None:
    """Raise Unread, unless a group_norm's axes are some that do not follow the channels."""
    channel, axes = _group_axes(call)
    if len({channel, *axes}) != 1 + len(axes):
        raise Unread(f"axes={axes} name one twice, or that of the channels")
    if axes == list(range(channel + 1, len(dims(call.args[0])))):
        raise Unread("the axes follow the channels")


def _group_axes(call: relax.Call) -> tuple[int, list[int]]:
    """Return the axis of a group_norm's channels, and those that it normalizes, in order."""
    rank = len(dims(call.args[0]))
    return int(call.attrs.channel_axis) % rank, sorted(int(a) % rank for a in call.attrs.axes)


def behind_channels(call: relax.Call, emit: Emit) -> relax.Expr:
    """Write a group_norm that `check_group_axes` accepts with the axes behind the channels."""
    data, *params = call.args
    channel, axes = _group_axes(call)
    order = [a for a in range(len(dims(data))) if a != channel and a not in axes]
    first = len(order)
    order += [channel, *axes]
    data = emit(relax.op.permute_dims(data, order))
    norm = relax.Call(call.op, [data, *params], call.attrs)
    behind = list(range(first + 1, len(order)))
    norm = emit(with_attrs(norm, channel_axis=first, axes=behind))
    return relax.op.permute_dims(norm, [order.index(axis) for axis in range(len(order))])


def check_real(call: relax.Call) -> None:
    """Raise Unread, unless oneDNN computes with the data."""
    dtype = str(call.args[0].ty.dtype)
    if dtype not in cpu.REAL or not cpu.computes(dtype):
        raise Unread(f"data is {dtype}, which oneDNN cannot compute with on this CPU")


def selu(call: relax.Call, emit: Emit) -> relax.Expr:
    """Write a selu as an elu times a number: relu(x) - a * relu(1 - exp(x)) is one op of oneDNN."""
    (data,) = call.args
    dtype = str(data.ty.dtype)
    below = emit(relax.op.subtract(constant_of(1.0, dtype), emit(relax.op.exp(data))))
    below = emit(relax.op.multiply(emit(relax.op.nn.relu(below)), constant_of(_SELU[0], dtype)))
    elu = emit(relax.op.subtract(emit(relax.op.nn.relu(data)), below))
    return relax.op.multiply(elu, constant_of(_SELU[1], dtype))


def variance(call: relax.Call, emit: Emit) -> relax.Expr:
    """Write a variance as the mean of squares, as TVM computes it."""
    (data,), attrs = call.args, call.attrs
    mean = emit(relax.op.mean(data, attrs.axis, keepdims=True))
    square = emit(relax.op.square(emit(relax.op.subtract(data, mean))))
    return relax.op.mean(square, attrs.axis, keepdims=bool(attrs.keepdims))


def standard_deviation(call: relax.Call, emit: Emit) -> relax.Expr:
    """Write a standard deviation as the root of a variance."""
    return relax.op.sqrt(emit(variance(call, emit)))


def check_pixel_shuffle(call: relax.Call) -> None:
    """Raise Unread, unless a pixel shuffle can be written as a transpose between reshapes."""
    (data,) = call.args
    _check_moved(data)
    channels, *image = dims(data)[-3:]
    if number(channels) is None or [number(size) for size in image].count(None) > 1:
        raise Unread("channels, or height and width, are open")


def pixel_shuffle(call: relax.Call, emit: Emit) -> relax.Expr:
    """Write a pixel shuffle: a step is a row and a column of the square that a position becomes."""
    (data,), step = call.args, int(call.attrs.upscale_factor)
    *batch, channels, height, width = dims(data)
    split = [*batch, number(channels) // step**2, step, step, height, width]
    order = [0, 3, 1, 4, 2]
    axes = [*range(len(batch)), *(len(batch) + axis for axis in order)]
    squares = emit(relax.op.permute_dims(emit(relax.op.reshape(data, split)), axes))
    return relax.op.reshape(squares, dims(call))


def check_layout(call: relax.Call) -> None:
    """Raise Unread, unless an index map permutes axes, some of them in blocks of one size."""
    (data,) = call.args
    _check_moved(data)
    blocks, parts = _layout(call)
    shape = dims(data)
    wanted = [
        (axis, is_inner) for axis in range(len(shape)) for is_inner in range(1 + (axis in blocks))
    ]
    if sorted(parts) != wanted:
        raise Unread("the index map is more than an order of axes and blocks of them")
    for axis, block in blocks.items():
        if number(shape[axis]) is None or number(shape[axis]) % block:
            raise Unread(f"blocks of {block} do not divide axis {axis} of {shape}")


def _layout(call: relax.Call) -> tuple[dict[int, int], list[tuple[int, bool]]]:
    """Read an index map.

    Returns
    -------
    blocks, parts : tuple[dict[int, int], list[tuple[int, bool]]]
        The size of the blocks of an axis that has some. For each axis of the result, the data's
        that it is of, and whether it is the one within blocks.
    """
    index_map, blocks, parts = call.attrs.index_map, {}, []
    for index in index_map.final_indices:
        block = None
        if isinstance(index, (tirx.FloorDiv, tirx.FloorMod)):
            block = number(index.b)
        var = index if block is None else index.a
        axes = [k for k, own in enumerate(index_map.initial_indices) if own.same_as(var)]
        if not axes or blocks.setdefault(axes[0], block) != block:
            raise Unread(f"{index} is neither an axis nor a part of one")
        parts.append((axes[0], isinstance(index, tirx.FloorMod)))
    return {axis: block for axis, block in blocks.items() if block is not None}, parts


def layout(call: relax.Call, emit: Emit) -> relax.Expr:
    """Write a change of layout that `check_layout` accepts as a transpose of the blocks."""
    (data,), (blocks, parts) = call.args, _layout(call)
    sizes = [
        [number(dim) // blocks[axis], blocks[axis]] if axis in blocks else [dim]
        for axis, dim in enumerate(dims(data))
    ]
    if blocks:
        data = emit(relax.op.reshape(data, [size for each in sizes for size in each]))
    return relax.op.permute_dims(data, [sorted(parts).index(part) for part in parts])


# Ops that become other ops: whether they can, and how.
WRITTEN_ANEW: dict[str, tuple[Callable, Callable]] = {
    "relax.nn.attention": (check_attention, attention),
    "relax.nn.attention_bias": (check_attention, attention),
    "relax.take": (check_take, take),
    "relax.matmul": (check_vectors, of_vectors),
    "relax.nn.layer_norm": (check_last_axes, along_one_axis),
    "relax.nn.rms_norm": (check_last_axes, along_one_axis),
    "relax.nn.group_norm": (check_group_axes, behind_channels),
    "relax.nn.selu": (check_real, selu),
    "relax.variance": (check_real, variance),
    "relax.std": (check_real, standard_deviation),
    "relax.nn.pixel_shuffle": (check_pixel_shuffle, pixel_shuffle),
    "relax.layout_transform": (check_layout, layout),
}
