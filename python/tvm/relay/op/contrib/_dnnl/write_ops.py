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
"""How each op of the table is written in Relay, where it was not read from Relay as it is."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence

from tvm import relay
from tvm.contrib.onednn.ir.node import Node
from tvm.relay.qnn import op as qnn

# What Relay's reshape does with the first axes: makes one of two, or two of one.
_JOIN, _DIVIDE = -3, -4


def written(node: Node, args: Sequence[relay.Expr]) -> relay.Expr:
    """Return a call of Relay that computes what a node does.

    Parameters
    ----------
    node : Node
        A call of an op of the table.
    args : Sequence[relay.Expr]
        What its operands are known by.
    """
    if node.name in _WRITERS:
        return _WRITERS[node.name](node, *args)
    make, names = _function(node.name)
    attrs = {name: value for name, value in vars(node.attrs).items() if name in names}
    return make(*args, **attrs)


@functools.lru_cache(maxsize=None)
def _function(name: str) -> tuple[Callable, frozenset[str]]:
    """Return the function of `relay` that makes calls of an op, and its parameters."""
    make = relay
    for part in name.split("."):
        make = getattr(make, part)
    return make, frozenset(inspect.signature(make).parameters)


def _batch_matmul(node: Node, left, right) -> relay.Call:
    """Write a matmul of rank 4, which Relay has not, as one of rank 3 between reshapes."""
    rank = len(node.type.dims)
    if rank == 4:
        left, right = (
            relay.reshape(arg, (_JOIN, *_sizes(operand)[2:]))
            for arg, operand in zip((left, right), node.operands)
        )
    out = relay.nn.batch_matmul(
        left,
        right,
        node.attrs.out_dtype,
        node.attrs.transpose_a,
        node.attrs.transpose_b,
    )
    if rank < 4:
        return out
    batch, *others = _sizes(node)
    return relay.reshape(out, (_DIVIDE, batch or -1, *others))


def _sizes(node: Node) -> list[int]:
    """Return the shape of a node, 0 for an open dimension: TVM keeps it."""
    return [size if isinstance(size, int) else 0 for size in node.type.dims]


def _quantize(node: Node, data, scale, zero_point) -> relay.Call:
    return qnn.quantize(data, scale, zero_point, node.attrs.axis, node.type.dtype)


def _dequantize(node: Node, data, scale, zero_point) -> relay.Call:
    return qnn.dequantize(data, scale, zero_point, node.attrs.axis, node.type.dtype)


def _cast(node: Node, data) -> relay.Call:
    return relay.cast(data, node.type.dtype)


def _pad(node: Node, data, value) -> relay.Call:
    return relay.nn.pad(data, node.attrs.pad_width, value, node.attrs.pad_mode)


def _concatenate(node: Node, fields) -> relay.Call:
    return relay.concatenate(fields, node.attrs.axis)


def _take(node: Node, data, indices) -> relay.Call:
    return relay.take(data, indices, node.attrs.axis, 0, node.attrs.mode)


def _clip(node: Node, data) -> relay.Call:
    return relay.clip(data, node.attrs.a_min, node.attrs.a_max)


def _square(node: Node, data) -> relay.Call:
    """Write the only power that is made: others stand for ops that were read."""
    assert (node.attrs.alpha, node.attrs.beta) == (1.0, 2.0)
    return relay.multiply(data, data)


_WRITERS: dict[str, Callable[..., relay.Call]] = {
    "cast": _cast,
    "clip": _clip,
    "concatenate": _concatenate,
    "dnnl.pow": _square,
    "nn.batch_matmul": _batch_matmul,
    "nn.pad": _pad,
    "qnn.dequantize": _dequantize,
    "qnn.quantize": _quantize,
    "take": _take,
}
