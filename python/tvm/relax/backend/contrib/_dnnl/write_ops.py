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
"""How each op of the table is written in Relax, where it was not read from Relax as it is."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence

import numpy as np
from tvm import relax
from tvm.contrib.onednn.ir.node import Node
from tvm.contrib.onednn.ops.windows import SPATIAL

from .reader import name_in_relax
from .types import dim_from

# Binds an expression to a variable.
Emit = Callable[[relax.Expr], relax.Expr]
Writer = Callable[[Node, Sequence[relax.Expr], Emit], relax.Expr]


def written(node: Node, args: Sequence[relax.Expr], emit: Emit) -> relax.Expr:
    """Return an expression of Relax that computes what a node does.

    Parameters
    ----------
    node : Node
        A call of an op of the table.
    args : Sequence[relax.Expr]
        What its operands are known by.
    emit : Emit
        Binds an expression to a variable.
    """
    return _WRITERS.get(node.name, _plain)(node, args, emit)


@functools.lru_cache(maxsize=None)
def _function(name: str) -> tuple[Callable, frozenset[str]]:
    """Return the function of `relax.op` that makes calls of an op, and its parameters."""
    make = relax.op
    for part in name.split("."):
        make = getattr(make, part)
    return make, frozenset(inspect.signature(make).parameters)


def _plain(node: Node, args, emit, **others) -> relax.Expr:
    """Write an op that has the same operands and attributes in Relax, but for others."""
    make, names = _function(name_in_relax(node.name))
    # An empty layout or type is that of the data, for which Relax has no name.
    own = vars(node.attrs).items()
    attrs = {name: value for name, value in own if name in names and value != ""}
    return make(*args, **{name: _native(value) for name, value in (attrs | others).items()})


def _native(value):
    return list(value) if isinstance(value, tuple) else value


def _resize(node: Node, args, emit) -> relax.Expr:
    # A factor of an open size was read in the place of the size.
    axes = [axis for axis, letter in enumerate(node.attrs.layout) if letter in "DHW"]
    return _plain(node, args, emit, size=[dim_from(node.type.dims[axis]) for axis in axes])


def _matmul(node: Node, args, emit) -> relax.Expr:
    args, attrs = list(args), node.attrs
    for k, name in enumerate(("transpose_a", "transpose_b")):
        if getattr(attrs, name, False) or (node.name == "nn.dense" and k == 1):
            args[k] = _transposed(args[k], emit)
    return relax.op.matmul(*args, out_dtype=attrs.out_dtype or None)


def _transposed(matrix: relax.Expr, emit: Emit) -> relax.Expr:
    rank = matrix.ty.ndim
    return emit(relax.op.permute_dims(matrix, [*range(rank - 2), rank - 1, rank - 2]))


def _reshape(node: Node, args, emit) -> relax.Expr:
    return relax.op.reshape(args[0], [dim_from(size) for size in node.type.dims])


def _squeeze(node: Node, args, emit) -> relax.Expr:
    axis = node.attrs.axis
    return relax.op.squeeze(args[0], None if axis is None else list(axis))


def _expand_dims(node: Node, args, emit) -> relax.Expr:
    axis, rank = node.attrs.axis, len(node.type.dims)
    first = axis % (rank - node.attrs.num_newaxis + 1)
    return relax.op.expand_dims(args[0], [first + k for k in range(node.attrs.num_newaxis)])


def _transpose(node: Node, args, emit) -> relax.Expr:
    return relax.op.permute_dims(args[0], _native(node.attrs.axes))


def _concatenate(node: Node, args, emit) -> relax.Expr:
    return relax.op.concat(args[0], node.attrs.axis)


def _stack(node: Node, args, emit) -> relax.Expr:
    return relax.op.stack(args[0], node.attrs.axis)


def _split(node: Node, args, emit) -> relax.Expr:
    return relax.op.split(args[0], _native(node.attrs.indices_or_sections), node.attrs.axis)


def _strided_slice(node: Node, args, emit) -> relax.Expr:
    attrs = node.attrs
    axes = attrs.axes if attrs.axes is not None else range(len(attrs.begin))
    return relax.op.strided_slice(
        args[0], list(axes), list(attrs.begin), list(attrs.end), list(attrs.strides)
    )


def _pad(node: Node, args, emit) -> relax.Expr:
    widths = [width for pair in node.attrs.pad_width for width in pair]
    mode = {"edge": "replicate"}.get(node.attrs.pad_mode, node.attrs.pad_mode)
    value = float(np.asarray(node.operands[1].value, "float64").reshape(()))
    return relax.op.nn.pad(args[0], widths, mode, value)


def _cast(node: Node, args, emit) -> relax.Expr:
    return relax.op.astype(args[0], node.type.dtype)


def _quantization(node: Node, args, emit) -> relax.Expr:
    make, _ = _function(node.name.removeprefix("qnn."))
    return make(*args, node.attrs.axis, node.type.dtype)


def _clip(node: Node, args, emit) -> relax.Expr:
    return relax.op.clip(args[0], node.attrs.a_min, node.attrs.a_max)


def _global_pool(node: Node, args, emit) -> relax.Expr:
    layout = node.attrs.layout
    axes = [layout.index(letter) for letter in layout if letter in SPATIAL]
    make, _ = _function(name_in_relax(node.name))
    return make(args[0], axes, keepdims=True)


def _layer_norm(node: Node, args, emit) -> relax.Expr:
    attrs = node.attrs
    return relax.op.nn.layer_norm(
        *args, axes=[attrs.axis], epsilon=attrs.epsilon, center=attrs.center, scale=attrs.scale
    )


def _rms_norm(node: Node, args, emit) -> relax.Expr:
    return relax.op.nn.rms_norm(*args, axes=[-1], epsilon=node.attrs.epsilon)


def _channel_norm(node: Node, args, emit) -> relax.Expr:
    attrs, rank = node.attrs, len(node.type.dims)
    channel = attrs.axis % rank
    is_group = node.name == "nn.group_norm"
    axes = [a for a in range(channel + 1 if is_group else 1, rank) if a != channel]
    own = {"num_groups": attrs.num_groups} if is_group else {}
    make, _ = _function(node.name)
    return make(
        *args,
        **own,
        channel_axis=channel,
        axes=axes,
        epsilon=attrs.epsilon,
        center=attrs.center,
        scale=attrs.scale,
    )


def _broadcast_to(node: Node, args, emit) -> relax.Expr:
    return relax.op.broadcast_to(args[0], [dim_from(size) for size in node.type.dims])


def _take(node: Node, args, emit) -> relax.Expr:
    return relax.op.take(*args, node.attrs.axis, node.attrs.mode)


def _full(node: Node, args, emit) -> relax.Expr:
    return relax.op.full([dim_from(size) for size in node.type.dims], args[0], node.type.dtype)


_WRITERS: dict[str, Writer] = {
    **dict.fromkeys(("nn.dense", "nn.matmul", "nn.batch_matmul"), _matmul),
    **dict.fromkeys(("nn.global_max_pool2d", "nn.global_avg_pool2d"), _global_pool),
    **dict.fromkeys(("nn.group_norm", "nn.instance_norm"), _channel_norm),
    **dict.fromkeys(("qnn.quantize", "qnn.dequantize"), _quantization),
    "broadcast_to": _broadcast_to,
    "cast": _cast,
    "clip": _clip,
    "concatenate": _concatenate,
    "dnnl.rms_norm": _rms_norm,
    "expand_dims": _expand_dims,
    **dict.fromkeys(("image.resize2d", "image.resize3d"), _resize),
    "full": _full,
    "nn.layer_norm": _layer_norm,
    "nn.pad": _pad,
    **dict.fromkeys(("dnnl.open_reshape", "reshape"), _reshape),
    "split": _split,
    "squeeze": _squeeze,
    "stack": _stack,
    "strided_slice": _strided_slice,
    "take": _take,
    "transpose": _transpose,
}
