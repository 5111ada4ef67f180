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
"""When oneDNN can convert between data types."""

from __future__ import annotations

from tvm import relay

from .. import cpu
from ..tensors import named_types, tensor_reason


def cast_reason(call: relay.Call) -> str | None:
    """Accept static tensors of rank 1 or more, from truths or real numbers to real numbers.

    oneDNN's integers saturate, where Relay's do as C does.
    """
    for name, type_ in named_types(call):
        is_truth = name != "result" and getattr(type_, "dtype", None) == "bool"
        reason = tensor_reason(name, type_, 1, ("bool",) if is_truth else cpu.REAL)
        if reason:
            return reason
    return None
