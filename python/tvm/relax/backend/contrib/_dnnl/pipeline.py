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
"""What `partition_for_dnnl` does with a Relax module, in order."""

from __future__ import annotations

import json
import re
from collections import Counter

import tvm
from tvm import relax

from .graph import RelaxGraph
from .ops import ReadOp
from .outline import Outlined
from .partition.units import Choice, Units
from .policy.op_spec import Rules
from .policy.tensors import COMPILER
from .relax_report import RECORD, by_op, ops_of
from .rewrites.formulas import ROOTS, FormulaReader
from .rewrites.norm_readers import LayerNormReader, RMSNormReader
from .simplify import is_opaque, simplify


def partition(mod: tvm.IRModule, params: dict | None, rules: Rules) -> tvm.IRModule:
    """Partition every function of a module that has something for oneDNN.

    See :py:func:`tvm.relax.backend.contrib.dnnl.partition_for_dnnl`.
    """
    for var, func in mod.functions_items() if params else ():
        if isinstance(func, relax.Function) and not is_opaque(func):
            names = {param.name for param in func.params}.intersection(params)
            own = {name: params[name] for name in names}
            mod = relax.transform.BindParams(var.name_hint, own)(mod) if own else mod
    given = _ops(mod)
    mod = simplify(mod)
    record = {
        "excluded": sorted(rules.options.exclude),
        "folded": dict(sorted((given - _ops(mod)).items())),
        "stayed": {},
    }
    builder = relax.BlockBuilder(mod)
    for var, func in mod.functions_items():
        if not isinstance(func, relax.Function) or is_opaque(func):
            continue
        units = Units(with_formulas(RelaxGraph(func, rules.options.exclude), rules), rules)
        name = re.sub(r"\W", "_", f"{rules.options.mod_name}_{COMPILER}_{var.name_hint}")
        outlined = Outlined(builder, func, units, Choice(units), name)
        builder.update_func(var, outlined.func)
        record["stayed"][var.name_hint] = by_op(outlined.func, outlined.reasons)
    # What stays on TVM has its weight as it was.
    mod = simplify(builder.finalize(), transposes_weights=False)
    return mod.with_attr(RECORD, json.dumps(record))


def _ops(mod: tvm.IRModule) -> Counter:
    """Count the ops of all functions that are ours to change."""
    functions = (func for func in mod.functions.values() if isinstance(func, relax.Function))
    return sum((ops_of(func) for func in functions if not is_opaque(func)), Counter())


def with_formulas(graph: RelaxGraph, rules: Rules) -> RelaxGraph:
    """Return a graph in which each formula that oneDNN has an op for is one call."""
    groups: dict[int, tuple[list[int], ReadOp]] = {}
    taken: set[int] = set()
    for i in reversed(range(len(graph.nodes))):
        for read in _formulas(graph, i):
            group = graph.closed_group(i, read.operands)
            if i in taken or group is None or not taken.isdisjoint(group):
                continue
            names = [graph.ops[k] for k in group if graph.ops[k]]
            if graph.result(i) is None or rules.excludes(read.name, *names):
                continue
            if rules.refusal(graph.view(i, read)) is None:
                groups[i] = group, read
                taken.update(group)
                break
    return graph.with_groups(groups)


def _formulas(graph: RelaxGraph, i: int):
    """Yield the ops that what ends in an expression may be read as, the best first."""
    name = graph.ops[i]
    if name == "nn.matmul":
        data, weight = graph.operands[i]
        if graph.ops[weight] == "transpose" and graph.read[weight].attrs["axes"] == [1, 0]:
            yield ReadOp("nn.dense", [data, *graph.operands[weight]], {})
    if name in ("add", "multiply", "divide"):
        norm = LayerNormReader(graph).read(i)
        if norm is not None and norm.gamma is not None and norm.beta is not None:
            attrs = {"axis": -1, "epsilon": norm.epsilon, "center": True, "scale": True}
            yield ReadOp("nn.layer_norm", norm.operands(), attrs)
        norm = RMSNormReader(graph).read(i)
        if norm is not None and norm.gamma is not None:
            yield ReadOp("dnnl.rms_norm", norm.operands(), {"epsilon": norm.epsilon})
    if name in ROOTS:
        for formula in FormulaReader(graph).formulas(i):
            yield ReadOp(formula.name, [formula.data], dict(formula.attrs))
