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
"""Tells which ops of a Relax module run on oneDNN, and why the others do not."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterator, Mapping

import tvm
from tvm import ir, relax
from tvm.contrib.onednn import interrupts
from tvm.contrib.onednn.options import Options
from tvm.contrib.onednn.policy.op_spec import OpSpec, Rules
from tvm.contrib.onednn.policy.tensors import COMPILER
from tvm.contrib.onednn.report.offload_report import (
    LEFT,
    UNPARTITIONED,
    Node,
    OffloadReport,
    scales_text,
    tensor_text,
)

from .graph import RelaxGraph
from .reading import OPAQUE, is_constant, is_opaque, short_name, sizes

# The attribute of a module that partition_for_dnnl has been at, JSON text.
RECORD = "dnnl_partition_record"


# Expressions with bindings of their own, which the partitioner does not look into.
_INSIDE = {relax.If: "in a branch of an if", relax.Function: "in a function inside another"}


def ops_of(expr: relax.Expr) -> Counter:
    """Count the ops of a function, those in functions inside it included, or of an if."""
    return Counter(short_name(call) for call in _calls(expr))


def _calls(expr: relax.Expr) -> list[relax.Call]:
    calls: list[relax.Call] = []

    def visit(each):
        if short_name(each) is not None:
            calls.append(each)

    relax.analysis.post_order_visit(expr, visit)
    return calls


def by_op(func: relax.Function, reasons: Mapping) -> dict[str, list[str | None]]:
    """Return what is known of each call by its variable: by op, in order, which passes keep."""
    known: dict[str, list[str | None]] = {}
    for block in func.body.blocks:
        for binding in block.bindings:
            if short_name(binding.value) is not None:
                reason = reasons.get(binding.var)
                known.setdefault(short_name(binding.value), []).append(reason)
    return known


@interrupts.deferred()
def make_report(mod: tvm.IRModule, rows: Mapping[str, OpSpec]) -> OffloadReport:
    """Compare a module with the policy; see `offload_report`."""
    mod = relax.transform.Normalize()(mod)
    text = mod.get_attr(RECORD)
    record = None if text is None else json.loads(str(text))
    return _Reporter(mod, record, rows).report


class _Reporter:
    def __init__(self, mod: tvm.IRModule, record: dict | None, rows: Mapping[str, OpSpec]):
        self.mod, self.record = mod, record
        excluded = record["excluded"] if record else ()
        self.excluded = frozenset(excluded)
        self.rules = Rules(rows, Options(exclude=self.excluded))
        self.report = OffloadReport(folded=Counter(record["folded"] if record else {}))
        self.report.in_float32 = Counter(record["in_float32"] if record else {})
        self.report.failures = dict(record["failures"] if record else {})
        for var, func in mod.functions_items():
            if not isinstance(func, relax.Function):
                continue
            if _is_partition(func):
                self.report.partitions += 1
            elif is_opaque(func):
                mark = next(key for key in OPAQUE if key in func.attrs)
                self._stay_all(func, f"in a function marked '{mark}'")
            else:
                self._function(var.name_hint, func)

    def _stay_all(self, expr: relax.Expr, reason: str) -> list[str]:
        """Count the ops of what the partitioner does not look into; return their names."""
        ops = ops_of(expr)
        for name, count in ops.items():
            self._stay(name, reason, count)
        return list(ops.elements())

    def _closed(self, expr: relax.Expr, reason: str, function: str, read: list[int]) -> int:
        """Add a node for an if or a function inside another."""
        ops = self._stay_all(expr, reason)
        node = Node("tvm", type(expr).__name__.lower(), function, ops, reason=reason, inputs=read)
        node.shape = _type_text(expr.ty)
        return self._add(node)

    def _stay(self, name: str, reason: str, count: int = 1) -> None:
        self.report.ops[name] += count
        self.report.reasons.setdefault(name, Counter())[reason] += count

    def _function(self, name: str, func: relax.Function) -> None:
        graph = RelaxGraph(func, self.excluded)
        sources = {
            param: [self._add(Node("input", param.name, name, shape=_type_text(param.ty)))]
            for param in func.params
        }
        numbers = {op: iter(reasons) for op, reasons in self._known(name, func).items()}
        for i, node in enumerate(graph.nodes):
            binding = graph.bindings[i]
            if binding is None:
                continue
            read = _merged(sources, node)
            if type(node) in _INSIDE:
                sources[binding.var] = [self._closed(node, _INSIDE[type(node)], name, read)]
            elif not isinstance(node, relax.Call):
                sources[binding.var] = read
            elif isinstance(node.op, ir.GlobalVar) and _is_partition(self.mod[node.op]):
                self._partition(name, node, sources)
                sources[binding.var] = [len(self.report.nodes) - 1]
            else:
                op = short_name(node)
                reason = None
                if op is not None:
                    known = next(numbers[op], None) if op in numbers else None
                    reason = graph.reasons.get(i) or self.rules.refusal(graph.views[i]) or known
                    reason = reason or self.report.failures.get(name, self._left())
                    self._stay(op, reason)
                text = op or getattr(node.op, "name_hint", type(node.op).__name__)
                shape = _type_text(node.ty)
                new = Node("tvm", text, name, [text], shape=shape, reason=reason, inputs=read)
                sources[binding.var] = [self._add(new)]
        result = func.body.body
        shape = _type_text(result.ty)
        self._add(Node("output", "result", name, shape=shape, inputs=_merged(sources, result)))

    def _left(self) -> str:
        """Return why an op without any other reason is on TVM."""
        return UNPARTITIONED if self.record is None else LEFT

    def _known(self, name: str, func: relax.Function) -> dict[str, list[str | None]]:
        stayed = self.record["stayed"].get(name, {}) if self.record else {}
        now = by_op(func, {})
        return {op: texts for op, texts in stayed.items() if len(now.get(op, ())) == len(texts)}

    def _partition(self, name: str, call: relax.Call, outside: dict) -> None:
        """Add the composites of a partition, where it is called."""
        func, part = self.mod[call.op], call.op.name_hint
        sources = {param: _merged(outside, arg) for param, arg in zip(func.params, call.args)}
        composites = {}
        for binding in func.body.blocks[0].bindings:
            value = binding.value
            if isinstance(value, relax.Function):
                composites[binding.var] = value
                continue
            if not isinstance(value, relax.Call):
                sources[binding.var] = _merged(sources, value)
                continue
            composite = composites[value.op]
            fixed = {param for param, arg in zip(composite.params, value.args) if is_constant(arg)}
            title = str(composite.attrs["Composite"])
            # The transposed weight of a dense is none of the model's, nor are casts in a formula.
            names = [
                short_name(each)
                for each in _calls(composite)
                if (short_name(each) != "permute_dims" or each.args[0] not in fixed)
                and (short_name(each) != "astype" or title == f"{COMPILER}.cast")
            ]
            self.report.ops.update(names)
            self.report.offloaded_ops.update(names)
            self.report.composites[title] += 1
            if "qnn." in title:
                self.report.in_8_bits[_scales(composite)] += 1
            node = Node("dnnl", title, name, names, shape=_type_text(value.ty), partition=part)
            node.inputs = _merged(sources, value)
            sources[binding.var] = [self._add(node)]

    def _add(self, node: Node) -> int:
        self.report.nodes.append(node)
        return len(self.report.nodes) - 1


def _is_partition(func) -> bool:
    return isinstance(func, relax.Function) and str(func.attrs.get("Codegen", "")) == COMPILER


def _scales(composite: relax.Function) -> str:
    read = [call for call in _calls(composite) if short_name(call) == "dequantize"]
    return scales_text(sizes(call.args[1].ty) or () for call in read)


def _type_text(type_) -> str:
    """Write a type for people, each tensor as `tensor_text` does."""
    if isinstance(type_, relax.TupleType):
        return ", ".join(_type_text(field) for field in type_.fields)
    shape = sizes(type_) if isinstance(type_, relax.TensorType) else None
    return "" if shape is None else tensor_text(shape, str(type_.dtype))


def _leaves(expr) -> Iterator:
    """Yield the variables that an expression in A-normal form reads."""
    if isinstance(expr, relax.Var):
        yield expr
    elif isinstance(expr, relax.Tuple):
        for field in expr.fields:
            yield from _leaves(field)
    elif isinstance(expr, relax.TupleGetItem):
        yield from _leaves(expr.tuple_value)
    elif isinstance(expr, relax.Call):
        for arg in expr.args:
            yield from _leaves(arg)
    elif type(expr) in _INSIDE:
        yield from relax.analysis.free_vars(expr)


def _merged(sources: dict, expr) -> list[int]:
    read = (sources.get(var, []) for var in _leaves(expr))
    return list(dict.fromkeys(itertools.chain(*read)))
