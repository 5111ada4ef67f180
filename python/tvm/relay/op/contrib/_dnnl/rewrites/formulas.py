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
"""Functions of one element as exporters write them: several Relay ops for one of oneDNN's.

A formula has many spellings: either order of operands, constants on any of its factors, a division
or a product with the inverse. So a call is not compared with patterns of ops. It is read as
arithmetic instead: constants are peeled off of it and multiplied, polynomials are expanded, and
the numbers that result are compared with those of the formula.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from tvm import relay

from ..ir.constants import to_double
from ..ir.dataflow_graph import Graph
from ..policy import cpu
from ..policy.tensors import op_name

# Two or three constants, each rounded, and their product: the largest relative error.
ROUNDING = {"float32": 5 * 2.0**-24, "float16": 3 * 2.0**-11, "bfloat16": 3 * 2.0**-8 / 2}

# No formula is nested deeper than this.
MAX_DEPTH = 8

SQRT_2_OVER_PI = math.sqrt(2 / math.pi)


class Formula(NamedTuple):
    """An op of oneDNN that a call computes.

    Parameters
    ----------
    name : str
        The op, such as "dnnl.swish".
    data : int
        Its operand, by its number in the graph.
    attrs : dict[str, float]
        The parameters of the op, as oneDNN names them.
    """

    name: str
    data: int
    attrs: dict[str, float] = {}


class FormulaReader:
    """Finds out which formula a call of a graph computes.

    Parameters
    ----------
    graph : Graph
        The typed function.
    """

    def __init__(self, graph: Graph):
        self.graph = graph
        self._names: dict[int, str | None] = {}
        self._scalars: dict[int, float | None] = {}
        self._rounding = ROUNDING["float32"]

    def formulas(self, root: int) -> Iterator[Formula]:
        """Yield the formulas that the call `root` may be read as, the best first."""
        rules = {
            "multiply": (self._product, self._hard_sigmoid),
            "divide": (self._product, self._quotient, self._hard_sigmoid),
            "clip": (self._hard_sigmoid,),
            "add": (self._elu,),
            "subtract": (self._elu, self._difference),
            "power": (self._power,),
            "log": (self._softplus,),
        }
        if self._op(root) not in rules:
            return
        dtype = self.graph.nodes[root].checked_type.dtype
        self._rounding = ROUNDING.get(dtype, ROUNDING["float32"])
        for rule in rules[self._op(root)]:
            yield from rule(root)

    def _close(self, found: float, wanted: float) -> bool:
        """Whether two constants are equal but for their rounding."""
        return abs(found - wanted) <= self._rounding * abs(wanted)

    # Reading the graph.

    def _op(self, i: int) -> str | None:
        if i not in self._names:
            self._names[i] = op_name(self.graph.nodes[i])
        return self._names[i]

    def _args(self, i: int) -> list[int]:
        return self.graph.children[i]

    def _scalar(self, i: int) -> float | None:
        """Return the value of a constant of one real number, else None."""
        if i not in self._scalars:
            expr, value = self.graph.nodes[i], None
            if isinstance(expr, relay.Constant) and expr.data.dtype in cpu.REAL:
                if math.prod(expr.data.shape) == 1:
                    value = float(to_double(expr).reshape(()))
                    value = value if math.isfinite(value) else None
            self._scalars[i] = value
        return self._scalars[i]

    def _is(self, i: int, name: str, data: int) -> bool:
        """Whether `i` is the op `name` of `data`."""
        return self._op(i) == name and self._args(i) == [data]

    def _clip(self, i: int) -> tuple[int, float, float] | None:
        """Read a clip as (operand, lower bound, upper bound)."""
        if self._op(i) != "clip":
            return None
        attrs = self.graph.nodes[i].attrs
        return self._args(i)[0], float(attrs.a_min), float(attrs.a_max)

    def _peel(self, i: int) -> Iterator[tuple[float, float, int]]:
        """Yield (a, b, x) with i = a * x + b for constants a and b, the outermost x first."""
        a, b = 1.0, 0.0
        for _ in range(MAX_DEPTH):
            yield a, b, i
            op, args = self._op(i), self._args(i)
            if op == "negative":
                a, i = -a, args[0]
                continue
            if op not in ("add", "subtract", "multiply", "divide"):
                return
            left, right = (self._scalar(arg) for arg in args)
            if (left is None) == (right is None) or (op == "divide" and right in (None, 0.0)):
                return
            constant, i = (left, args[1]) if right is None else (right, args[0])
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

    def _polynomial(self, i: int, x: int, depth: int = MAX_DEPTH) -> dict[int, float] | None:
        """Read `i` as a polynomial in `x`: the coefficients that are not zero, by power."""
        if i == x:
            return {1: 1.0}
        constant = self._scalar(i)
        if constant is not None:
            return {0: constant} if constant else {}
        op = self._op(i)
        if depth == 0 or op not in ("add", "subtract", "multiply", "divide", "negative", "power"):
            return None
        parts = []
        for arg in self._args(i):
            parts.append(self._polynomial(arg, x, depth - 1))
            if parts[-1] is None:
                return None
        return _combine(op, *parts)

    def _proportional(self, i: int, x: int) -> float | None:
        """Return a if i = a * x for a constant a other than zero."""
        found = self._polynomial(i, x)
        return found[1] if found is not None and list(found) == [1] else None

    # The rules: each yields the formulas that a call computes.

    def _product(self, root: int) -> Iterator[Formula]:
        """Read a * x * f(x)."""
        for a, b, product in self._peel(root):
            if b:
                return
            if self._op(product) != "multiply":
                continue
            left, right = self._args(product)
            for data, factor in ((left, right), (right, left)):
                for c, d, x in self._peel(data):
                    if d:
                        break
                    yield from self._gated(a * c, x, factor)

    def _gated(self, scale: float, x: int, factor: int) -> Iterator[Formula]:
        """Read scale * x * factor, where the factor is a function of x."""
        for a, b, inner in self._peel(factor):
            op, a, b = self._op(inner), a * scale, b * scale
            if op == "erf" and self._close(a, 0.5) and self._close(b, 0.5):
                slope = self._proportional(self._args(inner)[0], x)
                if slope is not None and self._close(slope, math.sqrt(0.5)):
                    yield Formula("dnnl.gelu_erf", x)
            elif op == "tanh" and self._close(a, 0.5) and self._close(b, 0.5):
                found = self._polynomial(self._args(inner)[0], x)
                if (
                    found is not None
                    and sorted(found) == [1, 3]
                    and self._close(found[1], SQRT_2_OVER_PI)
                    and self._close(found[3], 0.044715 * SQRT_2_OVER_PI)
                ):
                    yield Formula("dnnl.gelu_tanh", x)
            elif op == "tanh" and self._close(a, 1.0) and not b:
                if self._is_softplus(self._args(inner)[0], x):
                    yield Formula("dnnl.mish", x)
            elif op == "sigmoid" and self._close(a, 1.0) and not b:
                slope = self._proportional(self._args(inner)[0], x)
                if slope is not None:
                    yield Formula("dnnl.swish", x, {"alpha": slope})
            elif op == "clip" and not b:
                bounded, low, high = self._clip(inner)
                found = self._polynomial(bounded, x)
                if found is None or not set(found) <= {0, 1} or 1 not in found:
                    continue
                if low == 0.0 and self._close(a * high, 1.0):
                    alpha, beta = a * found[1], a * found.get(0, 0.0)
                    yield Formula("dnnl.hard_swish", x, {"alpha": alpha, "beta": beta})

    def _is_softplus(self, i: int, x: int) -> bool:
        """Whether `i` is log(1 + exp(x))."""
        if self._op(i) != "log":
            return False
        return any(
            self._close(a, 1.0) and self._close(b, 1.0) and self._is(inner, "exp", x)
            for a, b, inner in self._peel(self._args(i)[0])
        )

    def _softplus(self, root: int) -> Iterator[Formula]:
        """Read log(1 + exp(x))."""
        for _, _, inner in self._peel(self._args(root)[0]):
            if self._op(inner) == "exp" and self._is_softplus(root, self._args(inner)[0]):
                yield Formula("dnnl.softplus", self._args(inner)[0])

    def _hard_sigmoid(self, root: int) -> Iterator[Formula]:
        """Read clip(a * x + b, 0, 1), or the same with another upper bound, divided by it."""
        for scale, shift, inner in self._peel(root):
            if shift:
                return
            if self._op(inner) != "clip":
                continue
            bounded, low, high = self._clip(inner)
            if low != 0.0 or not self._close(scale * high, 1.0):
                return
            # Without a shift it is no more than a clip.
            found = [
                Formula("dnnl.hard_sigmoid", x, {"alpha": scale * a, "beta": scale * b})
                for a, b, x in self._peel(bounded)
                if b and self._scalar(x) is None
            ]
            yield from reversed(found)

    def _quotient(self, root: int) -> Iterator[Formula]:
        """Read x / (1 + exp(-a * x)), 1 / sqrt(x) and a / x."""
        data, divisor = self._args(root)
        constant = self._scalar(data)
        if constant is None:
            for a, b, inner in self._peel(divisor):
                if self._close(a, 1.0) and self._close(b, 1.0) and self._op(inner) == "exp":
                    slope = self._proportional(self._args(inner)[0], data)
                    if slope is not None:
                        yield Formula("dnnl.swish", data, {"alpha": -slope})
        elif self._scalar(divisor) is None:
            if constant == 1.0 and self._op(divisor) == "sqrt":
                yield Formula("dnnl.rsqrt", self._args(divisor)[0])
            yield Formula("dnnl.pow", divisor, {"alpha": constant, "beta": -1.0})

    def _difference(self, root: int) -> Iterator[Formula]:
        """Read b - x."""
        constant, data = self._scalar(self._args(root)[0]), self._args(root)[1]
        if constant is not None and self._scalar(data) is None:
            yield Formula("dnnl.linear", data, {"alpha": -1.0, "beta": constant})

    def _power(self, root: int) -> Iterator[Formula]:
        """Read x to the power of a constant."""
        data, constant = self._args(root)[0], self._scalar(self._args(root)[1])
        if constant is not None and self._scalar(data) is None:
            yield Formula("dnnl.pow", data, {"alpha": 1.0, "beta": constant})

    def _elu(self, root: int) -> Iterator[Formula]:
        """Read relu(x) - a * relu(1 - exp(x))."""
        left, right = self._args(root)
        sign = -1.0 if self._op(root) == "subtract" else 1.0
        for positive, negative in ((left, right), (right, left))[: 1 if sign < 0 else 2]:
            if self._op(positive) != "nn.relu":
                continue
            x = self._args(positive)[0]
            for a, b, inner in self._peel(negative):
                if b or self._op(inner) != "nn.relu":
                    continue
                if any(
                    self._close(c, -1.0) and self._close(d, 1.0) and self._is(e, "exp", x)
                    for c, d, e in self._peel(self._args(inner)[0])
                ):
                    yield Formula("dnnl.elu", x, {"alpha": -sign * a})


def _combine(op: str, *parts: dict[int, float]) -> dict[int, float] | None:
    """Apply an op to polynomials; None if the result is none."""
    if op == "negative":
        found = {power: -value for power, value in parts[0].items()}
    elif op in ("add", "subtract"):
        sign = 1.0 if op == "add" else -1.0
        found = dict(parts[0])
        for power, value in parts[1].items():
            found[power] = found.get(power, 0.0) + sign * value
    elif op == "multiply":
        found = _multiply(*parts)
    elif list(parts[1]) != [0]:
        return None
    elif op == "divide":
        found = {power: value / parts[1][0] for power, value in parts[0].items()}
    else:
        exponent = parts[1][0]
        if exponent not in (2.0, 3.0):
            return None
        found = parts[0]
        for _ in range(int(exponent) - 1):
            found = _multiply(found, parts[0])
    return {power: value for power, value in found.items() if value}


def _multiply(left: dict[int, float], right: dict[int, float]) -> dict[int, float]:
    found: dict[int, float] = {}
    for i, a in left.items():
        for j, b in right.items():
            found[i + j] = found.get(i + j, 0.0) + a * b
    return found
