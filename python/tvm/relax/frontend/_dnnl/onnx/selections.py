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
"""Converters of OneHot and TopK, which TVM reads for some types and constant parameters only."""

from __future__ import annotations

import numpy as np
from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend

from ..backend import is_constant, value_of
from .quantized_node import QuantizedNode

#: By type: one that has all of its values, and that TVM sorts.
_SORTED = {"int16": "int32", "uint16": "int32", "uint32": "int64"}


class OneHot(onnx_frontend.OneHot):
    """Converts OneHot into a comparison with the positions along the new axis.

    TVM's converter returns float64 or int64 for any type of the values, and demands a depth of
    rank 0 and constant values.
    """

    @classmethod
    def _impl_v11(cls, bb, inputs, attr, params):
        node, op, emit = QuantizedNode("OneHot", bb, attr), relax.op, bb.emit
        depth, values = (onnx_frontend.get_constant(each, params) for each in inputs[1:3])
        is_known = is_constant(depth) and value_of(depth).size == 1
        node.require(is_known, "a depth that is not constant is not supported")
        count = int(value_of(depth).item())
        indices = emit(op.astype(inputs[0], "int64"))
        from_end = emit(op.add(indices, relax.const(count, "int64")))
        is_negative = emit(op.less(indices, relax.const(0, "int64")))
        indices = emit(op.where(is_negative, from_end, indices))
        rank = node.rank("indices", inputs[0]) + 1
        axis = attr.get("axis", -1) % rank
        positions = np.arange(count).reshape([-1 if k == axis else 1 for k in range(rank)])
        is_on = emit(op.equal(emit(op.expand_dims(indices, axis)), relax.const(positions, "int64")))
        if is_constant(values):
            off, on = (relax.const(each, str(values.ty.dtype)) for each in value_of(values))
        else:
            off, on = (emit(op.take(values, relax.const(k, "int64"), axis=0)) for k in (0, 1))
        return bb.normalize(op.where(is_on, on, off))


class TopK(onnx_frontend.TopK):
    """Converts TopK, also of types that TVM does not sort, and of a computed number of elements.

    Without `sorted`, any order is right.
    """

    @classmethod
    def _impl_v11(cls, bb, inputs, attr, params):
        node, dtype, op = QuantizedNode("TopK", bb, attr), str(inputs[0].ty.dtype), relax.op
        node.require(dtype != "uint64", "data of the type uint64 is not supported")
        attr = attr.replaced(sorted=1)
        count = onnx_frontend.get_constant(inputs[1], params)
        is_known = is_constant(count)
        if is_known and not value_of(count).any():
            # TVM returns all elements.
            none = bb.emit(op.strided_slice(inputs[0], [attr.get("axis", -1)], [0], [0]))
            return relax.Tuple([none, bb.emit(op.astype(none, "int64"))])
        data = node.cast(inputs[0], _SORTED.get(dtype, dtype))
        # All elements, if their number is not known.
        given = [data, count if is_known else relax.const(np.array([-1]), "int64")]
        both = bb.emit(super()._impl_v11(bb, onnx_frontend.onnx_input(given), attr, params))
        values, indices = (bb.emit(both[k]) for k in (0, 1))
        if not is_known:
            axis = attr.get("axis", -1) % node.rank("the data", data)
            values, indices = (_first(bb, each, count, axis) for each in (values, indices))
        return relax.Tuple([node.cast(values, dtype), indices])


def _first(bb, data: relax.Expr, count: relax.Expr, axis: int) -> relax.Expr:
    """Return the first elements along an axis, as many as a tensor of one integer says."""
    op, emit, rank = relax.op, bb.emit, data.ty.ndim
    sizes = emit(op.shape_to_tensor(emit(op.shape_of(data))))
    count = emit(op.reshape(emit(op.astype(count, "int64")), [1]))
    ends = emit(op.where(relax.const(np.arange(rank) == axis), count, sizes))
    starts, steps = (relax.const(np.full(rank, each), "int64") for each in (0, 1))
    return emit(op.dynamic_strided_slice(data, starts, ends, steps))


REPLACEMENTS = {"OneHot": OneHot, "TopK": TopK}
