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
"""Draws a call of each op of the table without a TVM: operands and attributes.

Tests of either TVM write it as a call of their own, and draw what is at the edges, too.
"""

import layer_draws
import numpy as np
from op_draw import LETTERS, SIZES, Call, Draw
from tvm.contrib.onednn.ops.table import BINARY, COMPARISONS, ELTWISE


def _layout_values(d, n):
    """Draw an image and its layout."""
    sizes, layout = d.image(n)
    return d.values([sizes[letter] for letter in layout]), layout


def _conv(n, transposed=False):
    def draw(d):
        sizes, layout = d.image(n)
        channels = sizes["C"]
        groups = d.choice([g for g in (1, 1, 2, channels) if channels % g == 0])
        kernel = {letter: d.choice((1, 2, 3)) for letter in LETTERS[n]}
        attrs = dict(d.window(n), groups=groups, out_layout="", out_dtype=d.choice(("", "float32")))
        attrs.update(kernel_size=list(kernel.values()), channels=groups * d.choice((1, 2, 3)))
        kernel.update(O=attrs["channels"], I=channels // groups)
        if transposed:
            kernel.update(I=channels, O=kernel["O"] // groups)
            most = 0 if d.edges else 1
            attrs["output_padding"] = [d.integer(0, n - most) for n in attrs["strides"]]
        elif groups == channels and d.integer(0, 1):
            # As TFLite has a depthwise weight.
            kernel.update(O=groups, I=attrs["channels"] // groups)
        kernel_layout = "".join(d.random.sample(list(kernel), len(kernel)))
        attrs.update(data_layout=layout, kernel_layout=kernel_layout)
        weight = d.values([kernel[letter] for letter in kernel_layout])
        return Call([d.values([sizes[letter] for letter in layout]), weight], attrs)

    return draw


def _pool(kind, n):
    def draw(d):
        data, layout = _layout_values(d, n)
        attrs = dict(
            d.window(n),
            pool_size=[d.choice((2, 3, *d.rare(1, 4))) for _ in range(n)],
            ceil_mode=bool(d.integer(0, 1)),
            layout=layout,
            out_layout="",
        )
        if kind == "avg":
            # The last window may hold nothing to average.
            is_ceil = d.edges and attrs["ceil_mode"]
            attrs.update(count_include_pad=bool(d.integer(0, 1)), ceil_mode=is_ceil)
        return Call([data], attrs)

    return draw


def _adaptive(n, is_global=False):
    def draw(d):
        data, layout = _layout_values(d, n)
        size = d.choice((None, [1], [d.integer(1, 3) for _ in range(n)], *d.rare([], [8] * n)))
        attrs = {} if is_global else {"output_size": size}
        return Call([data], {**attrs, "layout": layout, "out_layout": ""})

    return draw


def _resize(n):
    def draw(d):
        data, layout = _layout_values(d, n)
        modes = ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel")
        rounding = ("", "round", "floor", "ceil", "round_prefer_floor")
        attrs = dict(
            size=[d.integer(1, 9) for _ in range(n)],
            layout=layout,
            method=d.choice(("linear", "nearest_neighbor", *d.rare("cubic"))),
            coordinate_transformation_mode=d.choice((*modes, *d.rare("tf_half_pixel_for_nn"))),
            rounding_method=d.choice((*rounding, *d.rare("round_prefer_ceil"))),
            out_dtype="",
        )
        return Call([data], attrs)

    return draw


def _upsampling(n):
    def draw(d):
        data, layout = _layout_values(d, n)
        linear = "bilinear" if n == 2 else "trilinear"
        attrs = {
            f"scale_{c.lower()}": d.choice((1.0, 2.0, 3.0, *d.rare(0.5, 1.5))) for c in LETTERS[n]
        }
        attrs.update(layout=layout, method=d.choice(("nearest_neighbor", linear)))
        attrs.update(align_corners=False, coordinate_transformation_mode="half_pixel")
        return Call([data], attrs)

    return draw


def _dense(d):
    *batch, rows, inner, units = d.shape(3, 4, *d.rare(2, 6))
    values = [d.values([*batch, rows, inner]), d.values([units, inner])]
    return Call(values, {"out_dtype": d.choice(("", "float32"))})


def _matmul(is_batch):
    def draw(d):
        *batch, rows, inner, columns = d.shape(3, 4, 4, 5)
        right = [d.choice((n, 1)) for n in batch] if is_batch else []
        flags = {name: bool(d.integer(0, 1)) for name in ("transpose_a", "transpose_b")}
        shapes = [*batch, rows, inner], [*right, inner, columns]
        for shape, is_transposed in zip(shapes, flags.values()):
            shape[-2:] = shape[-2:][:: -1 if is_transposed else 1]
        return Call(list(map(d.values, shapes)), {**flags, "out_dtype": ""})

    return draw


def _unary(**attrs):
    return lambda d: Call([d.values(d.any_shape())], {k: d.choice(v) for k, v in attrs.items()})


def _shaped(*ranks):
    """Draw data of these ranks, and no attributes."""
    return lambda d: Call([d.values(d.shape(*ranks))], {})


def _broadcast(d, shape):
    """Draw a shape that is broadcast to another one."""
    return [d.choice((n, n, 1)) for n in shape][min(len(shape), d.choice((0, 0, 1, *d.rare(2)))) :]


def _binary(d):
    shape = d.any_shape()
    return Call([d.values(_broadcast(d, shape)) for _ in "lr"], {})


def _along_axis(d):
    shape = d.shape()
    axis = d.axis(shape)
    return Call([d.values(shape), d.values([shape[axis]])], {"axis": axis})


def _prelu(d):
    (data, slopes), attrs = _along_axis(d)
    shape = d.choice((slopes.shape, *d.rare((1,), (1, 1), (), (slopes.size + 1,))))
    return Call([data, d.values(shape)], attrs)


def _softmax(d):
    shape = d.shape(*range(1, 7))
    return Call([d.values(shape)], {"axis": d.choice((-1, d.axis(shape)))})


def _clip(d):
    bounds = [(0.0, 6.0), (0.6, 0.8), (-1.0, 1.0)]
    low, high = d.choice([*bounds, *d.rare((1.0, 1.0), (2.0, -2.0), (float("nan"), 1.0))])
    return Call([d.values(d.any_shape())], {"a_min": low, "a_max": high})


def _leaky_relu(d):
    slopes = (0.1, 0.5, 2.0, *d.rare(1.0, 0.0, -1.0, float("inf"), float("nan")))
    return _unary(alpha=slopes)(d)


def _reduce(d):
    shape = d.shape()
    axes = d.choice((None, d.axes(shape, 1), *d.rare(d.axis(shape), [])))
    exclude = bool(axes and axes != -1 and isinstance(axes, list) and len(axes) < len(shape))
    attrs = {"axis": axes, "keepdims": d.chance(0.5), "exclude": exclude and d.chance(0.3)}
    return Call([d.values(shape)], attrs)


def _quantized(d, data, out_dtype):
    axis = d.axis(data.shape)
    sizes = d.choice(((), (data.shape[axis],)))
    zeros = d.numbers.integers(-3, 4, d.choice((sizes, ()))).astype("int32")
    attrs = {"axis": axis, "out_dtype": out_dtype}
    return Call([data, d.values(sizes), zeros], attrs)


def _quantize(d):
    return _quantized(d, d.values(d.shape()), d.choice(("int8", "uint8")))


def _dequantize(d):
    data = d.numbers.integers(0, 100, d.shape()).astype(d.choice(("int8", "uint8", "int32")))
    return _quantized(d, data, "float32")


def _concatenate(d):
    shape = d.shape()
    axis, fields = d.axis(shape), []
    for _ in range(d.integer(1, 3)):
        shape[axis] = d.choice(SIZES)
        fields.append(d.values(shape))
    return Call([fields], {"axis": axis})


def _stack(d):
    shape = d.shape(1, 2, 3, *d.rare(4, 5))
    fields = [d.values(shape) for _ in range(d.integer(1, 3))]
    return Call([fields], {"axis": d.integer(-len(shape) - 1, len(shape))})


def _split(d):
    shape = d.shape()
    axis = d.axis(shape)
    ends = sorted(d.integer(0, shape[axis]) for _ in range(d.integer(1 - d.edges, 2 + d.edges)))
    parts = d.choice((d.groups(shape[axis]), ends))
    return Call([d.values(shape)], {"indices_or_sections": parts, "axis": axis})


def _strided_slice(d):
    shape = d.shape()
    axes = d.random.sample(range(len(shape)), d.integer(1, len(shape)))
    begin = [d.choice((0, 0, d.integer(-shape[axis], shape[axis] - 1))) for axis in axes]
    end = [d.choice((shape[axis], -1, 1 << 31, d.integer(0, shape[axis]))) for axis in axes]
    mode = d.choice(("end", "end", "size"))
    if mode == "size":
        end = [d.choice((1, -1)) for _ in axes]
    strides = [d.choice((1, 1, 1, 2, -1)) for _ in axes][: d.choice((0, 1, len(axes), len(axes)))]
    axes = d.choice((axes, [axis - len(shape) for axis in axes]))
    attrs = {"begin": begin, "end": end, "strides": strides, "axes": axes, "slice_mode": mode}
    return Call([d.values(shape)], attrs)


def _pad(d):
    shape = d.shape()
    width = [[d.choice((0, 0, 1, 2, *d.rare(-1, 5))) for _ in "ab"] for _ in shape]
    mode = d.choice(("constant", "constant", "edge", *d.rare("reflect", "circular")))
    value = np.float32(d.choice((0.5, 0.0, *d.rare(float("-inf")))))
    return Call([d.values(shape), np.asarray(value)], {"pad_width": width, "pad_mode": mode})


def _layout_transform(d):
    source, target = d.choice(
        [("NCHW", "NHWC"), ("NHWC", "NCHW"), ("NCHW", "NCHW2c"), ("NCHW4c", "NHWC")]
        + [("OIHW", "OIHW2i4o"), ("NCHW2c", "NCHW4c"), ("NCHW", "NCHW")]
        + [*d.rare(("NCHW", "NCHW8c"))]
    )
    shape = [4 if len(source) == 4 else size for size in d.shape(len(source.strip("4c2")))]
    shape += [int(letter) for letter in source if letter.isdigit()]
    shape[1] = 4
    return Call([d.values(shape)], {"src_layout": source, "dst_layout": target})


def _where(d):
    shape = d.any_shape()
    shapes = [_broadcast(d, shape) for _ in "cxy"]
    condition = d.numbers.integers(0, 2, shapes[0])
    return Call([np.asarray(condition, "bool"), *map(d.values, shapes[1:])], {})


def _broadcast_to(d):
    shape = d.shape()
    target = [d.choice((2, 3)) for _ in range(d.integer(0, 2))]
    # Relay's function has no -1.
    target += [d.choice((n if d.edges else -1, 3 if n == 1 else n)) for n in shape]
    return Call([d.values(shape)], {"shape": target})


def _take(d):
    shape = d.shape(1, 2, 3)
    axis = d.axis(shape)
    indices = d.numbers.integers(0, shape[axis], d.shape(1, 2, *d.rare(0)))
    attrs = {"axis": axis, "batch_dims": 0, "mode": d.choice(("clip", "wrap", "fast"))}
    dtype = d.choice(("int32", *d.rare("int64", "int8")))
    return Call([d.values(shape), np.asarray(indices, dtype)], attrs)


def _transpose(d):
    shape = d.shape(*range(1, 7))
    axes = d.choice((None, [], d.axes(shape, len(shape))))
    return Call([d.values(shape)], {"axes": axes})


def _reshape(d):
    shape = d.shape()
    count = int(np.prod(shape))
    codes = [[-1], [0, -1], [-2], [count], [1, -1, 1], [-4, -1, 1, -2], [-4, 1, -1, -2]]
    codes += [[-3, -2], [-1, *shape[1:]]] if len(shape) > 1 else []
    return Call([d.values(shape)], {"newshape": d.choice(codes)})


def _reverse_reshape(d):
    shape = d.shape(3)
    codes = [[-1, 0], [0, -1], [-1], [-3, 0], *d.rare([-2, 1], [0, -3])]
    return Call([d.values(shape)], {"newshape": d.choice(codes)})


def _expand_dims(d):
    shape = d.shape(1, 2, 3)
    attrs = {"axis": d.integer(-len(shape) - 1, len(shape)), "num_newaxis": d.integer(0, 3)}
    return Call([d.values(shape)], attrs)


def _squeeze(d):
    shape = d.shape(2, 3, 4)
    shape[d.integer(0, len(shape) - 1)] = 1
    ones = [axis for axis, size in enumerate(shape) if size == 1]
    axes = d.choice((None, ones, ones[:1], [axis - len(shape) for axis in ones], *d.rare([])))
    return Call([d.values(shape)], {"axis": axes})


def _numbers(*names):
    return _unary(**{name: (0.5, 1.0, 2.0) for name in names})


# By op: draws a call.
DRAWS = {
    **dict.fromkeys(ELTWISE, _unary()),
    "nn.batch_flatten": _shaped(1, 2, 3, 4),
    **dict.fromkeys(("ceil", "cos", "floor", "sign", "sin", "trunc", "dnnl.round"), _unary()),
    **dict.fromkeys(("dnnl.masked_softmax", "dnnl.nan_safe_softmax"), _shaped(1, 2, 3, 4)),
    "where": _where,
    "broadcast_to": _broadcast_to,
    "take": _take,
    **dict.fromkeys((*BINARY, *COMPARISONS), _binary),
    **{f"nn.conv{n}d": _conv(n) for n in LETTERS},
    **{f"nn.conv{n}d_transpose": _conv(n, True) for n in LETTERS},
    **{f"nn.{kind}_pool{n}d": _pool(kind, n) for kind in ("max", "avg") for n in LETTERS},
    **{f"nn.adaptive_{kind}_pool{n}d": _adaptive(n) for kind in ("max", "avg") for n in LETTERS},
    **{f"nn.global_{kind}_pool2d": _adaptive(2, True) for kind in ("max", "avg")},
    **{f"image.resize{n}d": _resize(n) for n in LETTERS},
    "nn.upsampling": _upsampling(2),
    "nn.upsampling3d": _upsampling(3),
    "nn.dense": _dense,
    "nn.matmul": _matmul(is_batch=False),
    "nn.batch_matmul": _matmul(is_batch=True),
    **layer_draws.DRAWS,
    "nn.bias_add": _along_axis,
    "nn.prelu": _prelu,
    **dict.fromkeys(("nn.softmax", "nn.fast_softmax", "nn.log_softmax"), _softmax),
    "clip": _clip,
    "cast": _unary(dtype=("float32", "float16", "bfloat16", "int8", "bool")),
    "nn.leaky_relu": _leaky_relu,
    "dnnl.elu": _numbers("alpha"),
    "dnnl.swish": _numbers("alpha"),
    "dnnl.pow": _numbers("alpha", "beta"),
    "dnnl.linear": _numbers("alpha", "beta"),
    "dnnl.hard_sigmoid": _numbers("alpha", "beta"),
    "dnnl.hard_swish": _numbers("alpha", "beta"),
    **dict.fromkeys(("max", "mean", "min", "prod", "sum"), _reduce),
    "qnn.quantize": _quantize,
    "qnn.dequantize": _dequantize,
    "concatenate": _concatenate,
    "stack": _stack,
    "split": _split,
    "strided_slice": _strided_slice,
    "nn.pad": _pad,
    "layout_transform": _layout_transform,
    "transpose": _transpose,
    "reshape": _reshape,
    "contrib_reverse_reshape": _reverse_reshape,
    "expand_dims": _expand_dims,
    "squeeze": _squeeze,
}


def drawn(name, count=40):
    """Yield some calls of an op."""
    for seed in range(count):
        yield DRAWS[name](Draw(seed))
