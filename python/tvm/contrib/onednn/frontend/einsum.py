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
"""Writes Einsum as matmuls, which oneDNN runs; both importers compute it by loops of TVM."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .node_info import NodeInfo


@dataclass(frozen=True)
class _Operand:
    """A value, and the label of each of its axes."""

    name: str
    labels: str


def einsum(node: NodeInfo):
    """Contract the operands from left to right; None for a node that stays.

    That is one of integers, of a diagonal, or of axes that are broadcast by their label.
    """
    if not node.has_type(0) or node.dtype(0).kind != "f":
        return None
    terms, result = _labelled(node)
    sizes: dict[str, set] = {}
    for number, labels in enumerate(terms):
        for label, size in zip(labels, node.shape(number), strict=True):
            sizes.setdefault(label, set()).add(size)
    is_broadcast = any(len(each - {None}) > 1 for each in sizes.values())
    if is_broadcast or any(len({*labels}) < len(labels) for labels in (*terms, result)):
        return None
    body = _Body(node, {label for label, each in sizes.items() if each == {None}})
    operands = [_Operand(f"x{k}", labels) for k, labels in enumerate(terms)]
    value = body.reduced(operands[0], "".join([*terms[1:], result]))
    for number, other in enumerate(operands[1:], 2):
        kept = "".join([*terms[number:], result])
        value = body.contracted(value, body.reduced(other, value.labels + kept), kept)
    last = body.transposed(value, result)
    nodes = [*body.nodes, f"y0 = Identity({last.name})"]
    return node.body(" ".join(nodes), **body.constants)


def _labelled(node: NodeInfo) -> tuple[list[str], str]:
    """Return the labels of the operands and of the result, without ellipses."""
    equation = node.text("equation").replace(" ", "")
    left, arrow, result = equation.partition("->")
    terms, ranks = left.split(","), [len(node.shape(k)) for k in range(len(node.names))]
    node.require(len(terms) == len(ranks), f"equation {equation} of {len(ranks)} operands")
    spans = [rank - len(each.replace("...", "")) for each, rank in zip(terms, ranks)]
    # Letters that an equation cannot have stand for the axes of an ellipsis.
    free = [chr(code) for code in range(0x100, 0x100 + max(spans, default=0))]
    for number, (term, span) in enumerate(zip(terms, spans)):
        node.require(span >= 0 and ("..." in term or not span), f"equation {equation}")
        terms[number] = term.replace("...", "".join(free[len(free) - span :]))
    if not arrow:
        letters = [each for each in left if each.isalpha()]
        result = "..." + "".join(sorted(each for each in {*letters} if letters.count(each) == 1))
    return terms, result.replace("...", "".join(free) if "..." in left else "")


class _Body:
    """The nodes that are written, in the order in which they run."""

    def __init__(self, node: NodeInfo, open_labels: set[str]):
        self.nodes: list[str] = []
        self.constants: dict[str, np.ndarray] = {}
        self._node, self._open_labels = node, open_labels

    def _add(self, call: str) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(f"{name} = {call}")
        return name

    def _vector(self, values) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.array([*values], "int64")
        return name

    def transposed(self, value: _Operand, labels: str) -> _Operand:
        """Return a value with its axes in another order."""
        if value.labels == labels:
            return value
        order = [value.labels.index(each) for each in labels]
        return _Operand(self._add(f"Transpose <perm = {order}> ({value.name})"), labels)

    def reduced(self, value: _Operand, kept: str) -> _Operand:
        """Sum the axes whose labels are in nothing else."""
        axes = [k for k, each in enumerate(value.labels) if each not in kept]
        if not axes:
            return value
        labels = "".join(each for each in value.labels if each in kept)
        call = self._node.reduced("ReduceSum", value.name, axes, self._vector(axes), keepdims=0)
        return _Operand(self._add(call), labels)

    def contracted(self, left: _Operand, right: _Operand, kept: str) -> _Operand:
        """Multiply two values, and sum the axes of both whose labels are not kept."""
        shared = [each for each in left.labels if each in right.labels]
        batch = "".join(each for each in shared if each in kept)
        inner = "".join(each for each in shared if each not in kept)
        rows = "".join(each for each in left.labels if each not in shared)
        columns = "".join(each for each in right.labels if each not in shared)
        if not inner:
            left = self.transposed(left, batch + rows)
            right = self.transposed(right, batch + columns)
            a = self._expanded(left, range(len(left.labels), len(left.labels) + len(columns)))
            b = self._expanded(right, range(len(batch), len(batch) + len(rows)))
            return _Operand(self._add(f"Mul({a}, {b})"), batch + rows + columns)
        a = self._matrices(self.transposed(left, batch + rows + inner), batch, rows, inner)
        b = self._matrices(self.transposed(right, batch + inner + columns), batch, inner, columns)
        # Relay has no code for a dense layer of an open width.
        is_dense = not batch and not self._open_labels.isdisjoint(columns)
        if is_dense:
            a, b = (self._expanded(_Operand(each, ""), range(1)) for each in (a, b))
        product = self._add(f"MatMul({a}, {b})")
        if is_dense or len(rows) != 1 or len(columns) != 1:
            parts = [self._sizes(left, batch + rows), self._sizes(right, columns)]
            product = self._reshaped(product, parts)
        return _Operand(product, batch + rows + columns)

    def _expanded(self, value: _Operand, axes: range) -> str:
        """Return a value with new axes of size 1."""
        if not axes:
            return value.name
        if self._node.opset < 13:
            return self._add(f"Unsqueeze <axes = {[*axes]}> ({value.name})")
        return self._add(f"Unsqueeze({value.name}, {self._vector(axes)})")

    def _matrices(self, value: _Operand, batch: str, first: str, second: str) -> str:
        """Return a value with one axis for the first and one for the second labels."""
        if len(first) == len(second) == 1:
            return value.name
        ends = [
            self._sizes(value, each) if len(each) == 1 else self._vector([1 if not each else -1])
            for each in (first, second)
        ]
        if len(first) > 1 and len(second) > 1:
            ends[1] = self._product(value, second)
        return self._reshaped(value.name, [self._sizes(value, batch), *ends])

    def _reshaped(self, name: str, parts: list[str]) -> str:
        """Reshape to the sizes of several vectors; an empty name has none."""
        parts = [each for each in parts if each]
        shape = self._add(f"Concat <axis = 0> ({', '.join(parts)})") if parts else self._vector([])
        return self._add(f"Reshape({name}, {shape})")

    def _sizes(self, value: _Operand, labels: str) -> str:
        """Return the sizes of axes as a vector."""
        if not labels:
            return ""
        shape = self._add(f"Shape({value.name})")
        axes = self._vector(value.labels.index(each) for each in labels)
        return self._add(f"Gather <axis = 0> ({shape}, {axes})")

    def _product(self, value: _Operand, labels: str) -> str:
        sizes = self._sizes(value, labels)
        return self._add(self._node.reduced("ReduceProd", sizes, [0], self._vector([0])))
