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
"""Base classes of the rewrites of Relax functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from .reading import is_constant


class BindingMutator(PyExprMutator):
    """Rewrites expressions, operands first, and looks up what variables stand for."""

    def bound(self, expr: relax.Expr) -> relax.Expr:
        """Return what a variable of this block of bindings stands for, or any expression as it is.

        Others may have been bound where what they read is not seen from here.
        """
        while isinstance(expr, relax.DataflowVar):
            value = self.lookup_binding(expr)
            if value is None:
                return expr
            expr = value
        return expr

    def constant_or(self, expr: relax.Expr) -> relax.Expr:
        """Return the constant that an expression is known to be, or the expression."""
        if isinstance(expr, relax.Tuple):
            return relax.Tuple([self.constant_or(field) for field in expr.fields])
        known = expr
        while isinstance(known, relax.Var):
            known = self.lookup_binding(known)
        return known if is_constant(known) else expr

    def visit_tuple_getitem_(self, op):  # pylint: disable=arguments-differ
        """Read the field of a tuple that is known."""
        item = self.visit_expr_post_order(op)
        if not isinstance(item, relax.TupleGetItem):
            return item
        value = self.bound(item.tuple_value)
        return value.fields[item.index] if isinstance(value, relax.Tuple) else item


# Writes an expression anew: from what rewrites it, and the expression with its new operands.
Replace = Callable[[BindingMutator, relax.Expr], relax.Expr]


def replaced(
    mod: tvm.IRModule, func: relax.Function, values: Mapping[relax.Expr, Replace]
) -> relax.Function:
    """Return a function with some calls, or fields of tuples, written anew.

    Parameters
    ----------
    mod : tvm.IRModule
        The module that the function is of.
    func : relax.Function
        The function.
    values : Mapping[relax.Expr, Replace]
        What writes an expression anew, by the expression.
    """
    return _Replacer(mod, values).visit_expr(func) if values else func


@mutator
class _Replacer(BindingMutator):
    def __init__(self, mod: tvm.IRModule, values: Mapping[relax.Expr, Replace]):
        super().__init__(mod)
        self._values = values

    def visit_call_(self, op):  # pylint: disable=arguments-differ
        """Write a call anew, if it is one of those."""
        call = self.visit_expr_post_order(op)
        return self._values[op](self, call) if op in self._values else call

    def visit_tuple_getitem_(self, op):  # pylint: disable=arguments-differ
        """Write a field anew, if it is one of those."""
        item = super().visit_tuple_getitem_(op)
        return self._values[op](self, item) if op in self._values else item
