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
"""What TVM's own passes ask for: patterns for MergeComposite, and attributes for AnnotateTarget."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping

import tvm.ir
from tvm import relay
from tvm.relay.dataflow_pattern import DFPattern, is_op, wildcard

from ..ir.dataflow_graph import DataflowGraph
from ..ir.relay_view import op_name, view_of
from ..policy.op_spec import OpSpec, Rules
from ..policy.operands import BIAS_OPS
from ..policy.tensors import COMPILER
from .fuse import Fused

# Ops by their names in that of a composite, where they differ.
_OPS = {"bias": BIAS_OPS, "sum": ("add",), "relu": ("nn.relu",)}


def _ops(spec: OpSpec, parts: str) -> list[tuple[str, ...]]:
    """Return the ops of a composite in order; where there are several, any one of them."""
    return [(spec.name,), *(_OPS.get(part, (part,)) for part in parts.split("_"))]


def composites(rows: Mapping[str, OpSpec]) -> dict[str, list[tuple[str, ...]]]:
    """Return the ops of each composite that has a pattern, by its name.

    The longer go first: what one matches the next cannot have.
    """
    names = {
        f"{COMPILER}.{spec.name.split('.')[-1]}_{parts}": _ops(spec, parts)
        for spec in rows.values()
        for parts in spec.patterns.split()
    }
    return dict(sorted(names.items(), key=lambda item: -len(item[1])))


def pattern_table(
    rows: Mapping[str, OpSpec],
) -> list[tuple[str, DFPattern, Callable[[relay.Call], bool]]]:
    """Return (name, pattern, check) of each composite, as MergeComposite expects them."""

    def check(name, ops):
        return lambda call: _is_fused(rows, name, ops, call)

    return [(name, _pattern(ops), check(name, ops)) for name, ops in composites(rows).items()]


def _pattern(ops: list[tuple[str, ...]]) -> DFPattern:
    """Build the pattern of ops, each of which reads the one before.

    Operands are wildcards: a constant becomes a parameter of the composite, as a variable does.
    An `add` matches with its operands in either order.
    """
    (root,), *rest = ops
    pattern = is_op(root)(wildcard(), wildcard())
    for names in rest:
        operands = (pattern, wildcard()) if "add" in names else (pattern,)
        pattern = functools.reduce(operator.or_, (is_op(name)(*operands) for name in names))
    return pattern


def _path(call: relay.Expr, ops: list[tuple[str, ...]]) -> list[relay.Call] | None:
    """Return the calls that the matcher found, the root first; None where it would find none."""
    if op_name(call) not in ops[-1]:
        return None
    if len(ops) == 1:
        return [call]
    for operand in call.args if op_name(call) == "add" else call.args[:1]:
        path = _path(operand, ops[:-1])
        if path is not None:
            return [*path, call]
    return None


def _is_fused(
    rows: Mapping[str, OpSpec], name: str, ops: list[tuple[str, ...]], call: relay.Call
) -> bool:
    """Whether the calls of a match become the composite `name`.

    The matcher lets an operand be computed from the root; this is seen in its users.
    """
    path = _path(call, ops)
    rules = Rules(rows)
    if path is None or rules.refusal(view_of(path[0])) is not None:
        return False
    graph = DataflowGraph(call)
    root = next(i for i, node in enumerate(graph.nodes) if node.same_as(path[0]))
    fused = Fused(graph, rules, root)
    fused.grow(set())
    return fused.name == name and fused.chain[-1] == len(graph.nodes) - 1


def register(rows: Mapping[str, OpSpec]) -> None:
    """Tell AnnotateTarget which ops oneDNN runs. Can be called again.

    Views are left out. TVM's passes do not prune, so wherever nothing else surrounds a view it
    would become a partition that computes nothing.
    """
    attr = f"target.{COMPILER}"
    for name, spec in rows.items():
        if name.startswith(f"{COMPILER}.") or spec.moves == "view":
            continue
        # Registering twice is an error in TVM, and a reload of the module would do that.
        tvm.ir.Op.get(name).reset_attr(attr)
        tvm.ir.register_op_attr(name, attr, lambda call: Rules(rows).refusal(view_of(call)) is None)
