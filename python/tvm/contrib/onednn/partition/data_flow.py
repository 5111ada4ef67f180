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
"""The data flow of a function between its kernels."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ..ir.graph import Graph
from ..ir.node import Node


class DataFlow:
    """The operands and users of each node of a graph, in which each kernel is one node, its last.

    Parameters
    ----------
    graph : Graph
        The function, sorted.
    kernels : Iterable[Collection[Node]]
        The nodes that each kernel computes, the last of which is its result. The others have
        neither operands nor users, but for those that something outside uses: a kernel has a copy
        of them.

    Attributes
    ----------
    nodes : list[Node]
        The nodes of the graph.
    operands : dict[Node, list[Node]]
        What each is computed from.
    users : dict[Node, list[Node]]
        What is computed from each, in order, once for each time.
    """

    def __init__(self, graph: Graph, kernels: Iterable[Collection[Node]] = ()):
        self.nodes = graph.nodes
        self.operands = {node: node.operands for node in self.nodes}
        kernels_of: dict[Node, set[int]] = {}
        for number, kernel in enumerate(kernels):
            for node in kernel:
                kernels_of.setdefault(node, set()).add(number)
            *inner, last = kernel
            read = dict.fromkeys(operand for node in kernel for operand in node.operands)
            self.operands[last] = [operand for operand in read if operand not in kernel]
            self.operands.update((node, []) for node in inner)
        for node, own in kernels_of.items():
            if any(own.isdisjoint(kernels_of.get(user, ())) for user in node.users):
                self.operands[node] = self.operands[node] or node.operands
        self.users: dict[Node, list[Node]] = {node: [] for node in self.nodes}
        for node, operands in self.operands.items():
            for operand in operands:
                self.users[operand].append(node)
