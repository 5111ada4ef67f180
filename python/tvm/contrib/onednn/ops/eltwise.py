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
"""When oneDNN can run a unary elementwise op, or convert between data types."""

from __future__ import annotations

import math

from .. import cpu
from ..ir.op_view import OpView
from .attrs import Float
from .tensors import MOVED, named_tensors, tensor_reason, tensors_reason, text_of_shape


def eltwise_reason(call: OpView) -> str | None:
    """Accept tensors of rank 1 or more."""
    return tensors_reason(call, min_rank=1)


def clip_reason(call: OpView) -> str | None:
    """Accept tensors and bounds in their order."""
    low, high = call.attrs.a_min, call.attrs.a_max
    if math.isnan(low) or math.isnan(high) or low > high:
        return f"a_min={low:g} is not below a_max={high:g}"
    return eltwise_reason(call)


def leaky_relu_reason(call: OpView) -> str | None:
    """Accept tensors and a finite slope."""
    if not math.isfinite(call.attrs.alpha):
        return f"alpha={call.attrs.alpha:g} is not finite"
    return eltwise_reason(call)


def prelu_reason(call: OpView) -> str | None:
    """Accept tensors with one slope for each element of any axis, or one for all."""
    reason = eltwise_reason(call)
    if reason:
        return reason
    data, slopes, axis = call.args[0].shape, call.args[1].shape, call.attrs.axis
    if not 0 <= axis < len(data):
        return f"axis={axis} is out of range for data of shape {text_of_shape(data)}"
    # An open size is compared at each call.
    if len(slopes) != 1 or None not in (data[axis], *slopes) and slopes[0] not in (1, data[axis]):
        text = text_of_shape(slopes)
        return f"slopes have shape {text}; one, or {data[axis]} along axis {axis}, are required"
    return None


def virtual_reason(call: OpView) -> str | None:
    """Accept an operand of rank 1 or more, for a virtual op of one operand."""
    return tensor_reason("data", call.args[0], min_rank=1)


def float32_reason(call: OpView) -> str | None:
    """Accept an operand in float32 of rank 1 or more."""
    return tensor_reason("data", call.args[0], min_rank=1, dtypes=("float32",))


def clip_is_not_negative(call: OpView) -> bool:
    """Whether the lower bound of a clip is zero or more."""
    return call.attrs.a_min >= 0.0


def cast_reason(call: OpView) -> str | None:
    """Accept tensors of rank 1 or more, from truths, 8 bits or real numbers to real numbers.

    oneDNN's integers saturate, where Relay's do as C does.
    """
    for name, tensor in named_tensors(call):
        dtypes = cpu.REAL if name == "result" else ("bool", *MOVED)
        reason = tensor_reason(name, tensor, 1, dtypes)
        if reason:
            return reason
    return None


# The fields of the row.
CLIP = dict(
    reason=clip_reason,
    attrs=(Float("a_min"), Float("a_max")),
    is_not_negative=clip_is_not_negative,
)
