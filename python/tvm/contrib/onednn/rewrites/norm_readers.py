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
"""Matches layer, instance and root mean square normalization.

The first is (x - mean(x)) / sqrt(mean((x - mean(x)) ** 2) + epsilon) * gamma + beta along the last
axis, the second the same along all axes after that of the channels. The factor and the summand may
be missing, and each step may be written in another way.
"""

from __future__ import annotations

from typing import NamedTuple

from ..ir.match import has_name, orders, scalar_of
from ..ir.node import Node
from ..ops.tensors import known_product


class Normalization(NamedTuple):
    """A normalization and its operands."""

    data: Node
    epsilon: float
    gamma: Node | None
    beta: Node | None

    def operands(self) -> list[Node]:
        """Return the operands that it has."""
        return [each for each in (self.data, self.gamma, self.beta) if each is not None]


class LayerNormReader:
    """Matches layer normalization."""

    # The last ops of one: the summand, the factor, or what divides by the root.
    roots: tuple[str, ...] = ("add", "multiply", "divide")
    # The axis of the data that factors and summands lie along.
    axis = -1

    def read(self, root: Node) -> Normalization | None:
        """Match a normalization that ends in `root`, with its scale and shift."""
        for core, operand in orders(root, "add"):
            norm = self._scaled(core)
            if norm is not None and self._is_vector(operand, norm.data):
                return norm._replace(beta=operand)
        return self._scaled(root)

    def _is_vector(self, node: Node, data: Node) -> bool:
        """Whether an operand has one value for each item of the axis."""
        shape, out = node.tensor.shape, data.tensor.shape
        if None in shape or not 0 < len(shape) <= len(out):
            return False
        shape = (1,) * (len(out) - len(shape)) + shape
        return None not in shape and shape[self.axis] == out[self.axis] == known_product(shape)

    def _scaled(self, node: Node) -> Normalization | None:
        """Match a normalization, perhaps followed by a scale."""
        for core, operand in orders(node, "multiply"):
            norm = self._normal(core)
            if norm is not None and self._is_vector(operand, norm.data):
                return norm._replace(gamma=operand)
        return self._normal(node)

    def _normal(self, node: Node) -> Normalization | None:
        """Read (x - mean) / sqrt(variance + epsilon)."""
        pairs = orders(node, "multiply")
        if has_name(node, "divide"):
            pairs = [(node.operands[0], node.operands[1])]
        for centred, factor in pairs:
            data = self._centred(centred)
            if data is None:
                continue
            radicand = self._radicand(factor, is_inverse=has_name(node, "multiply"))
            epsilon = None if radicand is None else self._epsilon(radicand, data)
            if epsilon is not None:
                return Normalization(data, epsilon, None, None)
        return None

    def _radicand(self, node: Node, is_inverse: bool) -> Node | None:
        """Read a square root, or one divided by it."""
        if is_inverse and has_name(node, "divide"):
            numerator, node = node.operands
            if scalar_of(numerator) != 1.0:
                return None
            is_inverse = False
        if has_name(node, "rsqrt" if is_inverse else "sqrt"):
            return node.operands[0]
        if has_name(node, "power"):
            base, exponent = node.operands
            return base if scalar_of(exponent) == (-0.5 if is_inverse else 0.5) else None
        return None

    def _epsilon(self, node: Node, data: Node) -> float | None:
        """Read the variance of the data plus a constant."""
        for variance, constant in orders(node, "add"):
            epsilon = scalar_of(constant)
            if epsilon is not None and self._is_variance(variance, data):
                return epsilon
        return None

    def _is_variance(self, node: Node, data: Node) -> bool:
        if has_name(node, "variance"):
            return self._variance(node) == data
        square = self._mean(node)
        if square is None:
            return False
        operands = square.operands
        if has_name(square, "power") and scalar_of(operands[1]) == 2.0:
            return self._centred(operands[0]) == data
        if has_name(square, "dnnl.pow"):
            attrs = square.attrs
            is_square = (attrs.alpha, attrs.beta) == (1.0, 2.0)
            return is_square and self._centred(operands[0]) == data
        if has_name(square, "multiply"):
            return all(self._centred(operand) == data for operand in operands)
        return False

    def _variance(self, node: Node) -> Node | None:
        """Read Relay's op of x and its mean, all of it divided by the number of elements."""
        data, mean = node.operands
        if node.attrs.unbiased or self._mean(mean) != data:
            return None
        return data if self._is_along(node, data) else None

    def _centred(self, node: Node) -> Node | None:
        """Read x - mean(x), and return x."""
        if not has_name(node, "subtract"):
            return None
        data, mean = node.operands
        return data if self._mean(mean) == data else None

    def _mean(self, node: Node) -> Node | None:
        """Read a mean of what is normalized together, of which the axes are kept."""
        if not has_name(node, "mean"):
            return None
        data = node.operands[0]
        return data if self._is_along(node, data) else None

    def _is_along(self, node: Node, data: Node) -> bool:
        """Whether a reduction of data is along the axes of what is normalized, which are kept."""
        attrs, shape = node.attrs, data.tensor.shape
        axes = sorted(int(axis) % len(shape) for axis in attrs.axis or ())
        is_all = axes and axes == self._axes(len(shape)) and shape[self.axis] is not None
        return bool(is_all and attrs.keepdims and not attrs.exclude)

    def _axes(self, rank: int) -> list[int]:
        """Return the axes of what is normalized together, for data of a rank."""
        return [rank - 1]


class InstanceNormReader(LayerNormReader):
    """Matches instance normalization; the channels are axis 1."""

    axis = 1

    def _axes(self, rank: int) -> list[int]:
        return list(range(2, rank))

    def _mean(self, node: Node) -> Node | None:
        if not has_name(node, "nn.global_avg_pool2d"):
            return super()._mean(node)
        return node.operands[0] if node.attrs.layout == "NCHW" else None


class RMSNormReader(LayerNormReader):
    """Matches root mean square normalization."""

    # They have no summand.
    roots = ("multiply", "divide")

    def _centred(self, node: Node) -> Node | None:
        return node

    def _variance(self, node: Node) -> Node | None:
        return None

    def read(self, root: Node) -> Normalization | None:
        """Read the call `root`, with the factor in it if there is one."""
        return self._scaled(root)
