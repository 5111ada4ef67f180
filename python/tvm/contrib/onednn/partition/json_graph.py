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
"""Writes the nodes of a partition as the JSON graph that the runtime reads.

The format is version 2 of the one that the runtime's `json_graph.h` reads. That file also writes
it for Relay, whose JSON code generators have a base class in C++.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..ir.op_view import Tensor

FORMAT_VERSION = 2


class Entry(NamedTuple):
    """One result of a node, as the JSON graph has it."""

    node: int
    output: int
    version: int = 0


class JsonGraph:
    """A JSON graph to which nodes are appended, each after those it reads.

    Parameters
    ----------
    symbol : str
        The name of the partition.
    """

    def __init__(self, symbol: str):
        self._symbol = symbol
        self._nodes: list[dict[str, Any]] = []
        self._row_ptr = [0]

    @property
    def num_nodes(self) -> int:
        """The number of nodes so far."""
        return len(self._nodes)

    @property
    def const_names(self) -> list[str]:
        """The names of the constants, in the order of their nodes."""
        return [node["name"] for node in self._nodes if node["op"] == "const"]

    def add_leaf(self, op: str, name: str, types: Sequence[Tensor]) -> list[Entry]:
        """Append an input ("input") or a constant ("const") and return its entries."""
        return self._add({"op": op, "name": name}, {}, types)

    def add_kernel(
        self, name: str, attrs: dict[str, Any], inputs: Sequence[Entry], types: Sequence[Tensor]
    ) -> list[Entry]:
        """Append a kernel and return an entry for each of its results."""
        return self._add({"op": "kernel", "name": name, "inputs": inputs}, attrs, types)

    def text(self, heads: Sequence[Entry]) -> str:
        """Return the graph that computes these entries, with a line for each node."""
        leaves = [i for i, node in enumerate(self._nodes) if node["op"] != "kernel"]
        lines = ",\n".join(json.dumps(node, allow_nan=False) for node in self._nodes)
        top = json.dumps({"format_version": FORMAT_VERSION, "symbol": self._symbol})
        tables = json.dumps({"arg_nodes": leaves, "heads": heads, "node_row_ptr": self._row_ptr})
        return f'{top[:-1]}, "nodes": [\n{lines}\n], {tables[1:]}'

    def _add(
        self, node: dict[str, Any], attrs: dict[str, Any], types: Sequence[Tensor]
    ) -> list[Entry]:
        shapes = [[-1 if size is None else size for size in each.shape] for each in types]
        node["attrs"] = {**attrs, "shape": shapes, "dtype": [each.dtype for each in types]}
        self._nodes.append(node)
        self._row_ptr.append(self._row_ptr[-1] + len(types))
        return [Entry(len(self._nodes) - 1, k) for k in range(len(types))]
