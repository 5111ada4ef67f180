# SPDX-License-Identifier: Apache-2.0
"""Formulas of several Relay ops that oneDNN has as one, in the spellings of exporters."""

import math

import numpy as np
from tvm import relay


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def erf(x):
    return np.vectorize(math.erf)(x)


def gelu(x):
    return 0.5 * x * (1 + erf(x / np.sqrt(2)))


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def hard_swish(x):
    return x * np.clip(x / 6 + 0.5, 0, 1)


def hard_sigmoid(x):
    return np.clip(x / 6 + 0.5, 0, 1)


def relay_sqrt2(x, c):
    return relay.erf(x / c(math.sqrt(2)))


def cubic(x, c):
    return c(math.sqrt(2 / math.pi)) * (x + c(0.044715) * relay.power(x, c(3.0)))


def softplus(x, c):
    return relay.log(c(1.0) + relay.exp(x))


def elu_tail(x, c):
    return relay.nn.relu(c(1.0) - relay.exp(x))


# By name: the virtual op, the expression of an operand and of what makes a constant, and numpy's.
FORMULAS = {
    # As the importers of ONNX and PyTorch, and the exporters of PyTorch write them.
    "gelu-onnx": ("gelu_erf", lambda x, c: (c(0.5) * x) * (c(1.0) + relay_sqrt2(x, c)), gelu),
    "gelu-torch": (
        "gelu_erf",
        lambda x, c: x * (c(0.5) + relay.erf(x * c(0.5**0.5)) * c(0.5)),
        gelu,
    ),
    "gelu-exported": ("gelu_erf", lambda x, c: x * (relay_sqrt2(x, c) + c(1.0)) * c(0.5), gelu),
    "gelu-half-first": ("gelu_erf", lambda x, c: c(0.5) * (x * (c(1.0) + relay_sqrt2(x, c))), gelu),
    "gelu-divided": ("gelu_erf", lambda x, c: (x * (c(1.0) + relay_sqrt2(x, c))) / c(2.0), gelu),
    "gelu-factor-first": (
        "gelu_erf",
        lambda x, c: (relay_sqrt2(x, c) + c(1.0)) * (x * c(0.5)),
        gelu,
    ),
    "fast-gelu-onnx": (
        "gelu_tanh",
        lambda x, c: (
            (c(0.5) * x)
            * (
                c(1.0)
                + relay.tanh(
                    c(math.sqrt(2 / math.pi)) * x
                    + c(0.044715 * math.sqrt(2 / math.pi)) * relay.power(x, c(3.0))
                )
            )
        ),
        gelu_tanh,
    ),
    "gelu-new": (
        "gelu_tanh",
        lambda x, c: c(0.5) * x * (c(1.0) + relay.tanh(cubic(x, c))),
        gelu_tanh,
    ),
    "gelu-new-products": (
        "gelu_tanh",
        lambda x, c: (
            c(0.5) * x * (c(1.0) + relay.tanh(x * c(0.7978845608) * (c(1.0) + c(0.044715) * x * x)))
        ),
        gelu_tanh,
    ),
    "silu": ("swish", lambda x, c: x * relay.sigmoid(x), lambda x: x * sigmoid(x)),
    "silu-swapped": ("swish", lambda x, c: relay.sigmoid(x) * x, lambda x: x * sigmoid(x)),
    "quick-gelu": (
        "swish",
        lambda x, c: x * relay.sigmoid(c(1.702) * x),
        lambda x: x * sigmoid(1.702 * x),
    ),
    "silu-quotient": (
        "swish",
        lambda x, c: x / (c(1.0) + relay.exp(relay.negative(x))),
        lambda x: x * sigmoid(x),
    ),
    "hard-swish-onnx": (
        "hard_swish",
        lambda x, c: x * relay.clip(x * c(1 / 6) + c(0.5), 0, 1),
        hard_swish,
    ),
    "hard-swish-torch": (
        "hard_swish",
        lambda x, c: x * (relay.clip(x + c(3.0), 0.0, 6.0) / c(6.0)),
        hard_swish,
    ),
    "hard-swish-exported": (
        "hard_swish",
        lambda x, c: (x * relay.clip(x + c(3.0), 0.0, 6.0)) / c(6.0),
        hard_swish,
    ),
    "hard-swish-sixth": (
        "hard_swish",
        lambda x, c: c(1 / 6) * (relay.clip(c(3.0) + x, 0.0, 6.0) * x),
        hard_swish,
    ),
    "hard-swish-other": (
        "hard_swish",
        lambda x, c: x * relay.clip(x * c(0.2) + c(0.4), 0, 1),
        lambda x: x * np.clip(x * 0.2 + 0.4, 0, 1),
    ),
    "hard-sigmoid-onnx": (
        "hard_sigmoid",
        lambda x, c: relay.clip(x * c(0.2) + c(0.5), 0, 1),
        lambda x: np.clip(x * 0.2 + 0.5, 0, 1),
    ),
    "hard-sigmoid-torch": (
        "hard_sigmoid",
        lambda x, c: relay.clip(x + c(3.0), 0.0, 6.0) / c(6.0),
        hard_sigmoid,
    ),
    "hard-sigmoid-minus": (
        "hard_sigmoid",
        lambda x, c: relay.clip(x - c(-3.0), 0.0, 6.0) * c(1 / 6),
        hard_sigmoid,
    ),
    "softplus": ("softplus", softplus, lambda x: np.log1p(np.exp(x))),
    "mish": (
        "mish",
        lambda x, c: x * relay.tanh(softplus(x, c)),
        lambda x: x * np.tanh(np.log1p(np.exp(x))),
    ),
    "elu-onnx": (
        "elu",
        lambda x, c: c(-0.7) * elu_tail(x, c) + relay.nn.relu(x),
        lambda x: np.where(x > 0, x, 0.7 * np.expm1(np.minimum(x, 0))),
    ),
    "elu-difference": (
        "elu",
        lambda x, c: relay.nn.relu(x) - elu_tail(x, c),
        lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    ),
    "rsqrt": ("rsqrt", lambda x, c: c(1.0) / relay.sqrt(x), lambda x: 1 / np.sqrt(x)),
    "reciprocal": ("pow", lambda x, c: c(2.5) / x, lambda x: 2.5 / x),
    "square": ("pow", lambda x, c: relay.power(x, c(2.0)), lambda x: x**2),
    "root": ("pow", lambda x, c: relay.power(x, c(0.5)), np.sqrt),
    "cube": ("pow", lambda x, c: relay.power(x, c(3.0)), lambda x: x**3),
    "fraction": ("pow", lambda x, c: relay.power(x, c(0.7)), lambda x: x ** np.float64(0.7)),
    "difference": ("linear", lambda x, c: c(2.5) - x, lambda x: 2.5 - x),
}
