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
"""Draws calls of each op of Relax that has a row: operands and attributes at their edges.

Sizes are small, often one and often equal; attributes are all that are legal, those that TVM has no
kernels for among them.
"""

import dnnl_copy_draws
import dnnl_recurrent_draws
import numpy as np
from dnnl_draw import BYTES, LETTERS, SIZES
from dnnl_modules import rand
from tvm import relax
from tvm.contrib.onednn.graph.infer import BINARY, COMPARISONS, ELTWISE
from tvm.contrib.onednn.policy.table import TABLE
from tvm.relax import op


def _conv(n, transposed=False):
    def draw(d):
        channels, letters = d.choice((1, 2, 4, 6)), LETTERS[n]
        groups = d.choice([g for g in (1, 1, 2, 4, 6) if channels % g == 0])
        each, taps = d.choice((1, 1, 2, 3)), [d.choice((1, 1, 2, 3)) for _ in letters]
        sizes = dict(zip(letters, d.shape(n)), N=d.choice((1, 2)), C=channels)
        layout = d.choice((f"NC{letters}", f"N{letters}C"))
        kernel = dict(zip(letters, taps), O=groups * each, I=channels // groups)
        if transposed:
            kernel.update(O=each, I=channels)
        kernel_layout = "".join(d.random.sample(list(kernel), len(kernel)))
        strides = [d.choice((1, 1, 2, 3)) for _ in letters]
        attrs = dict(
            strides=strides,
            padding=[d.choice((0, 0, 1, 2)) for _ in range(d.choice((1, n, 2 * n)))],
            dilation=[d.choice((1, 1, 2)) for _ in letters],
            groups=groups,
            data_layout=layout,
            kernel_layout=kernel_layout,
        )
        if transposed:
            attrs["output_padding"] = [d.integer(0, stride) for stride in strides]
        if d.chance(0.1):
            attrs["out_dtype"] = "float32"
        weight = d.weight([kernel[letter] for letter in kernel_layout])
        make = getattr(op.nn, f"conv{n}d" + "_transpose" * transposed)
        return make(d.data([sizes[letter] for letter in layout]), weight, **attrs)

    return draw


def _image(d, n):
    """Draw an image and its layout."""
    layout = d.choice((f"NC{LETTERS[n]}", f"N{LETTERS[n]}C"))
    return d.data(d.shape(n + 2)), layout


def _pool(kind, n):
    def draw(d):
        data, layout = _image(d, n)
        window = [d.choice((1, 1, 2, 3)) for _ in range(n)]
        attrs = dict(
            strides=[d.choice((1, 2, 2, 3)) for _ in range(n)],
            padding=[d.choice((0, 0, 1, 2)) for _ in range(d.choice((1, n, 2 * n)))],
            dilation=[d.choice((1, 1, 1, 2)) for _ in range(n)],
            ceil_mode=d.chance(0.6),
            layout=layout,
        )
        if kind == "avg":
            attrs["count_include_pad"] = d.chance(0.3)
        return getattr(op.nn, f"{kind}_pool{n}d")(data, window, **attrs)

    return draw


def _adaptive(n):
    def draw(d):
        data, layout = _image(d, n)
        size = d.choice((None, 1, [d.choice((1, 1, 2, 3)) for _ in range(n)]))
        return getattr(op.nn, f"adaptive_avg_pool{n}d")(data, size, layout)

    return draw


def _resize(n):
    def draw(d):
        data, layout = _image(d, n)
        return getattr(op.image, f"resize{n}d")(
            data,
            tuple(d.choice((1, 2, 4, 6, 8)) for _ in range(n)),
            layout=layout,
            method=d.choice(("linear", "nearest_neighbor", "cubic")),
            coordinate_transformation_mode=d.choice(
                ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel")
            ),
            rounding_method=d.choice(("", "round", "floor", "ceil", "round_prefer_floor")),
        )

    return draw


def _matmul(d):
    rows, inner, columns = (d.choice(SIZES) for _ in range(3))
    batch = d.shape(0, 0, 1, 2)
    broadcast = [d.choice((size, size, 1)) for size in batch]
    left = d.choice(([*batch, rows, inner], [rows, inner], [inner]))
    right = d.choice(([*broadcast, inner, columns], [inner, columns], [inner]))
    return op.matmul(d.data(left), d.weight(right))


def _unary(name, **attrs):
    def draw(d):
        make = op
        for part in name.split("."):
            make = getattr(make, part)
        return make(d.data(d.shape(*range(6))), **{k: d.choice(v) for k, v in attrs.items()})

    return draw


def _clip(d):
    low, high = (d.choice((-1.0, 0.0, 0.5)) for _ in "lh")
    return op.clip(d.data(d.shape(*range(6))), low, high)


def _prelu(d):
    shape = d.shape()
    axis = d.axis(shape)
    slopes = d.choice(([shape[axis]], [1], [1, 1], [], [shape[axis] + 1]))
    return op.nn.prelu(d.data(shape), d.weight(slopes), axis)


def _binary(name):
    def draw(d):
        shape = d.shape(*range(6))
        shapes = [[d.choice((size, size, 1)) for size in shape] for _ in "lr"]
        shapes = [each[d.choice((0, 0, d.integer(0, len(each)))) :] for each in shapes]
        left, right = d.data(shapes[0]), d.weight(shapes[1])
        return getattr(op, name)(*((right, left) if d.chance(0.3) else (left, right)))

    return draw


def _reduce(name):
    def draw(d):
        shape = d.shape()
        axes = d.choice((None, d.axis(shape), d.axes(shape)))
        return getattr(op, name)(d.data(shape), axes, keepdims=d.chance(0.5))

    return draw


def _affine(d, size):
    return d.weight(size), d.weight(size)


def _layer_norm(d):
    shape = d.shape()
    axes = d.choice(([d.axis(shape)], [-1], list(range(-d.integer(1, len(shape)), 0))))
    sizes = [shape[axis] for axis in axes]
    return op.nn.layer_norm(d.data(shape), *_affine(d, sizes), axes)


def _rms_norm(d):
    shape = d.shape()
    axes = d.choice(([-1], [len(shape) - 1], [d.axis(shape)], list(range(len(shape)))))
    return op.nn.rms_norm(d.data(shape), d.weight([shape[axis] for axis in axes]), axes)


def _group_norm(d):
    shape = d.shape(2, 3, 4)
    axis = d.choice((1, 1, d.axis(shape)))
    groups = d.choice([n for n in range(1, shape[axis] + 1) if shape[axis] % n == 0])
    axes = list(range(axis % len(shape) + 1, len(shape))) or d.axes(shape, 1)
    return op.nn.group_norm(d.data(shape), *_affine(d, [shape[axis]]), groups, axis, axes)


def _instance_norm(d):
    shape = d.shape(3, 4)
    axis = d.choice((1, 1, d.axis(shape)))
    axes = [k for k in range(1, len(shape)) if k != axis % len(shape)]
    return op.nn.instance_norm(d.data(shape), *_affine(d, [shape[axis]]), axis, axes)


def _batch_norm(d):
    shape = d.shape(2, 3, 4)
    axis = d.choice((1, 1, d.axis(shape)))
    params = [d.weight([shape[axis]]) for _ in range(4)]
    result = op.nn.batch_norm(d.data(shape), *params, axis, training=False)
    return lambda builder: relax.TupleGetItem(builder.emit(result), 0)


def _softmax(name):
    def draw(d):
        shape = d.shape()
        return getattr(op.nn, name)(d.data(shape), d.axis(shape))

    return draw


def _concat(d):
    shape = d.shape()
    axis, count = d.axis(shape), d.integer(1, 3)
    shapes = [[*shape] for _ in range(count)]
    for each in shapes:
        each[axis] = d.choice(SIZES)
    return op.concat([d.weight(each) for each in shapes[1:]] + [d.var(shapes[0])], axis)


def _stack(d):
    shape = d.shape(1, 2, 3)
    axis = d.integer(-len(shape) - 1, len(shape))
    return op.stack([d.var(shape) for _ in range(d.integer(1, 3))], axis)


def _split(d):
    shape = d.shape()
    axis = d.axis(shape)
    ends = sorted(d.integer(0, shape[axis]) for _ in range(d.integer(1, 2)))
    parts = op.split(d.var(shape), d.choice((1, 2, 3, ends)), axis)

    def build(builder):
        tuple_ = builder.emit(parts)
        fields = getattr(tuple_.ty, "fields", None)
        return tuple_ if fields is None else relax.TupleGetItem(tuple_, len(fields) - 1)

    return build


def _strided_slice(d):
    shape = d.shape()
    axes = d.random.sample(range(len(shape)), d.integer(1, len(shape)))
    begin = [d.integer(-shape[axis], shape[axis] - 1) for axis in axes]
    end = [d.choice((shape[axis], -1, 1 << 31, d.integer(0, shape[axis]))) for axis in axes]
    strides = [d.choice((1, 1, 2, 3, -1)) for _ in axes]
    axes = [axis - len(shape) * d.integer(0, 1) for axis in axes]
    return op.strided_slice(d.var(shape), axes, begin, end, d.choice((None, strides)))


def _pad(d):
    shape = d.shape()
    widths = [d.choice((0, 0, 1, 2, -1)) for _ in range(2 * len(shape))]
    mode = d.choice(("constant", "constant", "reflect", "replicate", "circular"))
    return op.nn.pad(d.data(shape), widths, mode, d.choice((0.0, 0.5)))


def _permute_dims(d):
    shape = d.shape()
    axes = d.axes(shape, len(shape))
    return op.permute_dims(d.data(shape), d.choice((None, axes)))


def _reshape(d):
    shape = d.shape()
    count = int(np.prod(shape))
    ways = ((count,), (-1,), (1, count, 1), tuple(shape[::-1]), (0, -1), (shape[0], -1))
    return op.reshape(d.data(shape), d.choice(ways))


def _expand_dims(d):
    shape = d.shape(1, 2, 3)
    return op.expand_dims(d.data(shape), d.choice((0, -1, [0, -1], [], len(shape))))


def _squeeze(d):
    shape = d.shape()
    ones = [axis for axis, size in enumerate(shape) if size == 1]
    axes = d.choice((None, ones, ones[:1], [axis - len(shape) for axis in ones]))
    return op.squeeze(d.data(shape), axes)


def _attention(d):
    batch, heads, rows, keys, size, out = (d.choice((1, 1, 2, 3, 4)) for _ in range(6))
    query, key, value = (rows, size), (keys, size), (keys, out)
    tensors = [d.var((batch, n, heads, k)) for n, k in (query, key, value)]
    biases = (batch, heads, rows, keys), (1, 1, rows, keys), (batch, 1, 1, keys)
    bias = d.choice((None, None, *biases))
    mask = d.choice((None, None, "TopLeft", "BottomRight"))
    return op.nn.attention(*tensors, None if bias is None else d.weight(bias), None, mask)


def _pixel_shuffle(d):
    factor = d.choice((1, 2, 3))
    shape = d.shape(3, 4)
    shape[-3] *= d.choice((1, factor**2))
    return op.nn.pixel_shuffle(d.data(shape), factor)


def _layout_transform(d):
    block = d.choice((1, 2, 4))
    maps = (
        lambda n, c, h, w: (n, h, w, c),
        lambda n, c, h, w: (n, c // block, h, w, c % block),
        lambda n, c, h, w: (n * block + c, h, w),
    )
    return op.layout_transform(d.data(d.shape(4)), d.choice(maps))


def _astype(d):
    dtypes = ("float32", "bfloat16", "float16", "int8")
    return op.astype(d.data(d.shape(*range(6))), d.choice(dtypes))


def _scales(d, shape):
    """Draw one scale or one for each item of an axis, and zero points like them."""
    axis = d.axis(shape)
    per_axis = [shape[axis]] if d.chance(0.5) else []
    scale = relax.const(rand(*per_axis) ** 2 + 0.1, "float32")
    return scale, d.choice((per_axis, [])), axis


def _quantize(d):
    shape = d.shape()
    scale, zeros, axis = _scales(d, shape)
    dtype = d.choice((*BYTES, "int32"))
    zero = relax.const(np.ones(zeros, "int8"), "int8")
    return op.quantize(d.data(shape), scale, zero, axis, dtype)


def _dequantize(d):
    shape = d.shape()
    scale, zeros, axis = _scales(d, shape)
    zero = relax.const(np.ones(zeros, "int8"), "int8")
    return op.dequantize(d.var(shape, d.choice((*BYTES, "int32"))), scale, zero, axis)


# By name without "relax.": draws a call, or a function that makes one with a BlockBuilder.
DRAWS = {
    **dnnl_copy_draws.DRAWS,
    **dnnl_recurrent_draws.DRAWS,
    **{f"nn.conv{n}d": _conv(n) for n in LETTERS},
    **{f"nn.conv{n}d_transpose": _conv(n, True) for n in LETTERS},
    **{f"nn.{kind}_pool{n}d": _pool(kind, n) for kind in ("max", "avg") for n in LETTERS},
    **{f"nn.adaptive_avg_pool{n}d": _adaptive(n) for n in LETTERS},
    **{f"image.resize{n}d": _resize(n) for n in (2, 3)},
    **{name: _unary(name) for name in ELTWISE if name in TABLE[name].relax_ops},
    **{name: _unary(name) for name in ("square", "flatten")},
    **{
        f"nn.{name}": _unary(f"nn.{name}")
        for name in "relu6 gelu gelu_tanh silu selu batch_flatten".split()
    },
    "nn.leakyrelu": _unary("nn.leakyrelu", alpha=(0.1, 0.0, -1.0, float("inf"), float("nan"))),
    "nn.softplus": _unary("nn.softplus", beta=(1.0, 1.0, 2.0), threshold=(20.0, 10.0)),
    **{name: _binary(name) for name in (*BINARY, *COMPARISONS)},
    **{name: _reduce(name) for name in "max mean min prod sum variance std".split()},
    **{f"nn.{name}": _softmax(name) for name in ("softmax", "log_softmax")},
    "astype": _astype,
    "clip": _clip,
    "concat": _concat,
    "dequantize": _dequantize,
    "expand_dims": _expand_dims,
    "layout_transform": _layout_transform,
    "matmul": _matmul,
    "nn.attention": _attention,
    "nn.batch_norm": _batch_norm,
    "nn.group_norm": _group_norm,
    "nn.instance_norm": _instance_norm,
    "nn.layer_norm": _layer_norm,
    "nn.pad": _pad,
    "nn.pixel_shuffle": _pixel_shuffle,
    "nn.prelu": _prelu,
    "nn.rms_norm": _rms_norm,
    "permute_dims": _permute_dims,
    "quantize": _quantize,
    "reshape": _reshape,
    "split": _split,
    "squeeze": _squeeze,
    "stack": _stack,
    "strided_slice": _strided_slice,
}

# Relax makes the first of the second; the third is never read.
NOT_DRAWN = {"nn.attention_bias", "nn.attention_var_len"}
