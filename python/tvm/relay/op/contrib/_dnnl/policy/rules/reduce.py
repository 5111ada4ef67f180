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
"""When oneDNN can make one value of many."""

from __future__ import annotations

from tvm import relay

from ..tensors import data_elements, shape_of, tensors_reason, text_of_shape


def axes_reason(axes, exclude: bool, data: tuple[int, ...]) -> str | None:
    """Say why a list of axes cannot be reduced; None or no axis means all of them.

    Parameters
    ----------
    axes : Sequence[int] | None
        The axes, or with `exclude` all others.
    exclude : bool
        See `axes`.
    data : tuple[int, ...]
        The shape of what is reduced.
    """
    listed = [int(axis) for axis in axes or ()]
    for axis in listed:
        if not -len(data) <= axis < len(data):
            return f"axis={axis} is out of range for data of shape {text_of_shape(data)}"
    if len({axis % len(data) for axis in listed}) != len(listed):
        return f"axis={listed} names an axis of {text_of_shape(data)} twice"
    if exclude and len(listed) == len(data):
        return f"axis={listed} excludes all axes of {text_of_shape(data)}"
    return None


def reduce_reason(call: relay.Call) -> str | None:
    """Accept static tensors and any axes that leave at least one dimension."""
    reason = tensors_reason(call, min_rank=1)
    if reason:
        return reason
    return axes_reason(call.attrs.axis, bool(call.attrs.exclude), shape_of(call.args[0]))


# The fields of the rows.
REDUCE = dict(reason=reduce_reason, flops=data_elements)
