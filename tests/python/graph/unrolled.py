# SPDX-License-Identifier: Apache-2.0
"""Builds recurrent layers step by step, as importers unroll them."""

import numpy as np

RANDOM = np.random.default_rng(0)
GATES = {"lstm": 4, "gru": 3, "rnn": 1}


class Unrolled:
    """Appends the ops of a layer to a graph.

    Parameters
    ----------
    r : Reader
        What appends them.
    kind : str
        "lstm", "gru" or "rnn".
    inputs, hidden : int
        Its sizes.
    is_one_matmul : bool
        Whether one matmul multiplies the input and the state, side by side.
    is_sliced : bool
        Whether the gates are slices, not fields of a split.
    is_linear : bool
        Whether the reset gate of a GRU is applied after the matmul.
    is_convex : bool
        Whether the state of a GRU is ``u * h + (1 - u) * n``.
    activation : str
        That of an RNN, or of the candidate.
    has_bias : bool
        Whether there are biases.
    is_hoisted : bool
        Whether what `run` is given are positions of `product`.
    changed : dict
        By step: what is done to the weight there.
    gate_op : callable
        What is done to each gate before its activation.
    """

    def __init__(
        self,
        r,
        kind,
        inputs,
        hidden,
        is_one_matmul=False,
        is_sliced=False,
        is_linear=True,
        is_convex=False,
        activation="tanh",
        has_bias=True,
        is_hoisted=False,
        changed=(),
        gate_op=None,
    ):
        self.r, self.kind, self.hidden = r, kind, hidden
        self.is_one_matmul, self.is_sliced, self.is_linear = is_one_matmul, is_sliced, is_linear
        self.is_convex, self.activation, self.has_bias = is_convex, activation, has_bias
        self.is_hoisted = is_hoisted
        self.changed, self.gate_op = dict(changed), gate_op or (lambda node, last: node)
        rows = GATES[kind] * hidden
        self.weights = [RANDOM.standard_normal((rows, size)) / 2 for size in (inputs, hidden)]
        self.biases = [RANDOM.standard_normal(rows) / 2 for _ in range(2)]

    def product(self, x):
        """Return the product of the inputs of all steps, with the bias of the input."""
        return self._biased(self._dense(None, x, self.weights[0]), self.biases[0])

    def run(self, parts, *states):
        """Return the states of all steps: a list for h, one for c of an LSTM."""
        sequences = [[] for _ in states]
        for k, x in enumerate(parts):
            states = getattr(self, f"_{self.kind}")(k, x, *states)
            for sequence, state in zip(sequences, states):
                sequence.append(state)
        return sequences

    def _dense(self, k, data, weight):
        # Importers make the constants of each step anew.
        return self.r.call("nn.dense", data, self.r.constant(self.changed.get(k, 1) * weight))

    def _biased(self, node, bias):
        return self.r.call("add", node, self.r.constant(bias)) if self.has_bias else node

    def _gates(self, node, count):
        if not self.is_sliced:
            split = self.r.call("split", node, indices_or_sections=count, axis=-1)
            return [self.r.field(split, i) for i in range(count)]
        ends = [[i * self.hidden, (i + 1) * self.hidden] for i in range(count)]
        attrs = dict(strides=[1], axes=[1], slice_mode="end")
        return [
            self.r.call("strided_slice", node, begin=[begin], end=[end], **attrs)
            for begin, end in ends
        ]

    def _sums(self, k, x, h):
        """Return the products of the input and of the state, with their biases."""
        if self.is_hoisted:
            return x, self._biased(self._dense(k, h, self.weights[1]), self.biases[1])
        data, state = (self._dense(k, each, w) for each, w in zip((x, h), self.weights))
        return self._biased(data, self.biases[0]), self._biased(state, self.biases[1])

    def _lstm(self, k, x, h, c):
        call = self.r.call
        if self.is_one_matmul:
            both = call("concatenate", self.r.tuple(x, h), axis=1)
            gates = self._dense(k, both, np.concatenate(self.weights, axis=1))
            for bias in self.biases:
                gates = self._biased(gates, bias)
        else:
            gates = call("add", *self._sums(k, x, h)[::-1])
        i, f, g, o = (self.gate_op(gate, c) for gate in self._gates(gates, 4))
        i, f, o = (call("sigmoid", each) for each in (i, f, o))
        added = call("multiply", i, call(self.activation, g))
        c = call("add", call("multiply", f, c), added)
        return call("multiply", o, call("tanh", c)), c

    def _gru(self, k, x, h):
        call = self.r.call
        data, state = self._sums(k, x, h)
        (x_r, x_u, x_n), (h_r, h_u, h_n) = (self._gates(each, 3) for each in (data, state))
        reset = call("sigmoid", self.gate_op(call("add", x_r, h_r), h))
        u = call("sigmoid", self.gate_op(call("add", h_u, x_u), h))
        if self.is_linear:
            h_n = call("multiply", reset, h_n)
        else:
            weight, bias = self.weights[1][-self.hidden :], self.biases[1][-self.hidden :]
            h_n = self._biased(self._dense(k, call("multiply", reset, h), weight), bias)
        n = call(self.activation, call("add", x_n, h_n))
        if self.is_convex:
            rest = call("subtract", self.r.constant(1.0), u)
            return [call("add", call("multiply", rest, n), call("multiply", u, h))]
        return [call("add", call("multiply", call("subtract", h, n), u), n)]

    def _rnn(self, k, x, h):
        data, state = self._sums(k, x, h)
        return [self.r.call(self.activation, self.gate_op(self.r.call("add", data, state), h))]


def positions(r, x, how="split"):
    """Return the positions of a sequence, as importers read them."""
    steps = x.type.dims[0]
    if how == "take":
        return [
            r.call("take", x, r.constant(k, "int64"), axis=0, mode="clip") for k in range(steps)
        ]
    if how == "split":
        split = r.call("split", x, indices_or_sections=steps, axis=0)
        rows = [r.field(split, k) for k in range(steps)]
    else:
        attrs = dict(strides=[1], axes=[0], slice_mode="end")
        rows = [r.call("strided_slice", x, begin=[k], end=[k + 1], **attrs) for k in range(steps)]
    return [r.call("squeeze", row, axis=[0]) for row in rows]
