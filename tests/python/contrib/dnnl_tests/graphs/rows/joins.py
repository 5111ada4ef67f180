# SPDX-License-Identifier: Apache-2.0
"""Ops that join several tensors of a graph."""

from tvm import relay

from ..draw import REAL
from ..row import Row


def _draw_concatenate(draw):
    x = draw.data(dtypes=REAL + ("bfloat16",))
    tensor = draw.tensor(x)
    axis = draw.choice([min(1, tensor.rank - 1), draw.integer(0, tensor.rank - 1)])

    def fits(other):
        pairs = enumerate(zip(tensor.shape, other.shape))
        return other.rank == tensor.rank and all(i == axis or a == b for i, (a, b) in pairs)

    count = draw.integer(1, 3)
    others = [draw.data(dtypes=(tensor.dtype,), where=fits) for _ in range(count)]
    return [x, *others], dict(axis=draw.choice([axis, axis - tensor.rank]))


def _draw_stack(draw):
    x = draw.data(range(1, 6))
    tensor = draw.tensor(x)
    others = [draw.data(where=lambda other: other.shape == tensor.shape) for _ in "ab"]
    axis = draw.integer(0, tensor.rank)
    return [x, *others[: draw.integer(1, 2)]], dict(axis=axis)


ROWS = (
    Row(
        "concatenate",
        _draw_concatenate,
        lambda b, *xs, axis: relay.concatenate([x.expr for x in xs], axis),
        6,
    ),
    Row("stack", _draw_stack, lambda b, *xs, axis: relay.stack([x.expr for x in xs], axis), 1),
)
