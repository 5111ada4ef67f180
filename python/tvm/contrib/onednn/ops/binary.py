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
"""Binary elementwise ops and comparisons, with numpy's broadcasting, and selections."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir.dim import broadcast
from ..ir.numpy_types import Array, UndefinedResult, along
from ..ir.op_view import OpView, Tensor, tensor_of
from .attrs import Int
from .draw import Call, Draw, along_axis, broadcast_operands
from .schema import POSTS_INT8, OpSchema, binary, broadcast_type, of_values, same_type
from .tensors import VIEWED, axis_reason, tensor_reason, tensors_reason


def binary_reason(call: OpView) -> str | None:
    """Accept operands of any shapes, but for two scalars.

    oneDNN broadcasts its second source only, along some axes; the runtime copies others.
    """
    return tensors_reason(call) or _scalar_reason(call)


def binary_channel_axis(call: OpView) -> int | None:
    """Return 1 if an operand has one value for each channel there, else None.

    For vectors along another axis oneDNN has fast code in a binary primitive, but none in its
    post-ops.
    """
    out = tensor_of(call.result).shape
    for shape in (arg.shape for arg in call.args):
        padded = (1,) * (len(out) - len(shape)) + shape
        if padded != out and [axis for axis, dim in enumerate(padded) if dim != 1] == [1]:
            return 1
    return None


def comparison_reason(call: OpView) -> str | None:
    """Accept floating-point values of one type.

    oneDNN writes 0 or 1 into bytes, as Relay's truths are.
    """
    reason = tensor_reason("the result", call.result, dtypes=("bool",))
    for name, tensor in zip(("lhs", "rhs"), call.args):
        reason = reason or tensor_reason(name, tensor)
    # Relax compares unequal types.
    lhs, rhs = (arg.dtype for arg in call.args)
    reason = reason or (f"lhs is {lhs}, but rhs is {rhs}" if lhs != rhs else None)
    return reason or _scalar_reason(call)


def _scalar_reason(call: OpView) -> str | None:
    return None if tensor_of(call.result).shape else "the result is a scalar"


def where_reason(call: OpView) -> str | None:
    """Accept truths, and two operands of one type that are broadcast."""
    condition, x, y = call.args
    reason = tensor_reason("the condition", condition, dtypes=("bool",))
    for name, tensor in (("x", x), ("y", y), ("result", call.result)):
        reason = reason or tensor_reason(name, tensor, dtypes=VIEWED)
    if reason is None and x.dtype != y.dtype:
        return f"x is {x.dtype}, but y is {y.dtype}"
    return reason


def _comparison_type(args, attrs):
    return Tensor(broadcast(*(arg.dims for arg in args)), "bool")


def _where_type(args, attrs):
    return Tensor(broadcast(*(arg.dims for arg in args)), args[1].dtype)


def _bias_add(attrs, result_type, x, bias):
    return x + along(bias, attrs.axis, x.ndim)


def _divide(x: Array, y: Array) -> Array:
    """Divide; integers are cut off toward zero, as TVM divides them."""
    if x.dtype.kind not in "iu":
        return x / y
    if not y.all():
        raise UndefinedResult("divide of integers by zero")
    quotient = x // y
    return quotient + ((quotient < 0) & (quotient * y != x))


def _draw_where(d: Draw) -> Call:
    shape = d.any_shape()
    shapes = [d.broadcast(shape) for _ in "cxy"]
    condition = d.numbers.integers(0, 2, shapes[0])
    return Call([np.asarray(condition, "bool"), *map(d.values, shapes[1:])], {})


_BINARY = dict(reason=binary_reason, channel_axis=binary_channel_axis)
_EXTREMUM: dict[str, Any] = dict(
    reason=binary_reason, infer=broadcast_type, draw=broadcast_operands, relax=""
)
_COMPARISON: dict[str, Any] = dict(
    reason=comparison_reason, infer=_comparison_type, draw=broadcast_operands
)

ROWS = [
    binary(
        "nn.bias_add",
        axis_reason,
        attrs=(Int("axis", 1),),
        infer=same_type,
        numpy=_bias_add,
        draw=along_axis,
        relax="",
    ),
    binary("add", **_BINARY, swaps=True, patterns_int8=POSTS_INT8),
    binary("subtract", **_BINARY, swaps=True),
    binary("multiply", **_BINARY, swaps=True),
    binary("divide", **_BINARY, numpy=of_values(_divide)),
    binary("maximum", **_BINARY, swaps=True),
    binary("minimum", **_BINARY, swaps=True),
    # NaN where an operand is NaN; nothing is fused, because oneDNN's post-ops drop it.
    OpSchema("dnnl.nan_maximum", **_EXTREMUM, numpy=of_values(np.maximum)),
    OpSchema("dnnl.nan_minimum", **_EXTREMUM, numpy=of_values(np.minimum)),
    OpSchema("equal", **_COMPARISON),
    OpSchema("not_equal", **_COMPARISON),
    OpSchema("less", **_COMPARISON),
    OpSchema("less_equal", **_COMPARISON),
    OpSchema("greater", **_COMPARISON),
    OpSchema("greater_equal", **_COMPARISON),
    OpSchema(
        "where",
        where_reason,
        infer=_where_type,
        numpy=of_values(np.where),
        draw=_draw_where,
        cost_weight=0,
    ),
]
