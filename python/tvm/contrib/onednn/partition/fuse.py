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
"""Fusion: an op and what is done to its result become one composite."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..ir.graph import Graph
from ..ir.match import is_field, only_user
from ..ir.node import CALL, Node
from ..ir.op_view import tensor_of
from ..ops.int8 import dequantized_operands, is_dequantized
from ..ops.operands import BIAS_OPS, operand_kind
from ..ops.quantize import DEQUANTIZE, QUANTIZE, parameters
from ..ops.reshape import copied_at_end
from ..ops.rules import Rules
from ..ops.schema import OpSchema
from ..ops.tensors import COMPILER, known_product

# oneDNN's limit of post-ops on one primitive is 32.
MAX_POST_OPS = 32


class Fused:
    """A root and its post-ops.

    A root that reads integers in 8 bits has the dequantize of each operand inside, and may have a
    quantize at its end. Between its post-ops there may be a quantize and a dequantize, which round.
    """

    def __init__(self, root: Node, rules: Rules):
        self.rules = rules
        self.chain = [root]
        self.root_spec: OpSchema = rules.ops[root.name]
        axis = self.root_spec.channel_axis
        self.channel_axis = axis(root) if axis else None
        # The part of the name of each op, "bias" for what is the primitive's bias argument; None
        # for one that shows in no name.
        self.parts: list[str | None] = [root.name.split(".")[-1]]
        self._has_full_operand = False
        # None if the root reads floats.
        self._dequantized = dequantized_operands(root, rules)
        if self._dequantized is not None and root.name != DEQUANTIZE:
            self.parts[0] = f"qnn.{self.parts[0]}"

    @property
    def dequantized(self) -> list[Node]:
        """The dequantize of each operand that is read in 8 bits; others may use its result, too."""
        if self._dequantized is None:
            return []
        chain = set(self.chain)
        below = (o for node in self.chain[1:] for o in node.operands if o not in chain)
        read = (node for node in below if is_dequantized(node, self.chain[0], self.rules))
        return list(dict.fromkeys((*self._dequantized, *read)))

    def float32_operands(self) -> dict[Node, Node]:
        """The constants that the post-ops read, and what of them the kernel reads instead.

        That is their value in float32, in which oneDNN computes post-ops. Rounded to bfloat16, a
        bias or a factor of a whole tensor would be wrong by up to 0.4 % at each element.
        """

        def is_repeated(constant: Node, node: Node) -> bool:
            """Whether it may be: the results of a vector are the same with a single row."""
            shape, own = (tensor_of(each.type).shape for each in (node, constant))
            is_vector = known_product(own) in (*own, 1)
            return None in shape or is_vector or known_product(own) < known_product(shape)

        return {
            operand: operand.rounded
            for node in self.chain[1:]
            for operand in node.operands
            if node.kind == CALL
            and self.rules.ops[node.name].post in ("binary", "prelu")
            and operand.rounded is not None
            and is_repeated(operand, node)
            and operand not in self.chain[0].operands
        }

    @property
    def name(self) -> str:
        """The composite's name, for people: what is done, in order."""
        return f"{COMPILER}.{'_'.join(part for part in self.parts if part)}"

    def grow(self, used: set[Node]) -> None:
        """Take in user after user while each is the only one and can be a post-op."""
        while len(self.chain) <= MAX_POST_OPS:
            user = only_user(self.chain[-1])
            if user is None or user in used or not self.append(user):
                break
        self._drop_unnamed()
        if self.root_spec.reads_int8 == "data" and self.parts[-1] != "quantize":
            # Alone, such an op reads what it writes.
            self._dequantized = None
            self.parts[0] = str(self.parts[0]).removeprefix("qnn.")

    def extend(self, calls: Iterable[Node]) -> None:
        """Take in calls as someone's pattern has them, whether or not `grow` would."""
        for call in calls:
            self.append(call, str(call.name).split(".")[-1])

    def append(self, user: Node, otherwise: str | None = None) -> bool:
        """Add a user of the last op to the chain, with its part of the name.

        One that cannot be fused is added under the name `otherwise`, or not at all, which returns
        False.
        """
        last = self.chain[-1]
        part = None
        if not self._is_unnamed(last, user):
            part = self._part(last, user) or otherwise
            if part is None:
                return False
        self.chain.append(user)
        self.parts.append(part)
        return True

    def shorten(self) -> None:
        """Drop post-ops from the end until the composite is not one that stays on TVM."""
        while len(self.chain) > 1 and self.rules.excludes(self.name):
            self.chain.pop()
            self.parts.pop()
            self._drop_unnamed()

    def reshaped_bits(self) -> tuple[Node, Node, Node] | None:
        """Return what keeps this chain, which ends in a quantize, from going on.

        Returns
        -------
        reshape, dequantize, user : tuple[Node, Node, Node]
            In this order they follow the quantize. If the first two changed places, the third would
            be fused, too.
        """
        following = [self.chain[-1]]
        while len(following) < 4 and len(following[-1].users) == 1:
            following += following[-1].users
        if self.parts[-1] != "quantize" or len(following) < 4:
            return None
        last, reshape, dequantize, user = following
        if not self._is_reshape_of_rows(last, reshape):
            return None
        if not is_dequantized(dequantize, last, self.rules):
            return None
        self.parts.append(None)
        is_fused = user.name != QUANTIZE and self._part(dequantize, user) is not None
        self.parts.pop()
        return (reshape, dequantize, user) if is_fused else None

    def _drop_unnamed(self) -> None:
        """Leave out trailing reshapes and dequantizes, after which nothing is fused."""
        while len(self.chain) > 1 and self.parts[-1] is None:
            self.chain.pop()
            self.parts.pop()

    def _is_unnamed(self, last: Node, user: Node) -> bool:
        """Whether a user computes nothing, so that the name of the composite does not show it."""
        return (
            # The first result of several, the only one that is used.
            (is_field(user, 0) and user.scope == last.scope)
            or self._is_reshape_of_rows(last, user)
            or (self.parts[-1] == "quantize" and is_dequantized(user, last, self.rules))
        )

    def _is_reshape_of_rows(self, last: Node, user: Node) -> bool:
        """Whether a user only gives other dimensions to the rows, or matrices, of the last op."""
        root, kept = self.chain[0], self.root_spec.kept_dims
        spec = self.rules.ops.get(user.name) if user.is_call else None
        if kept is None or spec is None or not spec.reshapes or self.rules.refusal(user):
            return False
        # An operand of all elements would be of other dimensions than the result.
        if self._has_full_operand or user.scope != last.scope:
            return False
        # Rows of more dimensions that are columns of the data are no rows of one matrix.
        is_transposed = root.name == "nn.matmul" and root.attrs.transpose_a
        shape = tensor_of(root.result).shape
        if kept == 1 and len(shape) > 2 and is_transposed:
            return False
        dims = tensor_of(user.result).shape[-kept:]
        if None not in dims:
            return dims == shape[-kept:]
        # Open ones are the same where the reshape says so.
        is_reshape = user.name == "reshape"
        return is_reshape and copied_at_end(user, len(tensor_of(last.type).shape)) >= kept

    def _part(self, last: Node, user: Node) -> str | None:
        """Return what to call a user of the last op in the name; None if it cannot be fused."""
        if user.name not in self.rules.ops or not user.is_call or user.scope != last.scope:
            return None
        spec = self.rules.ops[user.name]
        refused = self.rules.refusal(user) is not None
        is_fused = spec.post in self.root_spec.fuses or user.name in self.root_spec.fuses
        if not is_fused or refused:
            return None
        if tensor_of(user.result).shape != tensor_of(last.type).shape:
            return None
        short = user.name.split(".")[-1]
        if spec.post == "quantize":
            # A binary primitive of floating-point values writes 8 bits as well.
            writes_bits = self._dequantized is not None or self.root_spec.post == "binary"
            return short if writes_bits and parameters(*map(tensor_of, user.args[1:])) else None
        # After a quantize comes a dequantize only, see `_is_unnamed`.
        if self.parts[-1] == "quantize" or self.chain[0].name == DEQUANTIZE:
            return None
        return short if spec.post == "eltwise" else self._binary_part(user, last, spec)

    def _channel_axis(self, shape: tuple[int | None, ...]) -> int | None:
        """Return the channel axis of a result of this shape."""
        is_reshaped = len(shape) != len(tensor_of(self.chain[0].result).shape)
        return len(shape) - 1 if is_reshaped else self.channel_axis

    def _binary_part(self, user: Node, last: Node, spec: OpSchema) -> str | None:
        is_first = user.operands[0] is last
        operand = tensor_of(user.args[1 if is_first else 0]).shape
        shape = tensor_of(user.result).shape
        kind = operand_kind(user, operand, shape, self._channel_axis(shape))
        if kind is None or not (is_first or spec.swaps):
            return None
        # The first thing that is added per channel is the primitive's bias argument.
        self._has_full_operand = self._has_full_operand or kind == "full"
        is_bias = spec.name in BIAS_OPS and kind == "channel" and not any(self.parts[1:])
        if is_bias and self.root_spec.heavy:
            return "bias"
        is_sum = spec.name == "add" and (kind == "full" or operand == shape)
        return "sum" if is_sum else spec.name.split(".")[-1]


def find_fused(graph: Graph, rules: Rules) -> Iterator[Fused]:
    """Yield what to fuse: heavy ops first, so that a light one does not take their post-ops.

    TVM's MergeComposite needs a pattern for each chain, and tries all of them at each op. The rows
    of the table say what may follow what, so the chains are read off the function.
    """
    for fused in find_roots(graph, rules):
        if len(fused.chain) > 1 or fused.dequantized:
            yield fused


def find_roots(graph: Graph, rules: Rules) -> Iterator[Fused]:
    """Yield each op that others can be fused to, also if none is; see `find_fused`."""
    used: set[Node] = set()
    roots = []
    for node in graph.nodes:
        spec = rules.ops.get(node.name) if node.is_call else None
        if spec is not None and spec.fuses and rules.refusal(node) is None:
            roots.append(node)
    roots.sort(key=lambda node: not rules.is_heavy(node.name))
    for root in roots:
        if root in used:
            continue
        fused = Fused(root, rules)
        fused.grow(used)
        fused.shorten()
        if len(fused.chain) > 1 or fused.dequantized:
            used.update(fused.chain)
        yield fused


def _find_reshaped_bits(graph: Graph, rules: Rules) -> Iterator[tuple[Node, Node]]:
    """Yield each reshape and the dequantize after it that had better change places.

    See `Fused.reshaped_bits`. An op with two such operands is fused to one of them; the other it
    can read in 8 bits.
    """
    if not {QUANTIZE, DEQUANTIZE}.issubset(node.name for node in graph.nodes):
        return
    chains = list(find_fused(graph, rules))
    used = {node for fused in chains for node in fused.chain[1:]}
    for fused in chains:
        reshaped = fused.reshaped_bits()
        if reshaped is not None and reshaped[2] not in used:
            reshape, dequantize, user = reshaped
            used.add(user)
            yield reshape, dequantize


def move_dequantize_first(graph: Graph, rules: Rules) -> None:
    """Write a dequantize of a reshape as a reshape of a dequantize, where fusion goes on then."""
    for reshape, node in list(_find_reshaped_bits(graph, rules)):
        real = graph.with_operands(node, [reshape.operands[0], *node.operands[1:]])
        graph.replace(node, graph.with_operands(reshape, [real], node.type))
