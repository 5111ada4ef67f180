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
"""Unary elementwise ops, and functions of several ops in the spellings of exporters."""

import math

from tvm import relay

from ..draw import ANY
from ..row import Row, bounded, one, op, plain, positive


def _plain(name, **limits):
    return plain(name, one(**limits))


def _of_bounded(name):
    return Row(name, one(), lambda b, x: op(name)(bounded(x)))


def of_positive(name):
    """Make the row of a function of positive values."""
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
    return plain(name, one(inputs_only=True), 1)


def _spelled(name, *spellings):
    """Make the row of a formula with several spellings."""

    def draw(draw):
        return [draw.data()], dict(spelling=draw.integer(0, len(spellings) - 1))

    return Row(name, draw, lambda b, x, spelling: spellings[spelling](b, x))


def _with(name, low, high, build):
    """Make the row of a formula with a number."""

    def draw(draw):
        return [draw.data()], dict(number=draw.number(low, high))

    return Row(name, draw, build)


def _elu(b, x, number):
    one_minus = relay.nn.relu(b.scalar(1.0) - relay.exp(x.expr))
    return b.scalar(-number) * one_minus + relay.nn.relu(x.expr)


def _gelu_erf(b, x):
    gate = relay.erf(x.expr / b.scalar(math.sqrt(2.0))) + b.scalar(1.0)
    return (x.expr * gate) * b.scalar(0.5)


def _gelu_erf_of_product(b, x):
    gate = b.scalar(0.5) + b.scalar(0.5) * relay.erf(x.expr * b.scalar(math.sqrt(0.5)))
    return x.expr * gate


def _gelu_tanh(b, x):
    cube = relay.power(x.expr, b.scalar(3.0)) * b.scalar(0.044715)
    inner = (x.expr + cube) * b.scalar(math.sqrt(2 / math.pi))
    return b.scalar(0.5) * x.expr * (relay.tanh(inner) + b.scalar(1.0))


def _gelu_tanh_of_products(b, x):
    cube = b.scalar(0.044715) * x.expr * x.expr * x.expr
    inner = b.scalar(math.sqrt(2 / math.pi)) * (x.expr + cube)
    return x.expr * (b.scalar(0.5) * (b.scalar(1.0) + relay.tanh(inner)))


def _hard_sigmoid(b, x):
    return relay.clip(x.expr * b.scalar(1 / 6) + b.scalar(0.5), 0.0, 1.0)


def _hard_sigmoid_of_sum(b, x):
    return relay.clip(x.expr + b.scalar(3.0), 0.0, 6.0) / b.scalar(6.0)


def _hard_swish(b, x):
    return x.expr * relay.clip(x.expr + b.scalar(3.0), 0.0, 6.0) / b.scalar(6.0)


def _hard_swish_of_gate(b, x):
    return _hard_sigmoid(b, x) * x.expr


def _mish(b, x):
    x = bounded(x, 10.0)
    return x * relay.tanh(relay.log(b.scalar(1.0) + relay.exp(x)))


def _softplus(b, x):
    return relay.log(relay.exp(bounded(x, 10.0)) + b.scalar(1.0))


def _power(b, x, number):
    # An integer exponent takes any data, and only then do negative values have a result.
    if number == round(number) and number > 0:
        return relay.power(bounded(x), b.scalar(number))
    return relay.power(positive(b, x), b.scalar(number))


def _draw_rms_norm(draw):
    x = draw.data(range(1, 6))
    return [x], dict(
        spelling=draw.integer(0, 2), epsilon=draw.choice([1e-5, 0.1]), factor=draw.chance(0.8)
    )


def _rms_norm(b, x, spelling, epsilon, factor):
    square = relay.power(x.expr, b.scalar(2.0)) if spelling else x.expr * x.expr
    radicand = relay.mean(square, axis=[-1], keepdims=True) + b.scalar(epsilon)
    if spelling == 0:
        normal = x.expr * relay.rsqrt(radicand)
    elif spelling == 1:
        normal = x.expr / relay.sqrt(radicand)
    else:
        normal = x.expr * (b.scalar(1.0) / relay.sqrt(radicand))
    return b.param([x.shape[-1]]) * normal if factor else normal


def _nan_safe_softmax(b, x):
    softmax = relay.nn.softmax(x.expr)
    return relay.where(relay.isnan(softmax), b.scalar(0.0), softmax)


def _masked_softmax(b, x):
    is_finite = relay.logical_not(relay.equal(x.expr, b.scalar(-math.inf)))
    is_masked = relay.logical_not(relay.any(is_finite, axis=-1, keepdims=True))
    return relay.where(is_masked, b.scalar(0.0), relay.nn.softmax(x.expr))


def _draw_power(draw):
    return [draw.data()], dict(number=draw.choice([2.0, 3.0, 0.5, -0.5, -1.0, 1.0, 1.7]))


ROWS = (
    _jumping("ceil"),
    _jumping("floor"),
    _jumping("sign"),
    _jumping("trunc"),
    _plain("cos")._replace(weight=1),
    _plain("sin")._replace(weight=1),
    _plain("nn.relu", dtypes=ANY)._replace(weight=4),
    plain("nn.leaky_relu", _draw_leaky_relu),
    Row("nn.prelu", _draw_prelu, _prelu),
    _plain("abs", dtypes=ANY),
    plain("clip", _draw_clip),
    _of_bounded("exp"),
    of_positive("log")._replace(weight=1),
    _plain("negative", dtypes=ANY),
    of_positive("rsqrt"),
    _plain("sigmoid"),
    of_positive("sqrt"),
    _plain("tanh"),
    Row("cast", _draw_cast, _cast),
    # These stay on TVM, and so make seams.
    _plain("atan")._replace(weight=1),
    _of_bounded("erf")._replace(weight=1),
    _with("dnnl.elu", 0.1, 2.0, _elu),
    _spelled("dnnl.gelu_erf", _gelu_erf, _gelu_erf_of_product),
    _spelled("dnnl.gelu_tanh", _gelu_tanh, _gelu_tanh_of_products),
    _spelled("dnnl.hard_sigmoid", _hard_sigmoid, _hard_sigmoid_of_sum),
    _spelled("dnnl.hard_swish", _hard_swish, _hard_swish_of_gate),
    _with("dnnl.linear", -2.0, 2.0, lambda b, x, number: b.scalar(number) - x.expr),
    _spelled("dnnl.masked_softmax", _masked_softmax),
    Row("dnnl.mish", one(), _mish),
    _spelled("dnnl.nan_safe_softmax", _nan_safe_softmax),
    Row("dnnl.pow", _draw_power, _power),
    Row("dnnl.rms_norm", _draw_rms_norm, _rms_norm, 3),
    _spelled("dnnl.rsqrt", lambda b, x: b.scalar(1.0) / relay.sqrt(positive(b, x))),
    Row("dnnl.softplus", one(), _softplus),
    _spelled(
        "dnnl.swish",
        lambda b, x: x.expr * relay.sigmoid(x.expr),
        lambda b, x: x.expr / (b.scalar(1.0) + relay.exp(relay.negative(x.expr))),
        lambda b, x: relay.sigmoid(x.expr * b.scalar(1.702)) * x.expr,
    ),
)
