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
"""Finds the ops of a layer, an instance or a root mean square normalization in a graph.

The first is (x - mean(x)) / sqrt(mean((x - mean(x)) ** 2) + epsilon) * gamma + beta along the last
axis, the second the same along all axes after that of the channels. The factor and the summand may
be missing, and each step may be written in another way.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from ..ir.numbered import Graph


class Normalization(NamedTuple):
    """A normalization, its operands by their numbers in the graph."""

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

    # The last ops of one: the summand, the factor, or what divides by the root.
    roots = ("add", "multiply", "divide")
    # The axis of the data that factors and summands lie along.
    axis = -1

    def __init__(self, graph: Graph):
        self.graph = graph

    def read(self, root: int) -> Normalization | None:
        """Read the call `root` as a normalization, with all of factor and summand in it."""
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
        """Whether an operand has one value for each item of the axis."""
        shape, out = self.graph.result(i).shape, self.graph.result(data).shape
        if None in shape or not 0 < len(shape) <= len(out):
            return False
        shape = (1,) * (len(out) - len(shape)) + shape
        return shape[self.axis] == out[self.axis] == math.prod(shape)

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
        if self.graph.ops[i] == "variance":
            return self._variance(i) == data
        square = self._mean(i)
        if square is None:
            return False
        operands = self.graph.operands[square]
        if self.graph.ops[square] == "power" and self.graph.scalar(operands[1]) == 2.0:
            return self._centred(operands[0]) == data
        if self.graph.ops[square] == "dnnl.pow":
            attrs = self.graph.views[square].attrs
            is_square = (attrs.alpha, attrs.beta) == (1.0, 2.0)
            return is_square and self._centred(operands[0]) == data
        if self.graph.ops[square] == "multiply":
            return all(self._centred(operand) == data for operand in operands)
        return False

    def _variance(self, i: int) -> int | None:
        """Read Relay's op of x and its mean, all of it divided by the number of elements."""
        data, mean = self.graph.operands[i]
        if self.graph.views[i].attrs.unbiased or self._mean(mean) != data:
            return None
        return data if self._is_along(i, data) else None

    def _centred(self, i: int) -> int | None:
        """Read x - mean(x), and return x."""
        if self.graph.ops[i] != "subtract":
            return None
        data, mean = self.graph.operands[i]
        return data if self._mean(mean) == data else None

    def _mean(self, i: int) -> int | None:
        """Read a mean of what is normalized together, of which the axes are kept."""
        if self.graph.ops[i] != "mean":
            return None
        data = self.graph.operands[i][0]
        return data if self._is_along(i, data) else None

    def _is_along(self, i: int, data: int) -> bool:
        """Whether a reduction of data is along the axes of what is normalized, which are kept."""
        attrs, shape = self.graph.views[i].attrs, self.graph.result(data).shape
        axes = sorted(int(axis) % len(shape) for axis in attrs.axis or ())
        is_all = axes and axes == self._axes(len(shape)) and shape[self.axis] is not None
        return is_all and attrs.keepdims and not attrs.exclude

    def _axes(self, rank: int) -> list[int]:
        """Return the axes of what is normalized together, for data of a rank."""
        return [rank - 1]


class InstanceNormReader(LayerNormReader):
    """Finds normalizations of each channel of each image; the channels are axis 1."""

    axis = 1

    def _axes(self, rank: int) -> list[int]:
        return list(range(2, rank))

    def _mean(self, i: int) -> int | None:
        if self.graph.ops[i] != "nn.global_avg_pool2d":
            return super()._mean(i)
        return self.graph.operands[i][0] if self.graph.views[i].attrs.layout == "NCHW" else None


class RMSNormReader(LayerNormReader):
    """Reads normalizations of data that is not centred."""

    # They have no summand.
    roots = ("multiply", "divide")

    def _centred(self, i: int) -> int | None:
        return i

    def _variance(self, i: int) -> int | None:
        return None

    def read(self, root: int) -> Normalization | None:
        """Read the call `root`, with the factor in it if there is one."""
        return self._scaled(root)
