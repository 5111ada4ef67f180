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
"""Writes a graph of nodes as a function of Relay, with functions for the partitions of oneDNN."""

from __future__ import annotations

import functools
import itertools
import json
import re
from collections.abc import Callable

import tvm
from tvm import relay, tir
from tvm.contrib.onednn.ir.node import CONSTANT, FIELD, TUPLE, Node
from tvm.contrib.onednn.ops.tensors import COMPILER
from tvm.contrib.onednn.partition.kernel import kernel_of
from tvm.contrib.onednn.partition.offload import UnwritableOps
from tvm.contrib.onednn.partition.units import OffloadDecision, Units

from .body import Body, type_of
from .ir.dataflow_graph import Rewritten, TypedFunction
from .reader import RelayGraph


def write(graph: RelayGraph) -> relay.Function:
    """Return a function as it was rewritten, without partitions."""
    body = Body(is_as_rewritten=True)
    for node in graph.nodes:
        if node.kind != CONSTANT:
            body.read(node)
    return body.known[graph.nodes[-1]]


class FunctionWriter:
    """Writes a function whose parts for oneDNN are functions of their own.

    Parameters
    ----------
    function : TypedFunction
        The function that was read.
    units : Units
        The graph, with what is fused.
    decision : OffloadDecision
        What goes into partitions.

    Attributes
    ----------
    partitions : dict[relay.GlobalVar, relay.Function]
        The functions of the partitions.
    """

    def __init__(self, function: TypedFunction, units: Units, decision: OffloadDecision):
        self._units, self._regions = units, decision.regions
        self._graph: RelayGraph = units.graph
        options = units.rules.options
        prefix = re.sub(r"\W", "_", f"tvmgen_{options.mod_name}_{COMPILER}_{function.name}")
        used = {var.name_hint for var in function.mod.functions}
        names = (f"{prefix}_{number}" for number in itertools.count())
        free = (name for name in names if name not in used)
        self.partitions: dict[relay.GlobalVar, relay.Function] = {}
        offloaded = set()
        # What could not be written; variables of their types stand for them.
        self._unwritable: dict[Node, Exception] = {}
        self._part_of: dict[Node, _Partition] = {}
        for name, members in zip(free, decision.partitions):
            part = _Partition(name, units, self._regions, members, options.num_threads)
            self._unwritable.update(part.unwritable)
            self.partitions[part.var] = part.func
            self._part_of.update(dict.fromkeys(members, part))
            offloaded.update(units.hidden(members))
        self._body = Body(offloaded=offloaded)

    def write(self) -> relay.Function:
        """Return the function.

        Raises
        ------
        UnwritableOps
            Naming all ops that cannot be written.
        """
        result, known = self._graph.nodes[-1], self._body.known
        stack = [result]
        while stack:
            node = stack[-1]
            part = self._part_of.get(node)
            needs = part.inputs if part is not None else node.operands
            if part is None and self._body.is_written_as_read(node):
                # What is no longer in the graph, such as a constant, is written where it is read.
                read = (operand.current for operand in node.origin.operands)
                needs = [operand for operand in read if operand.is_live]
            missing = [] if node in known else [need for need in needs if need not in known]
            if missing:
                # The last pushed is built first: keep the order of evaluation.
                stack.extend(reversed(missing))
                continue
            stack.pop()
            if node in known:
                continue
            if part is not None:
                known[node] = part.result(node, known)
                continue
            try:
                known[node] = self._body.value(node)
            except Exception as error:  # pylint: disable=broad-except
                self._unwritable[node] = error
                known[node] = relay.var("unwritable", type_of(node))
        if self._unwritable:
            raise UnwritableOps(self._unwritable)
        return known[result]


class _Partition:
    """A region on its way to become a function.

    Attributes
    ----------
    unwritable : dict[Node, Exception]
        The ops that could not be written.
    """

    def __init__(self, name: str, units: Units, regions, members: list[Node], num_threads):
        self.var, self.inputs = relay.GlobalVar(name), regions.inputs(members)
        params = [relay.var(f"{name}_i{k}", type_of(node)) for k, node in enumerate(self.inputs)]
        body = Body(dict(zip(self.inputs, params)), is_for_onednn=True)
        self.unwritable: dict[Node, Exception] = {}
        for node in members:
            try:
                body.known[node] = _kernel(units, node, body)
            except UnwritableOps as error:
                self.unwritable.update(error.errors)
                body.known[node] = relay.var("unwritable", type_of(node))
        # The runtime returns tensors, no tuple in a tuple: an output that is a tuple becomes one
        # output for each of its fields.
        self._fields: dict[Node, list[tuple[Node, int | None]]] = {}
        self._position: dict[tuple[Node, int | None], int] = {}
        results, types = [], []
        for node in regions.outputs(members):
            if node.kind == FIELD:
                tensors = [(node.operands[0], node.attrs.index, type_of(node))]
            elif node.returns_tuple:
                fields = type_of(node).fields
                tensors = [(node, index, field) for index, field in enumerate(fields)]
            else:
                tensors = [(node, None, type_of(node))]
            self._fields[node] = [(source, index) for source, index, _ in tensors]
            for source, index, field in tensors:
                if (source, index) not in self._position:
                    self._position[source, index] = len(results)
                    value = body.known[source]
                    results.append(value if index is None else relay.TupleGetItem(value, index))
                    types.append(field)
        if len(results) == 1:
            func = relay.Function(params, results[0], types[0])
        else:
            func = relay.Function(params, relay.Tuple(results), relay.TupleType(types))
        attrs = {
            "global_symbol": name,
            "Compiler": COMPILER,
            "Primitive": tir.IntImm("int32", 1),
            "Inline": tir.IntImm("int32", 1),
        }
        if num_threads is not None:
            # The codegens read it: src/relay/backend/contrib/dnnl/options.h.
            attrs["dnnl_num_threads"] = tir.IntImm("int32", num_threads)
        self.func = func.with_attr(attrs)
        self._call: relay.Call | None = None

    def result(self, node: Node, known: dict[Node, relay.Expr]) -> relay.Expr:
        """Return what stands for an output of the region outside.

        Parameters
        ----------
        node : Node
            The output.
        known : dict[Node, relay.Expr]
            What stands for the region's inputs.
        """
        if self._call is None:
            args = [known[node] for node in self.inputs]
            self._call = relay.Call(self.var, args)
        values = [
            (
                self._call
                if len(self._position) == 1
                else relay.TupleGetItem(self._call, self._position[field])
            )
            for field in self._fields[node]
        ]
        return relay.Tuple(values) if node.returns_tuple else values[0]


def _kernel(units: Units, node: Node, body: Body) -> relay.Expr:
    """Return an op, or the call of the composite with what is fused to it."""
    if node in units.fused:
        return composite(units, node, body)
    try:
        return body.value(node)
    except Exception as error:  # pylint: disable=broad-except
        raise UnwritableOps({node: error}) from error


def composite(units: Units, unit: Node, outer: Body) -> relay.Call:
    """Return the call of a composite, of what its inputs are known by, with its description."""
    op = units.chain(unit)[0]
    try:
        kernel = kernel_of(units, unit)
        args = [outer.read(node) for node in kernel.inputs]
        params = [relay.var(f"FunctionVar_{k}", type_of(o)) for k, o in enumerate(kernel.inputs)]
        # The first of those of one node is read.
        known: dict[Node, relay.Expr] = dict(reversed([*zip(kernel.inputs, params)]))
        for node, exact in units.float32_operands(unit).items():
            known[node] = relay.cast(known[exact], node.type.dtype)
        body = Body(known, is_for_onednn=True)
        for node in units.members(unit):
            op = node if node.is_call else op
            body.known[node] = body.value(node)
        attrs = {
            "PartitionedFromPattern": "".join(f"{o.name}_" for o in units.chain(unit) if o.name),
            "Composite": kernel.name,
            "Primitive": tir.IntImm("int32", 0),
            # The code generators copy it: src/relay/backend/contrib/dnnl/json_codegen.cc.
            # A string, as each object of TVM takes a call.
            "dnnl_kernel": json.dumps(kernel.node(args).attrs),
        }
    except Exception as error:  # pylint: disable=broad-except
        raise UnwritableOps({op: error}) from error
    func = relay.Function(params, body.known[unit], type_of(unit))
    return relay.Call(func.with_attr(attrs), args)


def partitioned(function: TypedFunction, units: Units, decision: OffloadDecision) -> Rewritten:
    """Move what oneDNN runs of a function into new functions.

    TVM's AnnotateTarget, MergeCompilerRegions and PartitionGraph do this for functions that are
    nothing but data flow. Their regions may hold tuples and may not meet a let, a reference or a
    nested tuple, and they work on a whole module, other compilers' functions included.
    """
    writer = FunctionWriter(function, units, decision)
    func = writer.write()
    return Rewritten(func, writer.partitions)


def check_types(partitions: dict, units: Units, decision: OffloadDecision) -> None:
    """Tell the ops of partitions whose types TVM cannot infer.

    Parameters
    ----------
    partitions : dict[relay.GlobalVar, relay.Function]
        The functions of the partitions, in order.
    units : Units
        The graph, with what is fused.
    decision : OffloadDecision
        What is in the partitions.

    Raises
    ------
    UnwritableOps
        Naming these ops, or all ops of a partition of which TVM can infer each alone.
    """
    unwritable: dict[Node, Exception] = {}
    for func, members in zip(partitions.values(), decision.partitions):
        error = _type_error(func)
        if error is None:
            continue
        nodes = [each for node in members for each in units.members(node) if each.is_call]
        alone = (_alone([node], functools.partial(Body.value, node=node)) for node in nodes)
        errors = dict(zip(nodes, map(_type_error, alone)))
        wrong = {node: each for node, each in errors.items() if each is not None}
        unwritable.update(wrong or dict.fromkeys(errors, error))
    if unwritable:
        raise UnwritableOps(unwritable)


def _type_error(func: relay.Function) -> Exception | None:
    """Return what TVM raises when it infers the types of a function."""
    try:
        relay.transform.InferType()(tvm.IRModule.from_expr(func))
    except tvm.TVMError as error:
        return error
    return None


def check_codegen(functions: list[relay.Function], units: Units, decision: OffloadDecision) -> None:
    """Tell the ops of partitions that the code generator cannot write.

    Parameters
    ----------
    functions : list[relay.Function]
        The functions of the partitions, in order, with types.
    units : Units
        The graph, with what is fused.
    decision : OffloadDecision
        What is in the partitions.

    Raises
    ------
    UnwritableOps
        Naming these ops, or all ops of a partition of which each can be written alone.
    """
    unwritable: dict[Node, Exception] = {}
    for func, members in zip(functions, decision.partitions):
        error = _codegen_error(func)
        if error is None:
            continue
        errors = {}
        for node in members:
            root = units.chain(node)[0]
            if root.is_call:
                alone = _alone(units.members(node), functools.partial(_kernel, units, node))
                mod = relay.transform.InferType()(tvm.IRModule.from_expr(alone))
                errors[root] = _codegen_error(mod["main"].with_attr("global_symbol", "main"))
        failing = {root: each for root, each in errors.items() if each is not None}
        unwritable.update(failing or dict.fromkeys(errors, error))
    if unwritable:
        raise UnwritableOps(unwritable)


def _codegen_error(func: relay.Function) -> Exception | None:
    """Return what the code generator raises for a function, if this TVM has it.

    That is the one that writes JSON: C source, which needs fixed shapes, is a choice that only
    `relay.build` knows.
    """
    codegen = tvm.get_global_func(f"relay.ext.{COMPILER}", allow_missing=True)
    config = dict(tvm.transform.PassContext.current().config)
    config[f"relay.ext.{COMPILER}.codegen"] = "JSON"
    try:
        if codegen is not None:
            with tvm.transform.PassContext(config=config):
                codegen(func)
    # Whatever it is, it would end the compilation later.
    except Exception as error:  # pylint: disable=broad-except
        return error
    return None


def _alone(nodes: list[Node], value: Callable[[Body], relay.Expr]) -> relay.Function:
    """Return a function of some ops alone, with the type that the graph infers.

    Parameters
    ----------
    nodes : list[Node]
        The ops; the last one is the result.
    value : Callable[[Body], relay.Expr]
        Writes it.
    """
    params, body = [], Body({}, is_for_onednn=True)
    for operand in (operand for node in nodes for operand in node.operands):
        for each in operand.operands if operand.kind == TUPLE else [operand]:
            if each not in body.known and each not in nodes and each.kind != CONSTANT:
                params.append(relay.var(f"x{len(params)}", type_of(each)))
                body.known[each] = params[-1]
    return relay.Function(params, value(body), type_of(nodes[-1]))
