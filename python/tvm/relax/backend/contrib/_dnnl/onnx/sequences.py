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
"""The converter of ReverseSequence."""

from __future__ import annotations

import numpy as np
from tvm import relax
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter

from ..reading import is_constant, sizes, value_of
from .quantized_node import QuantizedNode


class ReverseSequence(OnnxOpConverter):
    """Convert ReverseSequence of sequences whose length is constant, and the same for all."""

    @classmethod
    def _impl_v10(cls, bb, inputs, attr, params):
        node = QuantizedNode("ReverseSequence", bb, attr)
        data, lengths = inputs[:2]
        node.require(is_constant(lengths), "sequence_lens that are not constant cannot be imported")
        values, axis = np.unique(value_of(lengths)), int(attr.get("time_axis", 0))
        size = (sizes(data.ty) or [None] * (axis + 1))[axis]
        is_known = len(values) == 1 and size is not None
        node.require(is_known, "sequence_lens that differ, or an open length, cannot be imported")
        order = np.arange(size)
        order[: values[0]] = order[: values[0]][::-1]
        return relax.op.take(data, relax.const(order), axis=axis)


CONVERTERS = {"ReverseSequence": ReverseSequence}
