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
"""Replacements for int8 convolutions whose weight has a zero point, which oneDNN does not support.

Most need none: this is about uint8 weights that do not fit into int8 less their zero point, such as
TFLite's first quantized models have. A 1x1 convolution becomes a matmul, which has a zero point.
Of others the weight is moved into int8, and what is missing is added: the sum of the data in each
window, times how far the zero point is from where it ought to be, which is a convolution, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from ..ir.match import is_op, only_user
from ..ir.node import Node
from ..ir.op_view import OpView, tensor_of
from ..ops.int8 import is_dequantized
from ..ops.operands import BIAS_OPS
from ..ops.quantize import DEQUANTIZE, symmetric
from ..ops.rules import Rules
from ..ops.tensors import EIGHT_BITS, ints


class OffsetConv(NamedTuple):
    """A convolution in 8 bits whose weight needs a zero point.

    Parameters
    ----------
    conv, data, weight : Node
        The convolution and its operands; the weight is a dequantize of constants.
    bias : tuple[Node, Node] | None
        For one that becomes the sum of two: the op that adds a constant bias to it, and the bias.
    is_matmul : bool
        Whether it multiplies each spatial position by a matrix, in channels-last.
    """

    conv: Node
    data: Node
    weight: Node
    bias: tuple[Node, Node] | None
    is_matmul: bool


def offset_convs(calls: Iterable[Node], rules: Rules) -> Iterator[OffsetConv]:
    """Yield the int8 convolutions whose weight has a zero point."""
    for conv in calls:
        data, weight = conv.operands
        if not hasattr(conv.attrs, "kernel_layout"):
            continue
        if not is_op(weight, DEQUANTIZE) or not _needs_zero_point(weight):
            continue
        if not is_dequantized(data, conv, rules):
            continue
        if _is_matmul(conv):
            yield OffsetConv(conv, data, weight, None, True)
        elif conv.attrs.groups == 1:
            yield OffsetConv(conv, data, weight, _bias(conv, rules), False)


def names_with_weight(rules: Rules) -> list[str]:
    """Return the names of the ops with a weight."""
    return [name for name, spec in rules.ops.items() if spec.weight_axis is not None]


def _is_matmul(call: OpView) -> bool:
    """Whether a convolution multiplies each spatial position by a matrix, in channels-last."""
    if call.name != "nn.conv2d":
        return False
    attrs, shape = call.attrs, tensor_of(call.result).shape
    kernel = dict(zip(attrs.kernel_layout, tensor_of(call.args[1]).shape))
    return (
        attrs.data_layout == "NHWC"
        and attrs.out_layout in ("", "NHWC")
        and attrs.groups == 1
        and (kernel.get("H"), kernel.get("W")) == (1, 1)
        and set(ints(attrs.strides) or ()) == {1}
        and set(ints(attrs.padding) or ()) == {0}
        # A reshape back has a place for one open dimension.
        and None not in (*shape[1:], tensor_of(call.args[0]).shape[-1])
    )


def _needs_zero_point(weight: OpView) -> bool:
    """Whether a dequantize of constants has one zero point that is not zero in int8, either."""
    data, *parameters = weight.args
    if data.dtype not in EIGHT_BITS or not all(arg.is_constant for arg in weight.args):
        return False
    if any(math.prod(arg.shape) != 1 for arg in parameters):
        return False
    return symmetric(data.value, tensor_of(weight.args[2]).value.reshape(())) is None


def _bias(conv: Node, rules: Rules) -> tuple[Node, Node] | None:
    """Return the op that adds a bias to a convolution, and the bias."""
    user = only_user(conv)
    if user is None or not is_op(user, *BIAS_OPS):
        return None
    first, bias = user.operands
    if first is not conv or not bias.is_constant:
        return None
    return (user, bias) if rules.is_per_channel(conv, user, bias.tensor.shape) else None


def matrix_of(conv: OpView, weight: OpView) -> np.ndarray:
    """Return the integers of a 1x1 convolution's weight as a matrix, outputs first.

    Parameters
    ----------
    conv, weight : OpView
        The convolution, and the dequantize of its weight.
    """
    layout = conv.attrs.kernel_layout
    matrix = np.squeeze(tensor_of(weight.args[0]).value, (layout.index("H"), layout.index("W")))
    return np.ascontiguousarray(matrix.T if layout.index("I") < layout.index("O") else matrix)


def terms_of(conv: OpView, weight: OpView) -> list[tuple[np.ndarray, np.float32]]:
    """Return two weights in int8 without a zero point, the sum of which is one, and their scales.

    The second has one output channel: the sum of all that the window holds, the scale of which has
    what it is times.

    Parameters
    ----------
    conv, weight : OpView
        The convolution, and the dequantize of its weight.
    """
    values, scale, zero_point = (arg.value for arg in weight.args)
    # int8 has each value less this.
    offset = 128 if values.dtype == "uint8" else 0
    missing = offset - int(zero_point.reshape(()))
    dims = zip(conv.attrs.kernel_layout, values.shape)
    ones = np.full([1 if letter == "O" else size for letter, size in dims], np.sign(missing))
    scale = float(scale.reshape(()))
    return [
        ((values.astype("int32") - offset).astype("int8"), np.float32(scale)),
        (ones.astype("int8"), np.float32(abs(missing) * scale)),
    ]
