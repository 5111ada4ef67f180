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
"""Chooses the calls that compute in bfloat16 or float16. IR-independent."""

from __future__ import annotations

from itertools import dropwhile, filterfalse

import ml_dtypes
import numpy as np

from ..ir.graph import Graph
from ..ir.match import is_op
from ..ir.node import FIELD, TUPLE, Node
from ..ir.op_view import Tensor, Value, tensor_of
from ..ops.int8 import dequantized_operands
from ..ops.quantize import DEQUANTIZE, QUANTIZE
from ..ops.recurrent import GATES
from ..ops.rules import Rules
from ..ops.tensors import known_product

# The types of conditions and indices, which stay as they are.
KEPT = ("bool", "int32")

# Bounds the search, which each op between multiplications begins anew.
_LONGEST_EPILOGUE = 8


def _is_float32(value: Value) -> bool:
    return isinstance(value, Tensor) and value.dtype == "float32"


def _is_kept(value: Value) -> bool:
    """Whether a tensor that a reduced call reads has no floating-point numbers."""
    return isinstance(value, Tensor) and value.dtype in KEPT


def _holds(dtype: str, constant: Tensor) -> bool:
    """Whether rounding to a type leaves no infinity of a constant, and no zero of a scalar."""
    values, limits = np.abs(np.asarray(constant.value)), ml_dtypes.finfo(dtype)
    least = float(limits.tiny) if values.size == 1 and values.any() else 0.0
    # An infinity stays one.
    is_held = (values <= float(limits.max)) | np.isinf(values)
    return bool((least <= values).all() and is_held.all())


def _is_repeated(shape: tuple, result: tuple) -> bool:
    """Whether a result has the elements of a shape, once or once for each image of a batch."""
    inner = tuple(dropwhile(lambda size: size == 1, shape))
    return shape == result or (len(inner) > 1 and inner == result[len(result) - len(inner) :])


class ReducedCalls:
    """The calls of a function that compute in reduced precision.

    Those that compute much do, and what hangs together with them; at the edges a call stays in
    float32 where that takes no more casts. Tensors are handed from call to call, through tuples or
    not.

    Parameters
    ----------
    graph : Graph
        The function.
    rules : Rules
        The rules, whose options name the type.

    Attributes
    ----------
    inside : set[Node]
        The calls.
    wide : set[Node]
        Those of them that write float32.
    """

    def __init__(self, graph: Graph, rules: Rules):
        self.graph, self.rules = graph, rules
        self.inside: set[Node] = set()
        self._grow()
        self._trim()
        # Their sums are read in float32 only, so no cast is needed.
        self.wide = {call for call in self.inside if self._writes_float32(call)}

    def read(self, call: Node) -> list[Node]:
        """Return the operands of a call that are not kept in float32."""
        read = call.operands[: self.typed_operands(call)]
        return [v for k in read for v in (k.operands if k.kind == TUPLE else [k])]

    def typed_operands(self, call: Node) -> int | None:
        """Return how many operands a call reads in the type of its result; None for all."""
        spec = self.rules.ops.get(call.name)
        return spec.typed_operands if spec is not None else None

    def results(self, call: Node) -> list[Node]:
        """Return the results of a call that are used."""
        users = call.users
        return users if users and all(user.kind == FIELD for user in users) else [call]

    def producer(self, value: Node) -> Node:
        """Return the producer of a tensor."""
        return value.operands[0] if value.kind == FIELD else value

    def readers(self, value: Node) -> list[Node]:
        """Return the users of a tensor."""
        readers = [u for k in value.users for u in (k.users if k.kind == TUPLE else [k])]
        return [u for u in readers if self.typed_operands(u) is None or value in self.read(u)]

    def _grow(self) -> None:
        """Start with compute-intensive calls, and add connected calls that support the type."""
        stack = [node for node in self.graph.nodes if self.rules.is_heavy(node.name)]
        seen = set(stack)
        while stack:
            call = stack.pop()
            if not self._may_be_inside(call):
                continue
            self.inside.add(call)
            below = [self.producer(v) for v in self.read(call)]
            above = [reader for v in self.results(call) for reader in self.readers(v)]
            stack += seen.symmetric_difference(seen.union(below, above))
            seen.update(below, above)

    def _may_be_inside(self, call: Node) -> bool:
        """Whether oneDNN runs a float32 call and the reduced type can represent its constants."""
        dtype = self.rules.options.precision
        spec = self.rules.ops.get(call.name) if call.is_call else None
        if spec is None or spec.name == "cast" or spec.only_float32:
            return False
        if spec.grows and dtype == "float16":
            return False
        # Their states stay in float32, see `narrow_layers`.
        if spec.name in GATES or self._is_residual_sum(call):
            return False
        read = [value.type for value in self.read(call)]
        results = [value.type for value in self.results(call)]
        values = [*filterfalse(_is_kept, read), *results]
        if not all(map(_is_float32, values)):
            return False
        tensors = map(tensor_of, values)
        if not all(_holds(dtype, tensor) for tensor in tensors if tensor.is_constant):
            return False
        if self.rules.is_heavy(call.name):
            # It multiplies integers, unless one of its operands is of floating-point values.
            if dequantized_operands(call, self.rules) is not None:
                return False
        elif any(value.name == DEQUANTIZE for value in self.read(call)):
            return False
        elif any(user.name == QUANTIZE for user in call.users):
            return False
        return self.rules.refusal(call) is None

    def _is_residual_sum(self, call: Node) -> bool:
        """Whether a call is the sum of a residual connection that a normalization reads.

        Such a sum is an operand of the next one, so rounding errors add up from layer to layer.
        With the 8 bits of bfloat16 they are more than half of a transformer's error. Matmuls
        accumulate in float32 and can write it; the normalization reads it, and writes bfloat16.
        The first of these sums may be that of the positional embedding, which has no batch.
        Open sizes at the same position are taken for equal, as with known ones.
        """
        if not is_op(call, "add") or self.rules.options.precision != "bfloat16":
            return False
        shape, *added = (node.tensor.shape for node in (call, *call.operands))
        is_full = all(_is_repeated(each, shape) for each in added)
        return is_full and any(self._normalizes(reader) for reader in self._readers_of_views(call))

    def _normalizes(self, call: Node) -> bool:
        spec = self.rules.ops.get(call.name)
        return spec is not None and spec.normalizes

    def _readers_of_views(self, value: Node) -> list[Node]:
        """Return the users of a tensor and of its views."""
        readers: list[Node] = []
        stack = [value]
        while stack:
            for reader in self.readers(stack.pop()):
                is_view = self.rules.moves(reader.name) == "view"
                (stack if is_view else readers).append(reader)
        return readers

    def _trim(self) -> None:
        """Remove calls whose removal needs no additional casts."""
        order = [node for node in self.graph.nodes if node in self.inside]
        order = [call for call in order if not self.multiplies(call)]
        before = None
        while before != len(self.inside):
            before = len(self.inside)
            # From the results down, and from the inputs up.
            for call in (*reversed(order), *order):
                if call in self.inside:
                    group = [call, *self._epilogues(call)]
                    around = [v for each in group for v in (*self.results(each), *self.read(each))]
                    cost = self._cost(around)
                    self.inside.difference_update(group)
                    if self._cost(around) > cost and not self._reads_cache(call):
                        self.inside.update(group)

    def _epilogues(self, call: Node) -> list[Node]:
        """Return the ops between a call and multiplications that only it reads, such as a bias.

        Without them, the multiplications can write float32 for the call. Of a heavy one, such as
        an attention, they are none: it reads less of reduced precision.
        """
        if self.rules.is_heavy(call.name):
            return []
        epilogues = (self._epilogue(value) for value in self.read(call))
        return [each for ops in epilogues if ops is not None for each in ops]

    def _epilogue(self, value: Node, depth: int = 0) -> list[Node] | None:
        """Return the ops down to multiplications; None if anything else computes or reads them."""
        is_own = value.is_call and value in self.inside and len(self.readers(value)) == 1
        if not is_own or depth > _LONGEST_EPILOGUE:
            return None
        if self.rules.is_heavy(value.name):
            return [] if self.multiplies(value) else None
        below = [self._epilogue(v, depth + 1) for v in self.read(value) if not v.is_constant]
        ops = [each for part in below if part is not None for each in part]
        return [value, *ops] if below and None not in below else None

    def _reads_cache(self, call: Node) -> bool:
        """Whether a call would read a float32 cache through a cast.

        Of an attention, that are keys and values of earlier positions.
        """
        cached = self.read(call)[1:] if self.typed_operands(call) is not None else []
        return any(self.producer(value) not in self.inside for value in cached)

    def _cost(self, values: list[Node]) -> int:
        """Count the elements that are cast."""
        return sum(map(self._elements_cast, set(values)))

    def _elements_cast(self, value: Node) -> int:
        if _is_kept(value.type):
            return 0
        producer, readers = self.producer(value), self.readers(value)
        is_cast = any((reader in self.inside) != (producer in self.inside) for reader in readers)
        if not is_cast or value.is_constant or self._writes_float32(producer):
            return 0
        return known_product(value.tensor.shape)

    def multiplies(self, call: Node) -> bool:
        """Whether a call multiplies in reduced precision; it may write its sums in float32."""
        return self.rules.is_heavy(call.name) and self.typed_operands(call) is None

    def _writes_float32(self, call: Node) -> bool:
        if call not in self.inside or not self.multiplies(call):
            return False
        return self.inside.isdisjoint(self.readers(call))
