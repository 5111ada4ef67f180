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
"""Matches unary elementwise functions that exporters write as several ops.

A formula has many spellings: either order of operands, constants on any of its factors, a division
or a product with the inverse. So a call is not compared with patterns of ops. It is read as
arithmetic instead: constants are peeled off of it and multiplied, polynomials are expanded, and
the numbers that result are compared with those of the formula.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from ..ir.match import has_name, orders, scalar_of
from ..ir.node import Node
from ..ir.op_view import Tensor
from .compute_in_float32 import dtype_in_model

# Two or three constants, each rounded, and their product: the largest relative error.
ROUNDING = {"float32": 5 * 2.0**-24, "float16": 3 * 2.0**-11, "bfloat16": 3 * 2.0**-8 / 2}

# No formula is nested deeper than this.
MAX_DEPTH = 8

# The ops of polynomials.
_ARITHMETIC = ("add", "subtract", "multiply", "divide", "negative", "power")

SQRT_2_OVER_PI = math.sqrt(2 / math.pi)


class Formula(NamedTuple):
    """An op of oneDNN that a call computes.

    Parameters
    ----------
    name : str
        The op, such as "dnnl.swish".
    data : Node
        Its operand.
    attrs : dict[str, float]
        The parameters of the op, as oneDNN names them.
    """

    name: str
    data: Node
    attrs: dict[str, float] = {}


class FormulaReader:
    """Matches the formulas that a call computes.

    Parameters
    ----------
    root : Node
        The call, the last of the formula.
    """

    def __init__(self, root: Node):
        self._root = root
        self._rounding = ROUNDING.get(dtype_in_model(root), ROUNDING["float32"])

    def formulas(self) -> Iterator[Formula]:
        """Yield the formulas that the call may be read as, the best first."""
        if isinstance(self._root.type, Tensor):
            for rule in ROOTS[self._root.name]:
                yield from rule(self, self._root)

    def _close(self, value: float, wanted: float) -> bool:
        """Whether two constants are equal but for their rounding."""
        return abs(value - wanted) <= self._rounding * abs(wanted)

    # Reading the graph.

    def _clip(self, node: Node) -> tuple[Node, float, float] | None:
        """Read a clip as (operand, lower bound, upper bound)."""
        if not has_name(node, "clip"):
            return None
        return node.operands[0], node.attrs.a_min, node.attrs.a_max

    def _peel(self, node: Node) -> Iterator[tuple[float, float, Node]]:
        """Yield (a, b, x) with node = a * x + b for constants a and b, the outermost x first."""
        a, b = 1.0, 0.0
        for _ in range(MAX_DEPTH):
            yield a, b, node
            op, args = node.name, node.operands
            if has_name(node, "negative"):
                a, node = -a, args[0]
                continue
            if not has_name(node, "add", "subtract", "multiply", "divide"):
                return
            left, right = (scalar_of(arg) for arg in args)
            if (left is None) == (right is None) or (op == "divide" and right in (None, 0.0)):
                return
            constant, node = (left, args[1]) if right is None else (right, args[0])
            if op == "multiply":
                a *= constant
            elif op == "divide":
                a /= constant
            elif op == "add":
                b += a * constant
            elif right is None:
                a, b = -a, b + a * constant
            else:
                b -= a * constant

    def _polynomial(self, node: Node, x: Node, depth: int = MAX_DEPTH) -> dict[int, float] | None:
        """Read a node as a polynomial in `x`: the coefficients that are not zero, by power."""
        if node is x:
            return {1: 1.0}
        constant = scalar_of(node)
        if constant is not None:
            return {0: constant} if constant else {}
        if depth == 0 or not has_name(node, *_ARITHMETIC):
            return None
        parts = []
        for arg in node.operands:
            parts.append(self._polynomial(arg, x, depth - 1))
            if parts[-1] is None:
                return None
        return _combine(node.name, *parts)

    def _proportional(self, node: Node, x: Node) -> float | None:
        """Return a if node = a * x for a constant a other than zero."""
        terms = self._polynomial(node, x)
        return terms[1] if terms is not None and list(terms) == [1] else None

    # The rules: each yields the formulas that a call computes.

    def _product(self, root: Node) -> Iterator[Formula]:
        """Read a * x * f(x)."""
        for a, b, product in self._peel(root):
            if b:
                return
            for data, factor in orders(product, "multiply"):
                for c, d, x in self._peel(data):
                    if d:
                        break
                    yield from self._gated(a * c, x, factor)

    def _gated(self, scale: float, x: Node, factor: Node) -> Iterator[Formula]:
        """Read scale * x * factor, where the factor is a function of x."""
        for a, b, inner in self._peel(factor):
            op, a, b = inner.name, a * scale, b * scale
            if op == "erf" and self._close(a, 0.5) and self._close(b, 0.5):
                slope = self._proportional(inner.operands[0], x)
                if slope is not None and self._close(slope, math.sqrt(0.5)):
                    yield Formula("dnnl.gelu_erf", x)
            elif op == "tanh" and self._close(a, 0.5) and self._close(b, 0.5):
                terms = self._polynomial(inner.operands[0], x)
                if (
                    terms is not None
                    and sorted(terms) == [1, 3]
                    and self._close(terms[1], SQRT_2_OVER_PI)
                    and self._close(terms[3], 0.044715 * SQRT_2_OVER_PI)
                ):
                    yield Formula("dnnl.gelu_tanh", x)
            elif op == "tanh" and self._close(a, 1.0) and not b:
                if self._is_softplus(inner.operands[0], x):
                    yield Formula("dnnl.mish", x)
            elif op == "sigmoid" and self._close(a, 1.0) and not b:
                slope = self._proportional(inner.operands[0], x)
                if slope is not None:
                    yield Formula("dnnl.swish", x, {"alpha": slope})
            elif op == "clip" and not b:
                bounded, low, high = self._clip(inner)
                terms = self._polynomial(bounded, x)
                if terms is None or not set(terms) <= {0, 1} or 1 not in terms:
                    continue
                if low == 0.0 and self._close(a * high, 1.0):
                    alpha, beta = a * terms[1], a * terms.get(0, 0.0)
                    yield Formula("dnnl.hard_swish", x, {"alpha": alpha, "beta": beta})

    def _is_softplus(self, node: Node, x: Node) -> bool:
        """Whether a node is log(1 + exp(x))."""
        if not has_name(node, "log"):
            return False
        return any(
            self._close(a, 1.0) and self._close(b, 1.0) and _is_exp(inner, x)
            for a, b, inner in self._peel(node.operands[0])
        )

    def _softplus(self, root: Node) -> Iterator[Formula]:
        """Read log(1 + exp(x))."""
        for _, _, inner in self._peel(root.operands[0]):
            if has_name(inner, "exp") and self._is_softplus(root, inner.operands[0]):
                yield Formula("dnnl.softplus", inner.operands[0])

    def _hard_sigmoid(self, root: Node) -> Iterator[Formula]:
        """Read clip(a * x + b, 0, 1), or the same with another upper bound, divided by it."""
        for scale, shift, inner in self._peel(root):
            if shift:
                return
            if not has_name(inner, "clip"):
                continue
            bounded, low, high = self._clip(inner)
            if low != 0.0 or not self._close(scale * high, 1.0):
                return
            # Without a shift it is no more than a clip.
            formulas = [
                Formula("dnnl.hard_sigmoid", x, {"alpha": scale * a, "beta": scale * b})
                for a, b, x in self._peel(bounded)
                if b and scalar_of(x) is None
            ]
            yield from reversed(formulas)

    def _quotient(self, root: Node) -> Iterator[Formula]:
        """Read x / (1 + exp(-a * x)), 1 / sqrt(x) and a / x."""
        data, divisor = root.operands
        constant = scalar_of(data)
        if constant is None:
            for a, b, inner in self._peel(divisor):
                if self._close(a, 1.0) and self._close(b, 1.0) and has_name(inner, "exp"):
                    slope = self._proportional(inner.operands[0], data)
                    if slope is not None:
                        yield Formula("dnnl.swish", data, {"alpha": -slope})
        elif scalar_of(divisor) is None:
            if constant == 1.0 and has_name(divisor, "sqrt"):
                yield Formula("dnnl.rsqrt", divisor.operands[0])
            yield Formula("dnnl.pow", divisor, {"alpha": constant, "beta": -1.0})

    def _difference(self, root: Node) -> Iterator[Formula]:
        """Read b - x."""
        constant, data = scalar_of(root.operands[0]), root.operands[1]
        if constant is not None and scalar_of(data) is None:
            yield Formula("dnnl.linear", data, {"alpha": -1.0, "beta": constant})

    def _power(self, root: Node) -> Iterator[Formula]:
        """Read x to the power of a constant."""
        data, constant = root.operands[0], scalar_of(root.operands[1])
        if constant is not None and scalar_of(data) is None:
            yield Formula("dnnl.pow", data, {"alpha": 1.0, "beta": constant})

    def _elu(self, root: Node) -> Iterator[Formula]:
        """Read relu(x) - a * relu(1 - exp(x))."""
        left, right = root.operands
        sign = -1.0 if has_name(root, "subtract") else 1.0
        for positive, negative in ((left, right), (right, left))[: 1 if sign < 0 else 2]:
            if not has_name(positive, "nn.relu"):
                continue
            x = positive.operands[0]
            for a, b, inner in self._peel(negative):
                if b or not has_name(inner, "nn.relu"):
                    continue
                if any(
                    self._close(c, -1.0) and self._close(d, 1.0) and _is_exp(e, x)
                    for c, d, e in self._peel(inner.operands[0])
                ):
                    yield Formula("dnnl.elu", x, {"alpha": -sign * a})


def _is_exp(node: Node, x: Node) -> bool:
    return has_name(node, "exp") and node.operands == [x]


# By op: what a formula may be that ends in it.
ROOTS = {
    "multiply": (FormulaReader._product, FormulaReader._hard_sigmoid),
    "divide": (FormulaReader._product, FormulaReader._quotient, FormulaReader._hard_sigmoid),
    "clip": (FormulaReader._hard_sigmoid,),
    "add": (FormulaReader._elu,),
    "subtract": (FormulaReader._elu, FormulaReader._difference),
    "power": (FormulaReader._power,),
    "log": (FormulaReader._softplus,),
}


def _combine(op: str, *parts: dict[int, float]) -> dict[int, float] | None:
    """Apply an op to polynomials; None if the result is none."""
    if op == "negative":
        terms = {power: -value for power, value in parts[0].items()}
    elif op in ("add", "subtract"):
        sign = 1.0 if op == "add" else -1.0
        terms = dict(parts[0])
        for power, value in parts[1].items():
            terms[power] = terms.get(power, 0.0) + sign * value
    elif op == "multiply":
        terms = _multiply(*parts)
    elif list(parts[1]) != [0]:
        return None
    elif op == "divide":
        terms = {power: value / parts[1][0] for power, value in parts[0].items()}
    else:
        exponent = parts[1][0]
        if exponent not in (2.0, 3.0):
            return None
        terms = parts[0]
        for _ in range(int(exponent) - 1):
            terms = _multiply(terms, parts[0])
    return {power: value for power, value in terms.items() if value}


def _multiply(left: dict[int, float], right: dict[int, float]) -> dict[int, float]:
    terms: dict[int, float] = {}
    for i, a in left.items():
        for j, b in right.items():
            terms[i + j] = terms.get(i + j, 0.0) + a * b
    return terms
