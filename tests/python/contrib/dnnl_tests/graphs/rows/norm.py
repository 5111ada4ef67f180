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
"""Normalisation, softmax and reductions."""

import math

from tvm import relay

from ..row import Row, plain


def _axis(draw, x, low=0):
    rank = draw.tensor(x).rank
    return draw.choice([rank - 1, -1, draw.integer(low, rank - 1)])


def _draw_batch_norm(draw):
    x = draw.data(range(2, 7))
    attrs = dict(axis=draw.choice([1, 1, _axis(draw, x)]), epsilon=draw.choice([1e-5, 1e-3, 0.1]))
    return [x], dict(attrs, scale=draw.chance(0.8), center=draw.chance(0.8))


def _batch_norm(b, x, axis, **attrs):
    channels = [x.shape[axis]]
    stats = [b.param(channels) for _ in range(3)]
    return relay.nn.batch_norm(x.expr, *stats, b.param(channels, "pos"), axis, **attrs)[0]


def _draw_affine(draw):
    x = draw.data(range(2, 7))
    attrs = dict(axis=_axis(draw, x), epsilon=draw.choice([1e-5, 1e-3, 0.1]))
    return [x], dict(attrs, scale=draw.chance(0.8), center=draw.chance(0.8))


def _layer_norm(b, x, axis, **attrs):
    gamma, beta = (b.param([x.shape[axis]]) for _ in "gb")
    return relay.nn.layer_norm(x.expr, gamma, beta, axis, **attrs)


def _draw_group_norm(draw):
    (x,), attrs = _draw_affine(draw)
    axis = 1 if draw.chance(0.7) else attrs["axis"]
    channels = draw.tensor(x).shape[axis]
    groups = draw.choice([n for n in range(1, channels + 1) if channels % n == 0])
    return [x], dict(attrs, axis=axis, num_groups=groups)


def _group_norm(b, x, axis, num_groups, **attrs):
    gamma, beta = (b.param([x.shape[axis]]) for _ in "gb")
    return relay.nn.group_norm(x.expr, gamma, beta, num_groups, axis, **attrs)


def _draw_instance_norm(draw):
    x = draw.data(range(3, 6))
    attrs = dict(axis=draw.choice([1, 1, _axis(draw, x, 1)]), epsilon=draw.choice([1e-5, 0.1]))
    return [x], dict(attrs, scale=draw.chance(0.8), center=draw.chance(0.8))


def _instance_norm(b, x, axis, **attrs):
    gamma, beta = (b.param([x.shape[axis]]) for _ in "gb")
    return relay.nn.instance_norm(x.expr, gamma, beta, axis, **attrs)


def _axes(draw, x, minimum=0):
    rank = draw.tensor(x).rank
    count = draw.integer(minimum, rank)
    return tuple(sorted(draw.random.sample(range(rank), count)))


def _draw_l2_normalize(draw):
    x = draw.data([4])
    axes = draw.choice([(1,), (3,), (1, 2, 3)])
    return [x], dict(axis=axes, eps=draw.choice([1e-6, 0.1]))


def _l2_normalize(b, x, axis, eps):
    return relay.nn.l2_normalize(x.expr, eps, list(axis))


def _draw_lrn(draw):
    x = draw.data([4])
    attrs = dict(
        size=draw.choice([1, 3, 5]),
        axis=draw.choice([1, 1, 3]),
        bias=draw.choice([1, 2]),
    )
    return [x], dict(
        attrs, alpha=draw.choice([1e-4, 0.1]), beta=draw.choice([0.75, 0.75, 1.0, 0.5])
    )


def _softmax(name, low=0):
    def draw_softmax(draw):
        x = draw.data()
        return [x], dict(axis=_axis(draw, x, low))

    return plain(name, draw_softmax)


def _draw_reduce(draw):
    x = draw.data()
    axes = _axes(draw, x)
    attrs = dict(axis=axes or None, keepdims=draw.chance(0.5))
    full = axes and len(axes) < draw.tensor(x).rank
    return [x], dict(attrs, exclude=bool(full) and draw.chance(0.2))


def _prod(b, x, **attrs):
    # Factors near one, or the product would leave the range of float32; and few, or the order in
    # which they are multiplied would show.
    if math.prod(x.shape) > 256:
        raise ValueError(f"a product of {x.shape}")
    return relay.prod(relay.tanh(x.expr) * b.scalar(0.01) + b.scalar(1.0), **attrs)


ROWS = (
    Row("nn.batch_norm", _draw_batch_norm, _batch_norm, 5),
    Row("nn.group_norm", _draw_group_norm, _group_norm),
    Row("nn.instance_norm", _draw_instance_norm, _instance_norm),
    Row("nn.l2_normalize", _draw_l2_normalize, _l2_normalize),
    Row("nn.layer_norm", _draw_affine, _layer_norm, 4),
    plain("nn.lrn", _draw_lrn),
    _softmax("nn.fast_softmax"),
    _softmax("nn.log_softmax"),
    _softmax("nn.softmax")._replace(weight=4),
    *(plain(name, _draw_reduce) for name in ("max", "mean", "min")),
    Row("prod", _draw_reduce, _prod),
    plain("sum", _draw_reduce),
)
