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
"""Folding factors and summands of channels into the convolution or product in front of them.

These are those of a batch_norm, and constants that are one number or one for each channel. What
they make of a weight and a bias is computed in double precision and rounded once, so the results
may differ in the last bits. Where nothing is multiplied, all is left as it is.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import NamedTuple

import numpy as np
from tvm import relay

from ..ir.constants import to_constant, to_double
from ..ir.dataflow_graph import Graph
from ..policy.op_spec import Rules
from ..policy.operands import is_per_channel
from ..policy.rules.conv import conv_geometry, is_transposed
from ..policy.tensors import op_name, shape_of

CONVS = tuple(f"nn.conv{rank}d{kind}" for kind in ("", "_transpose") for rank in (1, 2, 3))
ROOTS = (*CONVS, "nn.dense", "nn.matmul")
ADDITIONS = ("add", "subtract", "nn.bias_add")
FACTORS = ("multiply", "divide", "negative")


def _scale_and_shift(bn: relay.Call) -> tuple[np.ndarray, np.ndarray]:
    """Return what an inference batch_norm multiplies each channel by, and then adds."""
    gamma, beta, mean, var = (to_double(arg) for arg in bn.args[1:])
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
    weight = to_double(root.args[1])
    if op_name(root) in ("nn.dense", "nn.matmul"):
        is_transposed_b = op_name(root) == "nn.dense" or root.attrs.transpose_b
        return weight * (scale[:, None] if is_transposed_b else scale)
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


class Folded(NamedTuple):
    """A root and what follows it: the last expression, the constants for all, and the ops."""

    root: int
    last: int
    weight: relay.Constant
    bias: relay.Constant | None
    ops: Counter


class _Walk:
    """Follows the users of a root as long as they multiply and add constants of channels."""

    def __init__(self, graph: Graph, rules: Rules, root: int):
        self.graph, self.rules = graph, rules
        self.root = self.last = root
        self.call: relay.Call = graph.nodes[root]
        self.out = shape_of(self.call)
        self.axis = rules.ops[op_name(self.call)].channel_axis(self.call)
        self.scale, self.shift = np.ones(self.out[self.axis]), np.zeros(self.out[self.axis])
        self.ops: Counter = Counter()

    def step(self) -> bool:
        """Take in the next user; return whether there was one to take in."""
        users = self.graph.users[self.last]
        if len(users) != 1 or self.graph.scope[users[0]] != self.graph.scope[self.root]:
            return False
        user = self.graph.nodes[users[0]]
        if op_name(user) == "nn.batch_norm":
            return self._batch_norm(users[0])
        name = op_name(user)
        if name not in (*ADDITIONS, *FACTORS) or self.rules.refusal(user) is not None:
            return False
        if name == "negative":
            scale, shift = -1.0, 0.0
        else:
            is_first = self.graph.children[users[0]][0] == self.last
            operand = self._per_channel(user, user.args[1 if is_first else 0])
            if operand is None or (name == "divide" and not is_first):
                return False
            with np.errstate(all="ignore"):
                scale, shift = {
                    "multiply": (operand, 0.0),
                    "divide": (1.0 / operand, 0.0),
                    "subtract": (1.0, -operand) if is_first else (-1.0, operand),
                }.get(name, (1.0, operand))
        self._take(users[0], name, scale, shift)
        return True

    def _take(self, last: int, name: str, scale, shift) -> None:
        with np.errstate(all="ignore"):
            self.scale, self.shift = self.scale * scale, self.shift * scale + shift
        self.last = last
        self.ops[name] += 1

    def _batch_norm(self, i: int) -> bool:
        bn = self.graph.nodes[i]
        if not all(isinstance(arg, relay.Constant) for arg in bn.args[1:]):
            return False
        if self.rules.refusal(bn) or int(bn.attrs.axis) % len(self.out) != self.axis:
            return False
        fields = [self.graph.nodes[user] for user in self.graph.users[i]]
        if len(fields) != 1 or not isinstance(fields[0], relay.TupleGetItem):
            return False
        if fields[0].index != 0 or self.graph.children[i][0] != self.last:
            return False
        self._take(self.graph.users[i][0], "nn.batch_norm", *_scale_and_shift(bn))
        return True

    def _per_channel(self, call: relay.Call, operand: relay.Expr) -> np.ndarray | None:
        """Return the value of each channel, or one value; None if an operand is neither."""
        if not isinstance(operand, relay.Constant) or shape_of(call) != self.out:
            return None
        values = to_double(operand)
        is_bias = is_per_channel(call, values.shape, self.out, self.axis)
        is_scalar = values.size == 1 and op_name(call) != "nn.bias_add"
        return values.reshape(-1) if is_bias or is_scalar else None

    def folded(self) -> Folded | None:
        """Return what stands for all that was taken in, or None to leave it."""
        dtype = self.call.checked_type.dtype
        if self.call.args[1].checked_type.dtype != dtype:
            return None
        weight = to_constant(_scaled_weight(self.call, self.scale), dtype)
        # Dimensions of 1 after the channel's make the bias broadcast as numpy does.
        shape = (-1,) + (1,) * (len(self.out) - self.axis - 1)
        bias = to_constant(self.shift.reshape(shape), dtype)
        if not all(np.isfinite(to_double(constant)).all() for constant in (weight, bias)):
            return None
        ops = Counter(self.ops)
        added = next((name for name in ADDITIONS if ops[name]), None)
        if added is not None:
            # One addition is still there.
            ops[added] -= 1
        has_bias = added is not None or ops["nn.batch_norm"] > 0
        return Folded(self.root, self.last, weight, bias if has_bias else None, +ops)


def _follow(graph: Graph, rules: Rules, root: int) -> Folded | None:
    """Return what can be folded into a root."""
    call = graph.nodes[root]
    if op_name(call) not in ROOTS or rules.refusal(call) is not None:
        return None
    if not isinstance(call.args[1], relay.Constant):
        return None
    walk, found = _Walk(graph, rules, root), None
    while walk.step():
        if not (walk.scale == 1.0).all():
            found = walk.folded() or found
    return found


def fold_scale(func: relay.Function, rules: Rules) -> tuple[relay.Function, Counter]:
    """Fold constants behind convolutions and products into their weights and biases.

    Parameters
    ----------
    func : relay.Function
        A typed function.
    rules : Rules
        The policy: only what oneDNN runs is folded.

    Returns
    -------
    func : relay.Function
        The same where there is nothing to fold.
    folded : Counter
        By op: the calls that have gone.
    """
    graph = Graph(func)
    found = [
        item
        for item in (_follow(graph, rules, root) for root in range(len(graph.nodes)))
        if item is not None
    ]
    made = {
        item.last: ([graph.children[item.root][0]], partial(_call, graph.nodes[item.root], item))
        for item in found
    }
    return graph.replace(made), sum((item.ops for item in found), Counter())


def _call(root: relay.Call, item: Folded, data: relay.Expr) -> relay.Call:
    """Call a root with the constants that stand for all that is folded into it."""
    made = relay.Call(root.op, [data, item.weight], root.attrs, root.type_args, root.span)
    return made if item.bias is None else relay.add(made, item.bias)
