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
"""Decompositions of elementwise ops of mixed types, which TVM's importer computes in another type.

Each returns NotImplemented for calls that the importer reads as they are.
"""

from __future__ import annotations

import functools
import threading

import torch

from .graphs import aten

_UNARY = """acos acosh asin asinh atan atanh cos cosh erf exp expm1 log log10 log1p log2 reciprocal
    rsqrt sigmoid sin sinh sqrt tan tanh""".split()
_COMPARISONS = "eq ge gt le lt ne".split()
_LOGICAL = "logical_and logical_not logical_or logical_xor".split()
_BINARY = "bitwise_and bitwise_or bitwise_xor div fmod remainder".split()
_ARITHMETIC = (
    *(getattr(getattr(aten, name), kind) for name in _BINARY for kind in ("Tensor", "Scalar")),
    aten.atan2.default,
)


def cast(x, dtype):
    """Cast a tensor, and leave a number as it is."""
    is_other = isinstance(x, torch.Tensor) and x.dtype != dtype
    return aten._to_copy.default(x, dtype=dtype) if is_other else x


def once(decompose):
    """Return a decomposition that leaves what it calls itself to the importer."""
    state = threading.local()

    @functools.wraps(decompose)
    def guarded(*args, **kwargs):
        if getattr(state, "is_inside", False):
            return NotImplemented
        state.is_inside = True
        try:
            return decompose(*args, **kwargs)
        finally:
            state.is_inside = False

    return guarded


def _in_type(op, type_of):
    """Return the decomposition of an op into casts to the type that it computes in, and itself."""

    def decompose(*args, **kwargs):
        dtype = type_of(*args)
        operands = [cast(each, dtype) for each in args]
        is_same = all(one is other for one, other in zip(args, operands))
        return NotImplemented if is_same else op(*operands, **kwargs)

    return decompose


def _float_type(x):
    return x.dtype if x.is_floating_point() or x.is_complex() else torch.get_default_dtype()


def _compared_type(*args):
    """Return the type of a comparison: LLVM compares no booleans of TVM."""
    dtype = torch.result_type(*args)
    return torch.int8 if dtype == torch.bool else dtype


def _quotient_type(*args):
    dtype = torch.result_type(*args[:2])
    is_float = dtype.is_floating_point or dtype.is_complex
    return dtype if is_float else torch.get_default_dtype()


def _in_types() -> dict:
    """Return the decompositions of ops of mixed types."""
    kinds = [(getattr(aten, name).default, _float_type) for name in _UNARY]
    kinds += [(getattr(aten, name).default, lambda *_: torch.bool) for name in _LOGICAL]
    kinds += [
        (getattr(getattr(aten, name), kind), _compared_type)
        for name in _COMPARISONS
        for kind in ("Tensor", "Scalar")
    ]
    float_ops = aten.div.Tensor, aten.div.Scalar, aten.atan2.default
    kinds += [(op, _quotient_type if op in float_ops else torch.result_type) for op in _ARITHMETIC]
    return {op: _in_type(op, type_of) for op, type_of in kinds}


def _compared_with_itself(op, is_equal):
    """Return the decomposition of a test for NaN: TVM takes a number to be equal to itself."""
    of_types = _in_type(op, _compared_type)

    def decompose(x, other):
        if x is not other or not x.is_floating_point():
            return of_types(x, other)
        nan = aten.isnan.default(x)
        return aten.logical_not.default(nan) if is_equal else nan

    return decompose


def _sum(op, name):
    """Return the decomposition of an add or sub: the importer ignores alpha."""

    def decompose(x, other, alpha=1):
        dtype = torch.result_type(x, other)
        if alpha != 1:
            return op(x, cast(other, dtype) * alpha)
        if dtype == torch.bool and name == "add":
            return aten.logical_or.default(x, cast(other, dtype))
        operands = cast(x, dtype), cast(other, dtype)
        is_same = operands[0] is x and operands[1] is other
        return NotImplemented if is_same else op(*operands)

    return decompose


def _div_mode(x, other, *, rounding_mode=None):
    """Divide and round as PyTorch does: integers exactly, floats by their remainder."""
    if rounding_mode is None:
        is_tensor = isinstance(other, torch.Tensor)
        return (aten.div.Tensor if is_tensor else aten.div.Scalar)(x, other)
    dtype = torch.result_type(x, other)
    is_canonical = isinstance(other, torch.Tensor) and x.dtype == dtype == other.dtype
    if not isinstance(other, torch.Tensor):
        other = torch.full((), other, dtype=dtype)
    x, other = cast(x, dtype), cast(other, dtype)
    if not dtype.is_floating_point:
        if rounding_mode == "floor":
            floor = aten.div.Tensor_mode
            return NotImplemented if is_canonical else floor(x, other, rounding_mode="floor")
        # Relax has no division of integers that rounds towards 0.
        size = aten.div.Tensor_mode(x.abs(), other.abs(), rounding_mode="floor")
        return torch.where((x < 0) != (other < 0), -size, size)
    if rounding_mode == "trunc":
        return (x / other).trunc()
    rest = aten.fmod.Tensor(x, other)
    quotient = ((x - rest) / other).round()
    is_above = (rest != 0) & ((other < 0) != (rest < 0))
    return torch.where(other == 0, x / other, torch.where(is_above, quotient - 1, quotient))


def _pow(op):
    """Return the decomposition of a power: Relax has none of integers."""

    def decompose(x, exponent):
        dtype = torch.result_type(x, exponent)
        if dtype.is_floating_point or dtype.is_complex:
            return _in_type(op, torch.result_type)(x, exponent)
        if not isinstance(exponent, torch.Tensor):
            # The importer multiplies.
            return NotImplemented if x.dtype == dtype else op(cast(x, dtype), exponent)
        x = cast(x if isinstance(x, torch.Tensor) else torch.full((), x), dtype)
        return _integer_power(x, cast(exponent, dtype))

    return decompose


def _integer_power(x, exponent):
    """Square and multiply. Powers above 126 are 0, 1 or -1, or exceed every type."""
    size = torch.where(exponent > 126, 126 + exponent % 2, exponent)
    result, square = torch.ones_like(x), x
    for bit in range(7):
        result = torch.where((size & 1 << bit) != 0, result * square, result)
        square = square * square
    if not exponent.dtype.is_signed:
        return result
    # The reciprocal is an integer for 1 and -1 only.
    is_odd = exponent % 2 != 0
    reciprocal = torch.where(x == 1, 1, torch.where(x == -1, torch.where(is_odd, -1, 1), 0))
    return torch.where(exponent < 0, cast(reciprocal, x.dtype), result)


def _mul(op):
    """Return the decomposition of a product: that of booleans is their `and`."""

    def decompose(x, other):
        if torch.result_type(x, other) == torch.bool:
            other = other if isinstance(other, torch.Tensor) else torch.full((), other)
            return aten.logical_and.default(x, other)
        return _in_type(op, torch.result_type)(x, other)

    return decompose


def _nan_extremum(op, of_booleans):
    """Return the decomposition of a maximum or minimum of two tensors, which NaN of either is."""

    @once
    def decompose(x, other):
        dtype = torch.result_type(x, other)
        if dtype == torch.bool:
            return of_booleans(x, other)
        operands = cast(x, dtype), cast(other, dtype)
        result = op(*operands)
        for each in operands if dtype.is_floating_point else ():
            # TVM has no test of bfloat16.
            nan = aten.isnan.default(cast(each, torch.float32) if dtype == torch.bfloat16 else each)
            result = torch.where(nan, each, result)
        return result

    return decompose


def _clamp(x, low=None, high=None):
    """Clamp by a maximum and a minimum of tensors of one type; an upper bound wins.

    A single bound is a tensor: TVM's clip makes NaN of the infinity at the other end.
    """
    bounds = [each for each in (low, high) if each is not None]
    dtype = functools.reduce(torch.promote_types, (torch.result_type(x, each) for each in bounds))
    is_plain = not any(isinstance(each, torch.Tensor) for each in bounds)
    if (
        is_plain
        and x.dtype == dtype
        and dtype.is_floating_point
        and None not in (low, high)
        and low <= high
    ):
        return NotImplemented
    x = cast(x, dtype)
    tensors = [
        (
            each
            if each is None or isinstance(each, torch.Tensor)
            else torch.full((), each, dtype=dtype)
        )
        for each in (low, high)
    ]
    x = x if low is None else torch.maximum(x, cast(tensors[0], dtype))
    return x if high is None else torch.minimum(x, cast(tensors[1], dtype))


def _where(condition, x, other):
    dtype = torch.result_type(x, other)
    if x.dtype == dtype and other.dtype == dtype:
        return NotImplemented
    return aten.where.self(condition, cast(x, dtype), cast(other, dtype))


def _cat(tensors, dim=0):
    dtype = functools.reduce(torch.promote_types, (each.dtype for each in tensors))
    if all(each.dtype == dtype for each in tensors):
        return NotImplemented
    return aten.cat.default([cast(each, dtype) for each in tensors], dim)


@once
def _to_copy(x, *, dtype=None, **kwargs):
    """Compare a number with 0 instead of casting it to a truth: oneDNN has no such cast."""
    if dtype != torch.bool or not x.is_floating_point():
        return NotImplemented
    return aten.ne.Scalar(x, 0)


def _bitwise_not(x):
    return aten.logical_not.default(x) if x.dtype == torch.bool else NotImplemented


DECOMPOSITIONS = {
    **_in_types(),
    aten._to_copy.default: _to_copy,
    aten.bitwise_not.default: _bitwise_not,
    aten.eq.Tensor: _compared_with_itself(aten.eq.Tensor, True),
    aten.ne.Tensor: _compared_with_itself(aten.ne.Tensor, False),
    aten.add.Tensor: _sum(aten.add.Tensor, "add"),
    aten.add.Scalar: _sum(aten.add.Scalar, "add"),
    aten.sub.Tensor: _sum(aten.sub.Tensor, "sub"),
    aten.sub.Scalar: _sum(aten.sub.Scalar, "sub"),
    **{op: _pow(op) for op in (aten.pow.Scalar, aten.pow.Tensor_Scalar, aten.pow.Tensor_Tensor)},
    aten.mul.Tensor: _mul(aten.mul.Tensor),
    aten.mul.Scalar: _mul(aten.mul.Scalar),
    aten.div.Tensor_mode: _div_mode,
    aten.div.Scalar_mode: _div_mode,
    aten.maximum.default: _nan_extremum(aten.maximum.default, aten.logical_or.default),
    aten.minimum.default: _nan_extremum(aten.minimum.default, aten.logical_and.default),
    aten.clamp.default: _clamp,
    aten.clamp.Tensor: _clamp,
    aten.where.self: _where,
    aten.cat.default: _cat,
}
