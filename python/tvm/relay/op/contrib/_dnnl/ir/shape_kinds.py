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
"""How an op's shape follows from those of its operands: the kinds of `OpSpec.shape`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tvm import relay
from tvm.contrib.onednn.policy.table import TABLE
from tvm.contrib.onednn.policy.tensors import COMPILER, ints

from .relay_view import op_name, shape_of

# As `OpSpec.shape`, of ops that have no row: they compute shapes, or stay on TVM between ops that
# oneDNN runs.
_WITHOUT_ROW = {
    **dict.fromkeys(("copy", "erf", "log"), "same"),
    **dict.fromkeys(("floor_divide", "logical_and", "logical_or", "power"), "broadcast"),
    **dict.fromkeys(("dyn.reshape", "dyn.broadcast_to"), "given"),
    "dyn.strided_slice": "cut",
    "take": "gathered",
    "variance": "reduced",
}


def shape_kind(name: str | None) -> str | None:
    """Return how the shape of a Relay op's result follows from those of its operands, if known."""
    return TABLE[name].shape if name in TABLE else _WITHOUT_ROW.get(name)


def of_kind(kind: str) -> list[str]:
    """Return the Relay ops of a kind, see `shape_kind`."""
    names = (name for name in (*TABLE, *_WITHOUT_ROW) if not name.startswith(f"{COMPILER}."))
    return [name for name in names if shape_kind(name) == kind]


class Dim(NamedTuple):
    """A product of a number and of names of open dimensions, each of which is 1 or more."""

    number: int
    names: tuple = ()

    def times(self, other: Dim) -> Dim:
        """Return the product."""
        return Dim(self.number * other.number, tuple(sorted((*self.names, *other.names), key=str)))

    def over(self, other: Dim) -> Dim | None:
        """Return the quotient, if the division leaves nothing in every call."""
        names = list(self.names)
        for name in other.names:
            if name not in names:
                return None
            names.remove(name)
        if other.number == 0 or self.number % other.number:
            return None
        return Dim(self.number // other.number, tuple(names))


ONE = Dim(1)
Shape = tuple[Dim, ...]


def product(dims_: Sequence[Dim]) -> Dim:
    """Return the product of dimensions."""
    result = ONE
    for dim in dims_:
        result = result.times(dim)
    return result


def _same(call: relay.Call, data: Shape, *_: Shape | None) -> Shape:
    return data


def _broadcast(call: relay.Call, left: Shape, right: Shape | None) -> list[Dim | None] | None:
    if right is None:
        return None
    rank = max(len(left), len(right))
    pairs = zip(*((ONE,) * (rank - len(shape)) + tuple(shape) for shape in (left, right)))
    # Where one of two that differ is open, it may be 1.
    return [a if a == b or b == ONE else b if a == ONE else None for a, b in pairs]


def _dense(call: relay.Call, data: Shape, weight: Shape | None) -> list[Dim | None]:
    return [*data[:-1], None]


def _batch_matmul(call: relay.Call, data: Shape, weight: Shape) -> list[Dim | None]:
    (batch,) = _broadcast(call, data[:1], weight[:1])
    rows, columns = 2 if call.attrs.transpose_a else 1, 1 if call.attrs.transpose_b else 2
    return [batch, data[rows], weight[columns]]


def _reduced(call: relay.Call, data: Shape, *_: Shape | None) -> list[Dim]:
    attrs = call.attrs
    listed = {int(axis) % len(data) for axis in attrs.axis or ()} or set(range(len(data)))
    if attrs.exclude:
        listed = set(range(len(data))) - listed
    kept = [ONE if axis in listed else dim for axis, dim in enumerate(data)]
    return kept if attrs.keepdims else [d for k, d in enumerate(kept) if k not in listed]


def _transposed(call: relay.Call, data: Shape) -> list[Dim]:
    axes = call.attrs.axes
    return [data[axis] for axis in ints(axes)] if axes is not None else list(data[::-1])


def _expanded(call: relay.Call, data: Shape) -> list[Dim]:
    axis = int(call.attrs.axis) % (len(data) + 1)
    return [*data[:axis], *(ONE,) * int(call.attrs.num_newaxis), *data[axis:]]


def _squeezed(call: relay.Call, data: Shape) -> list[Dim] | None:
    if call.attrs.axis is None:
        return None
    gone = {axis % len(data) for axis in ints(call.attrs.axis)}
    return [dim for axis, dim in enumerate(data) if axis not in gone]


def _reshaped(call: relay.Call, data: Shape) -> list[Dim | None] | None:
    """Return the dimensions that a reshape without its rarer codes gives."""
    newshape = ints(call.attrs.newshape)
    if newshape is None or any(code < -1 for code in newshape):
        return None
    dims_ = [
        (data[k] if k < len(data) else None) if code == 0 else Dim(code)
        for k, code in enumerate(newshape)
    ]
    if Dim(-1) in dims_:
        k = dims_.index(Dim(-1))
        others = [dim for other, dim in enumerate(dims_) if other != k]
        dims_[k] = None if None in others else product(data).over(product(others))
    return dims_


def _gathered(call: relay.Call, data: Shape, indices: Shape | None) -> list[Dim] | None:
    if call.attrs.axis is None or int(call.attrs.batch_dims) or indices is None:
        return None
    axis = int(call.attrs.axis) % len(data)
    return [*data[:axis], *indices, *data[axis + 1 :]]


def _window(call: relay.Call, data: Shape, *_: Shape | None) -> list[Dim | None] | None:
    """Return the shape of a convolution's or pooling's result: its sizes have names if alike."""
    attrs = call.attrs
    keys = {str(key) for key in attrs.keys()}
    layout = str(attrs.data_layout if "data_layout" in keys else attrs.layout)
    if len(layout) != len(data) or "N" not in layout:
        return None
    spatial = [axis for axis, letter in enumerate(layout) if letter not in "NC"]
    kernel: tuple[int | None, ...] = ()
    if "kernel_layout" in keys:
        letters, known = str(attrs.kernel_layout), shape_of(call.args[1])
        kernel = tuple(known[letters.index(layout[axis])] for axis in spatial)
        if None in kernel:
            return None
    elif "pool_size" in keys:
        kernel = _for_each(attrs.pool_size, len(spatial))
    # All that the sizes depend on, where they do not depend on the window in the usual way.
    window = [str(getattr(attrs, key)) for key in sorted(keys - {"channels", "groups"})]
    window += [op_name(call), str(kernel)]
    is_usual = kernel and "output_padding" not in keys and not getattr(attrs, "ceil_mode", False)
    sizes: list[Dim | None] = list(data)
    for k, axis in enumerate(spatial):
        sizes[axis] = Dim(1, ((k, *window, data[axis]),))
        if is_usual:
            sizes[axis] = _count(attrs, k, kernel, data[axis])
    if "channels" in keys:
        sizes[layout.index("C")] = None
    return sizes


def _for_each(values, count: int) -> tuple[int, ...]:
    """Return the numbers of an attribute, of which one may stand for all."""
    values = ints(values)
    return values * (count // len(values))


def _count(attrs, k: int, kernel: tuple[int, ...], size: Dim) -> Dim:
    """Return how many windows there are along the k-th spatial axis: (size + more) / stride."""
    rank = len(kernel)
    strides, dilation = (_for_each(each, rank) for each in (attrs.strides, attrs.dilation))
    padding = _for_each(attrs.padding, 2 * rank)
    more = padding[k] + padding[k + rank] - (kernel[k] - 1) * dilation[k] - 1 + strides[k]
    if (more, strides[k]) == (0, 1):
        return size
    return Dim(1, (("windows", more, strides[k], size),))


# From a call and the shapes of its operands, the first of which is known, to that of its result.
KINDS = {
    "same": _same,
    "broadcast": _broadcast,
    "dense": _dense,
    "batch_matmul": _batch_matmul,
    "reduced": _reduced,
    "transposed": _transposed,
    "expanded": _expanded,
    "squeezed": _squeezed,
    "reshaped": _reshaped,
    "gathered": _gathered,
    **dict.fromkeys(("convolved", "convolved transposed", "pooled", "pooled to a size"), _window),
}
