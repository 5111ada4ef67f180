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
"""Matmuls of ONNX: operands of any rank."""

from __future__ import annotations

import numpy as np

from ... import expr as _expr
from ... import op as _op
from .incremental import infer_shape, infer_type
from .indices import replaced
from .refusals import refuse


def refuse_unequal(name, attrs, shapes, row, column):
    """Refuse a product along axes of unequal sizes: TVM's dense reads beyond an operand."""
    inner = shapes[0][row], shapes[1][column]
    if all(isinstance(size, int) for size in inner) and inner[0] != inner[1]:
        one, other = map(tuple, shapes)
        refuse(name, attrs, f"a product of shapes {one} and {other}")


def gemm(name, convert, inputs, attrs, params):
    """Multiply matrices that fit."""
    shapes = [infer_shape(each) for each in inputs[:2]]
    row, column = (-2 if attrs.get(key) else -1 for key in ("transA", "transB"))
    refuse_unequal(name, attrs, shapes, row, -3 - column)
    return convert(inputs, attrs, params)


def matmul(name, convert, inputs, attrs, params):
    """Multiply by a constant matrix in three dimensions, and by a vector as a matrix.

    The wheel's converter passes the first operand to batch_matmul as it is. Those of all releases
    broadcast a vector as if it were a matrix.
    """
    shapes = [infer_shape(each) for each in inputs]
    ranks = [len(shape) for shape in shapes]
    refuse_unequal(name, attrs, shapes, -1, max(-2, -ranks[1]))
    is_known = all(isinstance(size, int) for shape in shapes for size in shape)
    if is_known and any(0 in shape for shape in shapes):
        one, other = (np.broadcast_to(np.float32(0), shape) for shape in shapes)
        return _op.zeros((one @ other).shape, infer_type(inputs[0]).checked_type.dtype)
    if 1 in ranks and max(ranks) > 2:
        position = ranks.index(1)
        matrix = _op.expand_dims(inputs[position], axis=position)
        result = matmul(name, convert, replaced(inputs, position, matrix), attrs, params)
        return _op.squeeze(result, axis=[-2 if position == 0 else -1])
    if ranks[0] <= 3 or ranks[1] != 2 or not isinstance(inputs[1], _expr.Constant):
        return convert(inputs, attrs, params)
    inner, columns = shapes[1]
    data = _op.reshape(inputs[0], [1, -1, inner])
    result = convert(replaced(inputs, 0, data), attrs, params)
    if is_known:
        return _op.reshape(result, [*shapes[0][:-1], columns])
    leading = _op.strided_slice(_op.shape_of(inputs[0], "int64"), [0], [ranks[0] - 1])
    return _op.reshape(result, _op.concatenate([leading, _expr.const([columns], "int64")], 0))
