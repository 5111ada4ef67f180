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
"""Numpy definitions of the ops: what each one computes, without a TVM.

They are the reference of the tests, and fold constants. Each op of the table has one, with Relay's
attributes as plain Python values, and so have a few ops in formulas and around constants.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Union

import numpy as np

from ..ir.numpy_types import Array, UndefinedResult, rounded, sigmoid
from ..ir.op import attributes_of, has_row, infer
from ..ir.op_view import Tensor
from . import numpy_moves, numpy_norms, numpy_recurrent, numpy_windows
from .numpy_attention import attention
from .quantize import along, dequantized, quantized
from .resize import ROUND
from .table import TABLE

# The type of a result: a tuple for an op that returns one.
ResultType = Union[Tensor, tuple[Tensor, ...]]

# From the attributes, the type of the result, and the values of the operands, a list for a tuple.
# It computes in the type of the operands, or a wider one, and does not round.
Definition = Callable[..., Union[Array, list[Array]]]


def define(name: str) -> Definition:
    """Return the definition of an op.

    Parameters
    ----------
    name : str
        The op in the table, or another one that has a definition.

    Returns
    -------
    definition : Callable
        ``definition(attrs, result_type, *values)`` computes the result, in the type that numpy
        computes in; `evaluate_op` rounds it.

    Raises
    ------
    KeyError
        The op has no definition.
    """
    definition = DEFINITIONS[name]
    return lambda attrs, *others: definition(attributes_of(name, attrs), *others)


def has_definition(name: str | None) -> bool:
    """Whether `define` knows an op."""
    return name in DEFINITIONS


def evaluate_op(
    name: str,
    attrs: SimpleNamespace,
    result_type: ResultType,
    values: Sequence[Array | Sequence[Array]],
    definition: Definition | None = None,
) -> Array | list[Array]:
    """Compute an op in float64, integers as they are, and round once to the type of the result.

    Parameters
    ----------
    name : str
        The op.
    attrs : SimpleNamespace
        The attributes; those that have a default may be missing.
    result_type : Tensor | tuple[Tensor, ...]
        The type of the result. Open dimensions are inferred from the values.
    values : Sequence
        The operands, each an array, or a list of arrays for a tuple.
    definition : Callable | None
        That of an op of which `define` has none.

    Returns
    -------
    result : numpy.ndarray | list[numpy.ndarray]
        A list for an op that returns a tuple.

    Raises
    ------
    KeyError
        The op has no definition.
    UndefinedResult
        The op has no result for these values, or the definition does not cover its attributes.
    """
    definition = definition or define(name)
    result_type = _static(name, attrs, result_type, values)
    with np.errstate(all="ignore"):
        result = definition(attrs, result_type, *map(_widened, values))
        if not isinstance(result_type, tuple):
            return _as_type(name, result, result_type)
        return [_as_type(name, *pair) for pair in zip(result, result_type, strict=True)]


def _static(name, attrs, result_type, values) -> ResultType:
    """Return the type of a result without open dimensions, if those of the operands tell them."""
    types = result_type if isinstance(result_type, tuple) else (result_type,)
    if all(None not in type_.shape for type_ in types) or not has_row(name):
        return result_type
    return infer(name, [_type_of(value) for value in values], attrs)


def _type_of(value):
    if isinstance(value, (list, tuple)):
        return tuple(map(_type_of, value))
    return Tensor(value.shape, str(value.dtype), value)


def _widened(value):
    if isinstance(value, (list, tuple)):
        return [_widened(field) for field in value]
    value = np.asarray(value)
    return value if value.dtype.kind in "iub" else value.astype("float64")


def _as_type(name: str, value: Array, type_: Tensor) -> Array:
    value = rounded(np.asarray(value), type_.dtype)
    if any(size not in (None, got) for size, got in zip(type_.shape, value.shape)) or len(
        type_.shape
    ) != len(value.shape):
        raise UndefinedResult(f"{name} gives the shape {value.shape}, not {type_.shape}")
    return value


# Elementwise ops.


def _elementwise(function: Callable[..., Array]) -> Definition:
    """Define an op without attributes."""
    return lambda attrs, result_type, *values: function(*values)


def _erf(x: Array) -> Array:
    return np.frompyfunc(math.erf, 1, 1)(x).astype("float64")


def _softplus(x: Array) -> Array:
    return np.logaddexp(0.0, x)


def _leaky_relu(attrs, result_type, x):
    return np.where(x > 0, x, x * attrs.alpha)


def _prelu(attrs, result_type, x, slopes):
    return np.where(x > 0, x, x * along(slopes, attrs.axis, x.ndim))


def _clip(attrs, result_type, x):
    return np.clip(x, attrs.a_min, attrs.a_max)


def _bias_add(attrs, result_type, x, bias):
    return x + along(bias, attrs.axis, x.ndim)


def _elu(attrs, result_type, x):
    return np.where(x > 0, x, attrs.alpha * np.expm1(x))


def _gelu_erf(x: Array) -> Array:
    return 0.5 * x * (1.0 + _erf(x * math.sqrt(0.5)))


def _gelu_tanh(x: Array) -> Array:
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _hard_sigmoid(attrs, result_type, x):
    return np.clip(attrs.alpha * x + attrs.beta, 0.0, 1.0)


def _hard_swish(attrs, result_type, x):
    return x * _hard_sigmoid(attrs, result_type, x)


def _linear(attrs, result_type, x):
    return attrs.alpha * x + attrs.beta


def _pow(attrs, result_type, x):
    return attrs.alpha * x**attrs.beta


def _swish(attrs, result_type, x):
    return x * sigmoid(attrs.alpha * x)


def _quantize(attrs, result_type, x, scale, zero_point):
    integers = quantized(x, scale, zero_point, attrs.axis, result_type.dtype)
    if integers is None:
        raise UndefinedResult(f"not a number, or no quantized type: {result_type.dtype}")
    return integers


def _dequantize(attrs, result_type, x, scale, zero_point):
    return dequantized(x, scale, zero_point, attrs.axis)


def _dynamically_quantized(x: Array) -> tuple:
    """Quantize as ONNX's DynamicQuantizeLinear, with a scale of 1 for zeros as in onnxruntime.

    Returns
    -------
    steps, scale : tuple[Array, numpy.float32]
        The integers less their zero point, and the scale.
    """
    data = x.astype("float32")
    low, high = min(data.min(), np.float32(0)), max(data.max(), np.float32(0))
    step = (high - low) / np.float32(255) if high > low else np.float32(1)
    shift = np.rint(np.clip(np.float32(0) - low / step, 0, 255)).astype("int32")
    integers = quantized(data, step, shift, 0, "uint8")
    if integers is None:
        raise UndefinedResult("not a number")
    return integers.astype("float64") - shift, np.float32(step)


def _dynamic_fake_quantize(attrs, result_type, x):
    steps, scale = _dynamically_quantized(x)
    return steps * scale


def _dynamic_quantize_scale(attrs, result_type, x):
    return _dynamically_quantized(x)[1].reshape(1)


def _dynamic_quantized_dense(attrs, result_type, x, weight, scale, zero_point):
    steps, step = _dynamically_quantized(x)
    sums = steps @ (weight.astype("float64") - zero_point).T
    return sums * (step * scale.reshape(-1).astype("float32"))


def _quantized_in_blocks(x: Array, block: int, most: int) -> Array:
    """Round each block of a row to integers up to `most` times a scale, as int8 does with 127.

    A block that has an element which is not finite becomes NaN, and zero if all are below 1e-36.
    """
    columns = x.shape[-1]
    padding = [(0, 0)] * (x.ndim - 1) + [(0, -columns % block)]
    data = np.pad(x.astype("float32"), padding).reshape(*x.shape[:-1], -1, block)
    largest = np.abs(data).max(-1, keepdims=True)
    largest = np.where(largest < np.inf, largest, np.float32(np.nan))
    is_zero = largest < np.float32(1e-36)
    factor = np.float32(most) / np.where(is_zero, np.float32(1), largest)
    steps = np.where(is_zero, np.float32(0), np.rint(data * factor))
    values = steps * (largest / np.float32(most)).astype("float64")
    return values.reshape(*x.shape[:-1], -1)[..., :columns]


def _block_quantized_dense(attrs, result_type, x, weight, scales, zero_points=None):
    bits, (units, blocks) = attrs.bits, scales.shape
    # Runtimes may compute in float32 nevertheless: on CPUs without dot products of 8 bits.
    if attrs.accuracy_level == 4:
        # One row has 16 bits, less what rounding errors of the scale need.
        steps = 32638 if math.prod(x.shape[:-1]) == 1 else 127
        x = _quantized_in_blocks(x, attrs.block_size, steps)
    shifts = np.arange(0, 8, bits)
    values = (weight[..., None].astype("int32") >> shifts) & (2**bits - 1)
    zeros = 2 ** (bits - 1) if zero_points is None else zero_points[..., None].astype("int32")
    real = (values.reshape(units, blocks, -1) - zeros) * scales[..., None]
    return x @ real.reshape(units, -1)[:, : x.shape[-1]].T


def _divide(x: Array, y: Array) -> Array:
    """Divide; integers are cut off toward zero, as TVM divides them."""
    if x.dtype.kind not in "iu":
        return x / y
    if not y.all():
        raise UndefinedResult("divide of integers by zero")
    quotient = x // y
    return quotient + ((quotient < 0) & (quotient * y != x))


DEFINITIONS: dict[str, Definition] = {
    # Ops that numpy has by the same name.
    **{
        name: _elementwise(getattr(np, name))
        for name in (
            *(name for name in TABLE if isinstance(getattr(np, name, None), np.ufunc)),
            *"isnan sinh power floor_divide logical_and logical_or logical_not where".split(),
        )
    },
    "divide": _elementwise(_divide),
    "atan": _elementwise(np.arctan),
    # Relay's: halves away from zero.
    "round": _elementwise(ROUND["round"]),
    # Relax's: halves to even.
    "dnnl.round": _elementwise(np.rint),
    # Zero for NaN, as TVM computes it.
    "sign": _elementwise(lambda x: np.where(x > 0, 1.0, np.where(x < 0, -1.0, 0.0))),
    **numpy_windows.DEFINITIONS,
    **numpy_norms.DEFINITIONS,
    **numpy_recurrent.DEFINITIONS,
    "dnnl.attention": attention,
    **numpy_moves.DEFINITIONS,
    "cast": _elementwise(lambda x: x),
    "copy": _elementwise(lambda x: x),
    "erf": _elementwise(_erf),
    "rsqrt": _elementwise(lambda x: 1.0 / np.sqrt(x)),
    "sigmoid": _elementwise(sigmoid),
    "clip": _clip,
    "nn.relu": _elementwise(lambda x: np.maximum(x, 0)),
    "nn.leaky_relu": _leaky_relu,
    "nn.prelu": _prelu,
    "nn.bias_add": _bias_add,
    "dnnl.elu": _elu,
    "dnnl.gelu_erf": _elementwise(_gelu_erf),
    "dnnl.gelu_tanh": _elementwise(_gelu_tanh),
    "dnnl.hard_sigmoid": _hard_sigmoid,
    "dnnl.hard_swish": _hard_swish,
    "dnnl.linear": _linear,
    "dnnl.mish": _elementwise(lambda x: x * np.tanh(_softplus(x))),
    "dnnl.pow": _pow,
    "dnnl.rsqrt": _elementwise(lambda x: 1.0 / np.sqrt(x)),
    "dnnl.softplus": _elementwise(_softplus),
    "dnnl.swish": _swish,
    "dnnl.block_quantized_dense": _block_quantized_dense,
    "dnnl.dynamic_fake_quantize": _dynamic_fake_quantize,
    "dnnl.dynamic_quantize_scale": _dynamic_quantize_scale,
    "dnnl.dynamic_quantized_dense": _dynamic_quantized_dense,
    "qnn.quantize": _quantize,
    "qnn.dequantize": _dequantize,
}
