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
"""Unrolls the loops of an ONNX model whose number of iterations is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from .protobuf import rename

if TYPE_CHECKING:
    import onnx

# A loop that would become more nodes than this stays.
_MAX_NODES = 50_000


def unroll(
    node: onnx.NodeProto,
    value: Callable[[str], np.ndarray | None],
    store: Callable[[str, object], None],
    fold_node: Callable[[onnx.NodeProto], bool],
    opset: int,
) -> list[onnx.NodeProto] | None:
    """Return the nodes of all iterations of a `Loop`.

    Parameters
    ----------
    node : onnx.NodeProto
        The loop.
    value : Callable[[str], np.ndarray | None]
        Returns the value of a constant.
    store : Callable[[str, object], None]
        Adds a constant: an array or a tensor.
    fold_node : Callable[[onnx.NodeProto], bool]
        Computes the outputs of a node if they are constant, and returns whether they are.
    opset : int
        The version of the standard ops.

    Returns
    -------
    nodes : list[onnx.NodeProto] | None
        None if the number of iterations is not constant, zero or too large.
    """
    import onnx

    (body,) = (each.g for each in node.attribute if each.name == "body")
    limit, condition = (value(name) if name else np.array(True) for name in node.input[:2])
    if limit is None or condition is None:
        return None
    trips = int(limit.reshape(())) if node.input[0] else _MAX_NODES
    carried, prefix = list(node.input[2:]), next(filter(None, node.output))
    weights = {tensor.name: f"{prefix}/{tensor.name}" for tensor in body.initializer}
    for tensor in body.initializer:
        store(weights[tensor.name], tensor)
    nodes: list[onnx.NodeProto] = []
    scans: list[list[str]] = [[] for _ in body.output[1 + len(carried) :]]
    trip = 0
    while trip < trips and bool(condition.reshape(())):
        inputs = [f"{prefix}/{trip}/{each.name}" for each in body.input[:2]]
        store(inputs[0], np.array(trip, "int64"))
        store(inputs[1], np.array(True))
        names = {**weights, **dict(zip((each.name for each in body.input), [*inputs, *carried]))}
        for each in body.node:
            names.update({name: f"{prefix}/{trip}/{name}" for name in each.output if name})
        for each in body.node:
            new = onnx.NodeProto()
            new.CopyFrom(each)
            rename([new], names)
            if new.name:
                new.name = f"{prefix}/{trip}/{new.name}"
            if new.op_type == "Identity" and not new.domain:
                # Names one value: what follows reads its source.
                names = {k: new.input[0] if v == new.output[0] else v for k, v in names.items()}
            elif not fold_node(new):
                nodes.append(new)
        outputs = [names.get(each.name, each.name) for each in body.output]
        condition, carried = value(outputs[0]), outputs[1 : 1 + len(carried)]
        for scan, name in zip(scans, outputs[1 + len(carried) :]):
            scan.append(name)
        trip += 1
        if condition is None or len(nodes) > _MAX_NODES:
            return None
    if trip == 0:
        return None
    results = carried + [
        _stack(nodes, scan, f"{prefix}/{k}", store, opset) for k, scan in enumerate(scans)
    ]
    nodes += [
        onnx.helper.make_node("Identity", [source], [output])
        for output, source in zip(node.output, results)
        if output
    ]
    return nodes


def _stack(nodes, names, prefix, store, opset) -> str:
    """Append the nodes that stack the values of all iterations; return the name of the result."""
    import onnx

    axes = f"{prefix}/axes"
    store(axes, np.array([0]))
    rows = []
    for k, name in enumerate(names):
        rows.append(f"{prefix}/row{k}")
        given = {"inputs": [name, axes]} if opset >= 13 else {"inputs": [name], "axes": [0]}
        nodes.append(onnx.helper.make_node("Unsqueeze", outputs=[rows[-1]], **given))
    nodes.append(onnx.helper.make_node("Concat", rows, [f"{prefix}/stack"], axis=0))
    return f"{prefix}/stack"
