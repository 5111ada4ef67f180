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
"""Has oneDNN compute in bfloat16 or float16 where the option `precision` asks for it.

The ops that compute much do, and what is between them: a softmax or a normalization, too, since
oneDNN computes these in float32 inside, whatever the type of their operands is. At the edges an op
stays in float32 where that takes no more casts. What stays on TVM stays in float32.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
from tvm import relay
from tvm.relay.function import FunctionWithFields

from ..ir.constants import to_constant, to_numpy
from ..ir.dataflow_graph import DataflowGraph, Rewritten, TypedFunction, with_attrs
from ..ir.relay_view import shape_of
from ..policy.op_spec import Rules
from ..policy.tensors import known_product


def reduce_precision(function: TypedFunction, rules: Rules) -> Rewritten:
    """Let what oneDNN runs compute in the type that the options name."""
    graph = function.graph
    choice = _Choice(graph, rules)
    if not choice.inside:
        return Rewritten(function.func)
    casts = _Casts(choice, rules.options.precision)
    return Rewritten(graph.rebuild(lambda i: graph.operands[i], casts.build))


def _is_float32(type_) -> bool:
    return isinstance(type_, relay.TensorType) and type_.dtype == "float32"


def _holds(dtype: str, constant: relay.Constant) -> bool:
    """Whether rounding to a type leaves no infinity of a constant, and no zero of a scalar."""
    values, limits = np.abs(to_numpy(constant.data)), ml_dtypes.finfo(dtype)
    least = float(limits.tiny) if values.size == 1 and values.any() else 0.0
    return bool((least <= values).all() and (values <= float(limits.max)).all())


class _Values:
    """The tensors that are handed from call to call, through tuples or not, by number."""

    def __init__(self, graph: DataflowGraph):
        self.graph = graph
        kinds = (relay.Tuple, relay.TupleGetItem)
        self._is_tuple, self._is_field = (
            [isinstance(expr, kind) for expr in graph.nodes] for kind in kinds
        )

    def read(self, i: int) -> list[int]:
        """Return the tensors that a call reads."""
        operands = self.graph.operands
        return [v for k in operands[i] for v in (operands[k] if self._is_tuple[k] else [k])]

    def results(self, i: int) -> list[int]:
        """Return the tensors that a call computes, as far as they are used."""
        users = self.graph.users[i]
        return users if users and all(self._is_field[user] for user in users) else [i]

    def producer(self, value: int) -> int:
        """Return what computes a tensor."""
        return self.graph.operands[value][0] if self._is_field[value] else value

    def readers(self, value: int) -> list[int]:
        """Return what reads a tensor."""
        users = self.graph.users
        return [u for k in users[value] for u in (users[k] if self._is_tuple[k] else [k])]


class _Choice(_Values):
    """Chooses the calls that compute in reduced precision.

    Attributes
    ----------
    inside : set[int]
        The calls.
    """

    def __init__(self, graph: DataflowGraph, rules: Rules):
        super().__init__(graph)
        self.rules = rules
        self.inside: set[int] = set()
        self._grow()
        self._trim()

    def _grow(self) -> None:
        """Take in what computes much, and all that may be and hangs together with it."""
        nodes, ops = self.graph.nodes, self.graph.ops
        stack = [i for i in range(len(nodes)) if self.rules.is_heavy(ops[i])]
        seen = set(stack)
        while stack:
            i = stack.pop()
            if not self._may_be_inside(i):
                continue
            self.inside.add(i)
            below = [self.producer(v) for v in self.read(i)]
            above = [reader for v in self.results(i) for reader in self.readers(v)]
            stack += seen.symmetric_difference(seen.union(below, above))
            seen.update(below, above)

    def _may_be_inside(self, i: int) -> bool:
        """Whether oneDNN runs a call of float32 whose numbers the other type can hold."""
        graph, dtype = self.graph, self.rules.options.precision
        spec = self.rules.ops.get(graph.ops[i])
        if spec is None or spec.name == "cast" or (spec.grows and dtype == "float16"):
            return False
        tensors = [graph.nodes[v] for v in (*self.read(i), *self.results(i))]
        if not all(_is_float32(tensor.checked_type) for tensor in tensors):
            return False
        if not all(_holds(dtype, x) for x in tensors if isinstance(x, relay.Constant)):
            return False
        # Between these an op computes with integers.
        if any(graph.ops[v] == "qnn.dequantize" for v in self.read(i)):
            return False
        if any(graph.ops[user] == "qnn.quantize" for user in graph.users[i]):
            return False
        return self.rules.refusal(graph.views[i]) is None

    def _trim(self) -> None:
        """Leave out what costs no more casts outside."""
        order = [i for i in sorted(self.inside) if not self.rules.is_heavy(self.graph.ops[i])]
        before = None
        while before != len(self.inside):
            before = len(self.inside)
            # From the results down, and from the inputs up.
            for i in (*reversed(order), *order):
                if i in self.inside:
                    around = [*self.results(i), *self.read(i)]
                    cost = self._cost(around)
                    self.inside.remove(i)
                    if self._cost(around) > cost:
                        self.inside.add(i)

    def _cost(self, values: list[int]) -> int:
        """Count the elements that are cast."""
        return sum(map(self._elements_cast, set(values)))

    def _elements_cast(self, value: int) -> int:
        producer, readers = self.producer(value), self.readers(value)
        is_cast = any((reader in self.inside) != (producer in self.inside) for reader in readers)
        if not is_cast or isinstance(self.graph.nodes[value], relay.Constant):
            return 0
        if self.writes_float32(producer):
            return 0
        return known_product(shape_of(self.graph.nodes[value]))

    def writes_float32(self, i: int) -> bool:
        """Whether a call that is inside has its sums read in float32 only, which is for free."""
        if i not in self.inside or not self.rules.is_heavy(self.graph.ops[i]):
            return False
        return self.inside.isdisjoint(self.readers(i))


class _Casts:
    """Builds the calls anew, with casts where the types meet."""

    def __init__(self, choice: _Choice, dtype: str):
        self._choice, self._graph, self._dtype = choice, choice.graph, dtype
        self._wide: dict[int, relay.Expr] = {}
        self._narrow: dict[int, relay.Expr] = {}

    def build(self, i: int, done: dict[int, relay.Expr]) -> relay.Expr:
        """Build an expression, as `DataflowGraph.rebuild` wants it."""
        graph = self._graph
        if i in self._choice.inside:
            return self._call(i, [self._in_narrow(k, done) for k in graph.operands[i]])
        if self._choice.producer(i) in self._choice.inside:
            return graph.remake(i, done)
        return graph.remake(i, {k: self._in_float32(k, done) for k in graph.operands[i]})

    def _call(self, i: int, args: list[relay.Expr]) -> relay.Call:
        call = self._graph.nodes[i]
        if isinstance(call.op, relay.Function):
            return relay.Call(_narrow_function(call.op, self._dtype), args, span=call.span)
        if not self._choice.rules.is_heavy(self._graph.ops[i]):
            return relay.Call(call.op, args, call.attrs, span=call.span)
        # Without a type, the result is of that of the operands.
        out = "float32" if self._choice.writes_float32(i) else ""
        return with_attrs(call, args, out_dtype=out)

    def _is_narrow(self, value: int) -> bool:
        producer = self._choice.producer(value)
        return producer in self._choice.inside and not self._choice.writes_float32(producer)

    def _in_float32(self, i: int, done: dict[int, relay.Expr]) -> relay.Expr:
        if not self._is_narrow(i):
            return done[i]
        if i not in self._wide:
            self._wide[i] = relay.cast(done[i], "float32")
        return self._wide[i]

    def _in_narrow(self, i: int, done: dict[int, relay.Expr]) -> relay.Expr:
        expr = self._graph.nodes[i]
        if isinstance(expr, relay.Tuple):
            return relay.Tuple([self._in_narrow(k, done) for k in self._graph.operands[i]])
        if self._is_narrow(i):
            return done[i]
        if i not in self._narrow:
            if isinstance(expr, relay.Constant):
                self._narrow[i] = to_constant(to_numpy(expr.data), self._dtype)
            else:
                self._narrow[i] = relay.cast(done[i], self._dtype)
        return self._narrow[i]


def _narrow_function(func: relay.Function, dtype: str) -> relay.Function:
    """Return a virtual op of reduced precision whose body computes as before."""
    params = [
        relay.var(param.name_hint, relay.TensorType(param.checked_type.shape, dtype))
        for param in func.params
    ]
    in_float32 = {old: relay.cast(new, "float32") for old, new in zip(func.params, params)}
    body = relay.cast(relay.bind(func.body, in_float32), dtype)
    return FunctionWithFields(func, params, body, relay.TensorType(func.ret_type.shape, dtype))
