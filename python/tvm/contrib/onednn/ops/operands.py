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
"""How the second operand of a binary elementwise op lies on the result of another op."""

from __future__ import annotations

from ..ir.op_view import OpView

# The ops that may add a bias.
BIAS_OPS = ("add", "nn.bias_add")

# Their second operand is a vector along an axis that an attribute names.
_ALONG_AXIS = ("nn.bias_add", "nn.prelu")


def is_per_channel(
    call: OpView,
    operand: tuple[int | None, ...],
    result: tuple[int | None, ...],
    channel_axis: int,
) -> bool:
    """Whether an operand has one value for each channel of a result.

    A vector that is added by `add` lies along the last axis, however many channels there are.

    Parameters
    ----------
    call : OpView
        The binary op, whose other operand is the result.
    operand, result : tuple[int | None, ...]
        The shapes, None for what is open. Numpy aligns them from the right, but for a vector along
        an axis.
    channel_axis : int
        Of the result, not negative.
    """
    if call.name in _ALONG_AXIS:
        return call.attrs.axis % len(result) == channel_axis
    axis = channel_axis - (len(result) - len(operand))
    padded = (1,) * (len(result) - len(operand)) + operand
    if len(operand) > len(result) or padded[channel_axis] != result[channel_axis]:
        return False
    if result[channel_axis] is None:
        return False
    return all(dim == 1 for i, dim in enumerate(operand) if i != axis)


def operand_kind(
    call: OpView,
    operand: tuple[int | None, ...],
    result: tuple[int | None, ...],
    channel_axis: int | None,
) -> str | None:
    """Say how an operand lies on a result, if in a way that oneDNN fuses.

    Parameters
    ----------
    call, operand, result
        As for `is_per_channel`.
    channel_axis : int | None
        Of the result, for an op that has one.

    Returns
    -------
    kind : str | None
        "channel", "full" or "scalar"; None for any other broadcast.
    """
    if channel_axis is not None and is_per_channel(call, operand, result, channel_axis):
        return "channel"
    if call.name in _ALONG_AXIS or len(operand) > len(result):
        return None
    if (1,) * (len(result) - len(operand)) + operand == result:
        return "full"
    return "scalar" if all(dim == 1 for dim in operand) else None
