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
"""Compares and collects the weights of the steps of an unrolled recurrent layer."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from typing import NamedTuple, Optional

import numpy as np

from ..ir.node import Node
from ..ops.recurrent import LSTM
from .recurrent_steps import Gate, Product, Step, is_same

# An operand of the weight of the input, and `Product.sequence`.
Input = tuple[Node, Optional[Node]]


class Initial(NamedTuple):
    """The states that a layer begins with.

    Parameters
    ----------
    h : Node | None
        None for zeros.
    c : Node | None
        Of an LSTM.
    """

    h: Node | None
    c: Node | None

    @property
    def is_zero(self) -> bool:
        """Whether all states are zero."""
        return all(state is None or (state.is_constant and not state.value.any()) for state in self)

    def states(self, name: str) -> list[Node]:
        """Return the initial states of a layer."""
        return [self.h, self.c] if name == LSTM else [self.h]


class FirstStep(NamedTuple):
    """The operands of a layer's first step.

    Parameters
    ----------
    inputs : list[Input]
        Its input, in parts.
    initial : Initial
        The states.
    """

    inputs: list[Input]
    initial: Initial


class _GateParts(NamedTuple):
    """A gate, of which it is known what is multiplied by the state.

    Parameters
    ----------
    inputs : list[Product]
        The products of the parts of the input; none for the part of a GRU's candidate that is
        multiplied by the reset gate.
    state : Product
        The product of the state.
    gate : Gate
        The gate.
    """

    inputs: list[Product]
    state: Product
    gate: Gate


class Signature(NamedTuple):
    """The properties that all steps but the first share, and the input of one.

    Parameters
    ----------
    key : Hashable
        Equal for the steps of a layer.
    inputs : list[Input]
        The input, in parts.
    parts : list[_GateParts]
        The gates; that of a linear reset is the last.
    """

    key: Hashable
    inputs: list[Input]
    parts: list[_GateParts]

    def arrays(self) -> list[np.ndarray] | None:
        """Return the weight, the recurrent weight and the bias of a layer; None if it has none."""
        weights, recurrent, biases = [], [], []
        for part in self.parts:
            if part.inputs:
                weights.append(np.concatenate([_value(each) for each in part.inputs], axis=1))
                recurrent.append(_value(part.state))
            biases.append(_bias(part.gate))
        if any(len(each) != 1 for each in biases):
            return None
        dtype = weights[0].dtype
        matrices = [np.concatenate(each)[None].astype(dtype) for each in (weights, recurrent)]
        return [*matrices, np.concatenate(biases, axis=1).astype("float32")]


class Weights:
    """Compares constants by value, as importers duplicate them for each step."""

    def __init__(self):
        self._digests: dict[Node, bytes] = {}

    def of(self, gate: Gate) -> frozenset:
        """Return the weights of a gate."""
        return frozenset(self._key(each) for each in gate.products if each.weight is not None)

    def signature(self, step: Step, last_h: Node) -> Signature | None:
        """Return what a step reads, of which the state of the last one is known."""
        parts = []
        for k, gate in enumerate(step.gates):
            is_reset = step.reset_state is not None and k == len(step.gates) - 1
            state = step.reset_state if is_reset else last_h
            own = [each for each in gate.products if each.operand is state]
            others = [each for each in gate.products if each.operand is not state]
            if len(own) != 1:
                return None
            parts.append(_GateParts(others, own[0], gate))
        if step.reset_gate is not None:
            linear = step.reset_gate
            if [each.operand for each in linear.products] != [last_h]:
                return None
            # The candidate has the product of the input only.
            last = parts.pop()
            parts.append(_GateParts(last.inputs, linear.products[0], last.gate))
            parts.append(_GateParts([], linear.products[0], linear))
        inputs = [_input(each) for each in parts[0].inputs]
        gates = [part for part in parts if part.inputs]
        if not inputs or len(gates) != len(step.gates):
            return None
        for part in parts:
            products = [*part.inputs, part.state]
            hidden = step.h.tensor.dims[-1]
            shape = _shape(part.state)
            if any(each.weight is None for each in products) or shape != (hidden, hidden):
                return None
            if part.inputs and [_input(each) for each in part.inputs] != inputs:
                return None
        key = (
            step.name,
            step.activation,
            step.reset_gate is None,
            tuple(self._gate_key(part) for part in parts),
        )
        return Signature(key, inputs, parts)

    def first(self, step: Step, signature: Signature) -> FirstStep | None:
        """Return what the first step of a layer reads, of which constants may have been folded."""
        gates = list(step.gates)
        if (step.reset_gate is None) != (len(signature.parts) == len(gates)):
            return None
        gates += [step.reset_gate] if step.reset_gate is not None else []
        inputs, states, folded = [], [], []
        for k, (gate, part) in enumerate(zip(gates, signature.parts)):
            wanted = [self._key(each) for each in part.inputs]
            given = {self._key(each): each for each in gate.products if each.weight is not None}
            if any(key not in given for key in wanted):
                return None
            operands = [_input(given.pop(key)) for key in wanted]
            if wanted:
                inputs.append(operands)
            identities = [each.operand for each in gate.products if each.weight is None]
            is_reset = step.reset_state is not None and k == len(step.gates) - 1
            is_linear = is_reset and step.reset_gate is not None
            if identities != ([step.reset_state] if is_linear else []):
                return None
            if not given and not is_linear:
                folded.append((gate, part))
                continue
            if not np.array_equal(_bias(gate), _bias(part.gate)):
                return None
            if is_linear:
                continue
            if list(given) != [self._key(part.state)]:
                return None
            (product,) = given.values()
            if not is_reset:
                states.append(product.operand)
            elif product.operand is not step.reset_state:
                return None
        if any(each != inputs[0] for each in inputs):
            return None
        h = step.last_h if step.last_h is not None else (states[0] if states else None)
        if any(not is_same(state, h) for state in states):
            return None
        value = None
        if h is not None and h.is_constant:
            value = h.value.reshape(h.tensor.shape[-2:]).astype("float64")
        if folded and h is not None and value is None:
            return None
        initial = Initial(h, step.last_c)
        if h is None and not initial.is_zero:
            return None
        if all(_is_folded(gate, part, value) for gate, part in folded):
            return FirstStep(inputs[0], initial)
        return None

    def _gate_key(self, part: _GateParts) -> Hashable:
        products = tuple(self._key(each) for each in [*part.inputs, part.state])
        biases = tuple(
            (self._digest(node), where.start, where.stop) for node, where in part.gate.biases
        )
        return products, biases

    def _key(self, product: Product) -> Hashable:
        rows, columns = product.rows, product.columns
        digest = self._digest(product.weight)
        return digest, rows.start, rows.stop, columns.start, columns.stop

    def _digest(self, constant: Node) -> bytes:
        if constant not in self._digests:
            value = np.ascontiguousarray(constant.value)
            description = f"{value.shape} {constant.tensor.dtype}".encode()
            self._digests[constant] = hashlib.sha256(description + value.tobytes()).digest()
        return self._digests[constant]


def _input(product: Product) -> Input:
    return product.operand, product.sequence


def _shape(product: Product) -> tuple[int, int]:
    rows, columns = product.rows, product.columns
    return rows.stop - rows.start, columns.stop - columns.start


def _value(product: Product) -> np.ndarray:
    return product.weight.value[product.rows, product.columns]


def _bias(gate: Gate) -> np.ndarray:
    """Return the sum of the biases of a gate, of shape (sequences, width), or (1, width)."""
    total = np.zeros((1, gate.width))
    for node, where in gate.biases:
        total = total + node.value.reshape(-1, node.tensor.shape[-1])[:, where].astype("float64")
    return total if (total != total[:1]).any() else total[:1]


def _is_folded(gate: Gate, part: _GateParts, state: np.ndarray | None) -> bool:
    """Whether the constants of a first step are those of the others and the product of a state."""
    wanted = _bias(part.gate)
    scale = 1.0 + abs(wanted)
    if state is not None:
        weight = _value(part.state).astype("float64")
        wanted = wanted + state @ weight.T
        scale = scale + abs(state) @ abs(weight.T)
    return bool((abs(_bias(gate) - wanted) <= 1e-5 * scale).all())
