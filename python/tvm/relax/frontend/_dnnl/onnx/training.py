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
"""Converters of ops that compute something else when a model is trained."""

from __future__ import annotations

import numpy as np
from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend

from ..backend import is_constant, value_of
from .quantized_node import QuantizedNode


class BatchNormalization(onnx_frontend.BatchNormalization):
    """Convert BatchNormalization; in training mode, by the mean and the variance of the batch."""

    @classmethod
    def _impl_v15(cls, bb, inputs, attr, params):
        if not attr.get("training_mode", 0):
            return super()._impl_v15(bb, inputs, attr, params)
        node, emit, op = QuantizedNode("BatchNormalization", bb, attr), bb.emit, relax.op
        data, scale, bias, mean, variance = (node.cast(each, "float32") for each in inputs[:5])
        rank = node.rank("X", data)
        axes = [axis for axis in range(rank) if axis != 1]
        moments = [emit(of(data, axes, keepdims=True)) for of in (op.mean, op.variance)]

        def constant(value):
            return relax.const(value, "float32")

        def along_channels(vector):
            return emit(op.reshape(vector, [-1] + [1] * (rank - 2)))

        deviation = emit(op.add(moments[1], constant(attr.get("epsilon", 1e-5))))
        result = emit(op.subtract(data, moments[0]))
        result = emit(op.divide(result, emit(op.sqrt(deviation))))
        result = emit(op.multiply(result, along_channels(scale)))
        result = emit(op.add(result, along_channels(bias)))
        momentum, running = attr.get("momentum", 0.9), []
        for old, new, given in zip((mean, variance), moments, inputs[3:5]):
            kept = emit(op.multiply(old, constant(momentum)))
            added = emit(op.multiply(emit(op.reshape(new, [-1])), constant(1 - momentum)))
            running.append(node.cast(emit(op.add(kept, added)), str(given.ty.dtype)))
        return relax.Tuple([node.cast(result, str(inputs[0].ty.dtype)), *running])


class Dropout(onnx_frontend.Dropout):
    """Convert Dropout, which keeps all elements unless a model is trained."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        data = inputs[0]
        if attr["tvm_custom"]["num_outputs"] == 1:
            return data
        return relax.Tuple([data, bb.emit(relax.op.ones_like(data, "bool"))])

    @classmethod
    def _impl_v7(cls, bb, inputs, attr, params):
        return cls._impl_v1(bb, inputs, attr, params)

    @classmethod
    def _impl_v12(cls, bb, inputs, attr, params):
        node, (_, ratio, mode) = QuantizedNode("Dropout", bb, attr), (inputs[k] for k in range(3))
        drops_nothing = mode is None or cls._is_false(mode) or cls._is_false(ratio)
        node.require(
            drops_nothing,
            "training_mode that is not constant and false cannot be imported; if it is an input of "
            "the model, pass its value in `constants`",
        )
        return cls._impl_v1(bb, inputs, attr, params)

    @staticmethod
    def _is_false(value) -> bool:
        return value is not None and is_constant(value) and not np.any(value_of(value))


REPLACEMENTS = {"BatchNormalization": BatchNormalization, "Dropout": Dropout}
