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
"""The ops of a module, walked once: each op, where it runs, and why it stays if it does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import tvm
from tvm import relay
from tvm.contrib.onednn.policy.tensors import COMPILER

from ..ir.dataflow_graph import (
    OPAQUE,
    STOP_FUSION,
    DataflowGraph,
    has_attr,
    is_opaque,
    is_partition,
    op_calls,
)
from ..ir.relay_view import op_name


@dataclass
class Unit:
    """An op of a module, or the ops of a function that is called as one, such as a composite.

    Parameters
    ----------
    function : str
        The function of the module that has it.
    expr : relay.Expr
        The call of the op, or the function that is called as one.
    offloaded : bool
        Whether oneDNN runs it.
    composite : str | None
        The name, if it is a composite of oneDNN.
    parts : list[relay.Call]
        The calls in it, in order; a composite in a composite is one.
    reason : str | None
        Why it stays on TVM, if it does and if that is known.
    """

    function: str
    expr: relay.Expr
    offloaded: bool = False
    composite: str | None = None
    parts: list[relay.Call] = field(default_factory=list)
    reason: str | None = None

    @property
    def ops(self) -> Iterator[relay.Call]:
        """The calls of Relay ops in it, those in composites in it too."""
        for part in self.parts:
            yield from op_calls(part.op) if isinstance(part.op, relay.Function) else [part]


class Walk:
    """The parts of a typed module.

    Attributes
    ----------
    mod : tvm.IRModule
        The module.
    graphs : dict[str, DataflowGraph]
        The bodies of the functions that are TVM's or oneDNN's, by name.
    units : list[Unit]
        The ops of all functions.
    """

    def __init__(self, mod: tvm.IRModule):
        self.mod = mod
        self.graphs: dict[str, DataflowGraph] = {}
        self.units: list[Unit] = []
        self._by_expr: dict[relay.Expr, Unit] = {}
        for var, func in mod.functions.items():
            if not isinstance(func, relay.Function):
                continue
            name, offloaded = var.name_hint, is_partition(func)
            if is_opaque(func) and not offloaded:
                self._add(_closed(name, func, False))
                continue
            self.graphs[name] = DataflowGraph(func.body)
            for expr in self.graphs[name].nodes:
                if op_name(expr) == STOP_FUSION:
                    continue
                if op_name(expr):
                    self._add(Unit(name, expr, offloaded, parts=[expr]))
                    continue
                func = expr.op if isinstance(expr, relay.Call) else expr
                if is_opaque(func) and func not in self._by_expr:
                    self._add(_closed(name, func, offloaded))

    def _add(self, unit: Unit) -> None:
        self.units.append(unit)
        self._by_expr[unit.expr] = unit

    def unit_of(self, call: relay.Call) -> Unit | None:
        """Return what a call of an op, or of a function that is called as one, belongs to."""
        return self._by_expr.get(call.op if isinstance(call.op, relay.Function) else call)


def _closed(name: str, func: relay.Function, offloaded: bool) -> Unit:
    """Make the unit of a function that nobody looks into."""
    unit = Unit(name, func, offloaded)
    if has_attr(func, "Composite") and str(func.attrs["Composite"]).startswith(f"{COMPILER}."):
        unit.composite = str(func.attrs["Composite"])
        unit.parts = [
            expr for expr in DataflowGraph(func.body).nodes if isinstance(expr, relay.Call)
        ]
    else:
        unit.parts = op_calls(func.body)
    if has_attr(func, "Compiler"):
        unit.reason = f"left to the compiler '{func.attrs['Compiler']}'"
    elif not offloaded:
        unit.reason = f"in a function marked '{next(key for key in OPAQUE if has_attr(func, key))}'"
    return unit
