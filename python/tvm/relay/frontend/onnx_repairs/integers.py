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
"""Repairs of ONNX ops on integers, which TVM computes in float32."""

from __future__ import annotations

from ... import expr as _expr
from ... import op as _op
from .incremental import infer_shape, infer_type


def power(name, convert, inputs, attrs, params):
    """Compute powers of integers in float64, which has 53 bits."""
    base, exponent = inputs
    dtype = infer_type(base).checked_type.dtype
    if dtype.startswith("float"):
        return convert(inputs, attrs, params)
    wide = _op.power(_op.cast(base, "float64"), _op.cast(exponent, "float64"))
    is_whole = not infer_type(exponent).checked_type.dtype.startswith("float")
    return _op.cast(_op.round(wide) if is_whole else wide, dtype)


def matmul_integer(matmul, name, convert, inputs, attrs, params):
    """Multiply in int32: converters return float32, or assert that both operands have one type.

    A zero point may be one for each row of the first operand.
    """
    operands = []
    for position, (data, zero) in enumerate(zip(inputs[:2], (*inputs[2:4], None, None))):
        data = _op.cast(data, "int32")
        if zero is not None and not _is_zero(zero):
            zero = _op.cast(zero, "int32")
            if position == 0 and len(infer_shape(zero)) == 1 and infer_shape(zero) != (1,):
                zero = _op.expand_dims(zero, -1)
            data = data - zero
        operands.append(data)
    return matmul(type(inputs)(operands), attrs, params)


def conv_integer(conv, name, convert, inputs, attrs, params):
    """Convolve in int32: TVM's converter returns float32, in which sums above 2^24 are rounded."""
    operands = []
    for each, zero in zip(inputs[:2], (*inputs[2:4], None, None)):
        each = _op.cast(each, "int32")
        if zero is not None and not _is_zero(zero):
            zero = _op.cast(zero, "int32")
            # That of the weight may be one for each channel.
            if infer_shape(zero) not in ((), (1,)):
                zero = _op.reshape(zero, [-1] + [1] * (len(infer_shape(each)) - 1))
            each -= _op.squeeze(zero) if infer_shape(zero) == (1,) else zero
        operands.append(each)
    return conv(type(inputs)(operands), attrs, params)


def _is_zero(value) -> bool:
    return isinstance(value, _expr.Constant) and not value.data.numpy().any()
