# SPDX-License-Identifier: Apache-2.0
"""The row of an op: how its operands and attributes are drawn, and how it is built."""

from collections.abc import Callable
from typing import NamedTuple

from tvm import relay


class Row(NamedTuple):
    """All that the generator knows about an op.

    Attributes
    ----------
    name : str
        The Relay op, the virtual op or the composite.
    draw : callable
        Takes a Draw; returns the operands and the attributes, or raises Unfit.
    build : callable
        Takes a Builder, the operands as tensors and the attributes by name; returns the expression.
    weight : int
        How often it is drawn, compared with the others.
    """

    name: str
    draw: Callable
    build: Callable
    weight: int = 2


def one(draw):
    """Draw one operand and no attributes."""
    return [draw.data(range(1 - draw.edges, 9))], {}


def op(name):
    """Return Relay's function that makes a call of an op."""
    function = relay
    for part in name.split("."):
        function = getattr(function, part)
    return function


def bounded(x, limit=4.0):
    """Keep a tensor in bounds, so that what is computed from it stays finite."""
    return relay.clip(x.expr, -limit, limit)


def positive(builder, x):
    """Return a tensor whose values are positive and not small."""
    return relay.abs(x.expr) + builder.scalar(0.25 if "float" in x.dtype else 1, x)
