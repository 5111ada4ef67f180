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
"""The kernels of a partition: what its composites are in the JSON graph, and that graph.

A composite says what kernel it is in an attribute of its function. The partitioner writes it, with
all that the rules and the fuser have decided; the code generator reads it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from tvm import relax
from tvm.contrib.onednn.ir.node import FIELD, TUPLE, Node
from tvm.contrib.onednn.ir.op_view import Tensor
from tvm.contrib.onednn.ops.quantize import DEQUANTIZE, QUANTIZE
from tvm.contrib.onednn.ops.tensors import COMPILER
from tvm.contrib.onednn.partition.units import Units

from .reading import ExprDict, elements, is_constant, sizes

# What a partition's module says that it is.
KIND = "dnnl_json"
# The attribute of a composite's function, JSON text.
KERNEL = "dnnl.kernel"

# The attribute of a partition that has a number of threads of its own.
NUM_THREADS = "dnnl_num_threads"


class Kernel(NamedTuple):
    """A kernel node of the JSON graph, but for its inputs' numbers and its results' types.

    Parameters
    ----------
    name : str
        The op, or the composite.
    attrs : dict[str, list]
        As in the JSON graph.
    inputs : list
        What it reads: nodes of the partitioner's graph, or expressions.
    """

    name: str
    attrs: dict[str, list]
    inputs: list

    def function_attrs(self) -> dict[str, str]:
        """Return the attributes of a composite that is this kernel."""
        is_own = self.name.startswith(f"{COMPILER}.")
        name = self.name if is_own else f"{COMPILER}.{self.name.split('.')[-1]}"
        description = {"name": self.name, "attrs": self.attrs}
        return {"Composite": name, KERNEL: json.dumps(description)}


def kernel_of(units: Units, node: Node) -> Kernel:
    """Describe an op with what is fused to it."""
    return _KernelReader(units, node).read()


class _KernelReader:
    """Reads a unit: the root op, its post-ops, and how operands in 8 bits are read."""

    def __init__(self, units: Units, node: Node):
        self.fused = units.fused.get(node)
        self.chain = units.chain(node)
        # The first of several results is read, which is no op.
        self.root, *rest = (node for node in self.chain if node.kind != FIELD)
        parts = dict(zip(self.chain, self.fused.parts if self.fused else ()))
        self.rest = {node: parts[node] for node in rest}
        self.inputs: list[Node] = []
        self.dequantized: dict[int, Node] = {}

    def read(self) -> Kernel:
        root = self.root
        attrs = _texts(vars(root.attrs))
        for operand in root.operands:
            for each in operand.operands if operand.kind == TUPLE else [operand]:
                self._add(each)
        if self.fused is None:
            return Kernel(root.name, attrs, self.inputs)
        attrs["root_op"] = _texts_of(root.name)
        post_ops = [self._post_op(node, part) for node, part in self.rest.items()]
        # Appended last so that the order of the other inputs does not change.
        for position, node in self.dequantized.items():
            own = self._quantization(node)
            attrs.update(_texts(own, f"dequantize.{position}."))
        for node, own in zip(self.rest, post_ops):
            if node.name in (QUANTIZE, DEQUANTIZE):
                own.update(self._quantization(node))
        for number, own in enumerate(post_ops):
            attrs.update(_texts(own, f"post_ops.{number}."))
        if post_ops:
            attrs["post_ops"] = [[node.name for node in self.rest]]
        return Kernel(self.fused.name, attrs, self.inputs)

    def _add(self, node: Node) -> int:
        """Append an input; of what is dequantized as it is read, the integers."""
        position = len(self.inputs)
        if self.fused is not None and node in self.fused.dequantized:
            self.dequantized[position] = node
            node = node.operands[0]
        self.inputs.append(node)
        return position

    def _quantization(self, node: Node) -> dict:
        _, scale, zero_point = node.operands
        attrs = {**vars(node.attrs), "scale": self._add(scale)}
        return {**attrs, "zero_point": self._add(zero_point)}

    def _post_op(self, node: Node, part: str | None) -> dict:
        own = dict(vars(node.attrs))
        if node.name in (QUANTIZE, DEQUANTIZE):
            return own
        for position, operand in enumerate(node.operands):
            if operand not in self.chain:
                own["operand"] = self._add(operand)
                if position == 0:
                    own["operand_first"] = True
        if part == "bias":
            own["is_bias"] = True
        return own


def _texts(attrs: dict[str, Any], prefix: str = "") -> dict[str, list]:
    return {prefix + name: _texts_of(value) for name, value in attrs.items()}


def _texts_of(value) -> list:
    """Write an attribute as the JSON graph has it: rows of texts."""
    if isinstance(value, (list, tuple)):
        is_nested = any(isinstance(item, (list, tuple)) for item in value)
        return [[_text(item) for item in row] for row in (value if is_nested else [value])]
    return [[_text(value)]]


def _text(value) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    return repr(value) if isinstance(value, float) else str(value)


def graph_json(
    func: relax.Function, const_names: dict, read: Callable[[relax.Function], Kernel]
) -> tuple[str, list[str]]:
    """Write a partition as the JSON graph that the runtime reads.

    Parameters
    ----------
    func : relax.Function
        The partition.
    const_names : dict
        A name for each constant in it.
    read : Callable[[relax.Function], Kernel]
        Tells the kernel of a composite that is not the partitioner's. Its inputs are expressions.

    Returns
    -------
    text, names : tuple[str, list[str]]
        The graph, and the names of its constants in the order of their nodes.
    """
    num_threads = int(func.attrs.get(NUM_THREADS, 0))
    writer = GraphWriter(str(func.attrs["global_symbol"]), num_threads, const_names)
    for param in tensors_of(func):
        writer.add_input(param, _tensor_types(param.ty))
    composites = ExprDict()
    for block in func.body.blocks:
        for binding in elements(block.bindings):
            value = binding.value
            if isinstance(value, relax.Function):
                composites[binding.var] = _kernel_of_function(value, read), elements(value.params)
            elif isinstance(value, relax.Call):
                kernel, params = composites[value.op]
                args = ExprDict(zip(params, elements(value.args)))
                inputs = [args.get(expr, expr) for expr in kernel.inputs]
                writer.add_kernel(binding.var, kernel, inputs, _tensor_types(value.ty))
            else:
                writer.add_name(binding.var, value)
    return writer.text(func.body.body)


def _kernel_of_function(func: relax.Function, read: Callable) -> Kernel:
    if KERNEL not in func.attrs:
        return read(func)
    return Kernel(**json.loads(str(func.attrs[KERNEL])), inputs=tensors_of(func))


def tensors_of(func: relax.Function) -> list[relax.Var]:
    """Return the parameters of a partition or a composite, without the shape of its symbols."""
    return [param for param in elements(func.params) if not isinstance(param.ty, relax.ShapeType)]


def _tensor_types(type_) -> list[Tensor]:
    types = elements(type_.fields) if isinstance(type_, relax.TupleType) else [type_]
    return [Tensor(sizes(each), str(each.dtype)) for each in types]


class GraphWriter:
    """Writes the nodes of a partition's JSON graph one by one.

    The code generator does so with what TVM knows of a partition. The partitioner does, too, with
    what its graph knows: an op at which this raises stays on TVM.

    Parameters
    ----------
    symbol : str
        The name of the partition.
    num_threads : int
        That of the partition, or 0.
    const_names : Mapping | None
        A name for each constant, if they are to have names.
    """

    def __init__(self, symbol: str, num_threads: int, const_names: Mapping | None = None):
        self._symbol, self._num_threads, self._const_names = symbol, num_threads, const_names
        self._nodes: list[dict] = []
        self._entries = ExprDict()
        self._row_ptr = [0]

    def add_input(self, var: relax.Var, types: Sequence[Tensor]) -> None:
        """Write a parameter."""
        self._entries[var] = self._add("input", f"{self._symbol}_i{len(self._nodes)}", types)

    def add_constant(self, expr: relax.Expr, types: Sequence[Tensor]) -> None:
        """Write a constant, unless it is already there."""
        if expr not in self._entries:
            name = "" if self._const_names is None else str(self._const_names[expr])
            self._entries[expr] = self._add("const", name, types)

    def add_kernel(
        self, var: relax.Var, kernel: Kernel, inputs: Sequence[relax.Expr], types: Sequence[Tensor]
    ) -> None:
        """Write what computes a variable.

        Parameters
        ----------
        var : relax.Var
            The variable.
        kernel : Kernel
            The kernel.
        inputs : Sequence[relax.Expr]
            What it reads; it may be tuples.
        types : Sequence[Tensor]
            The types of its results.
        """
        entries = [entry for expr in inputs for entry in self.heads(expr)]
        self._entries[var] = self._add("kernel", kernel.name, types, kernel.attrs, entries)

    def add_name(self, var: relax.Var, expr: relax.Expr) -> None:
        """Let a variable be what an expression is, such as a field of a tuple."""
        self._entries[var] = self._read(expr)

    def heads(self, result: relax.Expr) -> list[list[int]]:
        """Return what of the graph is an expression, one entry for each tensor."""
        return [list(entry) for entry in self._read(result)]

    def text(self, result: relax.Expr) -> tuple[str, list[str]]:
        """Return the graph that computes an expression, and the names of its constants."""
        heads = self.heads(result)
        leaves = [i for i, node in enumerate(self._nodes) if node["op"] != "kernel"]
        graph = {"nodes": self._nodes, "arg_nodes": leaves, "heads": heads}
        names = [node["name"] for node in self._nodes if node["op"] == "const"]
        return json.dumps({"symbol": self._symbol, **graph, "node_row_ptr": self._row_ptr}), names

    def _read(self, expr) -> list[tuple[int, int, int]]:
        """Return the entries of an expression, one for each tensor."""
        known = self._entries.get(expr)
        if known is not None:
            return known
        if isinstance(expr, relax.Tuple):
            return [entry for field in elements(expr.fields) for entry in self._read(field)]
        if isinstance(expr, relax.TupleGetItem):
            return [self._read(expr.tuple_value)[expr.index]]
        if is_constant(expr):
            self.add_constant(expr, _tensor_types(expr.ty))
        return self._entries[expr]

    def _add(self, op: str, name: str, types: Sequence[Tensor], attrs=None, inputs=None) -> list:
        shapes = [[-1 if size is None else size for size in each.shape] for each in types]
        own = {"dtype": [[each.dtype for each in types]], "shape": [shapes]}
        node = {"op": op, "name": name}
        if op == "kernel":
            if self._num_threads:
                attrs = {**attrs, "num_threads": [[str(self._num_threads)]]}
            node["inputs"] = inputs
            own = {"num_inputs": str(len(inputs)), "num_outputs": str(len(types)), **attrs, **own}
        node["attrs"] = own
        self._nodes.append(node)
        self._row_ptr.append(self._row_ptr[-1] + len(types))
        return [(len(self._nodes) - 1, k, 0) for k in range(len(types))]
