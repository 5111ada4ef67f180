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
"""Decomposes logical ops into comparisons and selections."""

from __future__ import annotations

import math
from collections.abc import Callable

from ..ir.node import Node
from .maker import Maker, UnsupportedOp, check_floats


def _is_nan(make: Maker, node: Node) -> Node:
    """Write a test for NaN as a comparison: only NaN differs from itself."""
    (data,) = node.operands
    check_floats(node)
    return make("not_equal", data, data)


def _compared_to_infinity(comparison: str) -> Callable[[Maker, Node], Node]:
    def write(make: Maker, node: Node) -> Node:
        dtype = check_floats(node)
        return make(comparison, make("abs", *node.operands), make.scalar(math.inf, dtype))

    return write


def _check_truths(node: Node) -> None:
    if any(operand.tensor.dtype != "bool" for operand in node.operands):
        raise UnsupportedOp("an operand is not bool")


def _selected(x: bool | None, y: bool | None) -> Callable[[Maker, Node], Node]:
    """Write an op as a selection by its first operand, of its second one where that is None."""

    def write(make: Maker, node: Node) -> Node:
        _check_truths(node)
        condition, *rest = node.operands
        x_y = [rest[0] if each is None else make.scalar(each, "bool") for each in (x, y)]
        return make("where", condition, *x_y)

    return write


def _exclusive_or(make: Maker, node: Node) -> Node:
    _check_truths(node)
    condition, other = node.operands
    negated = make("where", other, make.scalar(False, "bool"), make.scalar(True, "bool"))
    return make("where", condition, negated, other)


_OPS = {
    "isnan": _is_nan,
    "isinf": _compared_to_infinity("equal"),
    "isfinite": _compared_to_infinity("less"),
    "logical_not": _selected(False, True),
    "logical_and": _selected(None, False),
    "logical_or": _selected(True, None),
    "logical_xor": _exclusive_or,
}

LOGIC = {f"{prefix}{name}": write for name, write in _OPS.items() for prefix in ("", "relax.")}
