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
"""The activation functions of ONNX's recurrent ops."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import relax


@dataclass(frozen=True)
class Activation:
    """An activation function and its parameters.

    Attributes
    ----------
    name : str
        The name in lower case, such as "sigmoid".
    alpha, beta : float | None
        The parameters, None where the function has none.
    """

    name: str
    alpha: float | None = None
    beta: float | None = None

    def __call__(self, bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        """Emit the function of a tensor."""
        return bb.emit(_FUNCTIONS[self.name](x, self))


def read_activations(attr: dict, default: tuple[str, ...], directions: int, refuse):
    """Read `activations`, `activation_alpha` and `activation_beta` of a node.

    The parameters are consumed in the order of the functions, by those that have parameters.

    Parameters
    ----------
    attr : dict
        The attributes of the node.
    default : tuple[str, ...]
        The functions of one direction without the attribute.
    directions : int
        The number of directions.
    refuse : Callable[[str], Exception]
        Returns the error to raise for a message.

    Returns
    -------
    activations : list[tuple[Activation, ...]]
        The functions of each direction.
    """
    names = [name.decode().lower() for name in attr.get("activations", ())]
    names = names or [*default] * directions
    if len(names) != len(default) * directions:
        count = len(default) * directions
        raise refuse(f"activations has {len(names)} functions, not {count}")
    given = {key: iter(attr.get(f"activation_{key}", ())) for key in ("alpha", "beta")}
    result = []
    for name in names:
        if name not in _FUNCTIONS:
            raise refuse(f"the activation {name} is not supported")
        values = {}
        for key, value in _PARAMETERS.get(name, {}).items():
            values[key] = next(given[key], value)
            if values[key] is None:
                raise refuse(f"activation_{key} has no value for the activation {name}")
        result.append(Activation(name, **values))
    return [tuple(result[k : k + len(default)]) for k in range(0, len(result), len(default))]


#: The parameters of functions with their defaults, those of the ONNX op of the same name. Affine
#: and ScaledTanh are no ONNX ops and have no defaults.
_PARAMETERS = {
    "affine": {"alpha": None, "beta": None},
    "elu": {"alpha": 1.0},
    "hardsigmoid": {"alpha": 0.2, "beta": 0.5},
    "leakyrelu": {"alpha": 0.01},
    "scaledtanh": {"alpha": None, "beta": None},
    "thresholdedrelu": {"alpha": 1.0},
}


def _const(value, x):
    return relax.const(value, x.ty.dtype)


def _affine(x, f):
    return relax.op.add(relax.op.multiply(x, _const(f.alpha, x)), _const(f.beta, x))


def _elu(x, f):
    # exp may overflow where the other term is read: relu is zero there.
    negative = relax.op.nn.relu(relax.op.subtract(_const(1.0, x), relax.op.exp(x)))
    return relax.op.add(relax.op.multiply(_const(-f.alpha, x), negative), relax.op.nn.relu(x))


def _scaled_tanh(x, f):
    return relax.op.multiply(
        relax.op.tanh(relax.op.multiply(x, _const(f.beta, x))), _const(f.alpha, x)
    )


def _softsign(x, _):
    return relax.op.divide(x, relax.op.add(relax.op.abs(x), _const(1.0, x)))


def _thresholded_relu(x, f):
    return relax.op.where(relax.op.greater(x, _const(f.alpha, x)), x, _const(0.0, x))


_FUNCTIONS = {
    "affine": _affine,
    "elu": _elu,
    "hardsigmoid": lambda x, f: relax.op.clip(_affine(x, f), 0, 1),
    "leakyrelu": lambda x, f: relax.op.nn.leakyrelu(x, f.alpha),
    "relu": lambda x, _: relax.op.nn.relu(x),
    "scaledtanh": _scaled_tanh,
    "sigmoid": lambda x, _: relax.op.sigmoid(x),
    "softplus": lambda x, _: relax.op.nn.softplus(x),
    "softsign": _softsign,
    "tanh": lambda x, _: relax.op.tanh(x),
    "thresholdedrelu": _thresholded_relu,
}
