# SPDX-License-Identifier: Apache-2.0
"""Matmuls of two tensors of a graph."""

from tvm import relay

from ..row import Row, bounded

UNITS = (1, 3, 8, 16, 17, 32)


def _draw_batch_matmul(draw):
    x = draw.data([3])
    tensor = draw.tensor(x)
    flags = dict(transpose_a=draw.chance(0.3), transpose_b=draw.chance(0.7))
    inner = tensor.shape[1 if flags["transpose_a"] else 2]

    def fits(other):
        same = other.shape[0] == tensor.shape[0] or 1 in (other.shape[0], tensor.shape[0])
        return same and other.shape[2 if flags["transpose_b"] else 1] == inner

    if draw.chance(0.5):
        return [x, draw.data([3], where=fits)], flags
    batch = draw.choice([1, tensor.shape[0]])
    return [x], dict(units=draw.choice(UNITS), batch=batch, **flags)


def _batch_matmul(b, x, y=None, *, transpose_a, transpose_b, units=0, batch=1):
    inner = x.shape[1] if transpose_a else x.shape[2]
    if y is None:
        shape = [batch, units, inner] if transpose_b else [batch, inner, units]
        other = b.param(shape, fan_in=inner)
    else:
        # One factor is bounded, or products of products would overflow.
        other = relay.tanh(y.expr)
    return relay.nn.batch_matmul(x.expr, other, transpose_a=transpose_a, transpose_b=transpose_b)


def _draw_attention(draw):
    return [draw.data([3])], {name: draw.chance(0.5) for name in ("masked", "merged")}


def _attention(b, x, masked, merged):
    """Let heads attend to themselves, with scores of rank 4 if batch and heads are merged."""
    (heads, length, _), data = x.shape, bounded(x)
    scores = relay.nn.batch_matmul(data, data)
    if merged:
        scores = relay.reshape(scores, (1, heads, length, length))
    scores = scores * b.scalar(0.25)
    if masked:
        scores = scores + b.param([length])
    weights = relay.nn.softmax(scores)
    if not merged:
        return relay.nn.batch_matmul(weights, data, transpose_b=False)
    weights = relay.reshape(weights, (heads, length, length))
    result = relay.nn.batch_matmul(weights, data, transpose_b=False)
    return relay.reshape(result, (1, *x.shape))


ROWS = (
    Row("dnnl.attention", _draw_attention, _attention),
    Row("nn.batch_matmul", _draw_batch_matmul, _batch_matmul, 5),
)
