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
"""Reads the int32 accumulators of QNN ops as float32."""

from __future__ import annotations

import numpy as np

from ..ir.graph import Graph
from ..ir.match import is_op
from ..ir.node import Node
from ..ir.numpy_types import along
from ..ir.op_view import OpView
from ..ops.conv import merged_weight_shape
from ..ops.operands import BIAS_OPS
from ..ops.quantize import DEQUANTIZE
from ..ops.table import TABLE

# The rows of the float ops of QNN ops that accumulate in int32.
ACCUMULATING = {
    f"qnn.{name.removeprefix('nn.')}": row
    for name, row in TABLE.items()
    if row.weight_axis is not None
}


def values_of(node: Node) -> np.ndarray | None:
    """Return the values of a constant in double precision, None for anything else."""
    return node.value.astype("float64") if node.is_constant else None


def dequantized(graph: Graph, like: Node, data: Node, scale: Node, zero: Node, axis=-1) -> Node:
    """Create a dequantize."""
    operands = [data, scale, zero]
    return graph.call(DEQUANTIZE, operands, like, axis=axis, out_dtype="float32")


def read_sum(graph: Graph, node: Node, scale: np.ndarray, axis: int = -1) -> list[Node] | None:
    """Read scale * node, where the node is in int32 the result of a QNN op.

    There may be biases and relus after the op. Several scales are those of the items of an axis.

    Returns
    -------
    result, operands : list[Node] | None
        What computes the same in float32, and the tensors that it reads.
    """
    rank, steps = len(node.tensor.dims), []
    while is_op(node, *BIAS_OPS, "nn.relu"):
        step = node
        # The constant may be first.
        node, *bias = sorted(step.operands, key=lambda operand: operand.is_constant)
        if not all(operand.is_constant for operand in bias):
            return None
        # With a scale below zero, integers above the zero point are negative numbers.
        if not bias and (scale <= 0).any():
            return None
        steps.append((step, *map(values_of, bias)))
    row = ACCUMULATING.get(node.name)
    if row is None or not node.is_call:
        return None
    view = OpView(row.name, node.args[:2], node.results, node.attrs)
    assert row.weight_axis is not None and row.channel_axis is not None
    weight_axis, channel_axis = row.weight_axis(view), row.channel_axis(view)
    data, weight, data_zero, weight_zero, data_scale, _ = node.operands
    merged = None
    if weight_axis is None and weight.is_constant:
        merged = merged_weight_shape(view)
    if merged is not None:
        weight_axis = node.attrs.kernel_layout.index("O")
    data_scale_value = values_of(data_scale)
    if data_scale_value is None or data_scale_value.size != 1 or not data_scale_value.all():
        return None
    # The scale of the sum is that of the data times that of the weight.
    weight_scale = (scale / data_scale_value.reshape(())).astype("float32").reshape(-1)
    if weight_scale.size == 1:
        weight_scale = weight_scale.reshape(())
    # A constant of more dimensions may have been added, which moves the axis.
    elif rank != len(node.tensor.dims) or weight_axis is None or axis % rank != channel_axis:
        return None
    values = weight if merged is None else graph.constant(weight.value.reshape(merged))
    scales = graph.constant(weight_scale)
    real_weight = dequantized(graph, node, values, scales, weight_zero, weight_axis or 0)
    operands = [dequantized(graph, node, data, data_scale, data_zero), real_weight]
    as_float = graph.call(row.name, operands, node, **{**vars(node.attrs), "out_dtype": "float32"})
    for step, *bias in reversed(steps):
        as_float = _after_sum(graph, as_float, step, bias, scale, channel_axis)
    return [as_float, data, weight, data_scale, data_zero, weight_zero]


def _after_sum(
    graph: Graph, as_float: Node, step: Node, bias: list[np.ndarray], scale: np.ndarray, axis: int
) -> Node:
    """Apply to float32 values the op that the graph applies to their int32 accumulators.

    Parameters
    ----------
    graph : Graph
        The graph.
    as_float : Node
        The sums in float32.
    step : Node
        The addition of a bias, or a relu.
    bias : list[numpy.ndarray]
        The values that it adds, if any.
    scale : numpy.ndarray
        What one of the sums stands for: one number, or one for each item of an axis.
    axis : int
        That axis.
    """
    if not bias:
        return graph.call("nn.relu", [as_float], step)
    (values,), rank = bias, len(step.tensor.dims)
    if step.name == "nn.bias_add":
        bias_axis = step.attrs.axis % rank
        if scale.size == 1 or bias_axis == axis:
            summand = graph.constant(values * scale, "float32")
            return graph.call("nn.bias_add", [as_float, summand], step, axis=bias_axis)
        values = along(values, bias_axis, rank)
    if scale.size > 1:
        scale = along(scale, axis, rank)
    return graph.call("add", [as_float, graph.constant(values * scale, "float32")], step)
