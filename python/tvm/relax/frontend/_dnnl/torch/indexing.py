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
"""Converters of indexing by tensors and of scatters: TVM's read negative indices out of bounds."""

from __future__ import annotations

import math

import torch
from tvm import relax, tirx

from .graphs import argument, aten

_REDUCTIONS = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min"}
#: Ops whose integers are not negative.
_COUNTS = aten.argmax.default, aten.argmin.default, aten.nonzero.default


def converters(values: dict):
    """Return the converters of a program whose constants have these values."""

    def index(node, importer):
        return _index(node, importer, values)

    return {"index.Tensor": index, "scatter_reduce.two": _scatter_reduce}


def _index(node, importer, values):
    """Convert an index: that of several axes is one of the axis that they are merged to."""
    emit, x = importer.block_builder.emit, importer.env[node.args[0]]
    given = [(axis, each) for axis, each in enumerate(node.args[1]) if each is not None]
    axes, dims = [axis for axis, _ in given], list(x.ty.shape)
    if any(each.meta["val"].dtype in (torch.bool, torch.uint8) for _, each in given):
        raise ValueError(f"{node.name}: the size of a selection by a mask depends on its values")
    indices = [_in_range(each, dims[axis], importer, values) for axis, each in given]
    if len(axes) == 1:
        return emit(relax.op.take(x, indices[0], axes[0]))
    is_adjacent = axes == list(range(axes[0], axes[-1] + 1))
    if not is_adjacent:
        order = axes + [axis for axis in range(len(dims)) if axis not in axes]
        x, dims = emit(relax.op.permute_dims(x, order)), [dims[axis] for axis in order]
    first = axes[0] if is_adjacent else 0
    merged = dims[first : first + len(axes)]
    if not all(isinstance(each, tirx.IntImm) for each in merged[1:]):
        if first:
            raise ValueError(f"{node.name}: an index of axes {axes} with an open size")
        return emit(relax.op.index_tensor(x, indices))
    position = None
    for i, each in enumerate(indices):
        stride = math.prod(int(size) for size in merged[i + 1 :])
        each = emit(relax.op.astype(each, "int64")) if each.ty.dtype.dtype != "int64" else each
        if stride != 1:
            each = emit(relax.op.multiply(each, relax.const(stride, "int64")))
        position = each if position is None else emit(relax.op.add(position, each))
    size = merged[0] * math.prod(int(each) for each in merged[1:])
    x = emit(relax.op.reshape(x, [*dims[:first], size, *dims[first + len(axes) :]]))
    return emit(relax.op.take(x, position, first))


def _in_range(node, size, importer, values):
    """Return the indices of an axis, without negative ones."""
    emit, index, known = importer.block_builder.emit, importer.env[node], values.get(node)
    if known is not None and (known >= 0).all() or node.target in _COUNTS or _is_range(node):
        return index
    dtype = index.ty.dtype.dtype
    if isinstance(size, tirx.IntImm):
        if known is not None:
            return relax.const(torch.where(known < 0, known + int(size), known).numpy(), dtype)
        size = relax.const(int(size), dtype)
    else:
        size = emit(relax.op.shape_to_tensor(relax.ShapeExpr([size])))
        size = emit(relax.op.reshape(emit(relax.op.astype(size, dtype)), []))
    from_end = emit(relax.op.add(index, size))
    return emit(relax.op.where(emit(relax.op.less(index, relax.const(0, dtype))), from_end, index))


def _is_range(node) -> bool:
    """Whether a node is a view of a range that begins at 0 or later."""
    while node.target in (aten.unsqueeze.default, aten.view.default, aten.expand.default):
        node = node.args[0]
    is_range = node.target is aten.arange.start_step
    start = node.args[0] if is_range else None
    return isinstance(start, int) and start >= 0 and argument(node, "step") == 1


def _scatter_reduce(node, importer):
    """Convert a scatter_reduce of decompositions.py, whose source has the shape of the indices."""
    x, index, source = (importer.env[node.args[i]] for i in (0, 2, 3))
    reduction, axis = _REDUCTIONS[node.args[4]], node.args[1]
    return importer.block_builder.emit(relax.op.scatter_elements(x, index, source, axis, reduction))
