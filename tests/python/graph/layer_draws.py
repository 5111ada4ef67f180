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
"""Draws calls of ops that stand for a part of a network: layers, norms, attention, packed dense."""

from types import SimpleNamespace

import numpy as np
from op_draw import SIZES, Call, Draw
from tvm.contrib.onednn.ir.op import attributes_of
from tvm.contrib.onednn.ops.recurrent import (
    ACTIVATIONS,
    DIRECTIONS,
    GATES,
    GRU,
    LSTM,
    RNN,
    operand_shapes,
)


def _recurrent(name):
    def draw(d):
        steps, batch, inputs, hidden = d.shape(4)
        directions = d.choice(list(DIRECTIONS))
        attrs = {"direction": directions, "batch_first": bool(d.integer(0, 1))}
        attrs["has_initial_state"] = bool(d.integer(0, 1))
        attrs["has_lengths"] = bool(d.integer(0, 1))
        if name == GRU:
            attrs["linear_before_reset"] = bool(d.integer(0, 1))
        if name == RNN:
            attrs["activation"] = d.choice(ACTIVATIONS)
        data = (batch, steps, inputs) if attrs["batch_first"] else (steps, batch, inputs)
        is_int8 = name == LSTM and d.integer(0, 1)
        shapes = operand_shapes(
            name, attributes_of(name, SimpleNamespace(**attrs)), data, hidden, is_int8
        )
        values = [d.values(shape) - np.float32(0.9) for shape in shapes]
        if is_int8:
            for k, most in (1, 100), (2, 100), (-3, 3), (-1, 3):
                dtype = "int8" if k > 0 else "int32"
                values[k] = d.numbers.integers(-most, most, shapes[k]).astype(dtype)
        if attrs["has_lengths"]:
            k = len(shapes) - 1 - 4 * bool(is_int8)
            values[k] = d.numbers.integers(0, steps + 1, shapes[k]).astype("int32")
        return Call(values, attrs)

    return draw


def _attention(d):
    batch, groups, queries, width = (d.choice((1, 2, 3)) for _ in range(4))
    # With fewer keys, a causal mask leaves none to the first queries.
    keys = queries + d.choice((0, 1, 2))
    heads = groups * d.choice((1, 2))
    shapes = [(heads, queries, width), (groups, keys, width), (groups, keys, d.choice((1, 4)))]
    masks = ((keys,), (queries, keys), (heads, 1, keys))
    shapes += [d.choice(masks), d.choice(masks)]
    if d.integer(0, 1):
        shapes = [(batch, *shape) if len(shape) == 3 else shape for shape in shapes]
    softmax = d.choice(("nn.softmax", "dnnl.masked_softmax", "dnnl.nan_safe_softmax"))
    attrs = dict(scale=0.5, causal=bool(d.integer(0, 1)), softmax=softmax)
    return Call([d.values(shape) for shape in shapes[: d.choice((3, 4, 5))]], attrs)


def _dynamic_dense(d):
    units, inner = d.choice(SIZES), d.choice(SIZES)
    data = d.values([*d.shape(1, 2, 3), inner]) - np.float32(d.choice((0.0, 1.0)))
    weight = d.numbers.integers(0, 100, [units, inner]).astype(d.choice(("int8", "uint8")))
    scale = np.asarray(d.values(d.choice(((), (units,)))))
    return Call([data, weight, scale, np.asarray(d.integer(-3, 3), "int32")], {})


def _dynamic_data(d):
    return Call([d.values(d.shape(1, 2, 3, 4)) - np.float32(d.choice((0.0, 1.0)))], {})


def _block_dense(d):
    bits, block, units = d.choice((4, 8)), d.choice((32, 64)), d.choice(SIZES)
    data = d.values([*d.shape(1, 2), d.integer(1, 100)])
    blocks = -(-data.shape[-1] // block)
    weight = d.numbers.integers(0, 256, [units, blocks * block * bits // 8]).astype("uint8")
    zeros = d.numbers.integers(0, 2**bits, [units, blocks]).astype("uint8")
    operands = [data, weight, d.values([units, blocks]), zeros]
    attrs = {"bits": bits, "block_size": block, "accuracy_level": d.choice((0, 4))}
    return Call(operands[: d.integer(3, 4)], attrs)


def _affine(count, *ranks, **others):
    def draw(d):
        shape = d.shape(*ranks)
        axis = d.axis(shape)
        params = [d.values([shape[axis]]) for _ in range(count)]
        attrs = {"axis": axis, "epsilon": d.choice((1e-5, 0.1))}
        attrs.update((name, d.chance(0.8)) for name in ("scale", "center"))
        attrs.update((key, value(d, shape[axis])) for key, value in others.items())
        return Call([d.values(shape), *params], attrs)

    return draw


def _rms_norm(d):
    shape = d.shape()
    return Call([d.values(shape), d.values(shape[-1:])][: d.integer(1, 2)], {"epsilon": 1e-5})


def _l2_normalize(d):
    axes = d.choice(([1], [3], [1, 2, 3], *d.rare([], [-1], [0, -2], [0, 1, 2, 3], [7])))
    eps = d.choice((1e-6, 0.1, *d.rare(float("nan"))))
    return Call([d.values(d.shape(4))], {"axis": axes, "eps": eps})


def _lrn(d):
    attrs = dict(
        axis=d.choice((1, 3, *d.rare(0, 2, -1))),
        size=d.choice((1, 3, 5, *d.rare(2, 9))),
        bias=d.choice((1.0, 2.0)),
        alpha=d.choice((1e-4, 0.1)),
        beta=d.choice((0.75, 0.75, 1.0, *d.rare(0.5))),
    )
    return Call([d.values(d.shape(4))], attrs)


DRAWS = {
    **{name: _recurrent(name) for name in GATES},
    "nn.batch_norm": _affine(4, 2, 3, 4),
    "nn.layer_norm": _affine(2),
    "nn.instance_norm": _affine(2, 3, 4),
    "nn.group_norm": _affine(2, 2, 3, 4, num_groups=Draw.groups),
    "dnnl.rms_norm": _rms_norm,
    "nn.l2_normalize": _l2_normalize,
    "nn.lrn": _lrn,
    "dnnl.attention": _attention,
    "dnnl.block_quantized_dense": _block_dense,
    "dnnl.dynamic_fake_quantize": _dynamic_data,
    "dnnl.dynamic_quantize_scale": _dynamic_data,
    "dnnl.dynamic_quantized_dense": _dynamic_dense,
}
