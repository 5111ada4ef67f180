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
"""Converters of elementwise ops that TVM reads without some attributes or types."""

from __future__ import annotations

from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend

from .quantized_node import QuantizedNode

_FLOATS = ("float16", "bfloat16", "float32", "float64")


class IsInf(onnx_frontend.IsInf):
    """Convert IsInf, of one sign or of both."""

    @classmethod
    def _impl_v10(cls, bb, inputs, attr, params):
        x, dtype = inputs[0], str(inputs[0].ty.dtype)
        signs = [attr.get(f"detect_{name}", 1) for name in ("negative", "positive")]
        if all(signs):
            return relax.op.isinf(x)
        if not any(signs):
            return relax.op.zeros_like(x, "bool")
        return relax.op.equal(x, relax.const(float("inf" if signs[1] else "-inf"), dtype))


class Pow(onnx_frontend.Pow):
    """Convert Pow of integers, and of a base and an exponent of different types."""

    @classmethod
    def _impl_v7(cls, bb, inputs, attr, params):
        if any(onnx_frontend._is_empty_optional(each) or each.ty is None for each in inputs):
            return super()._impl_v7(bb, inputs, attr, params)
        node = QuantizedNode("Pow", bb, attr)
        dtype, exponent = (str(each.ty.dtype) for each in inputs[:2])
        if dtype == exponent and dtype in _FLOATS:
            return super()._impl_v7(bb, inputs, attr, params)
        # TVM raises floating-point numbers to a power only.
        computed = dtype if dtype in _FLOATS else "float64"
        power = relax.op.power(*(node.cast(each, computed) for each in inputs[:2]))
        if dtype in _FLOATS:
            return power
        power = bb.normalize(power)
        if exponent not in _FLOATS:
            power = bb.normalize(relax.op.round(power))
        return relax.op.astype(power, dtype)


REPLACEMENTS = {"IsInf": IsInf, "Pow": Pow}
