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
"""Reads formulas, such as a gelu or a layer norm of several ops, as one call each."""

from __future__ import annotations

import numpy as np
from tvm import relax
from tvm.contrib.onednn.policy.op_spec import Rules
from tvm.contrib.onednn.rewrites.formulas import ROOTS, FormulaReader
from tvm.contrib.onednn.rewrites.norm_readers import (
    InstanceNormReader,
    LayerNormReader,
    Normalization,
    RMSNormReader,
)

from .graph import RelaxGraph
from .read_op import ReadOp
from .reading import value_of

_NORMS = {LayerNormReader: "nn.layer_norm", InstanceNormReader: "nn.instance_norm"}


def with_formulas(func: relax.Function, rules: Rules) -> RelaxGraph:
    """Return a function as a graph in which each formula that oneDNN has an op for is one call."""
    graph = RelaxGraph(func, rules.options.exclude)
    groups: dict[int, tuple[list[int], ReadOp]] = {}
    grouped: set[int] = set()
    for i in reversed(range(len(graph.nodes))):
        for read in _formulas(graph, i):
            group = graph.closed_group(i, read.operands)
            if i in grouped or group is None or not grouped.isdisjoint(group):
                continue
            names = [graph.ops[k] for k in group if graph.ops[k]]
            if graph.result(i) is None or rules.excludes(read.name, *names):
                continue
            if rules.refusal(graph.view(i, read)) is None:
                groups[i] = group, read
                grouped.update(group)
                break
    return graph.with_groups(groups)


def dense_of(graph: RelaxGraph, i: int) -> ReadOp | None:
    """Return a matmul that reads a transpose of its weight as a dense; None for another op."""
    if graph.ops[i] != "nn.matmul":
        return None
    data, weight = graph.operands[i]
    if graph.ops[weight] != "transpose" or graph.read[weight].attrs["axes"] != [1, 0]:
        return None
    attrs = {k: v for k, v in graph.read[i].attrs.items() if k == "out_dtype"}
    return ReadOp("nn.dense", [data, *graph.operands[weight]], attrs)


def _formulas(graph: RelaxGraph, i: int):
    """Yield the ops that what ends in an expression may be read as, the best first."""
    name = graph.ops[i]
    if name == "cast" and graph.scope[i] == graph.scope[graph.operands[i][0]]:
        yield from _between_casts(graph, i)
    dense = dense_of(graph, i)
    if dense is not None:
        yield dense
    for reader, norm_name in _NORMS.items():
        norm = reader(graph).read(i) if name in reader.roots else None
        operands = norm and _of_vectors(graph, norm, reader.axis)
        if operands:
            switches = {"center": norm.beta is not None, "scale": norm.gamma is not None}
            attrs = {"axis": reader.axis, "epsilon": norm.epsilon, **switches}
            yield ReadOp(norm_name, operands, attrs)
    if name in RMSNormReader.roots:
        norm = RMSNormReader(graph).read(i)
        operands = norm and _of_vectors(graph, norm, -1)
        if operands and norm.gamma is not None:
            yield ReadOp("dnnl.rms_norm", operands[:2], {"epsilon": norm.epsilon})
    if name in ROOTS:
        for formula in FormulaReader(graph).formulas(i):
            yield ReadOp(formula.name, [formula.data], dict(formula.attrs))


def _of_vectors(graph: RelaxGraph, norm: Normalization, axis: int) -> list[int] | None:
    """Return the operands of a norm, by number, with vectors along an axis; None if it has others.

    Those that it lacks are constants that change nothing.
    """
    data = graph.result(norm.data)
    operands = [norm.data]
    for i, neutral in ((norm.gamma, 1.0), (norm.beta, 0.0)):
        if i is None:
            i = graph.add_constant(np.full(data.shape[axis], neutral), data.dtype)
        elif len(graph.result(i).shape) != 1:
            if not graph.is_fixed(i):
                return None
            i = graph.add_constant(value_of(graph.nodes[i]).reshape(-1), graph.result(i).dtype)
        operands.append(i)
    return operands


def _between_casts(graph: RelaxGraph, i: int):
    """Yield the formulas that are computed in float32 of operands of the type of the result."""
    dtype = graph.result(i).dtype
    for read in _formulas(graph, graph.operands[i][0]):
        casts = [graph.ops[k] == "cast" and graph.operands[k][0] for k in read.operands]
        if all(k is not False and graph.result(k).dtype == dtype for k in casts):
            yield read._replace(operands=casts)
