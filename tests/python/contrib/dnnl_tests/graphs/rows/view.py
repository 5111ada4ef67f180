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
"""Ops that move values and compute none, or little: views, joins, parts, padding, resizing."""

import math

from tvm import relay

from ..draw import ANY, REAL, Unfit
from ..row import Row, plain
from .conv import LETTERS


def _draw_reshape(draw):
    x = draw.data(dtypes=ANY)
    left, shape = math.prod(draw.tensor(x).shape), []
    while len(shape) < 4 and left > 1:
        dim = draw.choice([n for n in range(1, left + 1) if left % n == 0])
        shape.append(dim)
        left //= dim
    return [x], dict(shape=(*shape, left))


def _draw_transpose(draw):
    x = draw.data(range(2, 7), dtypes=ANY)
    rank = draw.tensor(x).rank
    ways = [draw.random.sample(range(rank), rank)]
    if rank == 4:
        ways += [[0, 2, 3, 1], [0, 3, 1, 2], [0, 2, 1, 3]]
    return [x], dict(axes=tuple(draw.choice(ways)))


def _draw_expand_dims(draw):
    x = draw.data(range(1, 6), dtypes=ANY)
    rank = draw.tensor(x).rank
    return [x], dict(axis=draw.integer(0, rank), num_newaxis=draw.choice([1, 1, 2]))


def _draw_squeeze(draw):
    x = draw.data(range(2, 8), dtypes=ANY, where=lambda tensor: 1 in tensor.shape)
    axes = [axis for axis, dim in enumerate(draw.tensor(x).shape) if dim == 1]
    if len(axes) == draw.tensor(x).rank:
        raise Unfit("nothing would be left")
    return [x], dict(axis=draw.choice([tuple(axes), (draw.choice(axes),)]))


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


def _draw_split(draw):
    x = draw.data(where=lambda tensor: max(tensor.shape) > 1)
    shape = draw.tensor(x).shape
    axis = draw.choice([axis for axis, dim in enumerate(shape) if dim > 1])
    if draw.chance(0.5):
        parts = draw.choice([n for n in range(2, shape[axis] + 1) if shape[axis] % n == 0])
        if parts <= 4:
            return [x], dict(sections=parts, axis=axis)
    return [x], dict(sections=(draw.integer(1, shape[axis] - 1),), axis=axis)


def _draw_slice(draw):
    x = draw.data(dtypes=ANY)
    begin, end, strides = [], [], []
    for dim in draw.tensor(x).shape:
        first = draw.integer(0, dim - 1) if draw.chance(0.4) else 0
        begin.append(first)
        end.append(draw.integer(first + 1, dim) if draw.chance(0.4) else dim)
        strides.append(draw.choice([1, 1, 1, 1, 2]))
    return [x], dict(begin=tuple(begin), end=tuple(end), strides=tuple(strides))


def _slice(b, x, begin, end, strides):
    return relay.strided_slice(x.expr, list(begin), list(end), list(strides))


def _draw_pad(draw):
    x = draw.data(range(2, 6))
    rank = draw.tensor(x).rank
    width = [draw.choice([0, 0, 1, 2]) for _ in range(2 * rank)]
    if rank > 2 and draw.chance(0.7):
        width[:4] = [0] * 4
    # A mirror has no more lines than there are after the edge.
    lines = [dim - 1 for dim in draw.tensor(x).shape for _ in range(2)]
    modes = ["constant", "constant", "edge"] + ["reflect"] * all(map(int.__le__, width, lines))
    mode = draw.choice(modes)
    return [x], dict(width=tuple(width), value=draw.choice([0, 0.0, 0.5]), mode=mode)


def _pad(b, x, width, value, mode):
    return relay.nn.pad(x.expr, tuple(zip(width[::2], width[1::2])), value, mode)


RESIZE = (
    ("linear", "half_pixel", ""),
    ("linear", "align_corners", ""),
    ("linear", "asymmetric", ""),
    ("nearest_neighbor", "asymmetric", "floor"),
)


def _draw_resize(spatial):
    def draw_resize(draw):
        x = draw.data([spatial + 2])
        layout = draw.choice([f"NC{LETTERS[spatial]}", f"N{LETTERS[spatial]}C"])
        shape = draw.tensor(x).shape
        old = shape[2:] if layout[1] == "C" else shape[1:-1]
        size = tuple(max(1, int(dim * draw.choice([1, 2, 2, 0.5, 1.5]))) for dim in old)
        method, mode, rounding = draw.choice(RESIZE)
        attrs = dict(size=size, layout=layout, method=method, rounding_method=rounding)
        return [x], dict(attrs, coordinate_transformation_mode=mode)

    return draw_resize


def _draw_upsampling(spatial):
    def draw_upsampling(draw):
        x = draw.data([spatial + 2])
        names = ("scale_d", "scale_h", "scale_w")[3 - spatial :]
        attrs = {name: draw.choice([1, 2, 3]) for name in names}
        layout = draw.choice([f"NC{LETTERS[spatial]}", f"N{LETTERS[spatial]}C"])
        linear = "bilinear" if spatial == 2 else "trilinear"
        return [x], dict(attrs, layout=layout, method=draw.choice(["nearest_neighbor", linear]))

    return draw_upsampling


def _upsampling(spatial):
    name = "nn.upsampling" + ("3d" if spatial == 3 else "")
    return plain(name, _draw_upsampling(spatial), 1)


def _draw_stack(draw):
    x = draw.data(range(1, 6))
    tensor = draw.tensor(x)
    others = [draw.data(where=lambda other: other.shape == tensor.shape) for _ in "ab"]
    axis = draw.integer(0, tensor.rank)
    return [x, *others[: draw.integer(1, 2)]], dict(axis=axis)


def _draw_reverse_reshape(draw):
    return [draw.data(range(2, 6), dtypes=ANY)], dict(shape=draw.choice([(-1, 0), (0, -1)]))


def _reverse_reshape(b, x, shape):
    return relay.reverse_reshape(x.expr, shape)


def _draw_layout_transform(draw):
    src, dst = draw.choice([("NCHW", "NHWC"), ("NHWC", "NCHW")])
    return [draw.data([4])], dict(src_layout=src, dst_layout=dst)


def _draw_broadcast_to(draw):
    x = draw.data(range(1, 5), where=lambda tensor: 1 in tensor.shape)
    shape = [draw.choice([1, 2, 3]) if dim == 1 else dim for dim in draw.tensor(x).shape]
    return [x], dict(shape=tuple(shape))


def _draw_take(draw):
    x = draw.data(range(1, 5))
    shape = draw.tensor(x).shape
    axis = draw.integer(0, len(shape) - 1)
    count = [draw.integer(1, 3) for _ in range(draw.integer(0, 2))]
    # A choice of one: what a seed draws after it stays what it was.
    indices = draw.new_input(count, draw.choice(["int32"]))
    mode = draw.choice(["clip", "wrap"])
    return [x, indices], dict(axis=axis - draw.choice([0, len(shape)]), mode=mode)


def _draw_any(draw):
    return [draw.data(range(2, 7), dtypes=ANY)], {}


ROWS = (
    Row("reshape", _draw_reshape, lambda b, x, shape: relay.reshape(x.expr, shape), 6),
    plain("transpose", _draw_transpose, 6),
    plain("expand_dims", _draw_expand_dims),
    plain("squeeze", _draw_squeeze),
    plain("nn.batch_flatten", _draw_any),
    Row(
        "concatenate",
        _draw_concatenate,
        lambda b, *xs, axis: relay.concatenate([x.expr for x in xs], axis),
        6,
    ),
    Row("split", _draw_split, lambda b, x, sections, axis: relay.split(x.expr, sections, axis), 3),
    plain("take", _draw_take, 1),
    Row("strided_slice", _draw_slice, _slice, 3),
    Row("nn.pad", _draw_pad, _pad, 3),
    *(plain(f"image.resize{spatial}d", _draw_resize(spatial), 1) for spatial in (1, 2, 3)),
    _upsampling(2),
    _upsampling(3),
    Row("stack", _draw_stack, lambda b, *xs, axis: relay.stack([x.expr for x in xs], axis), 1),
    Row("contrib_reverse_reshape", _draw_reverse_reshape, _reverse_reshape, 1),
    plain("layout_transform", _draw_layout_transform),
    plain("broadcast_to", _draw_broadcast_to, 1),
)
