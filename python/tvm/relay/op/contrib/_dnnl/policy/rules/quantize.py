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
"""Rules for quantize and dequantize, and what a weight in 8 bits must be like."""

from __future__ import annotations

import math

import numpy as np
from tvm import relay

from ..tensors import EIGHT_BITS, shape_of, tensor_reason, text_of_shape

DEQUANTIZE, QUANTIZE = "qnn.dequantize", "qnn.quantize"

# What dequantize reads: sums of products as well.
INTEGERS = (*EIGHT_BITS, "int32")


def quantize_reason(call: relay.Call) -> str | None:
    """Accept float32 data, and a scale and a zero point that fit to it."""
    return (
        tensor_reason("data", call.args[0].checked_type, dtypes=("float32",))
        or tensor_reason("result", call.checked_type, dtypes=EIGHT_BITS)
        or _parameters_reason(call)
    )


def dequantize_reason(call: relay.Call) -> str | None:
    """Accept integers, and a scale and a zero point that fit to them."""
    return (
        tensor_reason("data", call.args[0].checked_type, dtypes=INTEGERS)
        or tensor_reason("result", call.checked_type, dtypes=("float32",))
        or _parameters_reason(call)
    )


def _parameters_reason(call: relay.Call) -> str | None:
    """Say why a scale or a zero point is neither one number nor one for each item of the axis."""
    data, axis = shape_of(call.args[0]), int(call.attrs.axis)
    for name, arg, dtype in zip(("scale", "zero_point"), call.args[1:], ("float32", "int32")):
        reason = tensor_reason(name, arg.checked_type, dtypes=(dtype,))
        if reason:
            return reason
        shape = shape_of(arg)
        if all(dim == 1 for dim in shape):
            continue
        if not -len(data) <= axis < len(data) or shape != (data[axis],):
            return (
                f"{name} has shape {text_of_shape(shape)} for axis={axis} of {text_of_shape(data)}"
            )
    return None


def parameters(call: relay.Call) -> tuple[float, int] | None:
    """Return the scale and the zero point of a quantize or a dequantize.

    None unless each is one number that is known.
    """
    if not all(isinstance(arg, relay.Constant) for arg in call.args[1:]):
        return None
    scale, zero_point = (arg.data.numpy() for arg in call.args[1:])
    if scale.size != 1 or zero_point.size != 1:
        return None
    return float(scale.reshape(())), int(zero_point.reshape(()))


def is_per_tensor(call: relay.Call) -> bool:
    """Whether a dequantize reads 8 bits with one scale and one zero point, known or not."""
    if call.args[0].checked_type.dtype not in EIGHT_BITS:
        return False
    return all(math.prod(shape_of(arg)) == 1 for arg in call.args[1:])


def is_weight(call: relay.Call, axis: int | None) -> bool:
    """Whether a dequantize is one of a constant that oneDNN multiplies by in 8 bits.

    Parameters
    ----------
    call : relay.Call
        The dequantize.
    axis : int | None
        The axis of the output channels, along which there may be a scale for each; None where
        there may be one only.
    """
    data, scale, zero_point = call.args
    if not all(isinstance(arg, relay.Constant) for arg in call.args):
        return False
    if data.data.dtype != "int8" or zero_point.data.numpy().any():
        return False
    along = int(call.attrs.axis) % len(shape_of(data))
    return math.prod(shape_of(scale)) == 1 or along == axis


def symmetric(values: np.ndarray, zero_point: np.ndarray) -> np.ndarray | None:
    """Return the same weight as int8 with a zero point of 0; None where that has no room for it.

    Parameters
    ----------
    values, zero_point : numpy.ndarray
        Integers, the second in a shape that broadcasts to the first.
    """
    moved = values.astype("int32") - zero_point
    return moved.astype("int8") if moved.min() >= -128 and moved.max() <= 127 else None
