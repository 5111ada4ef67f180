# SPDX-License-Identifier: Apache-2.0
"""Binary elementwise ops, with every kind of second operand."""

from tvm import relay

from ..draw import ANY
from ..row import Row, op, positive


def _mask(draw, rank):
    """Choose the axes along which a parameter varies; the others are broadcast."""
    kind = draw.choice(["full", "axis", "axis", "scalar", "last", "any"])
    if kind == "axis":
        axis = draw.choice([0, 1, 1, 1, rank - 1]) % rank
        return tuple(int(i == axis) for i in range(rank))
    if kind == "last":
        axis = draw.integer(0, rank - 1)
        return tuple(int(i >= axis) for i in range(rank))
    if kind == "any":
        return tuple(draw.integer(0, 1) for _ in range(rank))
    return (int(kind == "full"),) * rank


def _draw(draw):
    x = draw.data(range(1 - draw.edges, 9), dtypes=ANY)
    tensor = draw.tensor(x)
    swapped = draw.chance(0.4)
    if tensor.dtype != "float32" or draw.chance(0.55):
        # A second tensor: a residual, a gate, or one that is broadcast.
        def fits(other):
            pairs = zip(reversed(tensor.shape), reversed(other.shape))
            return other.rank <= tensor.rank and all(b in (a, 1) for a, b in pairs)

        return [x, draw.data(dtypes=(tensor.dtype,), where=fits)], dict(swapped=swapped)
    mask = _mask(draw, tensor.rank)
    # Leading dimensions of one may be left out.
    cut = draw.choice([0, next((i for i, full in enumerate(mask) if full), tensor.rank)])
    return [x], dict(swapped=swapped, mask=mask, cut=cut)


def _binary(name, second=lambda b, y: y.expr):
    def build(b, x, y=None, *, swapped, mask=(), cut=0):
        if y is None:
            shape = [dim if full else 1 for dim, full in zip(x.shape, mask)][cut:]
            y = x._replace(expr=b.param(shape))
            relay.transform.InferTypeLocal(y.expr)
        first, other = (y, x) if swapped else (x, y)
        return op(name)(first.expr, second(b, other))

    return Row(name, _draw, build, 4)


def _draw_comparison(draw):
    # Of what is computed the last bit may decide.
    x = draw.data(inputs_only=True)
    tensor = draw.tensor(x)
    return [x], dict(swapped=draw.chance(0.4), mask=_mask(draw, tensor.rank))


def _comparison(name):
    return Row(name, _draw_comparison, _binary(name).build, 1)


def _draw_extremum(draw):
    x = draw.data()
    return [x], dict(swapped=draw.chance(0.4), mask=_mask(draw, draw.tensor(x).rank))


def _extremum(name):
    """An extremum that is NaN where an operand is, as importers of ONNX write it."""

    def build(b, x, mask, swapped):
        y = b.param([dim if full else 1 for dim, full in zip(x.shape, mask)])
        operands = (y, x.expr) if swapped else (x.expr, y)
        result = op(name)(*operands)
        for each in operands:
            result = relay.where(relay.isnan(each), each, result)
        return result

    return Row(f"dnnl.nan_{name}", _draw_extremum, build, 1)


def _draw_where(draw):
    # Of what is computed the last bit may decide.
    x = draw.data(inputs_only=True)
    return [x], dict(mask=_mask(draw, draw.tensor(x).rank), swapped=draw.chance(0.5))


def _where(b, x, mask, swapped):
    y = b.param([dim if full else 1 for dim, full in zip(x.shape, mask)])
    x_y = (y, x.expr) if swapped else (x.expr, y)
    return relay.where(relay.greater(x.expr, y), *x_y)


ROWS = (
    Row("where", _draw_where, _where),
    _comparison("equal"),
    _comparison("not_equal"),
    _comparison("less"),
    _comparison("less_equal"),
    _comparison("greater"),
    _comparison("greater_equal"),
    _binary("add")._replace(weight=8),
    _binary("subtract"),
    # One factor is bounded, or products of products would overflow.
    _binary("multiply", lambda b, y: relay.clip(y.expr, -2.0, 2.0)),
    _binary("divide", positive),
    _binary("maximum"),
    _binary("minimum"),
    _extremum("maximum"),
    _extremum("minimum"),
)
