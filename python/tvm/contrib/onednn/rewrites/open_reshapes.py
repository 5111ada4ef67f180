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
"""Reads reshapes to several open sizes that no code of Relay's tells, such as those of an image.

Attention over an image joins height and width, and splits them at its end. The kernel reads the
sizes of another tensor in each call, such as those of the image.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from ..ir.dim import Size, is_same
from ..ir.graph import Graph
from ..ir.node import CALL, INPUT, Node
from ..ir.op_view import Tensor
from ..ops.rules import Rules

NAME = "dnnl.open_reshape"
# Reshapes of several computed sizes, as readers name them.
_UNREAD = tuple(f"relax.{name}" for name in ("reshape", "expand_dims", "flatten", "squeeze"))
# How many producers of the data are looked at.
_MOST_PRODUCERS = 512


def read_open_reshapes(graph: Graph, rules: Rules) -> None:
    """Read each reshape that was not read as one with the sizes of another tensor."""
    for node in graph.nodes:
        if node.kind != CALL or node.name not in _UNREAD or rules.excludes(NAME, "reshape"):
            continue
        data = node.operands[0]
        if not isinstance(data.type, Tensor) or not isinstance(node.type, Tensor):
            continue
        for like in _sources(graph, data, rules):
            codes = _codes(data.tensor.dims, node.tensor.dims, like.tensor.dims)
            if codes is None:
                continue
            attrs = dict(zip(("newshape", "axes"), codes), allowzero=False)
            new = graph.call(NAME, [data, like], node, node.type, **attrs)
            if rules.refusal(new) is None:
                graph.reread(node, new)
                break


def _codes(
    source: Sequence[Size], wanted: Sequence[Size], like: Sequence[Size]
) -> tuple[list[int], list[int]] | None:
    """Return Relay's codes, and for each the axis of another tensor whose size replaces it, or -1.

    None if several sizes are those of neither tensor.
    """
    codes, axes = [], []
    for k, size in enumerate(wanted):
        is_own = k < len(source) and is_same(size, source[k])
        is_read = not isinstance(size, int) and not is_own and size is not None and size in like
        axes.append(like.index(size) if is_read else -1)
        codes.append(size if isinstance(size, int) else 0 if is_own or is_read else -1)
    return (codes, axes) if codes.count(-1) <= 1 else None


def _sources(graph: Graph, data: Node, rules: Rules) -> Iterator[Node]:
    """Yield tensors whose sizes the reshape may read: the data, its producers, and inputs.

    Tensors that a fused kernel may keep to itself are none of them.
    """
    yield data
    seen, queue = {data}, deque([data])
    while queue and len(seen) < _MOST_PRODUCERS:
        for node in queue.popleft().operands:
            if node in seen:
                continue
            seen.add(node)
            queue.append(node)
            if isinstance(node.type, Tensor) and not node.is_constant and _is_kept(node, rules):
                yield node
    for node in graph.nodes:
        if node.kind == INPUT and node not in seen and isinstance(node.type, Tensor):
            yield node


def _is_kept(node: Node, rules: Rules) -> bool:
    """Whether a tensor is written to memory anyway."""
    if node.kind == INPUT or len(node.users) > 1:
        return True
    (user,) = node.users
    return user.kind == CALL and (user.name in _UNREAD or rules.moves(user.name) == "view")
