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
"""Reshapes: views that give the same elements in the same order other dimensions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from ..ir.dim import Size, divided, product
from ..ir.op_view import OpView, Tensor, tensor_of
from .attrs import Bool, Int, Ints
from .draw import Call, Draw, shaped
from .schema import OpSchema, view
from .tensors import ints, known_product, text_of_shape, view_reason


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


def _reshaped_axis(call: OpView, axis: int) -> int | None:
    """Return the axis of a reshape's result that has the items of an axis of its data.

    The order of the elements stays: as many must be before an item, and as many items be there.
    """
    data, shape = tensor_of(call.args[0]).shape, tensor_of(call.result).shape
    axis %= len(data)
    for k, size in enumerate(shape):
        if None in (size, *data[: axis + 1], *shape[:k]):
            return None
        if size == data[axis] and known_product(shape[:k]) == known_product(data[:axis]):
            return k
    return None


def reshaped(dims: Sequence[Size], newshape: Sequence[Size]) -> tuple[Size, ...]:
    """Return the shape that Relay's `reshape` gives, by its codes.

    A positive number or an open size is that size; 0 keeps the dimension, -1 is what is left, -2
    keeps all that follow, -3 joins two, and -4 splits one into the next two numbers.
    """
    result: list[Size] = []
    codes, k, inferred = list(newshape), 0, None
    while codes:
        code = codes.pop(0)
        if code == -4:
            parts: list[Size] = [codes.pop(0), codes.pop(0)]
            k += 1
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


def reshape_codes(source: Sequence[Size], wanted: Sequence[Size]) -> list[int] | None:
    """Return the new shape for Relay's `reshape`, with its codes for what is open.

    Parameters
    ----------
    source : Sequence[int | Dim]
        The shape of the data.
    wanted : Sequence[int | Dim | None]
        The shape of the result, None for what is not known.

    Returns
    -------
    codes : list[int] | None
        None where the codes cannot say it.
    """
    return codes_by_groups(source, wanted) or codes_by_position(source, wanted)


def codes_by_position(source: Sequence[Size], wanted: Sequence[Size]) -> list[int] | None:
    """Say each dimension by itself: 0 is that of the data, -1 is left for one."""
    codes = []
    for k, size in enumerate(wanted):
        if isinstance(size, int):
            codes.append(size)
        elif size is not None and k < len(source) and source[k] == size:
            codes.append(0)
        else:
            codes.append(-1)
    return codes if codes.count(-1) <= 1 and all(code >= -1 for code in codes) else None


def codes_by_groups(source: Sequence[Size], wanted: Sequence[Size]) -> list[int] | None:
    """Say what becomes of the data's dimensions: each stays (0), meets the next (-3), or is split.

    -1 may stand for one dimension that is not known, as the first, where all others stay.
    """
    codes, k, rest = [], 0, list(wanted)
    if rest and rest[0] is None and len(rest) == len(source) - 1 and None not in rest[1:]:
        rest[0] = divided(product(source), product(rest[1:]))
    if None in rest or None in source:
        return None
    while rest:
        if k == len(source):
            return None
        if rest[0] == source[k]:
            codes.append(0)
            k, rest = k + 1, rest[1:]
        elif k + 1 < len(source) and rest[0] == product(source[k : k + 2]):
            codes.append(-3)
            k, rest = k + 2, rest[1:]
        elif len(rest) > 1 and product(rest[:2]) == source[k]:
            parts = [size if isinstance(size, int) else -1 for size in rest[:2]]
            if parts == [-1, -1]:
                return None
            codes += [-4, *parts]
            k, rest = k + 1, rest[2:]
        else:
            return None
    return codes if k == len(source) else None


def _reshape_type(args, attrs):
    return Tensor(reshaped(args[0].dims, attrs.newshape), args[0].dtype)


def _open_reshape_type(args, attrs):
    data, like = (each.dims for each in args)
    codes = [code if axis < 0 else like[axis] for code, axis in zip(attrs.newshape, attrs.axes)]
    return Tensor(reshaped(data, codes), args[0].dtype)


def open_reshape_reason(call: OpView) -> str | None:
    """Accept a new shape, some of whose sizes are those of axes of a second tensor."""
    reason = view_reason(call)
    if reason:
        return reason
    like, axes = tensor_of(call.args[1]).shape, call.attrs.axes
    if len(axes) != len(call.attrs.newshape) or any(axis >= len(like) for axis in axes):
        return f"axes={list(axes)} do not fit newshape or the rank of {text_of_shape(like)}"
    return None


def _reverse_reshape_type(args, attrs):
    reverse = reshaped(args[0].dims[::-1], attrs.newshape[::-1])
    return Tensor(reverse[::-1], args[0].dtype)


def _flatten_type(args, attrs):
    dims = args[0].dims
    return Tensor((dims[0], product(dims[1:])), args[0].dtype)


def _expand_dims_type(args, attrs):
    dims, count = args[0].dims, attrs.num_newaxis
    axis = attrs.axis % (len(dims) + 1)
    return Tensor((*dims[:axis], *(1,) * count, *dims[axis:]), args[0].dtype)


def _squeeze_type(args, attrs):
    dims = args[0].dims
    axes = attrs.axis if attrs.axis is not None else [a for a, dim in enumerate(dims) if dim == 1]
    gone = {axis % len(dims) for axis in axes}
    return Tensor(tuple(dim for axis, dim in enumerate(dims) if axis not in gone), args[0].dtype)


def _reshape(attrs, result_type, data, *like):
    return data.reshape(result_type.shape)


def _draw_reverse_reshape(d: Draw) -> Call:
    shape = d.shape(3)
    codes = [[-1, 0], [0, -1], [-1], [-3, 0], *d.rare([-2, 1], [0, -3])]
    return Call([d.values(shape)], {"newshape": d.choice(codes)})


def _draw_expand_dims(d: Draw) -> Call:
    shape = d.shape(1, 2, 3)
    attrs = {"axis": d.integer(-len(shape) - 1, len(shape)), "num_newaxis": d.integer(0, 3)}
    return Call([d.values(shape)], attrs)


def _draw_reshape(d: Draw) -> Call:
    shape = d.shape()
    count = int(math.prod(shape))
    codes = [[-1], [0, -1], [-2], [count], [1, -1, 1], [-4, -1, 1, -2], [-4, 1, -1, -2]]
    codes += [[-3, -2], [-1, *shape[1:]]] if len(shape) > 1 else []
    sizes: list[int] = []
    for _ in range(d.integer(1, 3)):
        sizes.append(d.groups(count // math.prod(sizes)))
    codes += [[*sizes, count // math.prod(sizes)]] * 3
    return Call([d.values(shape)], {"newshape": d.choice(codes)})


def _draw_open_reshape(d: Draw) -> Call:
    call, like, axes = _draw_reshape(d), d.shape(1, 2), []
    data, codes = call.values[0], list(call.attrs["newshape"])
    if min(codes) < -1:
        codes = [-1]
    for k, code in enumerate(codes):
        axes.append(len(like) if code > 0 and d.chance(0.6) else -1)
        if axes[k] >= 0:
            like.append(code)
            codes[k] = 0
    return Call([data, d.values(like)], {"newshape": codes, "axes": axes})


def _draw_squeeze(d: Draw) -> Call:
    shape = d.shape(2, 3, 4)
    if 1 not in shape:
        shape[d.integer(0, len(shape) - 1)] = 1
    ones = [axis for axis, size in enumerate(shape) if size == 1]
    axes = d.choice((None, ones, ones[:1], [axis - len(shape) for axis in ones], *d.rare([])))
    return Call([d.values(shape)], {"axis": axes})


_NEWSHAPE = Ints("newshape"), Bool("allowzero", False)


def _row(name: str, infer, **fields) -> OpSchema:
    fields.update(infer=infer, numpy=_reshape, reshapes=True, output_axis=_reshaped_axis)
    return view(name, view_reason, **fields)


ROWS = [
    _row(
        "contrib_reverse_reshape",
        _reverse_reshape_type,
        attrs=_NEWSHAPE,
        draw=_draw_reverse_reshape,
        relax="",
    ),
    _row(
        "expand_dims",
        _expand_dims_type,
        attrs=(Int("axis"), Int("num_newaxis", 1)),
        draw=_draw_expand_dims,
        relax="expand_dims reshape",
    ),
    _row("nn.batch_flatten", _flatten_type, draw=shaped(1, 2, 3, 4), relax=""),
    _row(
        "reshape",
        _reshape_type,
        attrs=_NEWSHAPE,
        draw=_draw_reshape,
        relax="reshape expand_dims squeeze flatten nn.batch_flatten",
    ),
    # Some of the codes are replaced with sizes of the second operand, by their axes.
    view(
        "dnnl.open_reshape",
        open_reshape_reason,
        attrs=(*_NEWSHAPE, Ints("axes")),
        infer=_open_reshape_type,
        numpy=_reshape,
        draw=_draw_open_reshape,
        relax="",
    ),
    _row(
        "squeeze",
        _squeeze_type,
        attrs=(Ints("axis", None),),
        draw=_draw_squeeze,
        relax="squeeze reshape",
    ),
]
