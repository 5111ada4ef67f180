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
"""Decompositions of ops whose arguments TVM's importer misreads, into ops that it reads.

Each returns NotImplemented for calls that the importer reads as they are.
"""

from __future__ import annotations

import itertools
import math

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from . import fourier, pools, promotion, quantized, selections
from .graphs import aten
from .promotion import cast, once


def _reduced(op):
    """Return the decomposition of a reduction: `dim=[]` is all axes, and a number has none."""

    def decompose(x, dim=(), keepdim=False, **kwargs):
        if x.dim() == 0 and (dim or dim == []):
            return op(x.reshape(1), [0], False, **kwargs)
        if dim is None or len(dim) == 0:
            if x.dim() == 0:
                return NotImplemented
            return op(x, list(range(x.dim())), keepdim, **kwargs)
        if op is aten.mean.dim and 0 in [x.shape[axis] for axis in dim]:
            total = aten.sum.dim_IntList(x, dim, keepdim, **kwargs)
            return torch.full_like(total, math.nan)
        if op in _EXTREMA:
            return NotImplemented
        dtype = kwargs.pop("dtype", None) or _total_type(x)
        if x.dtype == dtype:
            return NotImplemented
        return cast(op(cast(x, dtype), dim, keepdim, **kwargs), dtype)

    return decompose


def _total_type(x):
    return x.dtype if x.is_floating_point() else torch.int64


def _prod(op):
    def decompose(x, *args, dtype=None):
        dtype = dtype or _total_type(x)
        return NotImplemented if x.dtype == dtype else op(cast(x, dtype), *args)

    return decompose


def _any(x, dim=None, keepdim=False):
    """Count what is not 0: the importer returns the largest element."""
    dtype = torch.uint8 if x.dtype == torch.uint8 else torch.bool
    if dim == []:
        return cast(x != 0, dtype)
    dim = [dim] if isinstance(dim, int) else dim or list(range(x.dim()))
    counts = cast(x != 0, torch.int64)
    return cast(aten.sum.dim_IntList(counts, dim, keepdim) != 0, dtype)


def _var(x, dim=None, *, correction=None, keepdim=False):
    total = torch.promote_types(x.dtype, torch.float32)
    if x.dtype != total:
        # As PyTorch: sums of 16 bits are wrong for many elements.
        result = aten.var.correction(cast(x, total), dim, correction=correction, keepdim=keepdim)
        return cast(result, x.dtype)
    if dim is not None and len(dim) == 0:
        return aten.var.correction(x, None, correction=correction, keepdim=keepdim)
    dim = list(range(x.dim())) if dim is None else dim
    correction = 1 if correction is None else correction
    sizes = [x.shape[axis] for axis in dim]
    if correction == 0 or all(isinstance(size, int) for size in sizes):
        return NotImplemented
    # TVM has no correction along an open axis.
    count = aten.full.default(sizes, 1.0, dtype=x.dtype).sum()
    share = count / (count - correction).clamp(min=0)
    return aten.var.correction(x, dim, correction=0, keepdim=keepdim) * share


def _arg(x, dim=None, keepdim=False):
    return torch.zeros((), dtype=torch.int64) if x.dim() == 0 else NotImplemented


def _keys(x):
    """Return float64 in the order of a tensor, in which NaN exceeds all."""
    keys = cast(x, torch.float64)
    others = torch.where(keys == math.inf, _LARGEST, keys)
    return torch.where(aten.isnan.default(keys), math.inf, others)


_LARGEST = torch.finfo(torch.float64).max


def _negated(x):
    """Subtract integers without a sign from 0: TVM multiplies by -1."""
    return NotImplemented if x.dtype.is_signed else x.new_zeros(()) - x


def _cumprod(x, dim, *, dtype=None):
    return cast(x.clone(), dtype or _total_type(x)) if x.dim() == 0 else NotImplemented


def _cumsum(x, dim, *, dtype=None):
    """Add what is 1, 2, 4, ... elements earlier: oneDNN has no sum of all that precede."""
    dtype, size = dtype or _total_type(x), x.shape[dim] if x.dim() else 0
    if x.dim() == 0 or statically_known_true(x.numel() == 0):
        return cast(x.clone(), dtype)
    if not isinstance(size, int) or not 1 < size <= _LONGEST_SUM or not dtype.is_floating_point:
        return NotImplemented
    x, step = cast(x, dtype), 1
    padding = [0] * (2 * ((-1 - dim) % x.dim()) + 2)
    while step < size:
        padding[-2] = step
        earlier = aten.constant_pad_nd.default(x.narrow(dim, 0, size - step), padding, 0.0)
        x, step = x + earlier, 2 * step
    return x


def _softmax(x, dim, half_to_float):
    """Return 1 for a number, or NaN."""
    return (x - x).exp() if x.dim() == 0 else NotImplemented


def _log_softmax(x, dim, half_to_float):
    return x - x if x.dim() == 0 else NotImplemented


def _elu(x, alpha=1.0, scale=1.0, input_scale=1.0):
    if scale == 1 and input_scale == 1:
        return NotImplemented
    return torch.where(x > 0, x, ((x * input_scale).exp() - 1) * alpha) * scale


def _empty_like(x, *, dtype=None, **_):
    """Write zeros, so that what then assigns all elements computes from something defined."""
    return torch.zeros_like(x, dtype=dtype)


def _full(size, value, *, dtype=None, **_):
    """Broadcast what is not finite to an open size: TVM fails to compile such a fill."""
    is_finite = not isinstance(value, float) or math.isfinite(value)
    if is_finite or all(isinstance(each, int) for each in size):
        return NotImplemented
    return aten.expand.default(aten.full.default([], value, dtype=dtype), size)


def _empty(size, *, dtype=None, **_):
    return torch.zeros(size, dtype=dtype)


def _slice(x, dim=0, start=None, end=None, step=1):
    """Write a slice of nothing as such: the importer's begins after the end."""
    size = x.shape[dim]
    if not all(isinstance(each, (int, type(None))) for each in (size, start, end)):
        return NotImplemented
    if range(size)[slice(start, end, step)]:
        return NotImplemented
    shape = list(x.shape)
    shape[dim] = 0
    return x.new_zeros(shape)


def _slice_scatter(x, src, dim=0, start=None, end=None, step=1):
    """Join what is left of an axis and the new slice, as oneDNN runs it; TVM's has fixed sizes."""
    dim, size = dim % x.dim(), x.shape[dim]
    if step != 1:
        return NotImplemented
    start = 0 if start is None else start
    if isinstance(size, int) and isinstance(start, int):
        start = slice(start, None).indices(size)[0]
    if not statically_known_true(start >= 0):
        return NotImplemented
    end = start + src.shape[dim]
    parts = [src]
    if not statically_known_true(start == 0):
        parts.insert(0, aten.slice.Tensor(x, dim, 0, start))
    if not statically_known_true(end == size):
        parts.append(aten.slice.Tensor(x, dim, end, size))
    if len(parts) == 1:
        return src.expand(x.shape).clone()
    result = aten.cat.default(parts, dim)
    return result if not isinstance(size, int) else _laid_out(result, x)


def _laid_out(x, like):
    """Return a tensor with the strides of another, which views of the result rely on."""
    if x.stride() == like.stride():
        return x
    order = sorted(range(x.dim()), key=like.stride, reverse=True)
    x = aten.clone.default(x.permute(order), memory_format=torch.contiguous_format)
    return x.permute([order.index(axis) for axis in range(x.dim())])


def _repeat(x, repeats):
    """Write a repeat by an open size as an expand: TVM's has fixed counts."""
    if all(isinstance(each, int) for each in repeats):
        return NotImplemented
    shape = [1] * (len(repeats) - x.dim()) + list(x.shape)
    pairs = [size for pair in zip(repeats, shape) for size in pair]
    x = x.reshape([size if k % 2 else 1 for k, size in enumerate(pairs)]).expand(pairs)
    return x.reshape([count * size for count, size in zip(repeats, shape)])


def _split_with_sizes(x, sizes, dim=0):
    if not all(isinstance(each, int) for each in sizes) or 0 not in sizes:
        return NotImplemented
    ends = itertools.accumulate(sizes)
    return tuple(x.narrow(dim, end - size, size) for size, end in zip(sizes, ends))


@once
def _sort(x, dim=-1, descending=False):
    if x.dim() == 0 or statically_known_true(x.numel() == 0):
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    return _ordered(x, dim, lambda keys: aten.sort.default(keys, dim, descending))


def _stable_sort(x, *, stable=None, dim=-1, descending=False):
    """Sort: TVM keeps the order of equal elements."""
    return aten.sort.default(x, dim, descending)


@once
def _topk(x, k, dim=-1, largest=True, sorted=True):
    """Sort the values where any order is right."""
    if k == 0:
        return x.narrow(dim, 0, 0), torch.zeros_like(x.narrow(dim, 0, 0), dtype=torch.int64)
    if x.dim() == 0:
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    return _ordered(x, dim, lambda keys: aten.topk.default(keys, k, dim, largest, True))


def _kthvalue(x, k, dim=-1, keepdim=False):
    results = aten.sort.default(x.reshape(1) if x.dim() == 0 else x, dim)
    single = x.dim() == 0 or not keepdim
    return tuple(
        each.select(dim, k - 1) if single else each.narrow(dim, k - 1, 1) for each in results
    )


def _searchsorted(edges, x, *, out_int32=False, right=False, side=None, sorter=None):
    """Count the elements of a sorted tensor that precede each value; all precede NaN."""
    if sorter is not None:
        return NotImplemented
    edges, values = edges if edges.dim() == 1 else edges.unsqueeze(-2), x.unsqueeze(-1)
    is_after = edges > values if right or side == "right" else edges >= values
    return aten.sum.dim_IntList(~is_after, [-1], dtype=torch.int32 if out_int32 else torch.int64)


def _bucketize(x, edges, *, out_int32=False, right=False):
    return _searchsorted(edges, x, out_int32=out_int32, right=right)


def _ordered(x, dim, order):
    """Return the elements in an order, and their indices.

    TVM sorts neither 8 bits nor booleans, and NaN anywhere. PyTorch's NaN exceeds infinity.
    """
    if x.dtype in (torch.int32, torch.int64):
        return order(x)
    if not x.is_floating_point():
        values, indices = order(cast(x, torch.int32))
        return cast(values, x.dtype), indices
    _, indices = order(_keys(x))
    return aten.gather.default(x, dim, indices), indices


def _extremum(value_of, index_of):
    """Return the decomposition of an op of which most programs read the values only."""

    def decompose(x, dim, keepdim=False):
        if x.dim() == 0:
            return x.clone(), torch.zeros((), dtype=torch.int64)
        return value_of(x, [dim], keepdim), index_of(x, dim, keepdim)

    return decompose


def _group_norm(x, weight, bias, batch, channels, size, groups, eps):
    """Write the weight or bias that a norm has not. Relax has none of bfloat16."""
    is_short = x.dtype == torch.bfloat16
    if weight is not None and bias is not None and not is_short:
        return NotImplemented
    dtype = torch.float32 if is_short else x.dtype
    weight = torch.ones(channels, dtype=dtype) if weight is None else cast(weight, dtype)
    bias = torch.zeros(channels, dtype=dtype) if bias is None else cast(bias, dtype)
    sizes = batch, channels, size, groups, eps
    results = aten.native_group_norm.default(cast(x, dtype), weight, bias, *sizes)
    return tuple(cast(each, x.dtype) for each in results)


def _cdist(x, y, p, compute_mode):
    return _norm(x.unsqueeze(-2) - y.unsqueeze(-3), p)


def _pdist(x, p=2.0):
    rows, columns = torch.triu_indices(x.shape[0], x.shape[0], 1).unbind()
    first, second = (aten.index_select.default(x, 0, each) for each in (rows, columns))
    return _norm(first - second, p)


def _norm(x, p):
    """Return the p-norm along the last axis."""
    if p == 0:
        return cast(x != 0, x.dtype).sum(-1)
    if p == math.inf:
        return x.abs().amax(-1)
    return x.abs().sum(-1) if p == 1 else x.abs().pow(p).sum(-1).pow(1 / p)


def _largest(op, rank):
    """Return the decomposition of a pool of the largest of an image without a batch or strides."""

    def decompose(x, kernel, stride=(), *args):
        if x.dim() == rank + 1:
            results = op(x.unsqueeze(0), kernel, stride or kernel, *args)
            return tuple(each.squeeze(0) for each in results)
        return NotImplemented if stride else op(x, kernel, kernel, *args)

    return decompose


_LONGEST_SUM = 1024
_EXTREMA = aten.amax.default, aten.amin.default
_REDUCTIONS = *_EXTREMA, aten.sum.dim_IntList, aten.mean.dim
_DECOMPOSITIONS = {
    aten.any.default: _any,
    aten.any.dim: _any,
    aten.any.dims: _any,
    aten.argmax.default: _arg,
    aten.argmin.default: _arg,
    aten._cdist_forward.default: _cdist,
    aten._pdist_forward.default: _pdist,
    aten.cumsum.default: _cumsum,
    aten.cumprod.default: _cumprod,
    aten.elu.default: _elu,
    aten.empty.memory_format: _empty,
    aten.empty_like.default: _empty_like,
    aten.full.default: _full,
    aten.repeat.default: _repeat,
    aten.slice.Tensor: _slice,
    aten.slice_scatter.default: _slice_scatter,
    aten.split_with_sizes.default: _split_with_sizes,
    aten._softmax.default: _softmax,
    aten._log_softmax.default: _log_softmax,
    aten.bucketize.Tensor: _bucketize,
    aten.searchsorted.Tensor: _searchsorted,
    aten.kthvalue.default: _kthvalue,
    aten.prod.default: _prod(aten.prod.default),
    aten.prod.dim_int: _prod(aten.prod.dim_int),
    aten.sort.default: _sort,
    aten.sort.stable: _stable_sort,
    aten.var.correction: _var,
    aten.topk.default: _topk,
    aten.max.dim: _extremum(aten.amax.default, aten.argmax.default),
    aten.min.dim: _extremum(aten.amin.default, aten.argmin.default),
    aten.native_group_norm.default: _group_norm,
    aten.neg.default: _negated,
    aten.max_pool2d_with_indices.default: _largest(aten.max_pool2d_with_indices.default, 2),
    aten.max_pool3d_with_indices.default: _largest(aten.max_pool3d_with_indices.default, 3),
    aten.avg_pool1d.default: pools.average_1d,
    aten.avg_pool2d.default: pools.average(aten.avg_pool2d.default, 2),
    aten.avg_pool3d.default: pools.average(aten.avg_pool3d.default, 3),
    aten._adaptive_avg_pool2d.default: pools.adaptive_average(aten._adaptive_avg_pool2d.default, 2),
    aten._adaptive_avg_pool3d.default: pools.adaptive_average(aten._adaptive_avg_pool3d.default, 3),
    **{op: _reduced(op) for op in _REDUCTIONS},
}


def table() -> dict:
    """Return the decompositions, for `torch.export.ExportedProgram.run_decompositions`."""
    families = promotion, selections, fourier
    shared = {op: each for family in families for op, each in family.DECOMPOSITIONS.items()}
    grouped = dict.fromkeys(selections.grouped_ops(), selections.grouped_matmul)
    return {**shared, **grouped, **quantized.decompositions(), **_DECOMPOSITIONS}
