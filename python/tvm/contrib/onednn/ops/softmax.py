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
"""Softmax and its variants."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from .attrs import Int
from .draw import Call, Draw, shaped
from .eltwise import virtual_reason
from .schema import OpSchema, always, function
from .tensors import axis_reason


def softmax(attrs, result_type, data):
    """Define the op along the axis of its attributes."""
    exponential = np.exp(data - data.max(attrs.axis, keepdims=True))
    return exponential / exponential.sum(attrs.axis, keepdims=True)


def _log_softmax(attrs, result_type, data):
    shifted = data - data.max(attrs.axis, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(attrs.axis, keepdims=True))


def _along_last_axis(data):
    return softmax(SimpleNamespace(axis=-1), None, data)


def _nan_safe_softmax(attrs, result_type, data):
    return np.nan_to_num(_along_last_axis(data), nan=0.0)


def _masked_softmax(attrs, result_type, data):
    masked = np.all(data == -np.inf, axis=-1, keepdims=True)
    return np.where(masked, 0.0, _along_last_axis(data))


def _draw_softmax(d: Draw) -> Call:
    shape = d.shape(*range(1, 7))
    return Call([d.values(shape)], {"axis": d.choice((-1, d.axis(shape)))})


def _row(name: str, reason, numpy, **fields) -> OpSchema:
    return function(
        name, reason, attrs=(Int("axis", -1),), numpy=numpy, **{"draw": _draw_softmax, **fields}
    )


_VIRTUAL = dict(draw=shaped(1, 2, 3, 4), relax="", is_not_negative=always)

ROWS = [
    _row("dnnl.masked_softmax", virtual_reason, _masked_softmax, **_VIRTUAL),
    _row("dnnl.nan_safe_softmax", virtual_reason, _nan_safe_softmax, **_VIRTUAL),
    _row("nn.fast_softmax", axis_reason, softmax, relax=""),
    _row("nn.log_softmax", axis_reason, _log_softmax),
    _row("nn.softmax", axis_reason, softmax, is_not_negative=always),
]
