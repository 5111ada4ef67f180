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
"""Writes a graph of nodes as a function of Relax, with functions for the partitions of oneDNN."""

from __future__ import annotations

import itertools

from tvm import relax
from tvm.contrib.onednn.ir.dim import Size, Symbol, symbol_of, symbols_in
from tvm.contrib.onednn.ir.node import CONSTANT, FIELD, INPUT, NATIVE, TUPLE, Node
from tvm.contrib.onednn.ir.op_view import Tensor
from tvm.contrib.onednn.ops.tensors import COMPILER
from tvm.contrib.onednn.partition.kernel import composite_name, kernel_of
from tvm.contrib.onednn.partition.offload import UnwritableOps
from tvm.contrib.onednn.partition.units import OffloadDecision, Units

from .body import Body, name_of, substituted
from .kernels import KERNEL, NUM_THREADS, GraphWriter
from .reader import RelaxGraph
from .reading import ExprDict
from .types import size_from, type_difference, type_from


class FunctionWriter:
    """Writes a function whose parts for oneDNN are functions of their own.

    Parameters
    ----------
    builder : relax.BlockBuilder
        Has the module; the partitions are added to it.
    units : Units
        The function, with what is fused.
    decision : OffloadDecision
        What goes into partitions.
    prefix : str
        What the names of the partitions begin with.

    Attributes
    ----------
    names : list[str]
        The names of the partitions.
    """

    def __init__(
        self, builder: relax.BlockBuilder, units: Units, decision: OffloadDecision, prefix: str
    ):
        self._builder, self._units, self._regions = builder, units, decision.regions
        self._graph: RelaxGraph = units.graph
        self._partitions = decision.partitions
        used = {var.name_hint for var in builder.get().get_global_vars()}
        names = (f"{prefix}_{number}" for number in itertools.count())
        free = (name for name in names if name not in used)
        self.names = [name for _, name in zip(self._partitions, free)]
        # By node: the partition that it is in.
        self._part_of: dict[Node, int] = {}
        for k, members in enumerate(self._partitions):
            self._part_of.update(dict.fromkeys(units.hidden(members), k))
        self._body = Body(builder, offloaded=self._part_of)
        # What could not be written; variables of their types stand for them.
        self._unwritable: dict[Node, Exception] = {}
        self._defining = _defining_casts(self._graph)

    def write(self) -> relax.Function:
        """Return the function.

        Raises
        ------
        UnwritableOps
            Naming all ops that cannot be written.
        """
        func, known = self._graph.func, self._body.known
        for node in self._graph.nodes:
            if node.kind == INPUT:
                known[node] = node.origin.native.value
        self._escaping = {
            node
            for node in self._graph.nodes
            if any(user.scope != node.scope for user in node.users)
        }
        blocks = []
        for is_dataflow, scopes in self._graph.blocks:
            for scope in scopes:
                for unit in self._in_order(scope):
                    try:
                        self._write_unit(unit)
                    except Exception as error:  # pylint: disable=broad-except
                        self._stand_in(unit, error)
            blocks.append(
                (relax.DataflowBlock if is_dataflow else relax.BindingBlock)(self._body.bindings)
            )
            self._body.bindings = []
        if self._unwritable:
            raise UnwritableOps(self._unwritable)
        result = self._graph.nodes[-1]
        body = substituted(result.origin.native.value, self._inside(result))
        if self._body.bindings:
            blocks.append(relax.BindingBlock(self._body.bindings))
        written = relax.Function(
            func.params, relax.SeqExpr(blocks, body), func.ret_ty, func.is_pure, func.attrs
        )
        return self._builder.normalize(written)

    def _stand_in(self, unit, error: Exception) -> None:
        """Note what could not be written, and let variables stand for its results."""
        nodes, results = [unit], [unit]
        if not isinstance(unit, Node):
            members = self._partitions[unit]
            nodes = [node for node in members if node.is_call]
            results = self._regions.outputs(members)
        errors = error.errors if isinstance(error, UnwritableOps) else dict.fromkeys(nodes, error)
        self._unwritable = {**errors, **self._unwritable}
        for node in results:
            self._body.known[node] = relax.Var(name_of(node), type_from(node.type))

    def _in_order(self, scope: int) -> list:
        """Return the nodes that TVM computes, and the partitions, each after what it reads."""
        graph = self._graph
        done: dict = {}
        for node in graph.nodes[:-1]:
            if node.scope == scope and node.kind not in (CONSTANT, INPUT):
                self._visit(node, scope, done)
        return list(done)

    def _visit(self, start: Node, scope: int, done: dict) -> None:
        stack, entered = [self._unit(start)], set()
        while stack:
            unit = stack[-1]
            if unit in done:
                stack.pop()
                continue
            needs = []
            if unit not in entered:
                entered.add(unit)
                # Kernels of several partitions may compute one dequantize, each for itself.
                own = dict.fromkeys(self._nodes(unit))
                needs = [
                    self._unit(operand)
                    for node in own
                    for operand in self._read_by(node, own)
                    if operand.scope == scope and operand.kind not in (CONSTANT, INPUT)
                ]
            needs = [need for need in needs if need not in done and need != unit]
            if needs:
                stack.extend(reversed(needs))
                continue
            done[unit] = None
            stack.pop()

    def _read_by(self, node: Node, own) -> list[Node]:
        """Return the operands of a node that are not `own`, and the casts of its sizes' symbols."""
        operands = [each for each in node.operands if each not in own]
        if not self._defining:
            return operands
        symbols = (s for size in _sizes(node) for s in symbols_in(size))
        return operands + [self._defining[s] for s in symbols if s in self._defining]

    def _unit(self, node: Node):
        return self._part_of.get(node, node)

    def _nodes(self, unit) -> list[Node]:
        if isinstance(unit, Node):
            return [unit]
        members = self._partitions[unit]
        return [each for node in members for each in self._units.members(node)]

    def _write_unit(self, unit) -> None:
        body = self._body
        if not isinstance(unit, Node):
            self._call_partition(unit)
            return
        node = unit
        if node in body.known or self._is_written_with_origin(node):
            return
        native = node.origin.native if node.origin is not None else None
        if native is None or native.binding is None:
            # A tuple or a field inside a call is written there.
            if node.kind in (TUPLE, NATIVE) or (node.kind == FIELD and native is not None):
                return
        if isinstance(native and native.binding, relax.MatchCast):
            value = substituted(native.value, self._inside(node))
            body.bindings.append(relax.MatchCast(native.binding.var, value, native.binding.ty))
            body.known[node] = native.binding.var
            return
        if node.kind == NATIVE:
            self._write_native(node)
            return
        self._bind(node, body.value(node))

    def _is_written_with_origin(self, node: Node) -> bool:
        """Whether a node is a part of an expression that is written as it was, where that ends."""
        origin = node.origin
        is_inside = origin is not None and node is not origin.nodes[-1]
        return is_inside and self._body.is_whole(origin)

    def _inside(self, node: Node) -> ExprDict:
        origin = node.origin
        return ExprDict(zip(origin.native.leaves, map(self._body.read, origin.operands)))

    def _write_native(self, node: Node) -> None:
        """Write an expression that is looked into no further, such as an if."""
        body, native = self._body, node.origin.native
        inside = self._inside(node)
        value = substituted(native.value, inside)
        if value.same_as(native.value):
            # It reads variables where these cannot be replaced.
            for old, new in inside.items():
                if isinstance(old, relax.Var) and not old.same_as(new):
                    body.bindings.append(relax.VarBinding(old, new))
        self._bind(node, value)

    def _bind(self, node: Node, value: relax.Expr) -> None:
        value = self._builder.normalize(value)
        var = self._var(node, value.ty)
        self._body.bindings.append(relax.VarBinding(var, value))
        self._body.known[node] = var

    def _var(self, node: Node, type_) -> relax.Var:
        """Return the variable of a node: its own, if it was read and may be read everywhere."""
        kind = relax.Var if node in self._escaping else relax.DataflowVar
        own = _own_var(node)
        if own is not None and (kind is relax.DataflowVar) == isinstance(own, relax.DataflowVar):
            return own
        return kind(name_of(node), type_ if own is None else own.ty)

    def _call_partition(self, k: int) -> None:
        members, body = self._partitions[k], self._body
        partition, symbols, type_ = self._partition(members, self.names[k])
        var = self._builder.add_func(partition, self.names[k])
        args = [*map(body.read, self._regions.inputs(members)), *symbols]
        outputs = self._regions.outputs(members)
        call = relax.Call(var, args, ret_ty=type_)
        if len(outputs) == 1:
            self._bind(outputs[0], call)
            return
        is_local = self._escaping.isdisjoint(outputs)
        results = (relax.DataflowVar if is_local else relax.Var)(var.name_hint, type_)
        body.bindings.append(relax.VarBinding(results, call))
        for index, node in enumerate(outputs):
            self._bind(node, relax.TupleGetItem(results, index))

    def _partition(self, members: list[Node], name: str) -> tuple:
        """Return the function of a region, as `_new_function` does."""
        body, params = Body(self._builder, variable=relax.Var), []
        num_threads = self._units.rules.options.num_threads
        # Writes what the code generator will: an op at which that raises stays on TVM.
        generated = GraphWriter(name, num_threads)
        for node in self._regions.inputs(members):
            expr = self._body.read(node)
            param = relax.Var(getattr(expr, "name", "x"), expr.ty)
            body.known[node] = param
            generated.add_input(param, node.results)
            params.append(param)
        for node in members:
            if node.kind == TUPLE:
                continue
            if node.kind == FIELD:
                value = relax.TupleGetItem(body.read(node.operands[0]), node.attrs.index)
                body.known[node] = body.emit(value, name_of(node))
                generated.add_name(body.known[node], value)
                continue
            try:
                self._call_kernel(node, body, generated)
            except UnwritableOps as error:
                self._unwritable.update(error.errors)
                body.known[node] = relax.Var(name_of(node), type_from(node.type))
                generated.add_input(body.known[node], node.results)
        outputs = [body.known[node] for node in self._regions.outputs(members)]
        result = outputs[0] if len(outputs) == 1 else relax.Tuple(outputs)
        generated.heads(result)
        n = {NUM_THREADS: num_threads} if num_threads else {}
        attrs = {"Codegen": COMPILER, "global_symbol": name, **n}
        return _new_function(params, body.bindings, result, attrs)

    def _call_kernel(self, unit: Node, outer: Body, generated: GraphWriter) -> None:
        """Bind the composite of an op with what is fused to it, and its result.

        Raises
        ------
        UnwritableOps
            Naming the op, or the root of what is fused.
        """
        op = self._units.chain(unit)[0]
        try:
            kernel = kernel_of(self._units, unit)
            args = [outer.read(node) for node in kernel.inputs]
            params = [relax.Var(f"x{k}", arg.ty) for k, arg in enumerate(args)]
            # The first of those of one node is read.
            known: dict[Node, relax.Expr] = dict(reversed([*zip(kernel.inputs, params)]))
            body = Body(self._builder, known, is_closed=True)
            for node, exact in self._units.float32_operands(unit).items():
                known[node] = body.emit(relax.op.astype(known[exact], node.type.dtype))
            for node in self._units.members(unit):
                op = node if node.is_call else op
                body.known[node] = body.emit(body.value(node))
                difference = type_difference(body.known[node].ty, node.type)
                if difference is not None:
                    raise TypeError(difference)
            written, result = kernel.node(args), body.known[unit]
            attrs = {"Composite": composite_name(kernel.name), KERNEL: written.to_json()}
            func, symbols, type_ = _new_function(params, body.bindings, result, attrs)
            callee = outer.bind(func, f"{name_of(unit)}_kernel", func.ty)
            call = relax.Call(callee, [*args, *symbols], ret_ty=type_)
            outer.known[unit] = outer.bind(call, name_of(unit), type_)
            for constant, arg in zip(kernel.inputs, args):
                if constant.kind == CONSTANT:
                    generated.add_constant(arg, constant.results)
            generated.add_kernel(outer.known[unit], written, unit.results)
        # What TVM cannot express of an op costs that op alone.
        except Exception as error:  # pylint: disable=broad-except
            raise UnwritableOps({op: error}) from error


def _own_var(node: Node) -> relax.Var | None:
    """Return the variable of what a node was read from, if it was bound to one."""
    is_result = node.origin is not None and node is node.origin.nodes[-1]
    binding = node.origin.native.binding if is_result else None
    return None if binding is None else binding.var


def _sizes(node: Node) -> list[Size]:
    """Return the dimensions of the tensors that a node computes."""
    return [dim for value in node.results if isinstance(value, Tensor) for dim in value.dims]


def _defining_casts(graph: RelaxGraph) -> dict[Symbol, Node]:
    """Return the match_cast that defines each symbol; sizes of inputs define theirs."""
    casts: dict[Symbol, Node] = {}
    known = {
        symbol
        for node in graph.nodes
        if node.kind == INPUT
        for size in _sizes(node)
        for symbol in symbols_in(size)
    }
    for node in graph.nodes:
        native = node.origin.native if node.kind == NATIVE and node.origin is not None else None
        if isinstance(native and native.binding, relax.MatchCast):
            type_ = native.binding.ty
            values = getattr(getattr(type_, "shape", type_), "values", None)
            for symbol in filter(None, map(symbol_of, map(size_from, values or ()))):
                if symbol not in known:
                    casts.setdefault(symbol, node)
    return casts


def _new_function(params, bindings, body, attrs: dict) -> tuple[relax.Function, list, object]:
    """Return a function with variables of its own.

    Returns
    -------
    func, symbols, type_ : tuple[relax.Function, list[relax.Expr], Type]
        The function; what it is called with after `params`: a shape of the symbols that no
        parameter is as large as, such as `n` where one has `4 * n` rows, in a list of none or one,
        as TVM's FuseOpsByPattern passes them; and the type of its result by the caller's symbols.
    """
    is_composite = "Composite" in attrs
    if is_composite:
        # What a dataflow block returns is read outside of it.
        results = body.fields if isinstance(body, relax.Tuple) else [body]
        renamed = ExprDict(
            (var, relax.Var(var.name, var.ty))
            for var in results
            if isinstance(var, relax.DataflowVar)
        )
        bindings = [
            relax.VarBinding(
                renamed.get(binding.var, binding.var), substituted(binding.value, renamed)
            )
            for binding in bindings
        ]
        body = substituted(body, renamed)
    block = (relax.DataflowBlock if is_composite else relax.BindingBlock)(bindings)
    is_tuple = isinstance(body, relax.Tuple)
    type_ = relax.TupleType([field.ty for field in body.fields]) if is_tuple else body.ty
    func = relax.BlockBuilder().normalize(
        relax.Function(params, relax.SeqExpr([block], body), type_)
    )
    symbols = relax.analysis.free_symbolic_vars(func)
    if symbols:
        shape = relax.Var("tir_vars", relax.ShapeType(symbols))
        func = relax.Function([*params, shape], func.body, type_)
    if relax.analysis.defined_symbolic_vars(func):
        # Other functions have them, too; the variables of Relax are new already.
        func = relax.utils.copy_with_new_vars(func)
    return func.with_attrs(attrs), [relax.ShapeExpr(symbols)] if symbols else [], type_
