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
"""Repairs of ONNX reductions: several axes, none, and reductions of nothing."""

from __future__ import annotations

import math

import numpy as np

from ... import expr as _expr
from ... import op as _op
from .incremental import infer_shape, infer_type
from .refusals import refuse

# What reductions compute of each element; others nothing.
_OF_ELEMENTS = {
    **dict.fromkeys(("ReduceL1", "ReduceL2"), _op.abs),
    "ReduceLogSum": _op.log,
    "ReduceSumSquare": lambda x: x * x,
}
# Of an empty set; others are 0.
_OF_NOTHING = {
    "ReduceLogSum": -math.inf,
    "ReduceLogSumExp": -math.inf,
    "ReduceMax": -math.inf,
    "ReduceMean": math.nan,
    "ReduceMin": math.inf,
    "ReduceProd": 1.0,
}
_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")


def reduce(name, convert, inputs, attrs, params):
    """Write constant axes as an attribute: the wheel's converters read the first one only.

    Those of all releases drop the elementwise part of a reduction of no axes.
    """
    axes = inputs[1] if len(inputs) > 1 else None
    shape = infer_shape(inputs[0])
    if not shape:
        # TVM gives a scalar a dimension.
        return _OF_ELEMENTS.get(name, _op.copy)(inputs[0])
    if axes is not None and not isinstance(axes, _expr.Constant):
        return convert(inputs, attrs, params)
    numbers = list(attrs.get("axes") or ()) if axes is None else axes.data.numpy().tolist()
    if attrs.get("noop_with_empty_axes", 0) and not numbers:
        return _OF_ELEMENTS.get(name, _op.copy)(inputs[0])
    # TVM divides a mean by the sizes of repeated axes, too.
    numbers = list(dict.fromkeys(axis % len(shape) for axis in numbers))
    if any(isinstance(size, int) and size == 0 for size in shape):
        return _of_nothing(name, inputs[0], shape, numbers, attrs.get("keepdims", 1))
    kept = {key: attrs[key] for key in attrs if key != "noop_with_empty_axes"}
    kept.update({"axes": numbers} if numbers else {})
    return convert(type(inputs)(inputs[:1]), kept, params)


def _of_nothing(name, data, shape, axes, keepdims):
    """Return what an empty tensor is reduced to: TVM divides by a size, or has finite limits."""
    dtype = infer_type(data).checked_type.dtype
    axes = axes or range(len(shape))
    sizes = [
        1 if axis in axes else size
        for axis, size in enumerate(shape)
        if keepdims or axis not in axes
    ]
    if not all(isinstance(size, int) for size in sizes):
        refuse(name, {}, f"data of the open and empty shape {shape}")
    value = _OF_NOTHING.get(name, 0.0)
    if not dtype.startswith("float"):
        limits = {math.inf: np.iinfo(dtype).max, -math.inf: np.iinfo(dtype).min}
        value = limits.get(value, 0 if math.isnan(value) else value)
    return _op.full(_expr.const(value, dtype), sizes, dtype)


REPAIRS = dict.fromkeys((f"Reduce{name}" for name in _REDUCTIONS), reduce)
