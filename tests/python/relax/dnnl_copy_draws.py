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
"""Draws calls of ops that select, repeat or gather elements, and of those of truths."""

import numpy as np
from tvm import relax
from tvm.relax import op


def _broadcast(d, shape):
    """Return a shape that is broadcast to another one."""
    return [d.choice((size, size, 1)) for size in shape][d.choice((0, 0, d.integer(0, 1))) :]


def _where(d):
    shape = d.shape(*range(6))
    condition, x, y = (_broadcast(d, shape) for _ in "cxy")
    dtype = d.choice((None, None, None, "int8", "bool", "int32"))
    return op.where(d.var(condition, "bool"), d.weight(x, dtype), d.var(y, dtype))


def _broadcast_to(d):
    shape = d.shape(*range(5))
    target = [d.choice((2, 3)) for _ in range(d.integer(0, 2))]
    target += [d.choice((1, 3)) if size == 1 else size for size in shape]
    data = d.data(shape)
    # An open size stays.
    sizes = list(data.ty.shape.values)
    sizes = [1] * (len(target) - len(sizes)) + sizes
    target = [new if str(old) == "1" else old for new, old in zip(target, sizes)]
    return op.broadcast_to(data, target)


def _take(d):
    shape = d.shape(1, 2, 3)
    axis, mode = d.axis(shape), d.choice(("fast", "clip", "wrap"))
    if d.chance(0.5):
        indices = d.var(d.shape(0, 1, 2), d.choice(("int32", "int64", "int8")))
        return op.take(d.data(shape), indices, axis, mode)
    first, step = d.integer(-1, shape[axis]), d.choice((1, 1, 2, -1))
    indices = first + step * np.arange(d.integer(1, 3))
    dtype = d.choice(("int32", "int64"))
    indices = relax.const(d.choice((indices, indices[:1], indices[0])).astype(dtype), dtype)
    return op.take(d.data(shape), indices, axis, d.choice(("fast", mode)))


def _repeat(d):
    shape = d.shape(1, 2, 3, 4)
    return op.repeat(d.data(shape), d.choice((1, 2, 3)), d.choice((None, d.axis(shape))))


def _tile(d):
    shape = d.shape(1, 2, 3)
    counts = [d.choice((1, 1, 2, 3)) for _ in range(d.integer(1, 4))]
    return op.tile(d.data(shape), counts)


def _unary(name):
    return lambda d: getattr(op, name)(d.data(d.shape(*range(6))))


def _logical(name, count):
    def draw(d):
        shape = d.shape(*range(5))
        dtype = d.choice(("bool", "bool", "bool", "int32"))
        return getattr(op, name)(*(d.var(shape, dtype) for _ in range(count)))

    return draw


DRAWS = {
    "where": _where,
    "broadcast_to": _broadcast_to,
    "take": _take,
    "repeat": _repeat,
    "tile": _tile,
    **{name: _unary(name) for name in "ceil floor round sign trunc isnan isinf isfinite".split()},
    "logical_not": _logical("logical_not", 1),
    **{name: _logical(name, 2) for name in ("logical_and", "logical_or", "logical_xor")},
}
