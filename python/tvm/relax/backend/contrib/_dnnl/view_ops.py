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
"""How the ops of Relax are read that name, order or gather elements in another way."""

from __future__ import annotations

import itertools

from tvm import relax, tirx
from tvm.contrib.onednn.ir.dim import divided
from tvm.contrib.onednn.ops.reshape import codes_by_groups

from .read_op import Composed, ReadOp, Row, plain, tuple_argument
from .reading import UnsupportedOp, axes_of, dims, is_same, number, sizes
from .types import size_from


def _reshape(call: relax.Call) -> ReadOp:
    """Read dimensions that are open as those of the data in the same place, or as what is left.

    Where that does not tell all of them, dimensions of one are put in or left out.
    """
    data = call.args[0]
    given, target = dims(data), dims(call)
    newshape: list[int] = []
    for i, dim in enumerate(target):
        size = number(dim)
        if size is not None:
            newshape.append(size)
        elif i < len(given) and is_same(dim, given[i]):
            newshape.append(0)
        elif -1 not in newshape:
            newshape.append(-1)
        else:
            return _of_ones(data, given, target)
    return ReadOp("reshape", [data], {"newshape": newshape, "allowzero": False})


def _of_ones(data: relax.Expr, given: list, target: list) -> ReadOp:
    new, old = _ones(target, given), _ones(given, target)
    if old is not None:
        return ReadOp("squeeze", [data], {"axis": old})
    if new is not None and new == list(range(new[0], new[-1] + 1)):
        return ReadOp("expand_dims", [data], {"axis": new[0], "num_newaxis": len(new)})
    codes = codes_by_groups(list(map(size_from, given)), list(map(size_from, target)))
    if codes is not None:
        return ReadOp("reshape", [data], {"newshape": codes, "allowzero": False})
    sizes_text = ", ".join(str(dim if number(dim) is None else number(dim)) for dim in target)
    raise UnsupportedOp(f"more than one open dimension of [{sizes_text}] is computed")


def _ones(longer: list, shorter: list) -> list[int] | None:
    """Return which dimensions of one the longer of two shapes has more, if it differs by these."""
    rest, axes = list(shorter), []
    for axis, dim in enumerate(longer):
        if rest and size_from(dim) == size_from(rest[0]):
            rest.pop(0)
        elif number(dim) == 1:
            axes.append(axis)
        else:
            return None
    return axes if axes and not rest else None


def _broadcast_to(call: relax.Call) -> ReadOp:
    """Read sizes that are known, -1 where they are the data's own, or None for computed ones."""
    given, target = dims(call.args[0]), dims(call)
    shape, missing = [], len(target) - len(given)
    for axis, size in enumerate(target):
        is_own = axis >= missing and is_same(size, given[axis - missing])
        shape.append(-1 if number(size) is None and is_own else number(size))
    return ReadOp("broadcast_to", [call.args[0]], {"shape": shape})


def _transpose(call: relax.Call) -> ReadOp:
    return ReadOp("transpose", [call.args[0]], {"axes": axes_of(call)})


def _concat(call: relax.Call) -> ReadOp:
    if call.attrs.axis is None:
        raise UnsupportedOp("axis is not given")
    return ReadOp(_CONCATS[call.op.name], [call.args[0]], {"axis": int(call.attrs.axis)})


_CONCATS = {"relax.concat": "concatenate", "relax.stack": "stack"}


def _split(call: relax.Call) -> ReadOp:
    """Read where the parts end, as Relax's sections may be of unequal sizes."""
    axis, given = int(call.attrs.axis), plain(call.attrs.indices_or_sections)
    size = dims(call.args[0])[axis]
    parts = call.ty.fields if isinstance(call.ty, relax.TupleType) else [call.ty]
    if number(size) is not None and len(parts) > 1:
        *given, end = itertools.accumulate(sizes(part)[axis] for part in parts)
        if end != number(size):
            raise UnsupportedOp("the indices are not in ascending order")
    elif len(parts) == 1:
        given = 1
    elif isinstance(given, list):
        raise UnsupportedOp(f"a part may be empty: the size along axis {axis} is open")
    elif divided(size_from(size), given) is None:
        raise UnsupportedOp(
            f"{given} parts may be of unequal sizes: the size along axis {axis} is open"
        )
    return ReadOp("split", [call.args[0]], {"indices_or_sections": given, "axis": axis})


def _strided_slice(call: relax.Call) -> ReadOp:
    data, axes, begin, end, *strides = call.args
    axes = tuple_argument(axes)
    strides = tuple_argument(strides[0]) if strides else [1] * len(axes)
    attrs = {"begin": tuple_argument(begin), "end": tuple_argument(end), "strides": strides}
    if call.attrs.assume_inbound:
        shape = sizes(data.ty)
        for axis, bounds in zip(axes, zip(attrs["begin"], attrs["end"])):
            if shape[axis] is not None and any(abs(bound) > shape[axis] for bound in bounds):
                raise UnsupportedOp(f"assume_inbound, and the slice exceeds axis {axis}")
    return ReadOp("strided_slice", [data], {**attrs, "axes": axes, "slice_mode": "end"})


def _pad(call: relax.Call) -> ReadOp:
    """Read the value, which is an attribute here, as the constant that Relay has."""
    data, widths = call.args[0], plain(call.attrs.pad_width)
    value = relax.const(float(call.attrs.pad_value), data.ty.dtype)
    mode = {"replicate": "edge"}.get(call.attrs.pad_mode, call.attrs.pad_mode)
    attrs = {"pad_width": list(zip(widths[::2], widths[1::2])), "pad_mode": mode}
    return ReadOp("nn.pad", [data, value], attrs)


def _layout_transform(call: relax.Call) -> ReadOp:
    """Read an index map: the size of the blocks of each axis that has some, and the parts.

    For each axis of the result, its part is the data's axis that it is of, and whether it is the
    one within blocks.
    """
    index_map, blocks, parts = call.attrs.index_map, {}, []
    for index in index_map.final_indices:
        block = None
        if isinstance(index, (tirx.FloorDiv, tirx.FloorMod)):
            block = number(index.b)
        var = index if block is None else index.a
        axes = [k for k, own in enumerate(index_map.initial_indices) if own.same_as(var)]
        if not axes or blocks.setdefault(axes[0], block) != block:
            raise UnsupportedOp(f"{index} is neither an axis nor a block of one")
        parts.append((axes[0], isinstance(index, tirx.FloorMod)))
    blocks = {axis: block for axis, block in blocks.items() if block is not None}
    raise Composed(blocks=blocks, parts=parts)


ROWS: dict[str, Row] = {
    "relax.layout_transform": _layout_transform,
    "relax.broadcast_to": _broadcast_to,
    "relax.concat": _concat,
    "relax.stack": _concat,
    "relax.split": _split,
    "relax.strided_slice": _strided_slice,
    "relax.nn.pad": _pad,
    "relax.permute_dims": _transpose,
    "relax.reshape": _reshape,
    "relax.expand_dims": _reshape,
    "relax.squeeze": _reshape,
    "relax.flatten": _reshape,
    "relax.nn.batch_flatten": _reshape,
}
