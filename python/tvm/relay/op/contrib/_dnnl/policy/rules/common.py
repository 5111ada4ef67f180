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
"""When oneDNN can run an op: each predicate returns None to accept, or the reason it cannot."""

from __future__ import annotations

from tvm import relay

from ..tensors import shape_of, tensors_reason, text_of_shape


def last_axis(call: relay.Call) -> int:
    """Return the last axis of a call's result."""
    return len(shape_of(call)) - 1


def axis_reason(call: relay.Call) -> str | None:
    """Accept static tensors of rank 1 or more, and any axis of the first."""
    reason = tensors_reason(call, min_rank=1)
    if reason:
        return reason
    data, axis = shape_of(call.args[0]), int(call.attrs.axis)
    if not -len(data) <= axis < len(data):
        return f"axis={axis} is out of range for data of shape {text_of_shape(data)}"
    return None


def batch_norm_reason(call: relay.Call) -> str | None:
    """Accept static data of rank 2 or more, any channel axis."""
    reason = axis_reason(call)
    if reason:
        return reason
    data = shape_of(call.args[0])
    if len(data) < 2:
        return f"data has shape {text_of_shape(data)}; at least rank 2 is needed"
    return None


def eltwise_reason(call: relay.Call) -> str | None:
    """Accept static tensors of rank 1 or more."""
    return tensors_reason(call, min_rank=1)
