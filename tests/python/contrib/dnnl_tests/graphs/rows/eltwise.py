# SPDX-License-Identifier: Apache-2.0
"""Casts, ops that stay on TVM, and functions of several ops in the spellings of exporters."""

import math

from tvm import relay

from .. import formulas
from ..draw import ANY
from ..row import Row, bounded, one, positive


def _draw_cast(draw):
    # A float that is cast to an integer jumps, so that only inputs are.
    if draw.chance(0.15):
        return [draw.data(inputs_only=True)], dict(dtype="int32")
    x = draw.data(dtypes=ANY + ("bool",))
    return [x], dict(dtype=draw.choice(["float32", "bfloat16"]))


def _cast(b, x, dtype):
    return relay.cast(x.expr, b.real if dtype == "float32" else dtype)


def _power(b, x, number):
    # An integer exponent takes any data, and only then do negative values have a result.
    if number == round(number) and number > 0:
        return relay.power(bounded(x), b.scalar(number))
    return relay.power(positive(b, x), b.scalar(number))


def _draw_rms_norm(draw):
    x = draw.data(range(1, 6))
    return [x], dict(
        spelling=draw.integer(0, 2), epsilon=draw.choice([1e-5, 0.1]), factor=draw.chance(0.8)
    )


def _rms_norm(b, x, spelling, epsilon, factor):
    square = relay.power(x.expr, b.scalar(2.0)) if spelling else x.expr * x.expr
    radicand = relay.mean(square, axis=[-1], keepdims=True) + b.scalar(epsilon)
    if spelling == 0:
        normal = x.expr * relay.rsqrt(radicand)
    elif spelling == 1:
        normal = x.expr / relay.sqrt(radicand)
    else:
        normal = x.expr * (b.scalar(1.0) / relay.sqrt(radicand))
    return b.param([x.shape[-1]]) * normal if factor else normal


def _nan_safe_softmax(b, x):
    softmax = relay.nn.softmax(x.expr)
    return relay.where(relay.isnan(softmax), b.scalar(0.0), softmax)


def _masked_softmax(b, x):
    is_finite = relay.logical_not(relay.equal(x.expr, b.scalar(-math.inf)))
    is_masked = relay.logical_not(relay.any(is_finite, axis=-1, keepdims=True))
    return relay.where(is_masked, b.scalar(0.0), relay.nn.softmax(x.expr))


def _formula(op):
    """Make the row of a formula with several spellings."""
    spellings = [make for name, make, _ in formulas.FORMULAS.values() if name == op]

    def draw(draw):
        return [draw.data()], dict(spelling=draw.integer(0, len(spellings) - 1))

    def build(b, x, spelling):
        data = positive(b, x) if op == "rsqrt" else x.expr
        if op in ("mish", "softplus"):
            data = bounded(x, 10.0)
        return spellings[spelling](data, b.scalar)

    return Row(f"dnnl.{op}", draw, build)


def _draw_power(draw):
    return [draw.data()], dict(number=draw.choice([2.0, 3.0, 0.5, -0.5, -1.0, 1.0, 1.7]))


ROWS = (
    Row("cast", _draw_cast, _cast),
    # It stays on TVM, and so makes seams.
    Row("atan", one, lambda b, x: relay.atan(x.expr), 1),
    *map(_formula, sorted({op for op, *_ in formulas.FORMULAS.values()} - {"pow"})),
    Row("dnnl.masked_softmax", one, _masked_softmax),
    Row("dnnl.nan_safe_softmax", one, _nan_safe_softmax),
    Row("dnnl.pow", _draw_power, _power),
    Row("dnnl.rms_norm", _draw_rms_norm, _rms_norm, 3),
)
