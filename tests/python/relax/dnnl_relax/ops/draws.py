# SPDX-License-Identifier: Apache-2.0
"""Draws calls of each op of Relax that has a row: operands and attributes at their edges.

Ops of the table are drawn by its schema, as for a graph, and written in Relax. Here are those that
Relax has alone, or with other operands or attributes.
"""

import random
from types import SimpleNamespace

import numpy as np
from tvm import relax
from tvm.contrib.onednn.ir.node import CALL, INPUT, Node
from tvm.contrib.onednn.ir.op import infer
from tvm.contrib.onednn.ops import draw
from tvm.contrib.onednn.ops.draw import SIZES
from tvm.contrib.onednn.ops.recurrent import GATES
from tvm.contrib.onednn.ops.table import TABLE
from tvm.relax import op
from tvm_dnnl._dnnl.reader import name_in_relax
from tvm_dnnl._dnnl.recurrent_tir import call_layer
from tvm_dnnl._dnnl.types import value_from
from tvm_dnnl._dnnl.write_ops import written

from dnnl_relax.modules import rand

BYTES = ("int8", "uint8")
OTHERS = ("int8", "uint8", "int32", "bool", "float64")


class Draw(draw.Draw):
    """What an op is drawn with; the same seed draws the same.

    Parameters
    ----------
    seed : int
        The seed of all choices.
    dtype : str
        The type of the data and the parameters.
    symbols : dict of int to tirx.Var or None
        The dimensions that are open, by their sizes; None for those of another run that has none.
    """

    def __init__(self, seed, dtype, symbols=None):
        super().__init__(seed, edges=True)
        # What is open must not change what else is drawn.
        self._open = random.Random(seed)
        self.dtype, self.symbols = dtype, symbols
        self.variables, self.shapes = [], []

    def var(self, shape, dtype=None):
        """Return a new parameter of the function."""
        open_ = self.symbols or {}
        # Some of those of an open size.
        dims = [
            open_[size] if size in open_ and self._open.random() < 0.6 else size for size in shape
        ]
        type_ = relax.TensorType(dims, dtype or self.dtype)
        self.variables.append(relax.Var(f"x{len(self.variables)}", type_))
        self.shapes.append(tuple(shape))
        return self.variables[-1]

    def data(self, shape):
        """Return a parameter, at times of a type that oneDNN computes nothing in."""
        return self.var(shape, self.choice(OTHERS) if self.chance(0.1) else None)

    def weight(self, shape, dtype=None):
        """Return a constant or a parameter."""
        dtype = dtype or self.dtype
        if self.chance(0.3):
            return self.var(shape, dtype)
        values = rand(*shape) + 2 if "float" in dtype else np.ones(shape)
        return relax.const(values, dtype)

    def operand(self, value, is_first):
        """Return a value of a call that was drawn by the schema."""
        if isinstance(value, list):
            return [self.operand(each, is_first and k == 0) for k, each in enumerate(value)]
        if not value.shape:
            return relax.const(value, self.choice((self.dtype, str(value.dtype))))
        if value.dtype != "float32":
            return self.var(value.shape, str(value.dtype))
        return self.data(value.shape) if is_first else self.weight(value.shape)


def _shared(name):
    """Draw a call by the schema of the table, and write it in Relax."""

    def draw(d):
        call = TABLE[name].draw(d)
        args = [d.operand(value, k == 0) for k, value in enumerate(call.values)]
        # What is that of the operands is not named.
        attrs = {k: each for k, each in call.attrs.items() if each != "" or "out_" not in k}

        def build(builder):
            types = [
                tuple(map(value_from, a)) if isinstance(a, list) else value_from(a) for a in args
            ]
            nodes, space = [Node(INPUT, None, [], each) for each in types], SimpleNamespace(**attrs)
            node = Node(CALL, name, nodes, infer(name, types, space), space)
            result = builder.emit(written(node, args, builder.emit))
            if not isinstance(result.ty, relax.TupleType):
                return result
            return relax.TupleGetItem(result, len(result.ty.fields) - 1)

        return build

    return draw


def _layer(name):
    """Draw a recurrent layer, which Relax calls as a function of TIR."""

    def draw(d):
        call, operands = TABLE[name].draw(d), []
        weight = d.choice((d.dtype, "bfloat16"))
        is_int8 = call.values[1].dtype == "int8"
        for k, value in enumerate(call.values):
            is_real = value.dtype == "float32"
            if k == 0:
                operands.append(d.data(value.shape))
            elif k < 3:
                operands.append(d.weight(value.shape, weight if is_real else "int8"))
            elif k > 3 and is_real and k < len(call.values) - 4 * is_int8:
                operands.append(d.var(value.shape))
            else:
                operands.append(relax.const(value))
        field = d.integer(0, 2 if name == "dnnl.lstm" else 1)

        def emit(builder):
            results = builder.emit(call_layer(builder, name, operands, call.attrs))
            return builder.emit(relax.TupleGetItem(results, field))

        return emit

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
    groups = d.groups(shape[axis])
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


def _strided_slice(d):
    shape = d.shape()
    axes = d.random.sample(range(len(shape)), d.integer(1, len(shape)))
    begin = [d.integer(-shape[axis], shape[axis] - 1) for axis in axes]
    end = [d.choice((shape[axis], -1, 1 << 31, d.integer(0, shape[axis]))) for axis in axes]
    strides = [d.choice((1, 1, 2, 3, -1)) for _ in axes]
    axes = [axis - len(shape) * d.integer(0, 1) for axis in axes]
    return op.strided_slice(d.var(shape), axes, begin, end, d.choice((None, strides)))


def _reshape(d):
    shape = d.shape()
    count = int(np.prod(shape))
    ways = ((count,), (-1,), (1, count, 1), tuple(shape[::-1]), (0, -1), (shape[0], -1))
    return op.reshape(d.data(shape), d.choice(ways))


def _expand_dims(d):
    shape = d.shape(1, 2, 3)
    return op.expand_dims(d.data(shape), d.choice((0, -1, [0, -1], [], len(shape))))


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


def _gather_elements(d):
    shape = d.shape(1, 2, 3)
    axis = d.axis(shape)
    sizes = [d.choice((1, size)) if i != axis else d.choice(SIZES) for i, size in enumerate(shape)]
    if d.chance(0.2):
        return op.gather_elements(d.data(shape), d.var(sizes, "int64"), axis)
    indices = d.numbers.integers(0, shape[axis], sizes)
    return op.gather_elements(d.data(shape), relax.const(indices, "int64"), axis)


def _repeat(d):
    shape = d.shape(1, 2, 3, 4)
    return op.repeat(d.data(shape), d.choice((1, 2, 3)), d.choice((None, d.axis(shape))))


def _tile(d):
    shape = d.shape(1, 2, 3)
    counts = [d.choice((1, 1, 2, 3)) for _ in range(d.integer(1, 4))]
    return op.tile(d.data(shape), counts)


def _flip(d):
    shape = d.shape(1, 2, 3)
    return op.flip(d.data(shape), d.integer(0, len(shape)))


def _logical(name, count):
    def draw(d):
        shape = d.shape(*range(5))
        dtype = d.choice(("bool", "bool", "bool", "int32"))
        return getattr(op, name)(*(d.var(shape, dtype) for _ in range(count)))

    return draw


# By op of Relax. Those of the table are drawn by its rows, but for what follows them here.
DRAWS = {
    **{name_in_relax(name): _shared(name) for name, row in TABLE.items() if row.relax_ops},
    **{name: _layer(name) for name in GATES},
    **{name: _unary(name) for name in "square flatten round isnan isinf isfinite".split()},
    **{
        f"nn.{name}": _unary(f"nn.{name}")
        for name in "relu6 gelu gelu_tanh silu selu batch_flatten".split()
    },
    "nn.softplus": _unary("nn.softplus", beta=(1.0, 1.0, 2.0), threshold=(20.0, 10.0)),
    **{name: _reduce(name) for name in ("variance", "std")},
    "logical_not": _logical("logical_not", 1),
    **{name: _logical(name, 2) for name in ("logical_and", "logical_or", "logical_xor")},
    "dequantize": _dequantize,
    "expand_dims": _expand_dims,
    "flip": _flip,
    "gather_elements": _gather_elements,
    "layout_transform": _layout_transform,
    "matmul": _matmul,
    "nn.attention": _attention,
    "nn.batch_norm": _batch_norm,
    "nn.group_norm": _group_norm,
    "nn.instance_norm": _instance_norm,
    "nn.layer_norm": _layer_norm,
    "nn.pixel_shuffle": _pixel_shuffle,
    "nn.rms_norm": _rms_norm,
    "quantize": _quantize,
    "repeat": _repeat,
    "reshape": _reshape,
    "strided_slice": _strided_slice,
    "take": _take,
    "tile": _tile,
}

# Relax makes the first of the second; the third is never read.
NOT_DRAWN = {"nn.attention_bias", "nn.attention_var_len"}
