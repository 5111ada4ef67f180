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
"""The branches of an `If` in ONNX models, as models of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .protobuf import captured, subgraphs

if TYPE_CHECKING:
    import onnx


def fold_branches(model: onnx.ModelProto, inferred: onnx.GraphProto, fold: Callable) -> bool:
    """Fold in the branches of each `If` of a model, in place; return whether anything was.

    A branch reads weights and other values of the graph around it. It is folded as a model with
    these weights, and with the other values as inputs.

    Parameters
    ----------
    model : onnx.ModelProto
        The model.
    inferred : onnx.GraphProto
        Its graph with the types of all values.
    fold : Callable
        Folds a model in place.
    """
    types = {each.name: each for each in (*inferred.input, *inferred.value_info)}
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    is_changed = False
    for node in model.graph.node:
        for branch in subgraphs(node) if node.op_type == "If" else ():
            before = _size(branch)
            inner = _model_of(branch, model, types, weights)
            fold(inner)
            _write(branch, inner.graph, weights)
            is_changed |= _size(branch) != before
    return is_changed


def _size(graph) -> int:
    """Return the number of nodes, those in branches included."""
    return len(graph.node) + sum(_size(each) for node in graph.node for each in subgraphs(node))


def _model_of(branch, model, types, weights) -> onnx.ModelProto:
    """Return a copy of a branch as a model."""
    import onnx

    inner = onnx.ModelProto(ir_version=model.ir_version)
    inner.opset_import.extend(model.opset_import)
    inner.graph.CopyFrom(branch)
    for name in captured(branch):
        if name in weights:
            inner.graph.initializer.add().CopyFrom(weights[name])
        else:
            inner.graph.input.add().CopyFrom(types.get(name, onnx.ValueInfoProto(name=name)))
    return inner


def _write(branch, folded, weights) -> None:
    """Replace the nodes of a branch."""
    kept = [tensor for tensor in folded.initializer if tensor.name not in weights]
    for field in ("node", "initializer", "value_info"):
        branch.ClearField(field)
    branch.node.extend(folded.node)
    branch.value_info.extend(folded.value_info)
    branch.initializer.extend(kept)
