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
"""The quantize, the dequantize and the checks that converters of quantized ops share."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

from ..backend import is_constant, sizes, value_of

#: The data types of quantized tensors that the converters support.
EIGHT_BITS = ("int8", "uint8")


class QuantizedNode:
    """An ONNX node with quantized inputs: builds expressions, and raises errors that name it.

    Parameters
    ----------
    op : str
        The ONNX op.
    bb : relax.BlockBuilder
        The builder of the function.
    attr : dict
        The attributes of the node, as TVM's importer passes them.
    """

    def __init__(self, op: str, bb: relax.BlockBuilder, attr: dict):
        self.bb, self.attr = bb, attr
        self._title = f"{op} {attr.get('tvm_custom', {}).get('name') or '(unnamed)'}"

    def refusal(self, reason: str) -> Exception:
        """Return the error for something that the converter does not support."""
        return tvm.error.OpNotImplemented(f"{self._title}: {reason}")

    def require(self, condition: bool, reason: str) -> None:
        """Raise an error unless a condition holds."""
        if not condition:
            raise self.refusal(reason)

    def check_eight_bits(self, name: str, x: relax.Expr) -> str:
        """Return the data type of an input, which must be int8 or uint8."""
        dtype = str(x.ty.dtype)
        self.require(dtype in EIGHT_BITS, f"{name} of type {dtype}; int8 and uint8 are supported")
        return dtype

    def rank(self, name: str, x: relax.Expr) -> int:
        """Return the rank of an input, which must be known."""
        self.require(x.ty.ndim >= 0, f"the rank of {name} is unknown")
        return x.ty.ndim

    def dequantize(
        self, name: str, x: relax.Expr, scale: relax.Expr, zero_point=None, axis: int | None = None
    ) -> relax.Expr:
        """Return `scale * (x - zero_point)` in float32.

        Parameters
        ----------
        name : str
            What error messages call the input.
        x : relax.Expr
            A tensor of int8 or uint8.
        scale : relax.Expr
            One value, one for each item of `axis`, or a tensor of the rank of `x` that broadcasts
            to it.
        zero_point : relax.Expr | None
            Of the same shape as the scale. Default: 0.
        axis : int | None
            The axis of several scales. None where the op defines a single scale.
        """
        self.check_eight_bits(name, x)
        if x.ty.ndim == 0:  # has no axis, which TVM 0.26 requires
            vector = self._emit(relax.op.reshape(x, (1,)))
            vector = self.dequantize(name, vector, scale, zero_point, axis)
            return self._emit(relax.op.reshape(vector, ()))
        scale, zero_point = self._parameters(name, scale, zero_point, axis)
        rank = max(scale.ty.ndim, zero_point.ty.ndim)
        if rank <= 1:
            axis = 0 if axis is None or rank == 0 else axis % self.rank(name, x)
            return self._emit(relax.op.dequantize(x, scale, zero_point, axis, "float32"))
        real = self._emit(relax.op.subtract(self.cast(x, "int32"), zero_point))
        return self._emit(relax.op.multiply(self.cast(real, "float32"), scale))

    def quantize(
        self, x: relax.Expr, scale: relax.Expr, zero_point, dtype: str, axis: int | None = None
    ) -> relax.Expr:
        """Return `round(x / scale) + zero_point` in int8 or uint8; see `dequantize`."""
        supported = dtype in EIGHT_BITS
        self.require(supported, f"a result of type {dtype}; int8 and uint8 are supported")
        if x.ty.ndim == 0:
            vector = self._emit(relax.op.reshape(x, (1,)))
            vector = self.quantize(vector, scale, zero_point, dtype, axis)
            return self._emit(relax.op.reshape(vector, ()))
        scale, zero_point = self._parameters("the result", scale, zero_point, axis)
        rank = max(scale.ty.ndim, zero_point.ty.ndim)
        if rank <= 1:
            axis = 0 if axis is None or rank == 0 else axis % self.rank("the result", x)
            return self._emit(relax.op.quantize(x, scale, zero_point, axis, dtype))
        steps = self._emit(relax.op.round(self._emit(relax.op.divide(x, scale))))
        steps = self._emit(relax.op.add(steps, self.cast(zero_point, "float32")))
        limits = np.iinfo(dtype)
        return self.cast(self._emit(relax.op.clip(steps, limits.min, limits.max)), dtype)

    def subtract_zero_point(
        self, name: str, x: relax.Expr, zero_point, axis: int | None = None
    ) -> relax.Expr:
        """Return `x - zero_point` in int32; see `dequantize`."""
        self.check_eight_bits(name, x)
        result = self.cast(x, "int32")
        if zero_point is None:
            return result
        zero_point = self._parameter(name, "zero point", zero_point, "int32", axis)
        if is_constant(zero_point) and not value_of(zero_point).any():
            return result
        if zero_point.ty.ndim == 1:
            shape = [1] * self.rank(name, x)
            shape[axis] = -1
            zero_point = self._emit(relax.op.reshape(zero_point, shape))
        return self._emit(relax.op.subtract(result, zero_point))

    def scalar(self, name: str, value: relax.Expr, dtype: str) -> relax.Expr:
        """Return an input that must be one value as a tensor of rank 0."""
        return self._parameter(name, "value", value, dtype, None)

    def cast(self, x: relax.Expr, dtype: str) -> relax.Expr:
        """Return a tensor in another data type."""
        return x if str(x.ty.dtype) == dtype else self._emit(relax.op.astype(x, dtype))

    def _emit(self, expr: relax.Expr) -> relax.Expr:
        return self.bb.normalize(expr)

    def _parameters(self, name: str, scale, zero_point, axis: int | None):
        """Return the scale in float32 and the zero point in int32, of equal shape if constant."""
        scale = self._parameter(name, "scale", scale, "float32", axis)
        if zero_point is None:
            zero_point = relax.const(0, "int32")
        zero_point = self._parameter(name, "zero point", zero_point, "int32", axis)
        if not (is_constant(scale) and is_constant(zero_point)):
            return scale, zero_point
        scale, zero_point = np.broadcast_arrays(value_of(scale), value_of(zero_point))
        return relax.const(np.array(scale)), relax.const(np.array(zero_point))

    def _parameter(self, name: str, kind: str, value, dtype: str, axis: int | None):
        """Return a scale or zero point in a data type; a single value has rank 0."""
        is_one = self._is_single_value(name, kind, value)
        self.require(is_one or axis is not None, f"{name} has more than one {kind}")
        if is_constant(value):
            array = np.asarray(value_of(value)).astype(dtype)
            return relax.const(array.reshape(()) if is_one else array)
        value = self.cast(value, dtype)
        if is_one and value.ty.ndim:
            value = self._emit(relax.op.reshape(value, ()))
        return value

    def _is_single_value(self, name: str, kind: str, value: relax.Expr) -> bool:
        self.require(value.ty.ndim >= 0, f"the rank of the {kind} of {name} is unknown")
        shape = sizes(value.ty)
        self.require(
            shape is not None and None not in shape, f"the shape of the {kind} of {name} is unknown"
        )
        return all(size == 1 for size in shape)
