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
"""Ops that join several tensors of a graph."""

from tvm import relay

from ..draw import REAL
from ..row import Row


def _draw_concatenate(draw):
    x = draw.data(dtypes=REAL + ("bfloat16",))
    tensor = draw.tensor(x)
    axis = draw.choice([min(1, tensor.rank - 1), draw.integer(0, tensor.rank - 1)])

    def fits(other):
        pairs = enumerate(zip(tensor.shape, other.shape))
        return other.rank == tensor.rank and all(i == axis or a == b for i, (a, b) in pairs)

    count = draw.integer(1, 3)
    others = [draw.data(dtypes=(tensor.dtype,), where=fits) for _ in range(count)]
    return [x, *others], dict(axis=draw.choice([axis, axis - tensor.rank]))


def _draw_stack(draw):
    x = draw.data(range(1, 6))
    tensor = draw.tensor(x)
    others = [draw.data(where=lambda other: other.shape == tensor.shape) for _ in "ab"]
    axis = draw.integer(0, tensor.rank)
    return [x, *others[: draw.integer(1, 2)]], dict(axis=axis)


ROWS = (
    Row(
        "concatenate",
        _draw_concatenate,
        lambda b, *xs, axis: relay.concatenate([x.expr for x in xs], axis),
        6,
    ),
    Row("stack", _draw_stack, lambda b, *xs, axis: relay.stack([x.expr for x in xs], axis), 1),
)
