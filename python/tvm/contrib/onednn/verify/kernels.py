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
"""The kernels of oneDNN that compute the results of a model."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..ir.graph import Graph
from ..ir.node import CALL, Node

# Ops that rewrites turn into each other: the runtime has one kind of kernel for them.
_MATMULS = ("matmul", "nn.matmul", "nn.dense", "nn.batch_matmul")
_FAMILY = dict.fromkeys(_MATMULS, "matmul")


class Kernel(NamedTuple):
    """What oneDNN computes an op with; both are empty where it does not, or that is not known.

    Parameters
    ----------
    name : str
        oneDNN's name of the implementation. Several, if the plan does not tell which.
    layouts : str
        The layouts of the source and of the result.
    """

    name: str = ""
    layouts: str = ""


def primitives_of(plans: Iterable[str]) -> list[dict]:
    """Return the primitives of the latest shapes, in the order of the partitions.

    Parameters
    ----------
    plans : Iterable[str]
        What `get_plan` of each partition tells.
    """
    primitives = []
    for plan in sorted(map(json.loads, plans), key=_order):
        latest = plan["plans"][:1] if "plans" in plan else [plan]
        primitives += [row for each in latest for row in each["primitives"]]
    return primitives


def _order(plan: dict) -> tuple:
    name, _, number = plan["symbol"].rpartition("_")
    return name, int(number) if number.isdigit() else 0


def _family(op: str) -> str:
    return _FAMILY.get(op, op)


def kernels_of(graph: Graph, results: Sequence[Node], primitives: list[dict]) -> list[Kernel]:
    """Return the kernel of each result of a function.

    The primitives of an op are told apart by their order, if there are as many as the function has
    ops of this name. A result whose own op has no primitive, as it is fused or rewritten, has that
    of the nearest op which only it reads.

    Parameters
    ----------
    graph : Graph
        The function as it was before rewrites.
    results : Sequence[Node]
        The nodes that it returns.
    primitives : list[dict]
        What ran.
    """
    rows: dict[str, list[Kernel]] = {}
    for row in primitives:
        layouts = f"{row['src']} -> {row['dst']}"
        rows.setdefault(_family(row["op"]), []).append(Kernel(row["impl"], layouts))
    calls: dict[str, list[Node]] = {}
    for node in graph.nodes:
        if node.kind == CALL:
            calls.setdefault(_family(str(node.name)), []).append(node)
    known: dict[Node, Kernel] = {}
    for op in calls.keys() & rows.keys():
        kernels = rows[op]
        if len(kernels) != len(calls[op]):
            texts = [sorted({kernel[i] for kernel in kernels}) for i in range(2)]
            kernels = [Kernel(*(" or ".join(each) for each in texts))] * len(calls[op])
        known.update(zip(calls[op], kernels))
    return [_nearest(node, known, set(results)) for node in results]


def _nearest(node: Node, known: dict[Node, Kernel], results: set[Node]) -> Kernel:
    seen, queue = {node}, [node]
    for each in queue:
        if each in known:
            return known[each]
        new = [x for x in each.operands if x not in results and x not in seen]
        seen.update(new)
        queue.extend(new)
    return Kernel()
