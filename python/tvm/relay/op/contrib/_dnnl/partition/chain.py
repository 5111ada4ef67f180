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
"""Composites: a root op, its bias and the ops fused after it, as a pattern and as a rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tvm import relay
from tvm.relay.analysis import post_order_visit
from tvm.relay.dataflow_pattern import DFPattern, is_op, wildcard

from ..policy.tensors import op_name, shape_of, tensor_reason, text_of_shape

BIAS_OPS = ("add", "nn.bias_add")


class Parsed(NamedTuple):
    """The calls of a chain that was found, and the operands that are added to the root."""

    root: relay.Call
    bias_call: relay.Call | None
    bias: relay.Expr | None
    sum_call: relay.Call | None
    residual: relay.Expr | None
    posts: list[relay.Call]

    @property
    def calls(self) -> list[relay.Call]:
        """All calls of the chain, the root first."""
        added = [call for call in (self.bias_call, self.sum_call) if call is not None]
        return [self.root, *added, *self.posts]


class Chain(NamedTuple):
    """A root op, then perhaps a bias, a residual, and ops of one argument.

    Each is used by the next alone.
    """

    root: str
    bias: bool
    sum: bool
    post: tuple[str, ...]

    def op_names(self) -> set[str]:
        """Return the ops that the chain can hold."""
        added = {*(BIAS_OPS if self.bias else ()), *(("add",) if self.sum else ())}
        return {self.root, *added, *self.post}

    def pattern(self) -> DFPattern:
        """Build the pattern for MergeComposite.

        Operands are wildcards: a constant becomes a parameter of the composite, as a variable
        does. An `add` matches with its operands in either order.
        """
        found = is_op(self.root)(wildcard(), wildcard())
        if self.bias:
            bias = wildcard()
            found = is_op("add")(found, bias) | is_op("nn.bias_add")(found, bias)
        if self.sum:
            found = is_op("add")(found, wildcard())
        for name in self.post:
            found = is_op(name)(found)
        return found

    def parse(self, call: relay.Call) -> Parsed | None:
        """Take a call that ends the chain apart, as the pattern matcher does; None if it is not."""
        posts: list[relay.Call] = []
        for name in reversed(self.post):
            if op_name(call) != name:
                return None
            posts.insert(0, call)
            call = call.args[0]
        if not self.sum:
            found = self._parse_bias(call)
            return found and found._replace(posts=posts)
        for start, residual in operand_orders(call) if op_name(call) == "add" else ():
            found = self._parse_bias(start)
            if found is not None:
                return found._replace(sum_call=call, residual=residual, posts=posts)
        return None

    def _parse_bias(self, call: relay.Call) -> Parsed | None:
        """Take the root and its bias apart."""
        if not self.bias:
            return Parsed(call, None, None, None, None, []) if op_name(call) == self.root else None
        for start, bias in operand_orders(call) if op_name(call) in BIAS_OPS else ():
            if op_name(start) == self.root:
                return Parsed(start, call, bias, None, None, [])
        return None


def operand_orders(call: relay.Call) -> list[tuple[relay.Expr, relay.Expr]]:
    """Return the operands as the matcher tries them: those of an `add` in both orders."""
    first, second = call.args
    return [(first, second), (second, first)] if op_name(call) == "add" else [(first, second)]


def chain(
    root: str, *, bias: bool = False, sum: bool = False, post: str | tuple[str, ...] = ()
) -> Chain:
    """Describe a composite: `root`, a bias, another tensor of its shape, the ops in `post`."""
    return Chain(root, bias, sum, (post,) if isinstance(post, str) else tuple(post))


def channel_bias_reason(shape: tuple[int, ...], out: tuple[int, ...], axis: int) -> str | None:
    """Say why an operand added to a result is not one value per channel.

    Parameters
    ----------
    shape : tuple[int, ...]
        The operand's shape, aligned with `out` from the right as numpy does.
    out : tuple[int, ...]
        The shape of the result that it is added to.
    axis : int
        The channel axis of `out`, not negative.
    """
    text = f"{text_of_shape(shape)} added to {text_of_shape(out)}"
    if len(shape) > len(out):
        return f"{text} adds dimensions, so it is no bias"
    padded = (1,) * (len(out) - len(shape)) + shape
    if padded[axis] != out[axis]:
        return f"{text} has {padded[axis]} values on the channel axis {axis}, so it is no bias"
    if any(dim != 1 for i, dim in enumerate(padded) if i != axis):
        return f"{text} varies on other axes than the channel axis {axis}, so it is no bias"
    return None


def depends_on(expr: relay.Expr, node: relay.Expr) -> bool:
    """Whether `node` is part of `expr`."""
    if isinstance(expr, (relay.Constant, relay.Var)):
        return False
    found = []
    post_order_visit(expr, lambda visited: found.append(1) if visited.same_as(node) else None)
    return bool(found)


def bias_reason(parsed: Parsed, channel_axis: Callable[[relay.Call], int]) -> str | None:
    """Say why the operand added to the root of a chain is not a per-channel bias."""
    root, bias_call, bias = parsed.root, parsed.bias_call, parsed.bias
    reason = tensor_reason("bias", bias.checked_type)
    if reason:
        return reason
    out, axis = shape_of(root), channel_axis(root)
    if op_name(bias_call) == "nn.bias_add":
        bias_axis = int(bias_call.attrs.axis)
        if bias_axis % len(out) != axis:
            return f"nn.bias_add has axis={bias_axis}, but the channel axis is {axis}"
    else:
        reason = channel_bias_reason(shape_of(bias), out, axis)
        if reason:
            return reason
    # The matcher lets an operand use the root when all comes together again in the chain; the
    # root would then be computed twice.
    if depends_on(bias, root):
        return "the bias is computed from what it is added to"
    return None


def residual_reason(parsed: Parsed) -> str | None:
    """Say why the operand added at the end of a chain is not a tensor of the result's shape."""
    reason = tensor_reason("the residual", parsed.residual.checked_type)
    if reason:
        return reason
    shape, out = shape_of(parsed.residual), shape_of(parsed.root)
    if shape != out:
        return f"{text_of_shape(shape)} added to {text_of_shape(out)} is no residual"
    if depends_on(parsed.residual, parsed.root):
        return "the residual is computed from what it is added to"
    return None
