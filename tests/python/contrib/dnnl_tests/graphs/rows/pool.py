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
"""Pooling."""

from tvm import relay

from ..row import Row, op, plain
from .conv import LETTERS


def _layout(draw, spatial, channels_last=True):
    letters = LETTERS[spatial]
    layouts = [f"NC{letters}"] * 2 + [f"N{letters}C"] * channels_last
    return draw.choice(layouts)


def _sizes(draw, x, layout):
    shape = draw.tensor(x).shape
    return shape[2:] if layout[1] == "C" else shape[1:-1]


def _pool(kind, spatial):
    name = f"nn.{kind}_pool{spatial}d"

    def draw_pool(draw):
        x = draw.data([spatial + 2])
        layout = _layout(draw, spatial)
        window, strides, before, after = [], [], [], []
        for size in _sizes(draw, x, layout):
            taps = draw.integer(1, min(size, 4))
            window.append(taps)
            strides.append(draw.choice([1, 1, 2, 2, 3]))
            before.append(draw.integer(0, taps - 1) if draw.chance(0.4) else 0)
            after.append(draw.integer(0, taps - 1) if draw.chance(0.4) else 0)
        attrs = dict(
            pool_size=tuple(window),
            strides=tuple(strides),
            padding=(*before, *after),
            ceil_mode=draw.chance(0.3),
            layout=layout,
        )
        if kind == "avg":
            attrs["count_include_pad"] = draw.chance(0.4)
        return [x], attrs

    def build(b, x, **attrs):
        expr = op(name)(x.expr, **attrs)
        if not _goes_beyond(x, **attrs):
            return expr
        if kind == "avg":
            # TVM's mean of nothing is NaN, and a function of NaN is not the same everywhere:
            # oneDNN's clip makes a bound of it.
            raise ValueError("a window holds nothing but padding")
        # TVM's maximum of nothing is the lowest number, of which the next sum would overflow or
        # not as the order is.
        return relay.clip(expr, -100.0, 100.0)

    return Row(name, draw_pool, build)


def _goes_beyond(x, pool_size, strides, padding, ceil_mode, layout, **_):
    """Whether the last window along some axis holds nothing but padding."""
    sizes = x.shape[2:] if layout[1] == "C" else x.shape[1:-1]
    for axis, (size, window, stride) in enumerate(zip(sizes, pool_size, strides)):
        before, after = padding[axis], padding[axis + len(sizes)]
        last = -(-(size + before + after - window) // stride) * stride - before
        if ceil_mode and last >= size:
            return True
    return False


def _global(kind):
    def draw_pool(draw):
        return [draw.data([4])], dict(layout=_layout(draw, 2))

    return plain(f"nn.global_{kind}_pool2d", draw_pool)


def _adaptive(kind, spatial):
    def draw_pool(draw):
        x = draw.data([spatial + 2])
        layout = _layout(draw, spatial)
        size = []
        for full in _sizes(draw, x, layout):
            even = [n for n in range(1, full + 1) if full % n == 0]
            size.append(draw.choice(even) if draw.chance(0.8) else draw.integer(1, full))
        return [x], dict(output_size=tuple(size), layout=layout)

    return plain(f"nn.adaptive_{kind}_pool{spatial}d", draw_pool, 1)


KINDS = ("max", "avg")
ROWS = (
    *(_pool(kind, spatial) for kind in KINDS for spatial in (1, 2, 3)),
    *(_global(kind) for kind in KINDS),
    *(_adaptive(kind, spatial) for kind in KINDS for spatial in (1, 2, 3)),
)
