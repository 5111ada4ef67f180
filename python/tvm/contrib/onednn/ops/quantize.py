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
"""Conversions: cast, quantize and dequantize, and the conditions on weights in 8 bits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import cpu
from ..ir.numpy_types import Array, UndefinedResult, along
from ..ir.op_view import OpView, Tensor, tensor_of
from .attrs import DType, Int
from .draw import Call, Draw, unary
from .schema import OpSchema, no_flops, of_values
from .tensors import EIGHT_BITS, MOVED, named_tensors, tensor_reason, text_of_shape

DEQUANTIZE, QUANTIZE = "qnn.dequantize", "qnn.quantize"

# The types that dequantize reads: int32, that of sums of products, as well.
INTEGERS = (*EIGHT_BITS, "int32")


def cast_reason(call: OpView) -> str | None:
    """Accept casts of booleans, 8-bit integers or floats to floats, of rank 1 or more.

    oneDNN's integers saturate, where Relay's do as C does.
    """
    for name, tensor in named_tensors(call):
        dtypes = cpu.REAL if name == "result" else ("bool", *MOVED)
        reason = tensor_reason(name, tensor, 1, dtypes)
        if reason:
            return reason
    return None


def quantize_reason(call: OpView) -> str | None:
    """Accept float32 data, and a scale and a zero point that fit to it."""
    return (
        tensor_reason("data", call.args[0], dtypes=("float32",))
        or tensor_reason("result", call.result, dtypes=EIGHT_BITS)
        or _parameters_reason(call)
    )


def dequantize_reason(call: OpView) -> str | None:
    """Accept integers, and a scale and a zero point that fit to them."""
    return (
        tensor_reason("data", call.args[0], dtypes=INTEGERS)
        or tensor_reason("result", call.result, dtypes=("float32",))
        or _parameters_reason(call)
    )


def _parameters_reason(call: OpView) -> str | None:
    """Say why a scale or a zero point is neither one number nor one for each item of the axis."""
    data, axis = tensor_of(call.args[0]).shape, call.attrs.axis
    for name, arg, dtype in zip(("scale", "zero_point"), call.args[1:], ("float32", "int32")):
        reason = tensor_reason(name, arg, dtypes=(dtype,))
        if reason:
            return reason
        shape = arg.shape
        if all(dim == 1 for dim in shape):
            continue
        if not -len(data) <= axis < len(data) or shape != (data[axis],):
            return (
                f"{name} has shape {text_of_shape(shape)}, which does not match axis={axis} "
                f"of data of shape {text_of_shape(data)}"
            )
    return None


def parameters(scale: Tensor, zero_point: Tensor) -> tuple[float, int] | None:
    """Return the values of a scale and a zero point, None unless each is one known number.

    Nor for a negative scale, which reverses the order of the values.
    Nor for a zero point that is no integer, which Relax may have.
    """
    if not (scale.is_constant and zero_point.is_constant):
        return None
    if math.prod(scale.shape) != 1 or math.prod(zero_point.shape) != 1:
        return None
    known, zero = float(scale.value.reshape(())), zero_point.value.reshape(())
    return (known, int(zero)) if known > 0 and zero == np.rint(zero) else None


def real_bounds(
    low: float, high: float, known: tuple[float, int], dtype: str
) -> tuple[float, float]:
    """Return the bounds of a clip before a quantize that equal those of a clip of the integers.

    Parameters
    ----------
    low, high : float
        Those of the clip, of which TVM cuts fractions off.
    known : tuple[float, int]
        The scale and the zero point.
    dtype : str
        The type of the integers, which they cannot leave.
    """
    (scale, zero_point), limits = known, np.iinfo(dtype)
    low, high = max(low, limits.min), min(high, limits.max)
    return (math.trunc(low) - zero_point) * scale, (math.trunc(high) - zero_point) * scale


def is_per_tensor(call: OpView) -> bool:
    """Whether a dequantize reads 8 bits with one scale and one zero point, known or not."""
    if tensor_of(call.args[0]).dtype not in EIGHT_BITS:
        return False
    return all(math.prod(arg.shape) == 1 for arg in call.args[1:])


def is_weight(call: OpView, axis: int | None) -> bool:
    """Whether a dequantize is one of a constant that oneDNN multiplies by in 8 bits.

    Parameters
    ----------
    call : OpView
        The dequantize.
    axis : int | None
        The axis of the output channels, along which there may be a scale for each; None where
        there may be one only.
    """
    data, scale, zero_point = call.args
    if not all(arg.is_constant for arg in call.args):
        return False
    if data.dtype != "int8" or zero_point.value.any():
        return False
    along = call.attrs.axis % len(data.shape)
    return math.prod(scale.shape) == 1 or along == axis


def dequantized(
    values: np.ndarray, scale: np.ndarray, zero_point: np.ndarray, axis: int
) -> np.ndarray:
    """Compute a dequantize in double precision.

    Parameters
    ----------
    values : numpy.ndarray
        Integers.
    scale, zero_point : numpy.ndarray
        One number each, or one for each item of the axis.
    axis : int
        Of `values`.
    """
    scale, zero_point = (along(each, axis, values.ndim) for each in (scale, zero_point))
    return (values.astype("float64") - zero_point) * scale.astype("float64")


def quantized(
    values: np.ndarray, scale: np.ndarray, zero_point: np.ndarray, axis: int, dtype: str
) -> np.ndarray | None:
    """Compute a quantize as ONNX defines QuantizeLinear: halves to even, saturated.

    Parameters
    ----------
    values : numpy.ndarray
        Real numbers.
    scale, zero_point : numpy.ndarray
        One number each, or one for each item of the axis.
    axis : int
        Of `values`.
    dtype : str
        The type of the result.

    Returns
    -------
    integers : numpy.ndarray | None
        None for another type than those of a dequantize, and where something is not a number.
    """
    if dtype not in INTEGERS:
        return None
    scale, zero_point = (along(each, axis, values.ndim) for each in (scale, zero_point))
    limits = np.iinfo(dtype)
    with np.errstate(all="ignore"):
        # The quotient is that of float32; double precision holds the sum with any zero point.
        steps = np.rint(values.astype("float32") / scale.astype("float32")).astype("float64")
    steps = np.clip(steps + zero_point, limits.min, limits.max)
    return None if np.isnan(steps).any() else steps.astype(dtype)


def symmetric(values: np.ndarray, zero_point: np.ndarray) -> np.ndarray | None:
    """Return the same weight as int8 with a zero point of 0; None where that has no room for it.

    Parameters
    ----------
    values, zero_point : numpy.ndarray
        Integers, the second in a shape that broadcasts to the first.
    """
    moved = values.astype("int32") - zero_point
    return moved.astype("int8") if moved.min() >= -128 and moved.max() <= 127 else None


def _cast_type(args, attrs):
    return Tensor(args[0].dims, attrs.dtype)


def _converted_type(args, attrs):
    return Tensor(args[0].dims, attrs.out_dtype or "float32")


def _quantize(attrs, result_type, x, scale, zero_point):
    integers = quantized(x, scale, zero_point, attrs.axis, result_type.dtype)
    if integers is None:
        raise UndefinedResult(f"not a number, or no quantized type: {result_type.dtype}")
    return integers


def _dequantize(attrs, result_type, x, scale, zero_point):
    return dequantized(x, scale, zero_point, attrs.axis)


def _draw_quantized(d: Draw, data: Array, out_dtype: str) -> Call:
    axis = d.axis(data.shape)
    sizes = d.choice(((), (data.shape[axis],)))
    zeros = d.numbers.integers(-3, 4, d.choice((sizes, ()))).astype("int32")
    attrs = {"axis": axis, "out_dtype": out_dtype}
    return Call([data, d.values(sizes), zeros], attrs)


def _draw_quantize(d: Draw) -> Call:
    return _draw_quantized(d, d.values(d.shape()), d.choice(("int8", "uint8")))


def _draw_dequantize(d: Draw) -> Call:
    data = d.numbers.integers(0, 100, d.shape()).astype(d.choice(("int8", "uint8", "int32")))
    return _draw_quantized(d, data, "float32")


_FIELDS: dict[str, Any] = dict(attrs=(Int("axis", -1), DType("out_dtype")), infer=_converted_type)

ROWS = [
    OpSchema(
        "cast",
        cast_reason,
        attrs=(DType("dtype"),),
        infer=_cast_type,
        numpy=of_values(lambda x: x),
        draw=unary(dtype=("float32", "float16", "bfloat16", "int8", "bool")),
        flops=no_flops,
        relax="astype",
    ),
    OpSchema(
        QUANTIZE,
        quantize_reason,
        **_FIELDS,
        numpy=_quantize,
        draw=_draw_quantize,
        post="quantize",
        relax="quantize",
    ),
    OpSchema(
        DEQUANTIZE,
        dequantize_reason,
        **_FIELDS,
        numpy=_dequantize,
        draw=_draw_dequantize,
        reads_int8="data",
        fuses=("quantize",),
        relax="dequantize",
    ),
]
