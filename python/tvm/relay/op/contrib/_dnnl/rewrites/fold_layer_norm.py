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
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
from tvm import relay

from ..ir.constants import to_constant, to_double
from ..ir.dataflow_graph import DataflowGraph, Rewritten, TypedFunction
from ..ir.relay_view import shape_of
from ..policy.op_spec import Rules
from .driver import Match, rewrite


class Normalization(NamedTuple):
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
    graph : DataflowGraph
        A typed function.
    """

    def __init__(self, graph: DataflowGraph):
        self.graph = graph

    def read(self, root: int) -> Normalization | None:
        """Read the call `root` as a layer normalization, with all of factor and summand in it."""
        for core, operand in self._sides(root, "add"):
            norm = self._scaled(core)
            if norm is not None and self._is_vector(operand, norm.data):
                return norm._replace(beta=operand)
        return self._scaled(root)

    def _sides(self, i: int, *names: str) -> list[tuple[int, int]]:
        """Return the operands of a call of one of these ops of two, in both orders."""
        if self.graph.ops[i] not in names:
            return []
        left, right = self.graph.operands[i]
        return [(left, right), (right, left)]

    def _is_vector(self, i: int, data: int) -> bool:
        """Whether an operand has one value for each element of the last axis of the data."""
        size = shape_of(self.graph.nodes[data])[-1]
        shape = shape_of(self.graph.nodes[i])
        rank = len(shape_of(self.graph.nodes[data]))
        if None in shape or not 0 < len(shape) <= rank:
            return False
        return shape[-1] == size == math.prod(shape)

    def _scaled(self, i: int) -> Normalization | None:
        """Read a normalization that a factor may follow."""
        for core, operand in self._sides(i, "multiply"):
            norm = self._normal(core)
            if norm is not None and self._is_vector(operand, norm.data):
                return norm._replace(gamma=operand)
        return self._normal(i)

    def _normal(self, i: int) -> Normalization | None:
        """Read (x - mean) / sqrt(variance + epsilon)."""
        pairs = self._sides(i, "multiply")
        if self.graph.ops[i] == "divide":
            pairs = [tuple(self.graph.operands[i])]
        for centred, factor in pairs:
            data = self._centred(centred)
            if data is None:
                continue
            radicand = self._radicand(factor, is_inverse=self.graph.ops[i] == "multiply")
            epsilon = None if radicand is None else self._epsilon(radicand, data)
            if epsilon is not None:
                return Normalization(data, epsilon, None, None)
        return None

    def _radicand(self, i: int, is_inverse: bool) -> int | None:
        """Read a square root, or one divided by it."""
        if is_inverse and self.graph.ops[i] == "divide":
            numerator, i = self.graph.operands[i]
            if self.graph.scalar(numerator) != 1.0:
                return None
            is_inverse = False
        if self.graph.ops[i] == ("rsqrt" if is_inverse else "sqrt"):
            return self.graph.operands[i][0]
        if self.graph.ops[i] == "power":
            base, exponent = self.graph.operands[i]
            return base if self.graph.scalar(exponent) == (-0.5 if is_inverse else 0.5) else None
        return None

    def _epsilon(self, i: int, data: int) -> float | None:
        """Read the variance of the data plus a constant."""
        for variance, constant in self._sides(i, "add"):
            epsilon = self.graph.scalar(constant)
            if epsilon is not None and self._is_variance(variance, data):
                return epsilon
        return None

    def _is_variance(self, i: int, data: int) -> bool:
        square = self._mean(i)
        if square is None:
            return False
        operands = self.graph.operands[square]
        if self.graph.ops[square] == "power" and self.graph.scalar(operands[1]) == 2.0:
            return self._centred(operands[0]) == data
        if self.graph.ops[square] == "multiply":
            return all(self._centred(operand) == data for operand in operands)
        return False

    def _centred(self, i: int) -> int | None:
        """Read x - mean(x), and return x."""
        if self.graph.ops[i] != "subtract":
            return None
        data, mean = self.graph.operands[i]
        return data if self._mean(mean) == data else None

    def _mean(self, i: int) -> int | None:
        """Read a mean along the last axis, which is kept."""
        if self.graph.ops[i] != "mean":
            return None
        attrs, data = self.graph.nodes[i].attrs, self.graph.operands[i][0]
        shape = shape_of(self.graph.nodes[data])
        rank = len(shape)
        axes = [int(axis) % rank for axis in attrs.axis or ()]
        kept = attrs.keepdims and not attrs.exclude
        is_last = axes == [rank - 1] and shape[-1] is not None
        return data if kept and is_last else None


def _layer_norm(graph: DataflowGraph, norm: Normalization, *operands: relay.Expr) -> relay.Call:
    """Return Relay's op for a normalization, of what its operands have become."""
    done = dict(zip(norm.operands(), operands))
    size = shape_of(graph.nodes[norm.data])[-1]

    def vector(number, otherwise):
        if number is None:
            dtype = graph.nodes[norm.data].checked_type.dtype
            return to_constant(np.full(size, otherwise), dtype)
        operand = done[number]
        if isinstance(operand, relay.Constant):
            return to_constant(to_double(operand).reshape(size), operand.data.dtype)
        is_vector = shape_of(graph.nodes[number]) == (size,)
        return operand if is_vector else relay.reshape(operand, (size,))

    return relay.nn.layer_norm(
        done[norm.data],
        vector(norm.gamma, 1),
        vector(norm.beta, 0),
        axis=-1,
        epsilon=norm.epsilon,
        center=norm.beta is not None,
        scale=norm.gamma is not None,
    )


def fold_layer_norm(function: TypedFunction, rules: Rules) -> Rewritten:
    """Replace layer normalizations that are written out by Relay's op."""
    return rewrite(function, rules, _find)


def _find(graph: DataflowGraph, rules: Rules, calls_of: Callable) -> Iterator[Match]:
    reader = LayerNormReader(graph)
    # The last op comes first: with the factor and the summand before without.
    for root in calls_of("add", "multiply", "divide"):
        norm = reader.read(root)
        if norm is not None:
            operands = norm.operands()
            group = graph.closed_group(root, operands)
            yield Match(group, operands, partial(_layer_norm, graph, norm), folded=group or ())
