# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers: unrolled as TVM's importers write them, and as one op."""

from types import SimpleNamespace

import numpy as np
from tvm import relay
from tvm.contrib.onednn.ir.op import attributes_of
from tvm.contrib.onednn.ops.recurrent import DIRECTIONS, operand_shapes
from tvm.relay.frontend import common
from tvm.relay.op.contrib._dnnl.recurrent import layer_call

from ..row import Row

MOST_STEPS = 8


def _draw(*flags):
    def draw(d):
        x = d.data([3], where=lambda tensor: 1 < tensor.shape[0] <= MOST_STEPS)
        attrs = {name: d.chance(0.5) for name in ("backwards", "has_bias", *flags)}
        return [x], dict(hidden=d.choice((1, 3, 8, 17)), **attrs)

    return draw


def _layer(cell, gates, states=1):
    def build(b, x, hidden, has_bias, **attrs):
        steps, batch, inputs = x.shape
        weights = [b.param([gates * hidden, size], fan_in=size) for size in (inputs, hidden)]
        biases = [b.param([gates * hidden]) for _ in range(2)] if has_bias else [None, None]
        zeros = [relay.zeros((batch, hidden), b.real) for _ in range(states)]
        # An operand may be large where it was not drawn.
        parts = relay.split(relay.tanh(x.expr), int(steps), axis=0)
        parts = [relay.squeeze(part, [0]) for part in parts]
        sequence, *_ = cell(parts, *zeros, *weights, *biases, **attrs)
        return relay.stack(sequence, axis=0)

    return build


def _draw_op(**choices):
    def draw(d):
        x = d.data([3])
        names = ("batch_first", "has_initial_state", "has_lengths")
        attrs = {name: d.chance(0.5) for name in names}
        attrs.update({name: d.choice(values) for name, values in choices.items()})
        attrs["direction"] = d.choice(tuple(DIRECTIONS))
        return [x], dict(hidden=d.choice((1, 3, 8, 17)), **attrs)

    return draw


def _op(name):
    def build(b, x, hidden, **attrs):
        shape = tuple(int(dim) for dim in x.shape)
        shapes = operand_shapes(name, attributes_of(name, SimpleNamespace(**attrs)), shape, hidden)
        args = [relay.tanh(x.expr)]
        for k, each in enumerate(shapes[1:], 1):
            if len(each) == 1:
                steps = shape[1 if attrs["batch_first"] else 0]
                args.append(relay.const(np.arange(each[0], dtype="int32") % (steps + 1)))
            else:
                args.append(b.param(each, fan_in=each[-1] if k < 3 else 1))
        return relay.TupleGetItem(layer_call(name, args, attrs), 0)

    return build


ROWS = (
    Row("onednn.lstm", _draw_op(), _op("dnnl.lstm")),
    Row("onednn.gru", _draw_op(linear_before_reset=(False, True)), _op("dnnl.gru")),
    Row("onednn.rnn", _draw_op(activation=("tanh", "relu")), _op("dnnl.rnn")),
    Row("dnnl.lstm", _draw(), _layer(common.lstm_cell, 4, states=2)),
    Row("dnnl.gru", _draw("linear_before_reset"), _layer(common.gru_cell, 3)),
    Row("dnnl.rnn", _draw(), _layer(common.rnn_cell, 1)),
)
