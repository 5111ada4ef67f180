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
"""Turns a layer normalization that is written out, as exporters do, into Relay's op.

That is (x - mean(x)) / sqrt(mean((x - mean(x)) ** 2) + epsilon) * gamma + beta along the last axis.
The factor and the summand may be missing, and each step may be written in another way.
"""

from __future__ import annotations

import math
from collections import Counter
from functools import partial
from typing import NamedTuple

import numpy as np
import tvm
from tvm import relay
from tvm.relay import transform

from ..ir.constants import to_constant, to_double
from ..ir.dataflow_graph import Graph
from ..policy.op_spec import Rules
from ..policy.tensors import op_name, shape_of


class Match(NamedTuple):
    """A layer normalization, its operands by their numbers in the graph."""

    data: int
    epsilon: float
    gamma: int | None
    beta: int | None

    def operands(self) -> list[int]:
        """Return the operands that it has, by number."""
        return [i for i in (self.data, self.gamma, self.beta) if i is not None]


class LayerNormReader:
    """Finds layer normalizations in a graph.

    Parameters
    ----------
    graph : Graph
        A typed function.
    """

    def __init__(self, graph: Graph):
        self.graph = graph

    def read(self, root: int) -> Match | None:
        """Read the call `root` as a layer normalization, with all of factor and summand in it."""
        for core, operand in self._sides(root, "add"):
            found = self._scaled(core)
            if found is not None and self._is_vector(operand, found.data):
                return found._replace(beta=operand)
        return self._scaled(root)

    def inside(self, root: int, match: Match) -> list[int] | None:
        """Return the calls that a match is made of; None if one of them is used elsewhere."""
        ends = {match.data, match.gamma, match.beta}
        inside, stack = {root}, [root]
        while stack:
            for child in self.graph.children[stack.pop()]:
                is_call = op_name(self.graph.nodes[child]) is not None
                if is_call and child not in ends and child not in inside:
                    inside.add(child)
                    stack.append(child)
        for i in inside:
            if self.graph.scope[i] != self.graph.scope[root]:
                return None
            if i != root and not inside.issuperset(self.graph.users[i]):
                return None
        return sorted(inside)

    def _op(self, i: int) -> str | None:
        return op_name(self.graph.nodes[i])

    def _sides(self, i: int, *names: str) -> list[tuple[int, int]]:
        """Return the operands of a call of one of these ops of two, in both orders."""
        if self._op(i) not in names:
            return []
        left, right = self.graph.children[i]
        return [(left, right), (right, left)]

    def _scalar(self, i: int) -> float | None:
        """Return the value of a constant of one element."""
        expr = self.graph.nodes[i]
        if not isinstance(expr, relay.Constant) or math.prod(expr.data.shape) != 1:
            return None
        return float(to_double(expr).reshape(()))

    def _is_vector(self, i: int, data: int) -> bool:
        """Whether an operand has one value for each element of the last axis of the data."""
        size = shape_of(self.graph.nodes[data])[-1]
        shape = shape_of(self.graph.nodes[i])
        rank = len(shape_of(self.graph.nodes[data]))
        return 0 < len(shape) <= rank and shape[-1] == size == math.prod(shape)

    def _scaled(self, i: int) -> Match | None:
        """Read a normalization that a factor may follow."""
        for core, operand in self._sides(i, "multiply"):
            found = self._normal(core)
            if found is not None and self._is_vector(operand, found.data):
                return found._replace(gamma=operand)
        return self._normal(i)

    def _normal(self, i: int) -> Match | None:
        """Read (x - mean) / sqrt(variance + epsilon)."""
        pairs = self._sides(i, "multiply")
        if self._op(i) == "divide":
            pairs = [tuple(self.graph.children[i])]
        for centred, factor in pairs:
            data = self._centred(centred)
            if data is None:
                continue
            radicand = self._radicand(factor, is_inverse=self._op(i) == "multiply")
            epsilon = None if radicand is None else self._epsilon(radicand, data)
            if epsilon is not None:
                return Match(data, epsilon, None, None)
        return None

    def _radicand(self, i: int, is_inverse: bool) -> int | None:
        """Read a square root, or one divided by it."""
        if is_inverse and self._op(i) == "divide":
            numerator, i = self.graph.children[i]
            if self._scalar(numerator) != 1.0:
                return None
            is_inverse = False
        if self._op(i) == ("rsqrt" if is_inverse else "sqrt"):
            return self.graph.children[i][0]
        if self._op(i) == "power":
            base, exponent = self.graph.children[i]
            return base if self._scalar(exponent) == (-0.5 if is_inverse else 0.5) else None
        return None

    def _epsilon(self, i: int, data: int) -> float | None:
        """Read the variance of the data plus a constant."""
        for variance, constant in self._sides(i, "add"):
            epsilon = self._scalar(constant)
            if epsilon is not None and self._is_variance(variance, data):
                return epsilon
        return None

    def _is_variance(self, i: int, data: int) -> bool:
        square = self._mean(i)
        if square is None:
            return False
        children = self.graph.children[square]
        if self._op(square) == "power" and self._scalar(children[1]) == 2.0:
            return self._centred(children[0]) == data
        if self._op(square) == "multiply":
            return all(self._centred(child) == data for child in children)
        return False

    def _centred(self, i: int) -> int | None:
        """Read x - mean(x), and return x."""
        if self._op(i) != "subtract":
            return None
        data, mean = self.graph.children[i]
        return data if self._mean(mean) == data else None

    def _mean(self, i: int) -> int | None:
        """Read a mean along the last axis, which is kept."""
        if self._op(i) != "mean":
            return None
        attrs, data = self.graph.nodes[i].attrs, self.graph.children[i][0]
        rank = len(shape_of(self.graph.nodes[data]))
        axes = [int(axis) % rank for axis in attrs.axis or ()]
        kept = attrs.keepdims and not attrs.exclude
        return data if kept and axes == [rank - 1] else None


def _call(graph: Graph, match: Match, *made: relay.Expr) -> relay.Call:
    """Return Relay's op for a match, of what its operands were made into."""
    done = dict(zip(match.operands(), made))
    size = shape_of(graph.nodes[match.data])[-1]

    def vector(number, otherwise):
        if number is None:
            dtype = graph.nodes[match.data].checked_type.dtype
            return to_constant(np.full(size, otherwise), dtype)
        operand = done[number]
        if isinstance(operand, relay.Constant):
            return to_constant(to_double(operand).reshape(size), operand.data.dtype)
        is_vector = shape_of(graph.nodes[number]) == (size,)
        return operand if is_vector else relay.reshape(operand, (size,))

    return relay.nn.layer_norm(
        done.get(match.data, graph.nodes[match.data]),
        vector(match.gamma, 1),
        vector(match.beta, 0),
        axis=-1,
        epsilon=match.epsilon,
        center=match.beta is not None,
        scale=match.gamma is not None,
    )


def fold_layer_norm(func: relay.Function, rules: Rules) -> tuple[relay.Function, Counter]:
    """Replace layer normalizations that are written out by Relay's op.

    Parameters
    ----------
    func : relay.Function
        A typed function.
    rules : Rules
        The policy: its rules decide whether oneDNN runs the op.

    Returns
    -------
    func : relay.Function
        The same where there is nothing to replace.
    folded : Counter
        By op: the calls that have gone.
    """
    graph = Graph(func)
    reader = LayerNormReader(graph)
    found = {}
    folded: Counter = Counter()
    taken: set[int] = set()
    # From the results to the inputs: with the factor and the summand before without.
    for root in reversed(range(len(graph.nodes))):
        if root in taken or op_name(graph.nodes[root]) not in ("add", "multiply", "divide"):
            continue
        match = reader.read(root)
        inside = None if match is None else reader.inside(root, match)
        if inside is None or not taken.isdisjoint(inside):
            continue
        names = Counter(op_name(graph.nodes[i]) for i in inside)
        if rules.excludes(*names) or not _is_accepted(graph, root, match, rules):
            continue
        found[root] = match.operands(), partial(_call, graph, match)
        taken.update(inside)
        folded += names
    return graph.replace(found), folded


def _is_accepted(graph: Graph, root: int, match: Match, rules: Rules) -> bool:
    """Whether oneDNN runs Relay's op in the place of a match."""
    operands = [graph.nodes[i] for i in match.operands()]
    operands = [
        expr if isinstance(expr, relay.Constant) else relay.var("operand", expr.checked_type)
        for expr in operands
    ]
    call = _call(graph, match, *operands)
    func = relay.Function(relay.analysis.free_vars(call), call)
    call = transform.InferType()(tvm.IRModule.from_expr(func))["main"].body
    same = graph.nodes[match.data].checked_type == graph.nodes[root].checked_type
    return same and rules.refusal(call) is None
