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
"""Reads checks of sizes as views, so that they cut no partition.

The ONNX importer emits a match_cast where an op combines tensors whose open sizes must be equal but
are written differently, such as those of a feature pyramid. oneDNN's kernels compare the sizes of
their operands in each call, so within a partition the check is theirs. A check that stays on TVM is
written as it was.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax
from tvm.contrib.onednn.ir.dim import Size, is_same, symbols_in
from tvm.contrib.onednn.ir.node import INPUT, NATIVE, TUPLE, Node
from tvm.contrib.onednn.ir.op_view import Tensor
from tvm.contrib.onednn.ops.rules import Rules

from .reader import RelaxGraph


def read_size_checks(graph: RelaxGraph, rules: Rules) -> None:
    """Read each match_cast as a view if its users compare the sizes that it checks."""
    types = [node.type for node in graph.nodes if node.kind == INPUT]
    known = {
        symbol
        for type_ in types
        if isinstance(type_, Tensor)
        for size in type_.dims
        for symbol in symbols_in(size)
    }
    for node in graph.nodes:
        if not is_match_cast(node) or node.kind != NATIVE or len(node.operands) != 1:
            continue
        symbols = {s for size in _dims(node) for s in symbols_in(size)}
        axes = _changed_axes(node)
        # What defines a symbol must run before what reads it.
        if not axes or not symbols <= known or not node.users:
            continue
        if all(_compares(user, node, axes, rules) for user in node.users):
            # As a reshape, it has the code of dimensions that stay.
            codes = (0,) * len(_dims(node))
            operands, attrs = node.operands, dict(newshape=codes, allowzero=False)
            node.is_pinned = False
            graph.reread(node, graph.call("reshape", operands, node, node.type, **attrs))
    graph.sort()


def is_match_cast(node: Node) -> bool:
    """Whether a node was read from a match_cast."""
    native = node.origin.native if node.origin is not None else None
    return isinstance(native and native.binding, relax.MatchCast)


def _dims(node: Node) -> Sequence[Size]:
    return node.type.dims if isinstance(node.type, Tensor) else ()


def _changed_axes(node: Node) -> list[int]:
    """Return the axes, counted from the last, of which a match_cast checks the size."""
    (data,) = node.operands
    before, after = _dims(data), _dims(node)
    # Neither has sizes if it is no tensor but a shape.
    if not before or len(before) != len(after) or data.type.dtype != node.type.dtype:
        return []
    pairs = enumerate(zip(before, after), -len(after))
    return [axis for axis, sizes in pairs if not is_same(*sizes)]


def _compares(user: Node, node: Node, axes: list[int], rules: Rules) -> bool:
    """Whether an op compares the sizes of some axes with those of another operand."""
    if user.kind == TUPLE:
        return bool(user.users) and all(_joins(each, user, node, axes) for each in user.users)
    is_binary = user.is_call and user.name in rules.ops and rules.ops[user.name].post == "binary"
    return is_binary and user.scope == node.scope and _has_sizes(user.operands, node, axes)


def _joins(user: Node, fields: Node, node: Node, axes: list[int]) -> bool:
    if not user.is_call or user.name != "concatenate" or user.scope != node.scope:
        return False
    rank = len(_dims(node))
    is_along = int(user.attrs.axis) % rank - rank in axes
    return not is_along and _has_sizes(fields.operands, node, axes)


def _has_sizes(operands: list[Node], node: Node, axes: list[int]) -> bool:
    """Whether an operand has each of the sizes by itself."""
    others = [each for each in operands if each is not node]
    return all(any(_has_size(other, node, axis) for other in others) for axis in axes)


def _has_size(other: Node, node: Node, axis: int) -> bool:
    if axis < -len(_dims(other)) or not is_same(_dims(other)[axis], _dims(node)[axis]):
        return False
    return not is_match_cast(other) or (other.operands and axis not in _changed_axes(other))
