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
"""Writes a partition as the JSON graph.

The partitioner writes the kernel that a composite is to an attribute of its function; the code
generator reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tvm import relax
from tvm.contrib.onednn.ir.op_view import Tensor
from tvm.contrib.onednn.partition.json_graph import Entry, JsonGraph
from tvm.contrib.onednn.partition.kernel import KernelNode

from .reading import ExprDict, elements, is_constant, sizes

# What a partition's module says that it is.
KIND = "dnnl_json"
# The attribute of a composite's function, see `KernelNode.to_json`.
KERNEL = "dnnl.kernel"

# The attribute of a partition that has a number of threads of its own.
NUM_THREADS = "dnnl_num_threads"


def graph_json(
    func: relax.Function, const_names: dict, read: Callable[[relax.Function], KernelNode]
) -> tuple[str, list[str]]:
    """Write a partition as the JSON graph that the runtime reads.

    Parameters
    ----------
    func : relax.Function
        The partition.
    const_names : dict
        A name for each constant in it.
    read : Callable[[relax.Function], KernelNode]
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
                kernel = kernel._replace(inputs=[args.get(o, o) for o in kernel.inputs])
                writer.add_kernel(binding.var, kernel, _tensor_types(value.ty))
            else:
                writer.add_name(binding.var, value)
    return writer.text(func.body.body)


def _kernel_of_function(func: relax.Function, read: Callable) -> KernelNode:
    if KERNEL not in func.attrs:
        return read(func)
    return KernelNode.from_json(str(func.attrs[KERNEL]), tensors_of(func))


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
        self._graph = JsonGraph(symbol)
        self._entries = ExprDict()

    def add_input(self, var: relax.Var, types: Sequence[Tensor]) -> None:
        """Write a parameter."""
        name = f"{self._symbol}_i{self._graph.num_nodes}"
        self._entries[var] = self._graph.add_leaf("input", name, types)

    def add_constant(self, expr: relax.Expr, types: Sequence[Tensor]) -> None:
        """Write a constant, unless it is already there."""
        if expr not in self._entries:
            name = "" if self._const_names is None else str(self._const_names[expr])
            self._entries[expr] = self._graph.add_leaf("const", name, types)

    def add_kernel(self, var: relax.Var, kernel: KernelNode, types: Sequence[Tensor]) -> None:
        """Write what computes a variable.

        Parameters
        ----------
        var : relax.Var
            The variable.
        kernel : KernelNode
            The kernel. Its inputs may be tuples.
        types : Sequence[Tensor]
            The types of its results.
        """
        entries = [entry for expr in kernel.inputs for entry in self.heads(expr)]
        attrs = kernel.attrs
        if self._num_threads:
            attrs = {**attrs, "num_threads": self._num_threads}
        self._entries[var] = self._graph.add_kernel(kernel.name, attrs, entries, types)

    def add_name(self, var: relax.Var, expr: relax.Expr) -> None:
        """Let a variable be what an expression is, such as a field of a tuple."""
        self._entries[var] = self.heads(expr)

    def text(self, result: relax.Expr) -> tuple[str, list[str]]:
        """Return the graph that computes an expression, and the names of its constants."""
        return self._graph.text(self.heads(result)), self._graph.const_names

    def heads(self, expr: relax.Expr) -> list[Entry]:
        """Return the entries of an expression, one for each tensor."""
        known = self._entries.get(expr)
        if known is not None:
            return known
        if isinstance(expr, relax.Tuple):
            return [entry for field in elements(expr.fields) for entry in self.heads(field)]
        if isinstance(expr, relax.TupleGetItem):
            return [self.heads(expr.tuple_value)[expr.index]]
        if is_constant(expr):
            self.add_constant(expr, _tensor_types(expr.ty))
        return self._entries[expr]
