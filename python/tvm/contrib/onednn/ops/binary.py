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
"""When oneDNN can run a binary elementwise op, with numpy's broadcasting."""

from __future__ import annotations

from ..ir.dim import broadcast
from ..ir.op_view import OpView, Tensor
from .tensors import tensor_reason, tensors_reason


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
    out = call.result.shape
    for shape in (arg.shape for arg in call.args):
        padded = (1,) * (len(out) - len(shape)) + shape
        if padded != out and [axis for axis, dim in enumerate(padded) if dim != 1] == [1]:
            return 1
    return None


def comparison_reason(call: OpView) -> str | None:
    """Accept real numbers of one type.

    oneDNN writes 0 or 1 into bytes, as Relay's truths are.
    """
    reason = tensor_reason("the result", call.result, dtypes=("bool",))
    for name, tensor in zip(("lhs", "rhs"), call.args):
        reason = reason or tensor_reason(name, tensor)
    # Relax compares unequal types.
    lhs, rhs = (arg.dtype for arg in call.args)
    reason = reason or (f"lhs is {lhs}, but rhs is {rhs}" if lhs != rhs else None)
    return reason or _scalar_reason(call)


def _truth(args, attrs):
    return Tensor(broadcast(*(arg.dims for arg in args)), "bool")


def _scalar_reason(call: OpView) -> str | None:
    return None if call.result.shape else "the result is a scalar"


# The fields of the rows.
BINARY = dict(reason=binary_reason, channel_axis=binary_channel_axis, swaps=True)
DIVIDE = dict(reason=binary_reason, channel_axis=binary_channel_axis)
COMPARISON = dict(reason=comparison_reason, infer=_truth)
