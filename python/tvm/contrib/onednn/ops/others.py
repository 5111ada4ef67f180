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
"""Ops that stay on TVM: why, and their definitions, as they compute constants and formulas."""

from __future__ import annotations

import numpy as np

from .attrs import Attr, Bool
from .copy import filled
from .reduce import REDUCE_ATTRS, reduce_by, reduced_axes
from .resize import ROUND
from .schema import Definition, OpSchema, of_values

NO_RULE = "no rule for this op"

# Why ops have no rule on purpose.
REFUSED = {
    "power": "oneDNN requires a constant exponent",
    "round": "oneDNN rounds half to even, Relay half away from zero",
}


def _variance(attrs, result_type, data, *mean):
    axes = tuple(reduced_axes(attrs, data.ndim))
    center = mean[0] if mean else data.mean(axes, keepdims=True)
    if center.ndim < data.ndim:
        center = np.expand_dims(center, axes)
    count = np.prod([data.shape[axis] for axis in axes]) - attrs.unbiased
    return ((data - center) ** 2).sum(axes, keepdims=attrs.keepdims) / count


def _row(name: str, numpy: Definition | None = None, attrs: tuple[Attr, ...] = ()) -> OpSchema:
    reason = REFUSED.get(name, NO_RULE)
    return OpSchema(name, lambda call: reason, attrs=attrs, numpy=numpy)


OTHERS: dict[str, OpSchema] = {
    row.name: row
    for row in [
        _row("atan", of_values(np.arctan)),
        _row("copy", of_values(lambda x: x)),
        _row("round", of_values(ROUND["round"])),
        *map(_row, "isnan sinh power floor_divide logical_and logical_or logical_not".split()),
        *(_row(name, reduce_by(getattr(np, name)), REDUCE_ATTRS) for name in ("all", "any")),
        _row("variance", _variance, (*REDUCE_ATTRS, Bool("unbiased", False))),
        *(_row(name, filled()) for name in ("full", "full_like")),
        *(_row(name, filled(0)) for name in ("zeros", "zeros_like")),
        *(_row(name, filled(1)) for name in ("ones", "ones_like")),
    ]
}
