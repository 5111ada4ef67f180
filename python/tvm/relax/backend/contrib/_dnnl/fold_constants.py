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
"""Ops of constants, which are computed while a model is compiled.

TVM's FoldConstant compiles a kernel for each op that it folds, which takes 0.2 s each, 40 s for a
MobileNetV2; what importers write around constants is computed with numpy here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import tvm_ffi
from tvm import relax
from tvm.contrib.onednn.policy.rules.quantize import along, dequantized, quantized, symmetric
from tvm.contrib.onednn.policy.tensors import MOST_FILLED

from .reading import Constant, constant_of, is_constant, number, op_name, sizes, value_of

# Ops that are computed element by element.
_ELEMENTWISE: dict[str, Callable] = {
    "relax.add": np.add,
    "relax.divide": np.divide,
    "relax.greater": np.greater,
    "relax.greater_equal": np.greater_equal,
    "relax.isnan": np.isnan,
    "relax.less": np.less,
    "relax.less_equal": np.less_equal,
    "relax.logical_and": np.logical_and,
    "relax.logical_not": np.logical_not,
    "relax.logical_or": np.logical_or,
    "relax.multiply": np.multiply,
    "relax.sqrt": np.sqrt,
    "relax.subtract": np.subtract,
    "relax.where": np.where,
}


def folded(call):
    """Return a call as the constant, or the operand, that it is known to be; else the call."""
    name = op_name(call)
    if name in _FOLDS:
        call = _FOLDS[name](call)
    if name in _ELEMENTWISE and op_name(call) == name and all(map(is_constant, call.args)):
        values = [value_of(arg) for arg in call.args]
        if name == "relax.divide" and values[1].dtype.kind in "iu" and not values[1].all():
            return call
        # A result that is not finite is so in TVM, too.
        with np.errstate(all="ignore"):
            return constant_like(_ELEMENTWISE[name](*values), call)
    return call


def is_same_type(one, other) -> bool:
    """Whether two expressions have the same type."""
    return tvm_ffi.structural_equal(one.ty, other.ty)


def constant_like(value, call) -> Constant:
    """Return a constant of the type of a call."""
    return constant_of(value, str(call.ty.dtype))


def _shape(call):
    """Return a shape without open dimensions as a constant."""
    values = call.args[0].ty.values
    shape = [None] if values is None else [number(dim) for dim in values]
    return call if None in shape else constant_like(shape, call)


def _selected(call):
    """Return the operand that a constant condition selects for all elements, if it is one."""
    if not is_constant(call.args[0]):
        return call
    condition = value_of(call.args[0])
    if condition.size == 0 or condition.any() != condition.all():
        return call
    selected = call.args[1] if condition.all() else call.args[2]
    return selected if is_same_type(call, selected) else call


def _gathered(call):
    """Return what a constant has at constant indices, if they are in range."""
    if not all(map(is_constant, call.args)) or not _is_small(call):
        return call
    data, indices = map(value_of, call.args)
    axis = call.attrs.axis
    count = data.size if axis is None else data.shape[int(axis)]
    if ((indices < 0) | (indices >= count)).any():
        return call
    return constant_like(np.take(data, indices, None if axis is None else int(axis)), call)


def _filled(call):
    """Return a range, or a tensor of one value, as a constant if it is one."""
    if not _is_small(call):
        return call
    if call.op.name == "relax.full":
        if not is_constant(call.args[1]):
            return call
        return constant_like(np.full(sizes(call.ty), value_of(call.args[1])), call)
    ends = [number(arg) for arg in call.args]
    return call if None in ends else constant_like(np.arange(*ends), call)


def _of_one_value(value: float, call):
    """Return zeros or ones as a constant, if they are one."""
    return constant_like(np.full(sizes(call.ty), value), call) if _is_small(call) else call


def _is_small(call) -> bool:
    """Whether the size of a result is known, and such as may be written out."""
    shape = sizes(call.ty)
    return shape is not None and None not in shape and math.prod(shape) <= MOST_FILLED


def reals_of(call) -> np.ndarray:
    """Return what a dequantize of constants is."""
    return dequantized(*map(value_of, call.args), int(call.attrs.axis))


def _dequantized(call):
    """Fold a bias; make a weight one that oneDNN multiplies by in 8 bits, if it can be one."""
    if not all(map(is_constant, call.args)):
        return call
    values, zero_point = value_of(call.args[0]), value_of(call.args[2])
    if values.dtype == "int32" or (zero_point != np.rint(zero_point)).any():
        return constant_like(reals_of(call), call)
    if values.dtype not in ("int8", "uint8") or not (values.dtype == "uint8" or zero_point.any()):
        return call
    zero_point = zero_point.astype("int32")
    weight = symmetric(values, along(zero_point, int(call.attrs.axis), values.ndim))
    if weight is None:
        return call
    args = [relax.const(weight), call.args[1], relax.const(np.zeros(zero_point.shape, "int8"))]
    return relax.op.dequantize(*args, int(call.attrs.axis), str(call.ty.dtype))


def _quantized(call):
    """Return the quantize of a constant, such as a weight that a model keeps as real numbers."""
    if not all(map(is_constant, call.args)):
        return call
    values = quantized(*map(value_of, call.args), int(call.attrs.axis), str(call.ty.dtype))
    return call if values is None else constant_like(values, call)


# These return the call itself where they do not know better.
_FOLDS: dict[str, Callable] = {
    "relax.arange": _filled,
    "relax.dequantize": _dequantized,
    "relax.full": _filled,
    "relax.quantize": _quantized,
    "relax.shape_to_tensor": _shape,
    "relax.take": _gathered,
    "relax.where": _selected,
    **{
        f"relax.{name}{end}": partial(_of_one_value, value)
        for name, value in (("zeros", 0), ("ones", 1))
        for end in ("", "_like")
    },
}
