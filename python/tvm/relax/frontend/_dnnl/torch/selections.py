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
"""Decompositions of ops that select or change elements by indices or masks.

Each returns NotImplemented for calls that the importer reads as they are.
"""

from __future__ import annotations

import math

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from .graphs import aten
from .promotion import cast


def _index_select(x, dim, index):
    return NotImplemented if index.dim() else aten.index_select.default(x, dim, index.reshape(1))


def _gather(x, dim, index, *, sparse_grad=False):
    """Gather from one dimension where PyTorch has numbers."""
    if x.dim() and index.dim():
        return NotImplemented
    return aten.gather.default(x.reshape(-1), 0, index.reshape(-1)).reshape(index.shape)


def _scatter_add(x, dim, index, source):
    return aten.scatter_reduce.two(x, dim, index, source, "sum")


def _scatter_reduce(x, dim, index, source, reduce, *, include_self=True):
    """Reduce with the element itself: it is the identity where PyTorch leaves it out."""
    if x.dim() == 0:
        flat = (each.reshape(-1) for each in (index, source))
        result = aten.scatter_reduce.two(x.reshape(1), 0, *flat, reduce, include_self=include_self)
        return result.reshape(())
    if x.dtype == torch.bool:
        x, source = cast(x, torch.int32), cast(source, torch.int32)
        result = aten.scatter_reduce.two(x, dim, index, source, reduce, include_self=include_self)
        return result != 0
    is_whole = index.shape == source.shape
    source = source if is_whole else _part(source, index)
    if reduce == "mean":
        ones = torch.ones_like(source)
        total = aten.scatter_reduce.two(x, dim, index, source, "sum", include_self=include_self)
        counts = torch.ones_like(x) if include_self else torch.zeros_like(x)
        counts = aten.scatter_add.default(counts, dim, index, ones).clamp(min=1)
        return total / counts if x.is_floating_point() else total // counts
    if not include_self:
        low, high = -math.inf, math.inf
        if not x.is_floating_point():
            low, high = torch.iinfo(x.dtype).min, torch.iinfo(x.dtype).max
        identity = {"sum": 0, "prod": 1, "amax": low, "amin": high}[reduce]
        x = aten.scatter.value(x, dim, index, identity)
    elif is_whole:
        return NotImplemented
    return aten.scatter_reduce.two(x, dim, index, source, reduce)


def _scatter(x, dim, index, source):
    """Leave out the part of the source that no index reads."""
    if index.shape == source.shape:
        return NotImplemented
    return aten.scatter.src(x, dim, index, _part(source, index))


def _part(source, index):
    """Return the part of the source that the indices read."""
    for axis, size in enumerate(index.shape):
        source = source.narrow(axis, 0, size)
    return source


def _index_put(x, indices, values, accumulate=False):
    """Assign by a mask as a `where`, and by indices as a scatter along their merged axes."""
    given = [(axis, each) for axis, each in enumerate(indices) if each is not None]
    if any(each.dtype in (torch.bool, torch.uint8) for _, each in given):
        return _masked_put(x, given, values, accumulate) if len(given) == 1 else NotImplemented
    axes = [axis for axis, _ in given]
    rest = [axis for axis in range(x.dim()) if axis not in axes]
    positions = torch.broadcast_tensors(*(each for _, each in given))
    linear = 0
    for axis, each in zip(axes, positions):
        each = cast(each, torch.int64)
        linear = linear * x.shape[axis] + torch.where(each < 0, each + x.shape[axis], each)
    count, size = linear.numel(), math.prod(x.shape[axis] for axis in rest)
    # PyTorch puts the axes of the indices where they were if these are adjacent, else first.
    front = axes[0] if axes == list(range(axes[0], axes[-1] + 1)) else 0
    sizes = [x.shape[axis] for axis in rest]
    values = cast(values, x.dtype).expand(*sizes[:front], *linear.shape, *sizes[front:])
    order = [*range(front, front + linear.dim()), *range(front)]
    order += range(front + linear.dim(), values.dim())
    values = values.permute(order).reshape(count, size)
    order = axes + rest
    data = x.permute(order)
    shape, linear = data.shape, linear.reshape(count, 1).expand(count, size)
    data = data.reshape(math.prod(x.shape[axis] for axis in axes), size)
    if accumulate:
        data = aten.scatter_reduce.two(data, 0, linear, values, "sum")
    else:
        data = aten.scatter.src(data, 0, linear, values)
    return data.reshape(shape).permute([order.index(axis) for axis in range(x.dim())])


def _masked_put(x, given, values, accumulate):
    axis, mask = given[0]
    rest = x.dim() - axis - mask.dim()
    if values.dim() > rest:
        place = values.dim() - rest - 1
        if not statically_known_true(values.shape[place] == 1):
            return NotImplemented
        front, back = values.shape[:place], values.shape[place + 1 :]
        values = values.reshape(*front, *[1] * mask.dim(), *back)
    mask, values = mask.reshape(*mask.shape, *[1] * rest), cast(values, x.dtype)
    return torch.where(cast(mask, torch.bool), x + values if accumulate else values, x)


def _embedding_bag(
    weight, indices, offsets, scale=False, mode=0, sparse=False, factors=None, last=False, pad=-1
):
    """Reduce the embeddings of each bag; gradients alone read the results after the first."""
    offsets = offsets[:-1] if last else offsets
    count = offsets.numel()
    bags = (torch.arange(indices.numel())[:, None] >= offsets[None]).sum(1) - 1
    rows = aten.index_select.default(weight, 0, indices)
    rows = rows if factors is None else rows * factors[:, None]
    if pad >= 0:
        # Padding is in a bag of its own, which is left out.
        bags = torch.where(indices == pad, count, bags)
    counts = bags.new_zeros(count + (pad >= 0)).scatter_add(0, bags, torch.ones_like(bags))
    index, result = bags[:, None].expand_as(rows), rows.new_zeros(counts.numel(), rows.shape[1])
    if mode == 2:
        result = result.scatter_reduce(0, index, rows, "amax", include_self=False)
    else:
        result = result.scatter_add(0, index, rows)
    if mode == 1:
        result = result / counts.clamp(min=1)[:, None]
    return result[:count], bags, counts[:count], counts[:count]


def _histc(x, bins=100, min=0, max=0):
    """Count the elements of each bin, unless the range depends on them."""
    if min >= max:
        return NotImplemented
    # Types of 16 bits do not hold all counts.
    dtype, x = x.dtype, x.reshape(-1)
    x = cast(x, torch.float32) if dtype.itemsize == 2 else x
    inside = (x >= min) & (x <= max)
    # In PyTorch's order of operations: rounding decides the bin of an element at an edge.
    place = (torch.where(inside, x, min) - min) * bins / (max - min)
    place = cast(place, torch.int64).clamp(max=bins - 1)
    return cast(x.new_zeros(bins).scatter_add(0, place, cast(inside, x.dtype)), dtype)


def grouped_ops() -> tuple:
    """Return the ops that multiply groups of rows; transformers has its own for float32."""
    theirs = getattr(torch.ops.transformers, "grouped_mm_fallback", None)
    return aten._grouped_mm.default, *([] if theirs is None else [theirs.default])


def grouped_matmul(x, weight, offsets=None, bias=None, out_dtype=None):
    """Multiply each row by the weight of its group, whose rows end at an offset: all, and select.

    The partitioner makes one op of it, which computes what is selected only.
    """
    if x.dim() != 2 or weight.dim() != 3 or offsets is None or bias is not None:
        return NotImplemented
    if out_dtype not in (None, x.dtype):
        return NotImplemented
    count, groups = x.shape[0], weight.shape[0]
    row = torch.arange(count)[:, None]
    # A row of a group that ended earlier is before the end of this one, too.
    ended = row >= offsets
    is_earlier = torch.cat([torch.ones_like(row, dtype=torch.bool), ended[:, :-1]], 1)
    inside = torch.logical_and(torch.logical_not(ended), is_earlier)
    merged = x @ weight.permute(1, 0, 2).reshape(weight.shape[1], -1)
    result = merged.reshape(count, groups, weight.shape[2])
    return torch.where(inside[..., None], result, 0.0).sum(1)


def _unfold(x, dim, size, step):
    """Take the windows of an axis by their indices."""
    if x.dim() == 0:
        return x.reshape(1)[:size]
    starts = torch.arange(0, x.shape[dim] - size + 1, step)
    windows = starts[:, None] + torch.arange(size)
    items = aten.index_select.default(x, dim, windows.reshape(-1))
    dim = dim % x.dim()
    shape = *x.shape[:dim], starts.numel(), size, *x.shape[dim + 1 :]
    return items.reshape(shape).movedim(dim + 1, -1)


def _col2im(x, sizes, kernel, dilation, padding, stride):
    """Write a fold of windows that neither overlap nor leave gaps as a permutation."""
    grid = [size // window for size, window in zip(sizes, kernel)]
    is_whole = [size * window for size, window in zip(grid, kernel)] == list(sizes)
    if kernel != stride or {*dilation} != {1} or any(padding) or not is_whole:
        general = torch._decomp.decomposition_table[aten.col2im.default]
        return general(x, sizes, kernel, dilation, padding, stride)
    lead, channels = x.shape[:-2], x.shape[-2] // math.prod(kernel)
    x = x.reshape(-1, channels, *kernel, *grid).permute(0, 1, 4, 2, 5, 3)
    return x.reshape(*lead, channels, *sizes)


def _masked_scatter(x, mask, source):
    """Take the next element of the source where the mask is True."""
    if source.numel() == 0:
        return x.clone()
    mask = mask.expand(x.shape)
    positions = cast(mask, torch.int64).reshape(-1).cumsum(0) - 1
    positions = positions.clamp(min=0, max=source.numel() - 1)
    values = aten.index_select.default(source.reshape(-1), 0, positions)
    return torch.where(mask, values.reshape(x.shape), x)


def _as_strided(x, size, stride, storage_offset=None):
    """Take the elements by their places in memory, if these are those of a contiguous tensor."""
    offset = storage_offset or 0
    sizes = *size, *stride, offset, *x.shape
    if not all(isinstance(each, int) for each in sizes) or x.storage_offset():
        return NotImplemented
    last = offset + sum((count - 1) * step for count, step in zip(size, stride))
    if not x.is_contiguous() or 0 in size or last >= x.numel():
        return NotImplemented
    positions = torch.full([1] * len(size), offset)
    for axis, (count, step) in enumerate(zip(size, stride)):
        places = torch.arange(count) * step
        positions = positions + places.reshape(-1, *[1] * (len(size) - 1 - axis))
    items = aten.index_select.default(x.reshape(-1), 0, positions.reshape(-1))
    return items.reshape(size)


DECOMPOSITIONS = {
    aten.as_strided.default: _as_strided,
    aten.masked_scatter.default: _masked_scatter,
    aten.gather.default: _gather,
    aten.index_select.default: _index_select,
    aten.scatter.src: _scatter,
    aten.scatter_add.default: _scatter_add,
    aten.scatter_reduce.two: _scatter_reduce,
    aten.index_put.default: _index_put,
    aten.unfold.default: _unfold,
    aten.histc.default: _histc,
    aten.col2im.default: _col2im,
    aten._embedding_bag.default: _embedding_bag,
    aten._embedding_bag_forward_only.default: _embedding_bag,
}
