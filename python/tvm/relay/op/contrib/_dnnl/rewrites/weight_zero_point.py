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
"""Convolutions whose weight needs a zero point, which oneDNN's have not, run in 8 bits.

Most need none: this is about uint8 weights that do not fit into int8 less their zero point, such as
TFLite's first quantized models have. A 1x1 convolution becomes a matmul, which has a zero point.
Of others the weight is moved into int8, and what is missing is added: the sum of the data in each
window, times how far the zero point is from where it ought to be, which is a convolution, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from tvm import relay
from tvm.relay.qnn.op import dequantize

from ..ir.dataflow_graph import DataflowGraph, Rewritten, TypedFunction, with_attrs
from ..ir.relay_view import shape_of
from ..policy.op_spec import Rules
from ..policy.op_view import OpView
from ..policy.operands import BIAS_OPS
from ..policy.quantized import is_dequantized
from ..policy.rules.quantize import DEQUANTIZE, symmetric
from ..policy.tensors import EIGHT_BITS, ints
from .driver import Match, rewrite


def without_weight_zero_points(function: TypedFunction, rules: Rules) -> Rewritten:
    """Write such convolutions as others, or as a dense of the rows of the channels."""
    return rewrite(function, rules, _find)


def _find(graph: DataflowGraph, rules: Rules, calls_of: Callable) -> Iterator[Match]:
    for i in calls_of(*(name for name, spec in rules.ops.items() if spec.weight_axis is not None)):
        data, weight = graph.operands[i]
        if not hasattr(graph.views[i].attrs, "kernel_layout"):
            continue
        if graph.ops[weight] != DEQUANTIZE or not _needs_zero_point(graph.views[weight]):
            continue
        if not is_dequantized(graph, rules, data, i):
            continue
        calls = graph.nodes[i], graph.nodes[weight]
        if _is_matmul(graph.views[i]):
            yield Match([i], [data], partial(_matmul, *calls))
        elif int(graph.views[i].attrs.groups) == 1:
            bias = _bias(graph, rules, i)
            outer = None if bias is None else graph.nodes[bias[0]]
            ops, operands = ([i], [data]) if bias is None else ([i, bias[0]], [data, bias[1]])
            yield Match(ops, operands, partial(_sum_of_two, *calls, outer))


def _is_matmul(call: OpView) -> bool:
    """Whether a convolution multiplies each spatial position by a matrix, in channels-last."""
    if call.name != "nn.conv2d":
        return False
    attrs, shape = call.attrs, call.result.shape
    kernel = dict(zip(str(attrs.kernel_layout), call.args[1].shape))
    return (
        str(attrs.data_layout) == "NHWC"
        and str(attrs.out_layout) in ("", "NHWC")
        and int(attrs.groups) == 1
        and (kernel.get("H"), kernel.get("W")) == (1, 1)
        and set(ints(attrs.strides) or ()) == {1}
        and set(ints(attrs.padding) or ()) == {0}
        # The reshape back has a place for one open dimension.
        and None not in (*shape[1:], call.args[0].shape[-1])
    )


def _needs_zero_point(weight: OpView) -> bool:
    """Whether a dequantize of constants has one zero point that is not zero in int8, either."""
    data, *parameters = weight.args
    if data.dtype not in EIGHT_BITS or not all(arg.is_constant for arg in weight.args):
        return False
    if any(math.prod(arg.shape) != 1 for arg in parameters):
        return False
    return symmetric(data.value, weight.args[2].value.reshape(())) is None


def _matmul(conv: relay.Call, weight: relay.Call, data: relay.Expr) -> relay.Call:
    layout, values = str(conv.attrs.kernel_layout), weight.args[0].data.numpy()
    matrix = np.squeeze(values, (layout.index("H"), layout.index("W")))
    if layout.index("I") < layout.index("O"):
        matrix = matrix.T
    matrix = dequantize(relay.const(np.ascontiguousarray(matrix)), *weight.args[1:])
    rows = relay.reshape(data, (-1, shape_of(conv.args[0])[-1]))
    return relay.reshape(relay.nn.dense(rows, matrix), (-1, *shape_of(conv)[1:]))


def _bias(graph: DataflowGraph, rules: Rules, conv: int) -> tuple[int, int] | None:
    """Return the op that adds a bias to a convolution and the bias, by number."""
    users = graph.users[conv]
    if len(users) != 1 or graph.ops[users[0]] not in BIAS_OPS:
        return None
    first, bias = graph.operands[users[0]]
    if first != conv or not isinstance(graph.nodes[bias], relay.Constant):
        return None
    root, call = graph.views[conv], graph.views[users[0]]
    is_bias = rules.is_per_channel(root, call, graph.result(bias).shape)
    return (users[0], bias) if is_bias else None


def _sum_of_two(
    conv: relay.Call,
    weight: relay.Call,
    outer: relay.Call | None,
    data: relay.Expr,
    bias: relay.Expr | None = None,
) -> relay.Call:
    values, scale, zero_point = (arg.data.numpy() for arg in weight.args)
    # int8 has each value less this.
    offset = 128 if values.dtype == "uint8" else 0
    missing = offset - int(zero_point)

    def term(weight: np.ndarray, factor: float, **attrs: object) -> relay.Call:
        parameters = relay.const(np.float32(factor)), relay.const(0)
        weight = dequantize(relay.const(weight.astype("int8")), *parameters)
        return with_attrs(conv, (data, weight), **attrs)

    # Of one output channel: the sum of all the window holds, whose scale takes what it is times.
    dims = zip(str(conv.attrs.kernel_layout), values.shape)
    ones = np.full([1 if letter == "O" else size for letter, size in dims], np.sign(missing))
    sums = term(ones, abs(missing) * float(scale), channels=1)
    first = term(values.astype("int32") - offset, float(scale))
    if outer is not None:
        # oneDNN adds a bias at no cost, but not behind an operand that has no channels.
        first = relay.Call(outer.op, [first, bias], outer.attrs, span=outer.span)
    return relay.add(first, sums)
