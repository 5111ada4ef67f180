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
"""The converters of ReverseSequence and SequenceInsert."""

from __future__ import annotations

import numpy as np
from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter

from ..backend import is_constant, sizes, value_of
from .quantized_node import QuantizedNode


class ReverseSequence(OnnxOpConverter):
    """Convert ReverseSequence with constant lengths of the sequences."""

    @classmethod
    def _impl_v10(cls, bb, inputs, attr, params):
        node = QuantizedNode("ReverseSequence", bb, attr)
        data, lengths = inputs[:2]
        node.require(is_constant(lengths), "sequence_lens that are not constant cannot be imported")
        axis, batch = int(attr.get("time_axis", 0)), int(attr.get("batch_axis", 1))
        shape = sizes(data.ty) or (None, None)
        node.require(shape[axis] is not None, "an open length of the sequences cannot be imported")
        orders = [_order(shape[axis], int(length)) for length in value_of(lengths)]
        if all((each == orders[0]).all() for each in orders):
            return relax.op.take(data, relax.const(orders[0]), axis=axis)
        node.require(
            None not in shape, "open sizes and sequence_lens that differ cannot be imported"
        )
        indices = np.stack(orders, axis=1 if batch else 0)
        indices = indices.reshape(indices.shape + (1,) * (len(shape) - 2))
        return relax.op.gather_elements(
            data, relax.const(np.broadcast_to(indices, shape).copy()), axis=axis
        )


def _order(size: int, length: int) -> np.ndarray:
    """Return the steps of a sequence with the first ones, up to its length, in reverse."""
    return np.concatenate([np.arange(length)[::-1], np.arange(length, size)])


class SequenceInsert(onnx_frontend.SequenceInsert):
    """Convert SequenceInsert; TVM counts negative positions from one after the end."""

    @classmethod
    def _impl_v11(cls, bb, inputs, attr, params):
        position = inputs[2]
        if position is not None and is_constant(position) and value_of(position) < 0:
            inputs = onnx_frontend.onnx_input(inputs)
            inputs[2] = relax.const(int(value_of(position)) + len(inputs[0]), "int64")
        return super()._impl_v11(bb, inputs, attr, params)


CONVERTERS = {"ReverseSequence": ReverseSequence}
REPLACEMENTS = {"SequenceInsert": SequenceInsert}
