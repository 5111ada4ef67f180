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
"""Fuses formulas and normalizations that are written as several ops."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ..ir.graph import Graph
from ..ir.match import closed_group, is_op
from ..ir.node import Node
from ..ir.op_view import tensor_of
from ..ops.rules import Rules
from .formulas import ROOTS, FormulaReader
from .norm_readers import InstanceNormReader, LayerNormReader, Normalization, RMSNormReader

# More ops are no formula, and would be the whole graph for each of its ops.
_MOST_OPS = 64
_NORMS = {LayerNormReader: "nn.layer_norm", InstanceNormReader: "nn.instance_norm"}
_COMPUTED_IN_FLOAT32 = (*_NORMS.values(), "nn.group_norm", "dnnl.rms_norm")


class _Reading(NamedTuple):
    """The op that several ops are equivalent to."""

    name: str
    operands: list[Node]
    attrs: dict


def fuse_formulas(graph: Graph, rules: Rules) -> None:
    """Fuse each formula that oneDNN has an op for."""
    fused: set[Node] = set()
    # The last op comes first: a formula may be part of a larger one.
    for node in reversed(graph.nodes):
        for name, operands, attrs in _readings(graph, node):
            group = closed_group(node, operands, _MOST_OPS)
            if node in fused or group is None or not fused.isdisjoint(group):
                continue
            names = [each.name for each in group if each.name]
            if rules.excludes(name, *names):
                continue
            new = graph.call(name, operands, node, **attrs)
            if not _may_be_same(new, node):
                continue
            new = graph.call(name, operands, node, node.type, **attrs)
            if rules.refusal(new) is None:
                graph.fuse_into(node, new)
                fused.update(group)
                break


def _may_be_same(new: Node, old: Node) -> bool:
    """Whether two tensors may have the same type."""
    sizes = zip(new.tensor.shape, old.tensor.shape)
    is_same_rank = len(new.tensor.shape) == len(old.tensor.shape)
    is_same = is_same_rank and all(None in pair or pair[0] == pair[1] for pair in sizes)
    return is_same and new.tensor.dtype == old.tensor.dtype


def _readings(graph: Graph, node: Node) -> Iterator[_Reading]:
    """Yield the ops that a node is equivalent to, the best first."""
    if node.name == "cast" and node.scope == node.operands[0].scope:
        yield from _between_casts(graph, node)
    if is_op(node, "nn.matmul"):
        yield from _dense(node)
    if is_op(node, "where"):
        yield from _extremum(node)
    for reader, name in _NORMS.items():
        norm = reader().read(node) if node.name in reader.roots else None
        operands = norm and _of_vectors(graph, norm, reader.axis)
        if operands:
            switches = {"center": norm.beta is not None, "scale": norm.gamma is not None}
            yield _Reading(
                name, operands, {"axis": reader.axis, "epsilon": norm.epsilon, **switches}
            )
    if node.name in RMSNormReader.roots:
        norm = RMSNormReader().read(node)
        operands = norm and _of_vectors(graph, norm, -1)
        if operands:
            operands = operands[: 1 if norm.gamma is None else 2]
            yield _Reading("dnnl.rms_norm", operands, {"epsilon": norm.epsilon})
    if node.name in ROOTS:
        for formula in FormulaReader(node).formulas():
            yield _Reading(formula.name, [formula.data], dict(formula.attrs))


def _dense(node: Node) -> Iterator[_Reading]:
    """Yield a matmul by a transposed matrix as a dense."""
    data, weight = node.operands
    if is_op(weight, "transpose") and list(weight.attrs.axes) == [1, 0]:
        attrs = {key: each for key, each in vars(node.attrs).items() if key == "out_dtype"}
        yield _Reading("nn.dense", [data, *weight.operands], attrs)


def _extremum(node: Node) -> Iterator[_Reading]:
    """Yield a maximum or minimum whose operands replace it where they are NaN."""
    guarded = []
    while is_op(node, "where") and is_op(node.operands[0], "not_equal"):
        condition, data, node = node.operands
        if condition.operands != [data, data]:
            return
        guarded.append(data)
    if not is_op(node, "maximum", "minimum"):
        return
    others = {*node.operands}.difference(guarded)
    if {*guarded} <= {*node.operands} and all(map(_is_number, others)):
        yield _Reading(f"dnnl.nan_{node.name}", node.operands, {})


def _is_number(node: Node) -> bool:
    return node.is_constant and not np.isnan(np.asarray(node.value, "float64")).any()


def _of_vectors(graph: Graph, norm: Normalization, axis: int) -> list[Node] | None:
    """Return the operands of a norm, with vectors along an axis; None if it has others.

    Those that it lacks are constants that change nothing.
    """
    data = norm.data
    operands = [data]
    for vector, neutral in ((norm.gamma, 1.0), (norm.beta, 0.0)):
        if vector is None:
            values = np.full(data.tensor.shape[axis], neutral)
            operands.append(graph.constant(values, data.tensor.dtype))
            continue
        if len(vector.tensor.shape) != 1:
            if not vector.is_constant:
                return None
            vector = graph.constant(vector.value.reshape(-1), vector.tensor.dtype)
        operands.append(vector)
    return operands


def _between_casts(graph: Graph, node: Node) -> Iterator[_Reading]:
    """Yield what is computed in float32 of operands of the type of the result.

    Normalizations of reduced precision compute in float32, too.
    """
    inner = node.operands[0]
    readings = [*_readings(graph, inner)]
    if inner.name in _COMPUTED_IN_FLOAT32:
        readings.append(_Reading(inner.name, inner.operands, vars(inner.attrs)))
    for reading in readings:
        operands = [_before_cast(graph, each, node.tensor.dtype) for each in reading.operands]
        if None not in operands:
            yield reading._replace(operands=operands)


def _before_cast(graph: Graph, node: Node, dtype: str) -> Node | None:
    """Return what is cast from a type, or a constant in it; None for what is neither."""
    if node.name == "cast" and tensor_of(node.args[0]).dtype == dtype:
        return node.operands[0]
    if node.is_constant:
        constant = graph.constant(node.value, dtype)
        if np.array_equal(np.asarray(constant.value, "float64"), np.asarray(node.value, "float64")):
            return constant
    return None
