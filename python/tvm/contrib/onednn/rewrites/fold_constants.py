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
"""Folds constants.

TVM's FoldConstant compiles a kernel for each op that it folds; what importers write around
constants is evaluated in numpy here.
"""

from __future__ import annotations

import math

import numpy as np

from ..ir.graph import Graph
from ..ir.match import is_op
from ..ir.node import CALL, FIELD, TUPLE, Node
from ..ir.numpy_types import numpy_type
from ..ir.op_view import Tensor, tensor_of
from ..ops.evaluate import constant_value
from ..ops.quantize import DEQUANTIZE, QUANTIZE, quantized
from ..ops.rules import Rules
from ..ops.tensors import MOST_FILLED
from .move_in_int8 import dequantized_constant


def fold_constants(graph: Graph, rules: Rules) -> list[Node]:
    """Replace every op whose operands are constants with its value.

    The dequantize of a weight stays, which may be multiplied by in 8 bits.

    Returns
    -------
    folded : list[Node]
        The quantizes among them.
    """
    folded = []
    shared: dict = {}
    for node in graph.nodes:
        if node.kind == FIELD and _is_known(node.operands[0]):
            # Such as a gate's share of an LSTM's weights.
            new = _evaluated(graph, node)
            if new is not None:
                graph.replace(node, new)
        if node.kind != CALL:
            continue
        new = _filled(graph, node) if node.name in _FILLED else None
        if new is None and node.name == "where":
            new = _selected(node) or _guarded(node)
        if new is None and _is_known(node) and not _is_broadcast_by_users(rules, node):
            # Equal calls are one constant: several matmuls may read the transpose of a weight.
            key = (node.name, repr(node.attrs), _signature(node.type), *map(id, _read(node)))
            if key not in shared:
                shared[key] = (_constant(graph, node), _read(node))
            new, _ = shared[key]
        if new is not None:
            graph.replace(node, new)
            folded += [node] if node.name == QUANTIZE else []
    return folded


def _is_broadcast_by_users(rules: Rules, node: Node) -> bool:
    """Whether all users of a broadcast can broadcast its operand themselves, see `simplify`.

    A matmul by each matrix of a batch is one by the matrix, and a binary op broadcasts itself.
    """
    return node.name == "broadcast_to" and any(
        rules.is_heavy(user.name) or user.name in rules.with_field("post") for user in node.users
    )


def _signature(type_) -> tuple:
    """Return a hashable key of a type."""
    return (type_.dtype, *map(str, type_.dims)) if isinstance(type_, Tensor) else (id(type_),)


def _read(node: Node) -> list[Node]:
    """Return the operands, and the fields of those that are tuples."""
    operands = (o.operands if o.kind == TUPLE else [o] for o in node.operands)
    return [each for own in operands for each in own]


def _is_known(node: Node) -> bool:
    read = _read(node)
    return bool(read) and all(each.is_constant for each in read)


def _constant(graph: Graph, node: Node) -> Node | None:
    if node.name in (DEQUANTIZE, "relax.dequantize"):
        # A weight may be multiplied by in 8 bits.
        is_weight = node.is_call and tensor_of(node.args[0]).dtype != "int32"
        return None if is_weight else dequantized_constant(node)
    if node.name == QUANTIZE:
        values, scale, zero = (operand.value for operand in node.operands)
        bits = quantized(values, scale, zero, node.attrs.axis, node.tensor.dtype)
        return None if bits is None else graph.constant(bits, node.tensor.dtype)
    return _evaluated(graph, node)


def _evaluated(graph: Graph, node: Node) -> Node | None:
    """Return the value of a call of constants, or of a field of one."""
    if not isinstance(node.type, Tensor) or None in node.type.shape:
        return None
    call = node.operands[0] if node.kind == FIELD else node
    operands = [(each, math.prod(each.tensor.shape)) for each in _read(call)]
    size = math.prod(node.tensor.shape)
    if size > max(MOST_FILLED, sum(count for _, count in operands)):
        return None
    width = numpy_type(node.type.dtype).itemsize
    if not graph.growth.admits(size * width, [(each, n * width) for each, n in operands]):
        return None
    value = constant_value(node)
    return None if value is None else graph.constant(value, node.type.dtype)


_FILLED = {"zeros": 0, "zeros_like": 0, "ones": 1, "ones_like": 1, "full": None, "full_like": None}


def _filled(graph: Graph, node: Node) -> Node | None:
    """Return a tensor of one known value, such as the first state of an LSTM.

    TVM computes it at each run, and it would cut a partition.
    """
    shape, value = getattr(node.type, "shape", (None,)), _FILLED[node.name]
    if None in shape or not 0 < math.prod(shape) <= MOST_FILLED:
        return None
    if value is None:
        if not node.operands[-1].is_constant:
            return None
        value = node.operands[-1].value
    return graph.constant(np.broadcast_to(np.asarray(value), shape), node.tensor.dtype)


def _guarded(node: Node) -> Node | None:
    """Return what a guard against NaN of a dequantized tensor selects: integers have no NaN."""
    condition, _, selected = node.operands
    is_guard = is_op(condition, "not_equal") and condition.operands[0] is condition.operands[1]
    data = condition.operands[0] if is_guard else None
    if data is None or data.name != DEQUANTIZE or not data.operands[1].is_constant:
        return None
    is_same = isinstance(node.type, Tensor) and selected.tensor.dims == node.tensor.dims
    return selected if is_same and np.isfinite(data.operands[1].value).all() else None


def _selected(node: Node) -> Node | None:
    """Return the operand that a constant condition selects for every element, if any."""
    condition = node.operands[0]
    if not condition.is_constant:
        return None
    values = condition.value
    if values.size == 0 or values.any() != values.all():
        return None
    selected = node.operands[1] if np.all(values) else node.operands[2]
    is_same = isinstance(node.type, Tensor) and selected.tensor.dims == node.tensor.dims
    return selected if is_same and selected.tensor.dtype == node.tensor.dtype else None
