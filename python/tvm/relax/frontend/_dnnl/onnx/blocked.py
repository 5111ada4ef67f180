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
"""Converters of QuantizeLinear and DequantizeLinear with a scale for each block of elements."""

from __future__ import annotations

import numpy as np
from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend

from ..attention_parts import is_equal
from ..backend import is_constant, value_of
from .quantized_node import QuantizedNode


def _spread(node: QuantizedNode, x, parameter, block: int, axis: int):
    """Return scales or zero points of blocks along an axis as one for each element."""
    if parameter is None:
        return None
    size = x.ty.shape[axis]
    if is_constant(parameter):
        values = np.repeat(value_of(parameter), block, axis)
        node.require(values.shape[axis] - block < int(size) <= values.shape[axis], "block_size")
        return relax.const(np.take(values, range(int(size)), axis))
    repeated = node.bb.emit(relax.op.repeat(parameter, block, axis))
    node.require(is_equal(repeated.ty.shape[axis], size), f"block_size={block} of a size of {size}")
    return repeated


class DequantizeLinear(onnx_frontend.DequantizeLinear):
    """Converts DequantizeLinear, also of blocks."""

    @classmethod
    def _impl_v21(cls, bb, inputs, attr, params):
        return cls._converted(super()._impl_v21, bb, inputs, attr, params)

    @classmethod
    def _impl_v23(cls, bb, inputs, attr, params):
        return cls._converted(super()._impl_v23, bb, inputs, attr, params)

    @staticmethod
    def _converted(without_blocks, bb, inputs, attr, params):
        block = attr.get("block_size", 0)
        if not block:
            return without_blocks(bb, inputs, attr, params)
        node, (x, scale, zero) = QuantizedNode("DequantizeLinear", bb, attr), inputs[:3]
        dtype, kind = str(scale.ty.dtype), attr.get("output_dtype", 0)
        axis = attr.get("axis", 1) % node.rank("x", x)
        scale, zero = (_spread(node, x, each, block, axis) for each in (scale, zero))
        result = node.dequantize("x", x, scale, zero, axis)
        return node.cast(result, onnx_frontend.get_type(kind) if kind else dtype)


REPLACEMENTS = {"DequantizeLinear": DequantizeLinear}
