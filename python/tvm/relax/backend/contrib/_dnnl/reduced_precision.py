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

Which calls do, `ReducedCalls` says. The others read and write float32 as before.
"""

from __future__ import annotations

import tvm
from tvm import relax
from tvm.contrib.onednn.policy.op_spec import Rules
from tvm.contrib.onednn.rewrites.reduced_calls import ReducedCalls
from tvm.relax.expr_functor import PyExprMutator, mutator

from .graph import substituted
from .reading import constant_of, is_constant, value_of, with_attrs
from .virtual_ops import with_formulas


def reduce_precision(mod: tvm.IRModule, func: relax.Function, rules: Rules) -> relax.Function:
    """Let what oneDNN runs compute in the type that the options name.

    Parameters
    ----------
    mod : tvm.IRModule
        The module that the function is of.
    func : relax.Function
        The function.
    rules : Rules
        The policy.
    """
    choice = ReducedCalls(with_formulas(func, rules), rules)
    return _Casts(mod, choice).visit_expr(func) if choice.inside else func


@mutator
class _Casts(PyExprMutator):
    """Builds the calls anew. What a variable stands for stays float32, if it is still read."""

    def __init__(self, mod: tvm.IRModule, choice: ReducedCalls):
        super().__init__(mod)
        self._choice, self._graph = choice, choice.graph
        self._dtype = choice.rules.options.precision
        self._numbers = {self._graph.nodes[i]: i for i in choice.inside}
        # By number and scope, as a variable is seen in its block of bindings only.
        self._reduced: dict[tuple[int, int], relax.Expr] = {}

    def visit_call_(self, op):  # pylint: disable=arguments-differ
        """Rewrite a call that is to compute in reduced precision."""
        i = self._numbers.get(op)
        if i is None:
            return self.visit_expr_post_order(op)
        call = self._call(i)
        if self._choice.writes_float32(i):
            return call
        result = self._reduced[i, self._graph.scope[i]] = self.builder_.emit(call)
        if not isinstance(op.ty, relax.TupleType):
            return relax.op.astype(result, "float32")
        fields = (relax.TupleGetItem(result, k) for k in range(len(op.ty.fields)))
        return relax.Tuple([self.builder_.emit(relax.op.astype(x, "float32")) for x in fields])

    def _call(self, i: int) -> relax.Expr:
        """Return what is to be computed in the place of an expression."""
        graph = self._graph
        is_heavy = self._choice.rules.is_heavy(graph.ops[i])
        inside = {self._source(k): self._in_reduced(k, i) for k in self._choice.read(i)}
        for k in graph.operands[i]:
            if graph.is_tuple(k) and graph.bindings[k] is not None:
                fields = [inside[self._source(field)] for field in graph.operands[k]]
                inside[self._source(k)] = relax.Tuple(fields)
        if i in graph.groups and not is_heavy:
            # A formula computes in float32, between casts that it is read with.
            inside = {
                source: self.builder_.emit(relax.op.astype(expr, "float32"))
                for source, expr in inside.items()
            }
        for k in graph.members(i):
            value = substituted(graph.bindings[k].value, inside)
            if k == i and is_heavy:
                out = "float32" if self._choice.writes_float32(i) else None
                return with_attrs(value, out_dtype=out)
            value = relax.Call(value.op, value.args, value.attrs, value.ty_args)
            if k == i and i not in graph.groups:
                return value
            inside[graph.bindings[k].var] = self.builder_.emit(value)
        return relax.op.astype(inside[graph.bindings[i].var], self._dtype)

    def _source(self, i: int) -> relax.Expr:
        """Return what an expression is called where it is read."""
        binding = self._graph.bindings[i]
        return self._graph.nodes[i] if binding is None else binding.var

    def _in_reduced(self, i: int, reader: int) -> relax.Expr:
        """Return an operand of a call in reduced precision."""
        graph, dtype = self._graph, self._dtype
        if is_constant(graph.nodes[i]):
            return constant_of(value_of(graph.nodes[i]), dtype)
        scope = graph.scope[reader]
        if (i, scope) not in self._reduced:
            field, producer = graph.field(i), self._choice.producer(i)
            if field is not None and (producer, scope) in self._reduced:
                value = relax.TupleGetItem(self._reduced[producer, scope], field)
            else:
                value = relax.op.astype(self.visit_expr(self._source(i)), dtype)
            self._reduced[i, scope] = self.builder_.emit(value)
        return self._reduced[i, scope]
