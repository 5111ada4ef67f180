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
"""Reads sums in int32, which QNN ops accumulate, as arithmetic of real numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from tvm import relay
from tvm.contrib.onednn.policy.op_view import OpView
from tvm.contrib.onednn.policy.operands import BIAS_OPS
from tvm.contrib.onednn.policy.rules.conv import merged_weight_shape
from tvm.contrib.onednn.policy.rules.quantize import along
from tvm.contrib.onednn.policy.table import TABLE
from tvm.relay.qnn.op import dequantize

from ..ir.constants import to_double
from ..ir.dataflow_graph import DataflowGraph, with_attrs
from ..ir.relay_view import op_name, shape_of

# The rows of the float ops of QNN ops that accumulate in int32.
ACCUMULATING = {
    f"qnn.{name.removeprefix('nn.')}": row
    for name, row in TABLE.items()
    if row.weight_axis is not None
}


class Real(NamedTuple):
    """The real numbers that take the place of a QNN op, or of several.

    Parameters
    ----------
    operands : list[int]
        The tensors that it reads, by their numbers in the graph.
    build : Callable[..., relay.Expr]
        Builds it from what these have become.
    """

    operands: list[int]
    build: Callable[..., relay.Expr]


def values_of(graph: DataflowGraph, i: int) -> np.ndarray | None:
    """Return the values of a constant in double precision, None for anything else."""
    expr = graph.nodes[i]
    return to_double(expr) if isinstance(expr, relay.Constant) else None


def read_sum(graph: DataflowGraph, i: int, scale: np.ndarray, axis: int = -1) -> Real | None:
    """Read scale * i, where i is in int32 the result of a QNN op, maybe with biases and relus.

    Several scales are those of the items of an axis.
    """
    rank, steps = len(shape_of(graph.nodes[i])), []
    while graph.ops[i] in (*BIAS_OPS, "nn.relu"):
        step = graph.nodes[i]
        # The constant may be first.
        i, *bias = sorted(graph.operands[i], key=graph.is_fixed)
        if not all(map(graph.is_fixed, bias)):
            return None
        # With a scale below zero, integers above the zero point are negative numbers.
        if not bias and (scale <= 0).any():
            return None
        steps.append((step, *(values_of(graph, k) for k in bias)))
    row = ACCUMULATING.get(graph.ops[i])
    if row is None:
        return None
    call, view = graph.nodes[i], graph.views[i]
    float_view = OpView(row.name, view.args[:2], view.results, view.attrs)
    weight_axis, channel_axis = row.weight_axis(float_view), row.channel_axis(float_view)
    data, weight, data_zero, weight_zero, data_scale, _ = graph.operands[i]
    merged = None
    if weight_axis is None and graph.is_fixed(weight):
        merged = merged_weight_shape(float_view)
    if merged is not None:
        weight_axis = str(view.attrs.kernel_layout).index("O")
    data_scale_value = values_of(graph, data_scale)
    if data_scale_value is None or data_scale_value.size != 1 or not data_scale_value.all():
        return None
    # The scale of the sum is that of the data times that of the weight.
    weight_scale = (scale / data_scale_value.reshape(())).astype("float32").reshape(-1)
    if weight_scale.size == 1:
        weight_scale = weight_scale.reshape(())
    # A constant of more dimensions may have been added, which moves the axis.
    elif rank != len(view.result.shape) or weight_axis is None or axis % rank != channel_axis:
        return None

    def build(x, w, x_scale, x_zero, w_zero):
        if merged is not None:
            w = relay.const(w.data.numpy().reshape(merged))
        real_w = dequantize(w, relay.const(weight_scale), w_zero, weight_axis or 0)
        args = [dequantize(x, x_scale, x_zero), real_w]
        real = with_attrs(call, args, out_dtype="float32")
        for step, *bias in reversed(steps):
            real = _behind_sum(real, step, bias, scale, channel_axis)
        return real

    return Real([data, weight, data_scale, data_zero, weight_zero], build)


def _behind_sum(
    real: relay.Expr, step: relay.Call, bias: list[np.ndarray], scale: np.ndarray, axis: int
) -> relay.Expr:
    """Do to real numbers what a step does to the sums in int32 that stand for them.

    Parameters
    ----------
    real : relay.Expr
        The real numbers.
    step : relay.Call
        The addition of a bias, or a relu.
    bias : list[numpy.ndarray]
        The values that it adds, if any.
    scale : numpy.ndarray
        What one of the sums stands for: one number, or one for each item of an axis.
    axis : int
        That axis.
    """
    if not bias:
        return relay.nn.relu(real)
    (values,), rank = bias, len(shape_of(step))
    if op_name(step) == "nn.bias_add":
        bias_axis = int(step.attrs.axis) % rank
        if scale.size == 1 or bias_axis == axis:
            bias_expr = relay.const((values * scale).astype("float32"))
            return relay.nn.bias_add(real, bias_expr, bias_axis)
        values = along(values, bias_axis, rank)
    if scale.size > 1:
        scale = along(scale, axis, rank)
    return relay.add(real, relay.const((values * scale).astype("float32")))
