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
"""Composites that are not the partitioner's, such as those of FuseOpsByPattern."""

from __future__ import annotations

from tvm import relax
from tvm.contrib.onednn.partition.units import Units
from tvm.contrib.onednn.policy.op_spec import Rules
from tvm.contrib.onednn.policy.table import TABLE

from .graph import RelaxGraph
from .kernels import Kernel, kernel_of
from .reading import is_constant
from .virtual_ops import with_formulas


def kernel_of_composite(func: relax.Function) -> Kernel:
    """Return the one kernel that computes what a composite does.

    Its inputs are expressions: parameters of the composite, and constants in it.

    Raises
    ------
    ValueError
        If oneDNN does not compute it by one kernel; it tells why.
    """
    rules = Rules(TABLE)
    graph = with_formulas(func, rules)
    units = Units(graph, rules)
    is_supported = [units.is_supported(i) for i in range(len(graph.nodes))]
    last = _result(graph)
    inside = _expressions(units, last) if is_supported[last] else set()
    for i, binding in enumerate(graph.bindings):
        if binding is not None and i not in inside and not _is_name(graph, i):
            view = graph.views[i]
            reason = rules.refusal(view) if view else graph.reasons.get(i, "no rule for this op")
            raise ValueError(
                f"{func.attrs['Composite']} is no kernel of oneDNN: "
                f"{graph.ops[i]}: {reason or 'not fused with what follows'}"
            )
    kernel = kernel_of(units, last)
    inputs = [graph.nodes[i] for i in kernel.inputs]
    assert all(is_constant(expr) or expr in func.params for expr in inputs)
    return kernel._replace(inputs=inputs)


def _is_name(graph: RelaxGraph, i: int) -> bool:
    """Whether an expression is another name of what it reads."""
    return isinstance(graph.nodes[i], relax.Var) and bool(graph.operands[i])


def _result(graph: RelaxGraph) -> int:
    """Return what the function returns."""
    last = len(graph.nodes) - 1
    while _is_name(graph, last):
        (last,) = graph.operands[last]
    return last


def _expressions(units: Units, last: int) -> set[int]:
    """Return all that a kernel computes, by its last expression, and the tuples that it reads."""
    graph: RelaxGraph = units.ops
    own = units.chain(last)
    if last in units.fused:
        own = [*units.fused[last].dequantized, *own]
    members = {k for i in own for k in graph.members(i)}
    return members.union(k for i in own for k in graph.operands[i] if graph.is_tuple(k))
