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

The ops that compute much do, and what is between them, see `ReducedCalls`: a softmax or a
normalization, too, since oneDNN computes these in float32 inside, whatever the type of their
operands is. What stays on TVM stays in float32. The driver of rewrites accepts what has the type of
what it replaces; here the types between the ops change.
"""

from __future__ import annotations

from tvm import relay
from tvm.contrib.onednn.policy.op_spec import Rules
from tvm.contrib.onednn.rewrites.reduced_calls import ReducedCalls
from tvm.relay.function import FunctionWithFields

from ..ir.constants import to_constant, to_numpy
from ..ir.dataflow_graph import Rewritten, TypedFunction, with_attrs


def reduce_precision(function: TypedFunction, rules: Rules) -> Rewritten:
    """Let what oneDNN runs compute in the type that the options name."""
    graph = function.graph
    choice = ReducedCalls(graph, rules)
    if not choice.inside:
        return Rewritten(function.func)
    casts = _Casts(choice, rules.options.precision)
    return Rewritten(graph.rebuild(lambda i: graph.operands[i], casts.build))


class _Casts:
    """Builds the calls anew, with casts where the types meet."""

    def __init__(self, choice: ReducedCalls, dtype: str):
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

    def _in_float32(self, i: int, done: dict[int, relay.Expr]) -> relay.Expr:
        if not self._choice.is_reduced(i):
            return done[i]
        if i not in self._wide:
            self._wide[i] = relay.cast(done[i], "float32")
        return self._wide[i]

    def _in_narrow(self, i: int, done: dict[int, relay.Expr]) -> relay.Expr:
        expr = self._graph.nodes[i]
        if isinstance(expr, relay.Tuple):
            return relay.Tuple([self._in_narrow(k, done) for k in self._graph.operands[i]])
        if self._choice.is_reduced(i):
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
