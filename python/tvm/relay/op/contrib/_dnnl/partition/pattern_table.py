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
"""Serves TVM's own passes: patterns for MergeComposite, and attributes for AnnotateTarget."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping

import tvm.ir
from tvm import relay
from tvm.contrib.onednn.ops.operands import BIAS_OPS
from tvm.contrib.onednn.ops.quantize import DEQUANTIZE, QUANTIZE
from tvm.contrib.onednn.ops.rules import Rules
from tvm.contrib.onednn.ops.schema import OpSchema
from tvm.contrib.onednn.ops.tensors import COMPILER
from tvm.contrib.onednn.partition.fuse import Fused
from tvm.relay.dataflow_pattern import DFPattern, is_op, wildcard

from ..ir.relay_view import op_name, view_of
from ..reader import RelayGraph

# Ops by their names in that of a composite, where they differ.
_OPS = {"bias": BIAS_OPS, "sum": ("add",), "relu": ("nn.relu",), "quantize": (QUANTIZE,)}


def _ops(spec: OpSchema, parts: str) -> list[tuple[str, ...]]:
    """Return the ops of a composite in order; where there are several, any one of them."""
    ops = [_OPS.get(part, (part,)) for part in parts.split("_") if part]
    if (QUANTIZE,) in ops[:-1]:
        # Rounded values continue as floats, which the name does not show.
        ops.insert(ops.index((QUANTIZE,)) + 1, (DEQUANTIZE,))
    return [(spec.name,), *ops]


def composites(rows: Mapping[str, OpSchema]) -> dict[str, list[tuple[str, ...]]]:
    """Return the ops of each composite of floats that has a pattern, by its name.

    The longer go first: what one matches the next cannot have.
    """
    named = {
        f"{COMPILER}.{_short(spec)}_{parts}": _ops(spec, parts)
        for spec in rows.values()
        for parts in spec.patterns.split()
    }
    return _longest_first(named)


def quantized_composites(rows: Mapping[str, OpSchema]) -> dict[str, list[tuple[str, ...]]]:
    """Return the same of the composites whose root reads integers in 8 bits."""
    named = {}
    for spec in rows.values():
        # MergeComposite looks for ops, which virtual ones are not.
        is_virtual = spec.name.startswith(f"{COMPILER}.")
        if is_virtual or not spec.reads_int8 or "quantize" not in spec.fuses:
            continue
        root = "dequantize" if spec.name == DEQUANTIZE else f"qnn.{_short(spec)}"
        for parts in _quantized_parts(spec):
            named[f"{COMPILER}.{root}_{parts}".rstrip("_")] = _ops(spec, parts)
    return _longest_first(named)


def _quantized_parts(spec: OpSchema) -> list[str]:
    """Return what is fused to an op that reads 8 bits."""
    ends = ["quantize", *spec.patterns_int8.split()]
    if spec.weight_axis is None:
        return ends
    ends.insert(0, "")
    return [*ends, *(f"bias_{end}".rstrip("_") for end in ends)]


def names(rows: Mapping[str, OpSchema]) -> list[str]:
    """Return the names of all rows and composites."""
    return [*rows, *composites(rows), *quantized_composites(rows)]


def _short(spec: OpSchema) -> str:
    return spec.name.split(".")[-1]


def _longest_first(named: dict[str, list]) -> dict[str, list]:
    return dict(sorted(named.items(), key=lambda item: -len(item[1])))


def pattern_table(
    rows: Mapping[str, OpSchema],
) -> list[tuple[str, DFPattern, Callable[[relay.Call], bool]]]:
    """Return (name, pattern, check) of each composite, as MergeComposite expects them.

    A sum of floats has two patterns: of two operands that both match, MergeComposite takes
    one and does not try the other when the check refuses. For 8 bits `write_for_patterns` swaps
    them.
    """

    def entry(name, ops, operand, second=False):
        check = functools.partial(_is_fused, rows, name, ops, second)
        return name, _pattern(ops, operand, second), check

    quantized = quantized_composites(rows).items()
    table = [entry(name, ops, _maybe_dequantized) for name, ops in quantized]
    for name, ops in composites(rows).items():
        orders = (False, True) if _OPS["sum"] in ops[1:] else (False,)
        table += [entry(name, ops, wildcard, second) for second in orders]
    return table


def _pattern(
    ops: list[tuple[str, ...]], operand: Callable[[], DFPattern], second: bool
) -> DFPattern:
    """Build the pattern of ops, each of which reads the one before.

    Operands are wildcards: a constant becomes a parameter of the composite, as a variable does.
    An `add` matches with its operands in either order. `second` tells which operand is looked at
    first for the op before.
    """
    (root,), *rest = ops
    if root == DEQUANTIZE:
        pattern = is_op(root)(wildcard(), wildcard(), wildcard())
    else:
        pattern = is_op(root)(*(operand() for _ in range(tvm.ir.Op.get(root).num_inputs)))
    for names in rest:
        others = [operand()] if "add" in names else []
        if names[0] in (QUANTIZE, DEQUANTIZE):
            others = [wildcard(), wildcard()]
        operands = (*others, pattern) if second and "add" in names else (pattern, *others)
        pattern = functools.reduce(operator.or_, (is_op(name)(*operands) for name in names))
    return pattern


def _maybe_dequantized() -> DFPattern:
    """Build the pattern of an operand that is read in 8 bits, where it is dequantized."""
    return is_op(DEQUANTIZE)(wildcard(), wildcard(), wildcard()) | wildcard()


def _path(call: relay.Expr, ops: list[tuple[str, ...]], second: bool) -> list[relay.Call] | None:
    """Return the calls that the matcher found, the root first; None where it would find none."""
    if op_name(call) not in ops[-1]:
        return None
    if len(ops) == 1:
        return [call]
    operands = call.args if op_name(call) == "add" else call.args[:1]
    for operand in reversed(operands) if second else operands:
        path = _path(operand, ops[:-1], second)
        if path is not None:
            return [*path, call]
    return None


def _is_fused(
    rows: Mapping[str, OpSchema],
    name: str,
    ops: list[tuple[str, ...]],
    second: bool,
    call: relay.Call,
) -> bool:
    """Whether the calls of a match become the composite `name`.

    The matcher lets an operand be computed from the root; this is seen in its users. Of a composite
    of 8 bits it takes each dequantize in, also one that the op cannot do as it reads.
    """
    path = _path(call, ops, second)
    rules = Rules(rows)
    if path is None or rules.refusal(view_of(path[0])) is not None:
        return False
    nodes = RelayGraph(call).nodes
    root = next(node for node in nodes if path[0].same_as(node.origin.native))
    fused = Fused(root, rules)
    fused.grow(set())
    if fused.name != name or fused.chain[-1] is not nodes[-1]:
        return False
    operands = {o for node in fused.chain for o in node.operands}.difference(fused.chain)
    matched = {node for node in operands if node.name == DEQUANTIZE}
    return not fused.dequantized or matched == set(fused.dequantized)


def register(rows: Mapping[str, OpSchema]) -> None:
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
