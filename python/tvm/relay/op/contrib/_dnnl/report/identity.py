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
"""Tells which op of a function was which before passes of TVM that rebuilt it.

A pass keeps neither the object of a call nor an attribute of ours. It mostly keeps what the op
computes of what, and else its attributes and types, and else the order of the ops of one name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import tvm
from tvm import relay

from ..ir.dataflow_graph import STOP_FUSION, DataflowGraph
from ..ir.relay_view import op_name


class Identity(NamedTuple):
    """Marks that identify an op, the weakest first; they are the same in each process.

    Parameters
    ----------
    name : str
        The Relay op.
    call : str
        A digest of the name, the attributes and the types of operands and results.
    dataflow : str
        A digest of that and of all that it is computed from, up to inputs and partitions.
    """

    name: str
    call: str
    dataflow: str


def _digest(*parts) -> str:
    return hashlib.sha1(" ".join(map(str, parts)).encode()).hexdigest()[:16]


def _types(*exprs: relay.Expr) -> int:
    return tvm.ir.structural_hash([expr.checked_type for expr in exprs], map_free_vars=True)


def identify(graph: DataflowGraph) -> dict[int, Identity]:
    """Return the identity of each call of a Relay op in a function that has types."""
    values = {
        expr.var: graph.operands[i][0]
        for i, expr in enumerate(graph.nodes)
        if isinstance(expr, relay.Let)
    }
    identities: dict[int, Identity] = {}
    digests: list[str] = []
    for i, expr in enumerate(graph.nodes):
        below = [digests[operand] for operand in graph.operands[i]]
        name = op_name(expr)
        if name == STOP_FUSION:
            digests.append(below[0])
        elif name is not None:
            attrs = tvm.ir.structural_hash(expr.attrs) if expr.attrs is not None else ""
            call = _digest(name, attrs, _types(expr, *expr.args))
            identities[i] = Identity(name, call, _digest(call, *below))
            digests.append(identities[i].dataflow)
        elif isinstance(expr, relay.Call) and isinstance(expr.op, relay.GlobalVar):
            # The inputs of a partition may change while the ops behind it stay the same.
            digests.append(_digest(expr.op.name_hint))
        elif isinstance(expr, relay.Var):
            value = values.get(expr, i)
            # In its own value, a function that calls itself is not there yet.
            own = _digest(expr.name_hint, _types(expr))
            digests.append(digests[value] if value < i else own)
        elif isinstance(expr, relay.Constant):
            digests.append(_digest(_types(expr), graph.scalar(i)))
        else:
            index = expr.index if isinstance(expr, relay.TupleGetItem) else ""
            digests.append(_digest(type(expr).__name__, index, *below))
    return identities


def same_ops(before: Sequence[Identity], now: Sequence[Identity]) -> dict[int, int]:
    """Return which op of `before` each of `now` is, by position, where that is clear.

    The strongest mark decides first. Ops that have one in common are told apart by their order,
    and not at all if there are not as many as before.
    """
    same: dict[int, int] = {}
    for mark in reversed(range(len(Identity._fields))):
        old, new = (_by_mark(ops, mark) for ops in (before, now))
        rest = set(range(len(before))).difference(same.values())
        for key, positions in new.items():
            left = [i for i in positions if i not in same]
            candidates = [i for i in old.get(key, ()) if i in rest]
            if len(left) == len(candidates):
                same.update(zip(left, candidates))
    return same


def _by_mark(ops: Sequence[Identity], mark: int) -> dict[str, list[int]]:
    """Return the positions of ops that have a mark in common."""
    groups: dict[str, list[int]] = {}
    for i, identity in enumerate(ops):
        groups.setdefault(identity[mark], []).append(i)
    return groups
