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
"""When a plan's own kernels can copy elements: selections, broadcasts, and gathers."""

from __future__ import annotations

from ..ir.dim import is_same
from ..ir.op_view import OpView
from .attrs import Int, Ints, Text
from .tensors import VIEWED, tensor_reason, text_of_shape

BROADCAST_TO = (Ints("shape", None),)
TAKE = Int("axis", None), Int("batch_dims", 0), Text("mode", "clip")


def where_reason(call: OpView) -> str | None:
    """Accept truths, and two operands of one type that are broadcast."""
    condition, x, y = call.args
    reason = tensor_reason("the condition", condition, dtypes=("bool",))
    for name, tensor in (("x", x), ("y", y), ("result", call.result)):
        reason = reason or tensor_reason(name, tensor, dtypes=VIEWED)
    if reason is None and x.dtype != y.dtype:
        return f"x is {x.dtype}, but y is {y.dtype}"
    return reason


def broadcast_to_reason(call: OpView) -> str | None:
    """Accept sizes that are known, or the data's own."""
    data, result = call.args[0], call.result
    reason = tensor_reason("data", data, dtypes=VIEWED)
    reason = reason or tensor_reason("result", result, dtypes=VIEWED)
    if reason:
        return reason
    missing = len(result.dims) - len(data.dims)
    for axis, size in enumerate(result.dims):
        own = 1 if axis < missing else data.dims[axis - missing]
        if result.shape[axis] is None and not is_same(size, own):
            return f"the size along axis {axis} of {text_of_shape(result.shape)} is computed"
        if result.shape[axis] is not None and own != 1 and not isinstance(own, int):
            return f"the size of data along axis {axis - missing} is open"
    return None


def take_reason(call: OpView) -> str | None:
    """Accept int32 indices of the items of one axis."""
    data, indices = call.args
    reason = tensor_reason("data", data, 1, VIEWED)
    reason = reason or tensor_reason("indices", indices, dtypes=("int32",))
    reason = reason or tensor_reason("result", call.result, dtypes=VIEWED)
    if reason:
        return reason
    attrs = call.attrs
    if attrs.axis is None and len(data.shape) > 1:
        return f"axis is not given for data of shape {text_of_shape(data.shape)}"
    if attrs.batch_dims:
        return f"batch_dims={attrs.batch_dims} is not supported"
    if attrs.mode not in ("clip", "wrap", "fast"):
        return f"mode={attrs.mode} is not supported"
    return None
