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
"""Has convolutions compute only what those that follow read, see `ReadPositions`."""

from __future__ import annotations

import tvm
from tvm import relax
from tvm.contrib.onednn.policy.op_spec import Rules
from tvm.contrib.onednn.rewrites.read_positions import ReadPositions, Subsample
from tvm.relax.expr_functor import PyExprMutator, mutator

from .graph import RelaxGraph
from .reading import with_attrs


def propagate_strides(mod: tvm.IRModule, func: relax.Function, rules: Rules) -> relax.Function:
    """Return a function that does not compute what strided 1x1 convolutions skip.

    Parameters
    ----------
    mod : tvm.IRModule
        The module that the function is of.
    func : relax.Function
        The function.
    rules : Rules
        The policy.
    """
    graph = RelaxGraph(func, rules.options.exclude)
    positions = ReadPositions(graph, rules)
    return _Strider(mod, graph, positions).visit_expr(func) if positions.strides() else func


@mutator
class _Strider(PyExprMutator):
    """Rewrites calls, operands first."""

    def __init__(self, mod: tvm.IRModule, graph: RelaxGraph, positions: ReadPositions):
        super().__init__(mod)
        self._strides, self._parts = (
            {graph.nodes[i]: change for i, change in changes.items()}
            for changes in (positions.strides(), positions.subsamples())
        )

    def visit_call_(self, op):  # pylint: disable=arguments-differ
        """Rewrite a call."""
        if op not in self._parts:
            call = self.visit_expr_post_order(op)
            return with_attrs(call, strides=self._strides[op]) if op in self._strides else call
        args = [self._part(self.visit_expr(x), part) for x, part in zip(op.args, self._parts[op])]
        return relax.Call(op.op, args, op.attrs, op.ty_args)

    def _part(self, data: relax.Expr, part: Subsample | None) -> relax.Expr:
        """Return what is read of an operand."""
        if part is None:
            return data
        if part.is_dequantized:
            call = self.lookup_binding(data)
            bits = self._part(call.args[0], part._replace(is_dequantized=False))
            real = relax.Call(call.op, [bits, *call.args[1:]], call.attrs, call.ty_args)
            return self.builder_.emit(real)
        return self.builder_.emit(getattr(relax.op.nn, part.op)(data, **part.attrs))
