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
"""Tells which ops of a Relay module run on oneDNN, and why the others do not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import SimpleNamespace

import tvm
from tvm import relay
from tvm.contrib.onednn import interrupts
from tvm.contrib.onednn.ir.node import INPUT, Node, Origin
from tvm.contrib.onednn.ops.rules import Rules
from tvm.contrib.onednn.ops.schema import OpSchema
from tvm.contrib.onednn.partition.units import Units
from tvm.contrib.onednn.report import record
from tvm.contrib.onednn.report.describe import Description, merged
from tvm.contrib.onednn.report.offload_report import OffloadReport
from tvm.relay import transform

from .body import span_of
from .ir.dataflow_graph import is_opaque, is_partition, op_calls, why_opaque
from .ir.relay_view import callee_name, callee_of, has_shape_function, op_name, value_of_type
from .reader import RelayGraph
from .recurrent import layer_name

NOT_COMPILED = "; TVM cannot compile it with open dimensions"


@interrupts.deferred()
def make_report(mod: tvm.IRModule, rows: Mapping[str, OpSchema]) -> OffloadReport:
    """Return what was recorded of a module, or what the policy says of it; see `offload_report`."""
    noted, own = record.Record.of(mod), _own_functions(mod)
    # The record needs no types.
    if not own.keys() <= noted.functions.keys():
        mod = transform.InferType()(mod)
        own = _own_functions(mod)

    def closed(func):
        return (_op_names(func.body), why_opaque(func)) if is_opaque(func) else None

    def described(func, *args, **fields):
        return RelayDescription(mod, func, RelayGraph(func, noted.excluded), *args, **fields)

    partitions = sum(map(is_partition, mod.functions.values()))
    return record.make_report(noted, own, partitions, rows, closed, described)


def _own_functions(mod: tvm.IRModule) -> dict[str, relay.Function]:
    """Return the functions of a module by name, partitions left out."""
    return {
        var.name_hint: func
        for var, func in mod.functions.items()
        if isinstance(func, relay.Function) and not is_partition(func)
    }


class RelayDescription(Description):
    """The nodes of the report for a function of Relay.

    Parameters
    ----------
    mod : tvm.IRModule
        The module, which has types.
    func : relay.Function
        The function.
    graph : RelayGraph
        It, or its body.
    """

    def __init__(self, mod: tvm.IRModule, func: relay.Function, graph: RelayGraph, *args, **fields):
        self._mod, self._params = mod, func.params
        # By variable: the let that binds it.
        self._lets = {
            _native(node).var.handle.value: node
            for node in graph.nodes
            if isinstance(_native(node), relay.Let)
        }
        super().__init__(graph, *args, **fields)

    def parameters(self) -> list[Node]:
        """Return the parameters of the function, also those that nothing reads."""
        nodes = self.graph.nodes
        read = {_native(node).handle.value: node for node in nodes if node.kind == INPUT}
        return [read.get(var.handle.value) or _parameter(var) for var in self._params]

    def result(self) -> Node:
        """Return what the function returns."""
        last = self.graph.nodes[-1]
        return last.operands[0] if isinstance(_native(last), relay.Function) else last

    def op_names(self, node: Node) -> list[str]:
        """Return the ops that a call is: those in a composite."""
        return self.native_names(node) if _is_closed(node) else super().op_names(node)

    def native_names(self, node: Node) -> list[str]:
        """Return the ops in the expression that a node was read from."""
        native = _native(node)
        return (
            _op_names(native.op.body)
            if _is_closed(node)
            else [layer_name(native) or op_name(native)]
        )

    def model_names(self, node: Node) -> Iterator[str]:
        """Yield the names that an op had, where the importer noted them in spans."""
        is_closed = _is_closed(node)
        calls = op_calls(_native(node).op.body) if is_closed else ()
        for span in [call.span for call in calls] if is_closed else [span_of(node)]:
            several = isinstance(span, tvm.ir.SequentialSpan)
            for each in span.spans if several else () if span is None else [span]:
                # Before the name of the node, an importer puts that of the model's output.
                yield each.source_name.name.rpartition("@@")[2]

    def remark(self, node: Node) -> str:
        """Say so if TVM cannot compile an op, as far as is known of its open dimensions."""
        if _is_closed(node):
            return ""
        name = callee_name(_native(node)) if self.is_as_read(node) else self.graph.title(node)
        shapes = [getattr(result, "shape", ()) for result in node.results]
        compiles = name.startswith("dnnl.") or has_shape_function(name)
        if name == "nn.conv2d" and node.attrs.data_layout == "NCHW":
            # TVM's code for x86 accepts no depthwise convolution, and of other groups none of open
            # sizes.
            groups, shapes = node.attrs.groups, [node.args[0].shape]
            compiles, is_depthwise = groups == 1, groups == shapes[0][1]
            shapes = shapes if is_depthwise else [shapes[0][1:]]
        elif name in ("nn.dense", "nn.matmul"):
            # Its code for x86 packs the columns of the matrix.
            shapes = [node.args[1].shape]
            compiles = None not in shapes[0]
        return "" if compiles or not any(None in shape for shape in shapes) else NOT_COMPILED

    def inputs(self, node: Node) -> list[Node]:
        """Return the nodes that the value of a node comes from."""
        if isinstance(_native(node), relay.Let):
            return node.operands[1:]
        if node.kind == INPUT:
            let = self._lets.get(_native(node).handle.value)
            return [] if let is None else let.operands[:1]
        return super().inputs(node)

    def native(self, node: Node) -> list[int]:
        """Describe an expression that is no call of an op; in the place of a partition, its ops."""
        callee = callee_of(_native(node))
        func = self._mod[callee] if isinstance(callee, relay.GlobalVar) else None
        if not is_partition(func):
            return super().native(node)
        graph, rules = RelayGraph(func.body), Rules({})
        everything = SimpleNamespace(partitions=[graph.nodes], reasons={})
        inner = RelayDescription(
            *(self._mod, func, graph, rules, self.function),
            *(Units(graph, rules), everything, [callee.name_hint]),
        )
        self.in_8_bits.update(inner.in_8_bits)
        args = iter(node.operands[1:])
        numbers: list[list[int]] = []
        for each in inner.nodes:
            each.inputs = merged(numbers[i] for i in each.inputs)
            if each.kind == "dnnl":
                numbers.append(self.add(each))
            else:
                is_input = each.kind == "input"
                numbers.append(self.sources.get(next(args), []) if is_input else each.inputs)
        return numbers[-1]


def _native(node: Node) -> relay.Expr | None:
    """Return the expression that a node was read from."""
    return None if node.origin is None else node.origin.native


def _is_closed(node: Node) -> bool:
    """Whether a node is the call of a composite."""
    return is_opaque(callee_of(_native(node)))


def _op_names(expr: relay.Expr) -> list[str]:
    return [op_name(call) for call in op_calls(expr)]


def _parameter(var: relay.Var) -> Node:
    """Return a node for a parameter that nothing reads."""
    node = Node(INPUT, None, [], value_of_type(var.checked_type))
    node.origin = Origin(var)
    return node
