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

import itertools

from ..op_view import OpView
from ..tensors import tensor_reason, tensors_reason, text_of_shape

# oneDNN has fast code for an operand that is broadcast along one run of axes, or all but one. Its
# code for the rest is a hundred times slower than TVM's.
MAX_RUNS = 3


def runs_of_axes(operand: tuple[int, ...], result: tuple[int, ...]) -> int:
    """Count the runs of neighbouring axes along which an operand is, or is not, broadcast.

    Parameters
    ----------
    operand, result : tuple[int, ...]
        The shapes, aligned from the right as numpy does. Axes of one element do not count.
    """
    padded = (1,) * (len(result) - len(operand)) + operand
    broadcast = [dim == 1 for dim, size in zip(padded, result) if size != 1]
    return len(list(itertools.groupby(broadcast)))


def binary_reason(call: OpView) -> str | None:
    """Accept operands of which at least one has the result's shape.

    oneDNN broadcasts its second source only; the operand of full shape becomes the first.
    """
    return tensors_reason(call) or _broadcast_reason(call)


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
    """Accept real numbers of which at least one operand has the result's shape.

    oneDNN writes 0 or 1 into bytes, as Relay's truths are.
    """
    reason = tensor_reason("the result", call.result, dtypes=("bool",))
    for name, tensor in zip(("lhs", "rhs"), call.args):
        reason = reason or tensor_reason(name, tensor)
    # Relax compares unequal types.
    lhs, rhs = (arg.dtype for arg in call.args)
    reason = reason or (f"lhs is {lhs}, but rhs is {rhs}" if lhs != rhs else None)
    return reason or _broadcast_reason(call)


def _broadcast_reason(call: OpView) -> str | None:
    """Say why oneDNN cannot broadcast the operands of a call."""
    out = call.result.shape
    if not out:
        return "the result is a scalar"
    lhs, rhs = (arg.shape for arg in call.args)
    # A missing leading dimension counts as 1: operands of fewer dimensions are padded.
    full = [(1,) * (len(out) - len(shape)) + shape == out for shape in (lhs, rhs)]
    if not any(full):
        return (
            f"both operands are broadcast: {text_of_shape(lhs)} and {text_of_shape(rhs)} "
            f"to {text_of_shape(out)}; oneDNN needs one of full shape"
        )
    broadcast = lhs if full[1] else rhs
    if runs_of_axes(broadcast, out) > MAX_RUNS:
        return (
            f"an operand of shape {text_of_shape(broadcast)} is broadcast to {text_of_shape(out)} "
            "along non-adjacent axes, which is slow in oneDNN"
        )
    return None


def divide_reason(call: OpView) -> str | None:
    """Accept what `binary_reason` accepts, with a first operand of the result's shape."""
    reason = binary_reason(call)
    if reason:
        return reason
    out, data = call.result.shape, call.args[0].shape
    if (1,) * (len(out) - len(data)) + data != out:
        return (
            f"the first operand, of shape {text_of_shape(data)}, is broadcast "
            f"to {text_of_shape(out)}; oneDNN can broadcast only the divisor"
        )
    return None


# The fields of the rows.
BINARY = dict(reason=binary_reason, channel_axis=binary_channel_axis, swaps=True)
DIVIDE = dict(reason=divide_reason, channel_axis=binary_channel_axis)
COMPARISON = dict(reason=comparison_reason)
