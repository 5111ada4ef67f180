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
"""Folding a batch_norm into the convolution or dense in front of it."""

from __future__ import annotations

import functools
import operator
from typing import NamedTuple

import numpy as np
from tvm import relay
from tvm.relay.dataflow_pattern import (
    DFPatternCallback,
    is_constant,
    is_op,
    is_tuple_get_item,
    wildcard,
)

from .chain import channel_bias_reason
from .reasons_conv import conv_geometry, is_transposed
from .tensors import op_name, shape_of

CONVS = tuple(f"nn.conv{rank}d{kind}" for kind in ("", "_transpose") for rank in (1, 2, 3))
ROOTS = (*CONVS, "nn.dense")


def _as_double(constant: relay.Constant) -> np.ndarray:
    return constant.data.numpy().astype("float64")


def _scale_and_shift(bn: relay.Call) -> tuple[np.ndarray, np.ndarray]:
    """Return what an inference batch_norm multiplies each channel by, and then adds."""
    gamma, beta, mean, var = (_as_double(arg) for arg in bn.args[1:])
    with np.errstate(all="ignore"):
        scale = 1.0 / np.sqrt(var + float(bn.attrs.epsilon))
        if bn.attrs.scale:
            scale = scale * gamma
        shift = -mean * scale
    if bn.attrs.center:
        shift = shift + beta
    return scale, shift


def _scaled_weight(root: relay.Call, scale: np.ndarray) -> np.ndarray:
    """Multiply a weight's output channels by `scale`."""
    weight = _as_double(root.args[1])
    if op_name(root) == "nn.dense":
        return weight * scale[:, None]
    layout = root.attrs.kernel_layout
    conv = conv_geometry(root)
    if conv.multiplier_form or is_transposed(root):
        kept = "OI"
        if conv.multiplier_form:
            # Output channel = O * (outputs per input channel) + I.
            scale = scale.reshape(conv.weight["O"], conv.weight["I"])
        else:
            # Output channel = group * (outputs per group) + O, where I tells the group.
            per_group = scale.reshape(conv.groups, conv.weight["O"])
            scale = np.repeat(per_group, conv.weight["I"] // conv.groups, axis=0).T
        if layout.index("I") < layout.index("O"):
            scale = scale.T
    else:
        kept = "O"
    dims = [size if letter in kept else 1 for letter, size in zip(layout, weight.shape)]
    return weight * scale.reshape(dims)


class _Match(NamedTuple):
    """What a match is made of."""

    root: relay.Call
    bias_call: relay.Call | None
    bias: relay.Constant | None
    bn: relay.Call


def _take_apart(expr: relay.TupleGetItem) -> _Match:
    """Find the parts of a match, walking up from the batch_norm's first result."""
    bn = expr.tuple_value
    call = bn.args[0]
    if op_name(call) in ROOTS:
        return _Match(call, None, None, bn)
    first, second = call.args
    if op_name(first) in ROOTS:
        return _Match(first, call, second, bn)
    return _Match(second, call, first, bn)


class FoldBatchNorm(DFPatternCallback):
    """Turn root [+ bias] + batch_norm into root + bias, with new constants.

    The weight, the bias and the statistics must be constants, and nobody else may use the root
    or the biased result; the pattern matcher sees to both. The constants are computed in double
    precision. What oneDNN would not run anyway is left as it is.

    Parameters
    ----------
    table : SpecTable
        The policy: its rules decide whether oneDNN runs the root.
    """

    def __init__(self, table):
        super().__init__(require_type=True)
        self.table = table
        self.folded = 0
        root = functools.reduce(
            operator.or_, (is_op(name)(wildcard(), is_constant()) for name in ROOTS)
        )
        biased = is_op("add")(root, is_constant()) | is_op("nn.bias_add")(root, is_constant())
        statistics = [is_constant() for _ in range(4)]
        self.pattern = is_tuple_get_item(is_op("nn.batch_norm")(biased | root, *statistics), 0)

    def callback(self, pre, post, node_map):
        """Rewrite one match, or return it as it was."""
        # `pre` has the types; `post` has the data as rewritten so far. Constants are the same.
        constants = self._new_constants(_take_apart(pre))
        if constants is None:
            return post
        self.folded += 1
        weight, bias = constants
        root = _take_apart(post).root
        root = relay.Call(
            root.op, [root.args[0], relay.const(weight)], root.attrs, root.type_args, root.span
        )
        return relay.add(root, relay.const(bias))

    def _new_constants(self, match: _Match) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the weight and the bias that stand for the match, or None to leave it."""
        root, bias_call, bias, bn = match
        if self.table.refusal(root) or self.table.refusal(bn):
            return None
        out = shape_of(root)
        axis = self.table.ops[op_name(root)].channel_axis(root)
        if shape_of(bn.args[0]) != out or int(bn.attrs.axis) % len(out) != axis:
            return None
        scale, shift = _scale_and_shift(bn)
        if bias_call is not None:
            values = _as_double(bias)
            if op_name(bias_call) == "nn.bias_add":
                if int(bias_call.attrs.axis) % len(out) != axis:
                    return None
            elif values.size != 1 and channel_bias_reason(values.shape, out, axis):
                return None
            shift = shift + values.reshape(-1) * scale
        weight = _scaled_weight(root, scale).astype("float32")
        # Dimensions of 1 after the channel's make the bias broadcast as numpy does.
        shift = shift.reshape((-1,) + (1,) * (len(out) - axis - 1)).astype("float32")
        if not (np.isfinite(weight).all() and np.isfinite(shift).all()):
            return None
        return weight, shift
