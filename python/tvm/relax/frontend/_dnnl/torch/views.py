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
"""Converters of ops that move elements, and of reductions."""

from __future__ import annotations

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true
from tvm import relax, tirx

from .graphs import argument


def _roll(node, importer):
    """Convert a roll to slices and a concat per axis; TVM's takes computed indices."""
    emit, x = importer.block_builder.emit, importer.env[node.args[0]]
    shifts, axes = argument(node, "shifts"), argument(node, "dims")
    shifts, axes = ([each] if isinstance(each, int) else list(each) for each in (shifts, axes))
    shape = x.ty.shape
    if not axes:
        x, axes = emit(relax.op.flatten(x)), [0]
    for shift, axis in zip(shifts, axes):
        size = x.ty.shape[axis]
        if not isinstance(size, tirx.IntImm):
            least = node.args[0].meta["val"].shape[axis] if node.args[2:] else 0
            if not isinstance(shift, int) or not statically_known_true(least >= abs(shift)):
                raise ValueError(f"a roll by {shift} along {size} is not supported")
            cut = size - shift if shift > 0 else -shift
            ranges = [emit(relax.op.arange(*each, 1, "int64")) for each in ((cut, size), (0, cut))]
            x = emit(relax.op.take(x, emit(relax.op.concat(ranges, 0)), axis, mode="clip"))
            continue
        cut = -shift % int(size) if int(size) else 0
        if cut:
            parts = ((cut, int(size)), (0, cut))
            parts = [emit(relax.op.strided_slice(x, [axis], [a], [b])) for a, b in parts]
            x = emit(relax.op.concat(parts, axis))
    return emit(relax.op.reshape(x, shape)) if len(shape) != len(x.ty.shape) else x


def _slice(node, importer):
    """Convert a slice. The size of an open one is what PyTorch says; TVM's is a formula of min."""
    axis, start, step = (argument(node, name) for name in ("dim", "start", "step"))
    axis, start, x = axis % len(node.meta["val"].shape), start or 0, importer.env[node.args[0]]
    size, end = _exported_dims(node, importer)[axis], argument(node, "end")
    is_open = isinstance(size, tirx.Var) or (size is not None and isinstance(start, torch.fx.Node))
    is_end = isinstance(end, torch.fx.Node) and start == 0 and step == 1
    if size is None and is_end and str(end.meta["val"]) == str(node.meta["val"].shape[axis]):
        size, is_open = importer.env[end], True  # a formula
    if not is_open or not _is_positive(start, step):
        return importer._slice(node)
    emit = importer.block_builder.emit
    begin = importer.env.get(start, start) if step == 1 else 0
    indices = emit(relax.op.arange(begin, begin + size, 1, "int64"))
    if step != 1:
        indices = emit(relax.op.multiply(indices, relax.const(step, "int64")))
        if start:
            indices = emit(relax.op.add(indices, relax.const(start, "int64")))
    return emit(relax.op.take(x, indices, axis, mode="clip"))


def _is_positive(start, step) -> bool:
    """Whether a slice is known to begin at 0 or later."""
    if isinstance(start, torch.fx.Node):
        return step == 1 and statically_known_true(start.meta["val"] >= 0)
    return start >= 0


def _exported_dims(node, importer):
    """Return the shape that PyTorch gives a node; a size that is a formula is None."""
    shapes = [var.ty.shape or () for each, var in importer.env.items() if each.op == "placeholder"]
    symbols = {dim.name: dim for dims in shapes for dim in dims if isinstance(dim, tirx.Var)}
    dims = []
    for size in node.meta["val"].shape:
        dims.append(symbols.get(str(size)) if isinstance(size, torch.SymInt) else int(size))
    return dims


def _reduction(op):
    def convert(node, importer):
        axes = argument(node, "dim") or None
        keepdims = bool(argument(node, "keepdim"))
        return importer.block_builder.emit(op(importer.env[node.args[0]], axes, keepdims))

    return convert


def _cumsum(node, importer):
    """Convert a cumsum: that of booleans and integers is int64 in PyTorch."""
    emit, x = importer.block_builder.emit, importer.env[node.args[0]]
    dtype = importer._convert_data_type(node.meta["val"].dtype)
    x = x if x.ty.dtype.dtype == dtype else emit(relax.op.astype(x, dtype))
    return emit(relax.op.cumsum(x, argument(node, "dim"), dtype))


def _prod(node, importer):
    x, keepdims = importer.env[node.args[0]], bool(argument(node, "keepdim"))
    return importer.block_builder.emit(relax.op.prod(x, node.args[1], keepdims))


def _view(node, importer):
    """Convert a view. TVM's compares sizes, and a number and an expression have no truth value."""
    try:
        return importer._reshape(node)
    except ValueError:
        x, sizes = importer.retrieve_args(node)
        return importer.block_builder.emit(relax.op.reshape(x, sizes))


CONVERTERS = {
    "view.default": _view,
    "reshape.default": _view,
    "prod.dim_int": _prod,
    "cumsum.default": _cumsum,
    "roll.default": _roll,
    "slice.Tensor": _slice,
    "amax.default": _reduction(relax.op.max),
    "amin.default": _reduction(relax.op.min),
}
