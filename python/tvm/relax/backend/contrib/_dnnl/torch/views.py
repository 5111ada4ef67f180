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

from tvm import relax

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
        if not isinstance(shift, int) or importer._static_dim(size) is None:
            raise ValueError(f"{node.name}: a roll by {shift} along {size} is not supported")
        cut = -shift % int(size) if int(size) else 0
        if cut:
            parts = ((cut, int(size)), (0, cut))
            parts = [emit(relax.op.strided_slice(x, [axis], [a], [b])) for a, b in parts]
            x = emit(relax.op.concat(parts, axis))
    return emit(relax.op.reshape(x, shape)) if len(shape) != len(x.ty.shape) else x


def _reduction(op):
    def convert(node, importer):
        axes = argument(node, "dim") or None
        keepdims = bool(argument(node, "keepdim"))
        return importer.block_builder.emit(op(importer.env[node.args[0]], axes, keepdims))

    return convert


CONVERTERS = {
    "roll.default": _roll,
    "amax.default": _reduction(relax.op.max),
    "amin.default": _reduction(relax.op.min),
}
