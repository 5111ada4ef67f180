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
"""Fourier transforms of known sizes as matmuls, and complex tensors as pairs of real ones.

TVM has no complex types. A complex tensor that something else reads is refused by its op.
"""

from __future__ import annotations

import math

import torch
from torch.fx import Node

from .graphs import argument, aten, call, constants, drop_inputs, new_constant, shape
from .promotion import cast


def _matrices(rows, columns, size, dtype, scale):
    """Return the cosines and sines of a transform of a size."""
    turns = torch.arange(rows, dtype=torch.float64)[:, None]
    turns = turns * torch.arange(columns, dtype=torch.float64)
    angles = turns.remainder(size) * (2 * math.pi / size)
    # That of half a turn is 0, which decides the sign of the angle of a negative number.
    sines = torch.where(turns * 2 % size == 0, 0.0, angles.sin())
    return [cast(each * scale, dtype) for each in (angles.cos(), sines)]


def _multiplied(x, dim, matrix):
    return (x.movedim(dim, -1) @ matrix).movedim(-1, dim)


def _scale(sizes, normalization) -> float:
    return math.prod(sizes) ** {0: 0.0, 1: -0.5, 2: -1.0}[normalization]


def _is_known(x, dim) -> bool:
    return all(isinstance(x.shape[axis], int) for axis in dim)


def _r2c(x, dim, normalization, onesided):
    if not _is_known(x, dim):
        return NotImplemented
    size, scale = x.shape[dim[-1]], _scale([x.shape[axis] for axis in dim], normalization)
    count = size // 2 + 1 if onesided else size
    cos, sin = _matrices(size, count, size, x.dtype, scale)
    result = _multiplied(x, dim[-1], cos), _multiplied(x, dim[-1], -sin)
    return aten.complex.default(*_transformed(*result, dim[:-1], True))


def _c2c(x, dim, normalization, forward):
    if not _is_known(x, dim):
        return NotImplemented
    scale = _scale([x.shape[axis] for axis in dim], normalization)
    return aten.complex.default(*_transformed(x.real * scale, x.imag * scale, dim, forward))


def _c2r(x, dim, normalization, last_dim_size):
    if not _is_known(x, dim) or not isinstance(last_dim_size, int):
        return NotImplemented
    size, last, count = last_dim_size, dim[-1], last_dim_size // 2 + 1
    scale = _scale([x.shape[axis] for axis in dim[:-1]] + [size], normalization)
    real, imag = _transformed(x.real, x.imag, dim[:-1], False)
    cos, sin = _matrices(count, size, size, real.dtype, scale)
    # Each value but these stands for its conjugate, too.
    rows = torch.arange(count)[:, None]
    times = cast(2 - cast((rows == 0) | (rows * 2 == size), torch.int64), cos.dtype)
    parts = (each.narrow(last, 0, count) for each in (real, imag))
    real, imag = (_multiplied(x, last, y) for x, y in zip(parts, (cos * times, sin * times)))
    return real - imag


def _transformed(real, imag, dim, forward):
    """Return the parts of a complex tensor, transformed along axes."""
    for axis in dim:
        size = real.shape[axis]
        cos, sin = _matrices(size, size, size, real.dtype, 1)
        sin = sin if forward else -sin
        real, imag = (
            _multiplied(real, axis, cos) + _multiplied(imag, axis, sin),
            _multiplied(imag, axis, cos) - _multiplied(real, axis, sin),
        )
    return real, imag


DECOMPOSITIONS = {
    aten._fft_r2c.default: _r2c,
    aten._fft_c2c.default: _c2c,
    aten._fft_c2r.default: _c2r,
    aten._neg_view.default: aten.neg.default,
}

#: Ops that move or add elements, by what computes the same of a part.
_MOVES = {
    op: op
    for op in (
        aten.permute.default,
        aten.unsqueeze.default,
        aten.squeeze.dim,
        aten.squeeze.dims,
        aten.expand.default,
        aten.slice.Tensor,
        aten.select.int,
        aten.clone.default,
        aten.alias.default,
        aten.neg.default,
        aten.constant_pad_nd.default,
        aten.sum.dim_IntList,
    )
}
_MOVES[aten.view.default] = aten.reshape.default
_CONJUGATES = aten._conj.default, aten._conj_physical.default
_PARTWISE = aten.add.Tensor, aten.sub.Tensor, aten.copy.default
_PRODUCTS = aten.mul.Tensor, aten.mm.default, aten.bmm.default


def is_complex(node: Node) -> bool:
    """Tell whether the result of a node is a complex tensor."""
    val = node.meta.get("val")
    return isinstance(val, torch.Tensor) and val.is_complex()


def split_complex(program) -> None:
    """Replace the complex tensors of a program by their parts, in place."""
    pairs: dict[Node, tuple] = {}
    values = {node: value for node, value in constants(program).items() if value.is_complex()}
    for node, value in values.items():
        parts = zip(("real", "imag"), torch.view_as_real(value.resolve_conj()).unbind(-1))
        like = node.meta["val"].real
        pairs[node] = tuple(
            new_constant(program, f"{node.name}_{name}", each, like) for name, each in parts
        )
    for node in list(program.graph.nodes):
        if node.op != "call_function":
            continue
        with program.graph.inserting_before(node):
            parts = _parts(node, pairs)
            if parts is not None:
                pairs[node] = parts
            elif any(each in pairs for each in node.all_input_nodes):
                result = _real_result(node, pairs)
                if result is not None:
                    node.replace_all_uses_with(result)
    program.graph.eliminate_dead_code()
    drop_inputs(program, {node.name for node in values if not node.users})


def _parts(node: Node, pairs: dict) -> tuple | None:
    """Return the real and imaginary part of a node, or None."""
    target, args = node.target, node.args
    if target is aten.complex.default:
        return args
    if target is aten.view_as_complex.default:
        return tuple(call(aten.select.int, args[0], -1, part) for part in (0, 1))
    if target is aten.polar.default:
        cos, sin = (call(op, args[1]) for op in (aten.cos.default, aten.sin.default))
        return tuple(call(aten.mul.Tensor, args[0], each) for each in (cos, sin))
    if target is aten.full.default and is_complex(node):
        dtype = node.meta["val"].real.dtype
        return tuple(_filled(node, each, dtype) for each in (args[1].real, args[1].imag))
    if target is aten.cat.default and all(each in pairs for each in args[0]):
        return tuple(call(target, list(each), *args[1:]) for each in zip(*map(pairs.get, args[0])))
    if target is aten._to_copy.default and is_complex(node) and not is_complex(args[0]):
        dtype = node.meta["val"].real.dtype
        real = call(target, args[0], dtype=dtype)
        return real, call(aten.full_like.default, real, 0.0)
    if not any(each in pairs for each in node.all_input_nodes):
        return None
    if target is aten.constant_pad_nd.default and argument(node, "value") != 0:
        return None
    if target in _MOVES:
        return tuple(
            call(_MOVES[target], part, *args[1:], **node.kwargs) for part in pairs[args[0]]
        )
    if target in _CONJUGATES:
        return pairs[args[0]][0], call(aten.neg.default, pairs[args[0]][1])
    if len(args) != 2 or node.kwargs or any(isinstance(each, complex) for each in args):
        return None
    return _binary_parts(target, *(pairs.get(each, (each, None)) for each in args))


def _filled(node: Node, value: float, dtype) -> Node:
    """Add a tensor of the size of a complex one, filled with a number."""
    result = node.graph.call_function(node.target, (node.args[0], value), {"dtype": dtype})
    result.meta = {"val": node.meta["val"].real}
    return result


def _binary_parts(target, one: tuple, other: tuple) -> tuple | None:
    (a, b), (c, d) = one, other
    if target in _PARTWISE and None not in (b, d):
        return call(target, a, c), call(target, b, d)
    if target is aten.div.Tensor and d is None:
        return call(target, a, c), call(target, b, c)
    if target not in _PRODUCTS:
        return None
    if b is None:
        return call(target, a, c), call(target, a, d)
    if d is None:
        return call(target, a, c), call(target, b, c)
    ac, bd, ad, bc = (call(target, x, y) for x, y in ((a, c), (b, d), (a, d), (b, c)))
    return call(aten.sub.Tensor, ac, bd), call(aten.add.Tensor, ad, bc)


def _real_result(node: Node, pairs: dict) -> Node | None:
    """Return the real value of a node that reads a complex one, or None."""
    real, imag = pairs.get(node.args[0], (None, None))
    if node.target is aten.abs.default:
        squares = (call(aten.mul.Tensor, each, each) for each in (real, imag))
        return call(aten.sqrt.default, call(aten.add.Tensor, *squares))
    if node.target is aten.angle.default:
        return call(aten.atan2.default, imag, real)
    if node.target is not aten.view_as_real.default:
        return None
    axis = len(shape(node)) - 1
    for user in list(node.users):
        if user.target is aten.select.int and user.args[1] in (axis, -1):
            user.replace_all_uses_with((real, imag)[user.args[2]])
    return call(aten.cat.default, [call(aten.unsqueeze.default, x, axis) for x in (real, imag)], -1)
