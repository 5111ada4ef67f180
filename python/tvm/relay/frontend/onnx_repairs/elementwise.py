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
"""Repairs of elementwise ONNX ops."""

from __future__ import annotations

import functools
import math

from ... import expr as _expr
from ... import op as _op
from .incremental import infer_shape, infer_type


def clip(name, convert, inputs, attrs, params):
    """Copy data without bounds, and let `max` win over a `min` that exceeds it."""
    bounds = [each for each in list(inputs)[1:] if each is not None]
    if not bounds and not {"min", "max"} & set(attrs):
        return _op.copy(inputs[0])
    if bounds and not all(isinstance(each, _expr.Constant) for each in bounds):
        low, high = inputs[1], inputs[2]
        data = inputs[0] if low is None else _op.maximum(inputs[0], low)
        return data if high is None else _op.minimum(data, high)
    if len(bounds) == 2:
        low, high = (each.data.numpy().item() for each in bounds)
        if low > high:
            return _op.minimum(_op.maximum(inputs[0], bounds[0]), bounds[1])
    return convert(inputs, attrs, params)


def mean(name, convert, inputs, attrs, params):
    """Add up the inputs, which may broadcast each other."""
    dtype = infer_type(inputs[0]).checked_type.dtype
    return functools.reduce(_op.add, list(inputs)) / _expr.const(float(len(inputs)), dtype)


def wide(name, convert, inputs, attrs, params):
    """Compute float16 in float32: LLVM lacks these functions, or TVM writes float32 constants."""
    dtype = infer_type(inputs[0]).checked_type.dtype
    if dtype != "float16":
        return convert(inputs, attrs, params)
    data = _op.cast(inputs[0], "float32")
    return _op.cast(convert(type(inputs)([data]), attrs, params), dtype)


def of_scalar(name, convert, inputs, attrs, params):
    """Compute a scalar apart from a tensor of open size: TVM has no shape function of both at once.

    A constant is no input of a kernel.
    """
    inputs = list(inputs)
    if len(inputs) == 2 and not any(isinstance(each, _expr.Constant) for each in inputs):
        shapes = [infer_shape(each) for each in inputs]
        for k, other in ((0, 1), (1, 0)):
            if not shapes[k] and not all(isinstance(size, int) for size in shapes[other]):
                vector = _op.expand_dims(inputs[k], 0)
                inputs[k] = _op.annotation.stop_fusion(vector)
    return convert(inputs, attrs, params)


def prelu(name, convert, inputs, attrs, params):
    """Compute a slope that is no vector of channels for the dimensions that it is aligned with."""
    data, slope = inputs[0], inputs[1]
    shape, rank = infer_shape(slope), len(infer_shape(data))
    axes = [rank - len(shape) + k for k, size in enumerate(shape) if size != 1]
    if axes in ([], [min(1, rank - 1)]):
        return convert(inputs, attrs, params)
    zero = _expr.const(0, infer_type(data).checked_type.dtype)
    return _op.where(data < zero, data * slope, data)


def gelu(name, convert, inputs, attrs, params):
    """Approximate by the hyperbolic tangent: TVM's converter ignores the attribute."""
    if attrs.get("approximate", b"none") in (b"none", "none"):
        return convert(inputs, attrs, params)
    x, dtype = inputs[0], infer_type(inputs[0]).checked_type.dtype

    def const(value):
        return _expr.const(value, dtype)

    inner = const(math.sqrt(2 / math.pi)) * (x + const(0.044715) * x * x * x)
    return const(0.5) * x * (const(1.0) + _op.tanh(inner))


def extremum(name, convert, inputs, attrs, params):
    """Return NaN where one of several tensors has NaN.

    Constants are bounds of a single tensor, whose NaN may become the bound, as of relu and clip.
    """
    of = {"Max": _op.maximum, "Min": _op.minimum}[name]
    count = sum(not isinstance(each, _expr.Constant) for each in inputs)
    is_exact = count > 1 and infer_type(inputs[0]).checked_type.dtype.startswith("float")

    def combine(a, b):
        result = of(a, b)
        for each in (a, b) if is_exact else ():
            result = _op.where(_op.isnan(each), each, result)
        return result

    return functools.reduce(combine, list(inputs))
