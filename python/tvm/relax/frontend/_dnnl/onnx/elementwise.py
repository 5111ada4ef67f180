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

import functools

from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend

from ..backend import is_constant
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


def _extremum(name: str) -> type:
    """Return the converter of Max or Min, which return NaN where one of several tensors has NaN.

    Constants are bounds of a single tensor, whose NaN may become the bound, as of relu and clip.
    """
    own = getattr(onnx_frontend, name)

    class Extremum(own):
        """Converts an extremum of several tensors."""

        @classmethod
        def _impl_v1(cls, bb, inputs, attr, params):
            if any(not isinstance(each.ty, relax.TensorType) for each in inputs):
                return super()._impl_v1(bb, inputs, attr, params)
            if all(map(is_constant, inputs)) or len(inputs) == 1:
                return super()._impl_v1(bb, inputs, attr, params)
            computed = [each for each in inputs if not is_constant(each)]
            is_exact = len(computed) > 1 and str(inputs[0].ty.dtype) in _FLOATS

            def extremum(a, b):
                result = bb.emit(cls.binary_op(a, b))
                for each in (a, b) if is_exact else ():
                    result = bb.emit(relax.op.where(bb.emit(relax.op.isnan(each)), each, result))
                return result

            return functools.reduce(extremum, inputs)

    Extremum.__name__ = name
    return Extremum


#: Functions that LLVM lacks for float16, or whose converters write float32 constants.
_WIDE = "Acos Acosh Asin Asinh Atan Atanh Cosh Elu Selu Sinh Tan ThresholdedRelu".split()


def _wide(name: str) -> type:
    """Return the converter of a function that computes float16 in float32."""
    own = getattr(onnx_frontend, name)

    def convert(method):
        def converted(cls, bb, inputs, attr, params):
            dtype = str(inputs[0].ty.dtype)
            if dtype != "float16":
                return getattr(own, method)(bb, inputs, attr, params)
            wide = onnx_frontend.onnx_input([bb.emit(relax.op.astype(inputs[0], "float32"))])
            result = bb.emit(getattr(own, method)(bb, wide, attr, params))
            return relax.op.astype(result, dtype)

        return classmethod(converted)

    methods = {each: convert(each) for each in dir(own) if each.startswith("_impl_v")}
    return type(name, (own,), methods)


REPLACEMENTS = {
    **{name: _wide(name) for name in _WIDE},
    "IsInf": IsInf,
    "Max": _extremum("Max"),
    "Min": _extremum("Min"),
    "Pow": Pow,
}
