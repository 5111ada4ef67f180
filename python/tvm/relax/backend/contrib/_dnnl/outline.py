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
"""Functions of a Relax module become calls of partitions."""

from __future__ import annotations

import itertools
import json

from tvm import relax
from tvm.contrib.onednn.partition.units import Choice, Units
from tvm.contrib.onednn.policy.tensors import COMPILER

from .graph import RelaxGraph, substituted
from .kernels import KERNEL, NUM_THREADS, kernel_of
from .reading import is_constant


class Outlined:
    """A function whose parts for oneDNN are functions of their own.

    Parameters
    ----------
    builder : relax.BlockBuilder
        Has the module; the partitions are added to it.
    func : relax.Function
        The function.
    units : Units
        The same as a graph, with what is fused.
    choice : Choice
        What goes into partitions.
    prefix : str
        What the names of the partitions begin with.

    Attributes
    ----------
    func : relax.Function
        The function that calls the partitions.
    """

    def __init__(
        self,
        builder: relax.BlockBuilder,
        func: relax.Function,
        units: Units,
        choice: Choice,
        prefix: str,
    ):
        self.graph: RelaxGraph = units.ops
        self.units, self.regions = units, choice.regions
        self._choice = choice
        # By number of an expression in a partition.
        part_of: dict[int, int] = {}
        for k, members in enumerate(choice.partitions):
            part_of.update(dict.fromkeys(self._all(members), k))
        self._calls: dict[int, list] = {}
        used = {var.name_hint for var in builder.get().get_global_vars()}
        names = (f"{prefix}_{number}" for number in itertools.count())
        for k, members in enumerate(choice.partitions):
            name = next(name for name in names if name not in used)
            partition, symbols = self._function(members, name)
            self._calls[k] = self._call(members, builder.add_func(partition, name), symbols)
        self.func = self._rest(func, part_of)

    @property
    def reasons(self) -> dict:
        """Why calls stayed that oneDNN could run, by their variables."""
        bindings = self.graph.bindings
        return {
            bindings[k].var: reason
            for i, reason in self._choice.reasons.items()
            for k in self._parts(i)
            if bindings[k] is not None
        }

    def _all(self, members: list[int]) -> list[int]:
        """Return all expressions of a region that have bindings, in order.

        Of what a composite has a copy of because others read it too, they read the original.
        """
        operands = self.units.graph.operands
        numbers = {k for i in members for k in self._parts(i) if k == i or not operands[k]}
        return sorted(k for k in numbers if self.graph.bindings[k] is not None)

    def _parts(self, i: int) -> list[int]:
        units = self.units
        own = [*units.fused[i].dequantized, *units.chain(i)] if i in units.fused else [i]
        return [k for number in own for k in self.graph.members(number)]

    def _var(self, i: int):
        """Return the variable that an expression is known by, or the constant."""
        binding, node = self.graph.bindings[i], self.graph.nodes[i]
        return node if binding is None or is_constant(node) else binding.var

    def _function(self, members: list[int], name: str) -> tuple[relax.Function, list]:
        inputs = self.regions.inputs(members)
        inside = {}
        params = []
        for i in inputs:
            var = self._var(i)
            inside[var] = relax.Var(var.name, var.ty)
            params.append(inside[var])
        bindings: list = []
        for i in members:
            if self.graph.is_tuple(i) and self.graph.bindings[i] is None:
                continue
            own, value = self._var(i), self.graph.bindings[i].value
            if self.graph.is_tuple(i) or self.graph.field(i) is not None:
                value = substituted(value, inside)
            else:
                composite, args, symbols = self._composite(i)
                callee = relax.Var(f"{own.name}_kernel", composite.ty)
                bindings.append(relax.VarBinding(callee, composite))
                args = [substituted(arg, inside) for arg in args]
                value = relax.Call(callee, [*args, *symbols], ret_ty=own.ty)
            inside[own] = relax.Var(own.name, own.ty)
            bindings.append(relax.VarBinding(inside[own], value))
        outputs = [inside[self._var(i)] for i in self.regions.outputs(members)]
        body = outputs[0] if len(outputs) == 1 else relax.Tuple(outputs)
        attrs = {"Codegen": COMPILER, "global_symbol": name}
        if self.units.rules.options.num_threads:
            attrs[NUM_THREADS] = self.units.rules.options.num_threads
        return _new_function(params, bindings, body, attrs)

    def _composite(self, i: int) -> tuple[relax.Function, list, list]:
        """Return the function of an op with what is fused to it, and what it is called with."""
        kernel = kernel_of(self.units, i)
        args = [self._var(k) for k in kernel.inputs]
        params = [relax.Var(f"x{k}", arg.ty) for k, arg in enumerate(args)]
        inside = {}
        for arg, param in zip(args, params):
            inside.setdefault(arg, param)
        bindings = []
        parts = sorted(self._parts(i))
        for k in {operand for part in parts for operand in self.graph.operands[part]}:
            if self.graph.is_tuple(k):
                # Where a tuple has a variable, the kernel reads its fields.
                inside[self._var(k)] = substituted(self.graph.nodes[k], inside)
        for k in parts:
            binding = self.graph.bindings[k]
            inside[binding.var] = relax.DataflowVar(binding.var.name, binding.var.ty)
            value = substituted(binding.value, inside)
            bindings.append(relax.VarBinding(inside[binding.var], value))
        last = bindings.pop()
        out = relax.Var("out", last.var.ty)
        bindings.append(relax.VarBinding(out, last.value))
        node = {"name": kernel.name, "attrs": kernel.attrs}
        name = kernel.name if kernel.name.startswith(f"{COMPILER}.") else _composite_name(kernel)
        attrs = {"Composite": name, KERNEL: json.dumps(node)}
        func, symbols = _new_function(params, bindings, out, attrs, is_dataflow=True)
        return func, args, symbols

    def _call(self, members: list[int], var, symbols: list) -> list:
        """Return the bindings that take the place of a region."""
        args = [*map(self._var, self.regions.inputs(members)), *symbols]
        outputs = [self._var(i) for i in self.regions.outputs(members)]
        type_ = relax.TupleType([out.ty for out in outputs])
        if len(outputs) == 1:
            return [relax.VarBinding(outputs[0], relax.Call(var, args, ret_ty=outputs[0].ty))]
        call, results = relax.Call(var, args, ret_ty=type_), relax.DataflowVar(var.name_hint, type_)
        fields = [
            relax.VarBinding(out, relax.TupleGetItem(results, k)) for k, out in enumerate(outputs)
        ]
        return [relax.VarBinding(results, call), *fields]

    def _rest(self, func, part_of: dict[int, int]) -> relax.Function:
        """Return the function with a call in the place of each region."""
        number_of = {
            binding.var: i for i, binding in enumerate(self.graph.bindings) if binding is not None
        }
        blocks = []
        for block in func.body.blocks:
            units: list[list] = []
            seen: set[int] = set()
            for binding in block.bindings:
                k = part_of.get(number_of[binding.var])
                if k is None:
                    units.append([binding])
                elif k not in seen:
                    seen.add(k)
                    units.append(self._calls[k])
            blocks.append(type(block)(_in_order(units)))
        body = relax.SeqExpr(blocks, func.body.body)
        return relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs)


def _composite_name(kernel) -> str:
    return f"{COMPILER}.{kernel.name.split('.')[-1]}"


def _in_order(units: list[list]) -> list:
    """Return bindings with each unit behind what it reads; else in the order given."""
    unit_of = {binding.var: k for k, unit in enumerate(units) for binding in unit}
    done: list = []
    state = [0] * len(units)
    for start in range(len(units)):
        stack = [start]
        while stack:
            k = stack[-1]
            if state[k] == 2:
                stack.pop()
                continue
            needs = [
                unit_of[var]
                for binding in units[k]
                for var in relax.analysis.all_vars(binding.value)
                if var in unit_of and unit_of[var] != k and state[unit_of[var]] != 2
            ]
            if needs and state[k] == 0:
                state[k] = 1
                stack.extend(reversed(needs))
                continue
            state[k] = 2
            done.extend(units[k])
            stack.pop()
    return done


def _new_function(params, bindings, body, attrs: dict, is_dataflow: bool = False):
    """Return a function with variables of its own, and what it is called with behind `params`.

    That is a shape of the symbols that no parameter is as large as, such as `n` where one has
    `4 * n` rows; a list of none or one. TVM's FuseOpsByPattern passes them in the same way.
    """
    block = (relax.DataflowBlock if is_dataflow else relax.BindingBlock)(bindings)
    is_tuple = isinstance(body, relax.Tuple)
    type_ = relax.TupleType([field.ty for field in body.fields]) if is_tuple else body.ty
    func = relax.Function(params, relax.SeqExpr([block], body), type_)
    symbols = relax.analysis.free_symbolic_vars(func)
    if symbols:
        shape = relax.Var("tir_vars", relax.ShapeType(symbols))
        func = relax.Function([*params, shape], func.body, type_)
    func = relax.utils.copy_with_new_vars(func).with_attrs(attrs)
    return func, [relax.ShapeExpr(symbols)] if symbols else []
