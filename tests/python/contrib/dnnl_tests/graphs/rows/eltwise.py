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
"""Unary elementwise ops."""

from tvm import relay

from ..draw import ANY
from ..row import Row, bounded, one, op, positive


def _plain(name, **limits):
    return Row(name, one(**limits), lambda b, x: op(name)(x.expr))


def _of_bounded(name):
    return Row(name, one(), lambda b, x: op(name)(bounded(x)))


def _of_positive(name):
    return Row(name, one(), lambda b, x: op(name)(positive(b, x)))


def _draw_clip(draw):
    low = draw.number(-2, 1)
    bounds = [(low, low + draw.number(0, 3)), (0.0, 6.0), (0.0, 1.0), (-1.0, 1.0)]
    bounds = draw.choice(bounds)
    return [draw.data(dtypes=ANY)], dict(a_min=bounds[0], a_max=bounds[1])


def _draw_leaky_relu(draw):
    return [draw.data()], dict(alpha=draw.choice([0.1, 0.01, 0.0, 1.5, -0.5]))


def _draw_prelu(draw):
    x = draw.data(range(2, 7))
    rank = draw.tensor(x).rank
    return [x], dict(axis=draw.integer(0, rank - 1))


def _prelu(b, x, axis):
    return relay.nn.prelu(x.expr, b.param([x.shape[axis]]), axis)


def _draw_cast(draw):
    # A float that is cast to an integer jumps, so that only inputs are.
    if draw.chance(0.15):
        return [draw.data(inputs_only=True)], dict(dtype="int32")
    x = draw.data(dtypes=ANY + ("bool",))
    return [x], dict(dtype=draw.choice(["float32", "bfloat16"]))


def _cast(b, x, dtype):
    return relay.cast(x.expr, b.real if dtype == "float32" else dtype)


def _jumping(name):
    """Make the row of a function that jumps, of inputs only: the last bit may decide."""
    return Row(name, one(inputs_only=True), lambda b, x: op(name)(x.expr), 1)


ROWS = (
    _jumping("ceil"),
    _jumping("floor"),
    _jumping("sign"),
    _jumping("trunc"),
    _plain("nn.relu", dtypes=ANY)._replace(weight=4),
    Row("nn.leaky_relu", _draw_leaky_relu, lambda b, x, alpha: relay.nn.leaky_relu(x.expr, alpha)),
    Row("nn.prelu", _draw_prelu, _prelu),
    _plain("abs", dtypes=ANY),
    Row("clip", _draw_clip, lambda b, x, a_min, a_max: relay.clip(x.expr, a_min, a_max)),
    _of_bounded("exp"),
    _of_positive("log")._replace(weight=1),
    _plain("negative", dtypes=ANY),
    _of_positive("rsqrt"),
    _plain("sigmoid"),
    _of_positive("sqrt"),
    _plain("tanh"),
    Row("cast", _draw_cast, _cast),
    # These stay on TVM, and so make seams.
    _plain("sin")._replace(weight=1),
    _of_bounded("erf")._replace(weight=1),
)
