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
"""Whether a tensor of open size may be empty, as a cache of keys is before the first token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .dim import is_same

if TYPE_CHECKING:
    from .node import Node

# A tensor is followed through so many ops.
_MAX_DEPTH = 64


def is_filled(node: Node, axis: int) -> bool | None:
    """Tell whether a tensor has elements along an axis.

    A matmul or a convolution is taken to read some, as nothing is left of a model that does not.

    Parameters
    ----------
    node : Node
        The tensor.
    axis : int
        An axis, whose size is open.

    Returns
    -------
    is_filled : bool | None
        None for a tensor that the runtime accepts empty: no op of a partition computes it.
    """
    if not node.is_call and node.kind not in ("tuple", "field"):
        return None
    return _is_computed(node, _MAX_DEPTH)


def _is_computed(node: Node, depth: int) -> bool:
    """Whether a tensor is computed by a matmul or convolution, and ops that keep its elements."""
    from ..policy.table import TABLE  # pylint: disable=import-outside-toplevel

    if depth == 0 or node.kind in ("input", "native", "constant"):
        return False
    if node.kind in ("tuple", "field"):
        return any(_is_computed(operand, depth - 1) for operand in node.operands)
    spec = TABLE.get(node.name) if node.is_call else None
    if spec is None:
        return False
    if spec.heavy:
        return True
    if spec.moves:
        # A slice of an open size is not of the table if it may be empty.
        return _is_computed(node.operands[0], depth - 1)
    return any(
        len(operand.type.dims) == len(node.type.dims)
        and all(map(is_same, operand.type.dims, node.type.dims))
        and _is_computed(operand, depth - 1)
        for operand in node.operands
    )
