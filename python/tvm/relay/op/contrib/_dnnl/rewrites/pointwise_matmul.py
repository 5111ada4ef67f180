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
"""A 1x1 convolution whose weight needs a zero point becomes a matmul, which has one in 8 bits.

oneDNN's convolutions have none for weights. Most need none: this is about uint8 weights that do not
fit into int8 less their zero point, such as TFLite's first quantized models have.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from tvm import relay
from tvm.relay.qnn.op import dequantize

from ..ir.dataflow_graph import DataflowGraph, Rewritten, TypedFunction
from ..ir.relay_view import shape_of
from ..policy.op_spec import Rules
from ..policy.op_view import OpView
from ..policy.quantized import is_dequantized
from ..policy.rules.quantize import DEQUANTIZE, symmetric
from ..policy.tensors import EIGHT_BITS, ints
from .driver import Match, rewrite


def pointwise_to_matmul(function: TypedFunction, rules: Rules) -> Rewritten:
    """Write such a convolution as a dense of the rows of its channels."""
    return rewrite(function, rules, _find)


def _find(graph: DataflowGraph, rules: Rules, calls_of: Callable) -> Iterator[Match]:
    for i in calls_of("nn.conv2d"):
        data, weight = graph.operands[i]
        if not _is_matmul(graph.views[i]) or not is_dequantized(graph, rules, data, i):
            continue
        if graph.ops[weight] == DEQUANTIZE and _needs_zero_point(graph.views[weight]):
            yield Match([i], [data], partial(_matmul, graph.nodes[i], graph.nodes[weight]))


def _is_matmul(call: OpView) -> bool:
    """Whether a convolution multiplies each spatial position by a matrix, in channels-last."""
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
