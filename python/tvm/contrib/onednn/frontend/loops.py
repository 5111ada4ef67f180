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

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from .protobuf import rename

if TYPE_CHECKING:
    import onnx

# A loop that would become more nodes than this stays.
_MAX_NODES = 50_000


class Unroller:
    """Unrolls a loop into the nodes of all of its iterations.

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
    """

    def __init__(
        self,
        node: onnx.NodeProto,
        value: Callable[[str], np.ndarray | None],
        store: Callable[[str, object], None],
        fold_node: Callable[[onnx.NodeProto], bool],
        opset: int,
    ):
        import onnx

        self._node, self._value, self._store, self._opset = node, value, store, opset
        self._fold_node = fold_node
        self._attrs = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
        self._body, self._prefix = self._attrs["body"], next(filter(None, node.output))
        self._weights: dict[str, str] = {}
        self._nodes: list[onnx.NodeProto] = []

    def loop(self) -> list[onnx.NodeProto] | None:
        """Return the nodes in place of a `Loop`.

        None if the number of iterations is not constant, zero or too large.
        """
        value, inputs = self._value, self._node.input
        limit, condition = (value(name) if name else np.array(True) for name in inputs[:2])
        if limit is None or condition is None:
            return None
        trips = int(limit.reshape(())) if inputs[0] else _MAX_NODES
        self._store_weights()
        carried = list(inputs[2:])
        scans: list[list[str]] = [[] for _ in self._body.output[1 + len(carried) :]]
        trip = 0
        while trip < trips and bool(condition.reshape(())):
            names = [f"{self._prefix}/{trip}/{each.name}" for each in self._body.input[:2]]
            self._store(names[0], np.array(trip, "int64"))
            self._store(names[1], np.array(True))
            outputs = self._iteration(trip, [*names, *carried])
            condition, carried = value(outputs[0]), outputs[1 : 1 + len(carried)]
            for scan, name in zip(scans, outputs[1 + len(carried) :]):
                scan.append(name)
            trip += 1
            if condition is None or len(self._nodes) > _MAX_NODES:
                return None
        return self._with_results(carried, scans) if trip else None

    def scan(self, sizes: Callable[[str], Sequence[int | None] | None]) -> list | None:
        """Return the nodes in place of a `Scan`.

        None if the number of iterations is not known, zero or too large, and for opset 8, in which
        the op has a batch.

        Parameters
        ----------
        sizes : Callable[[str], Sequence[int | None] | None]
            Returns the shape of a value.
        """
        import onnx

        count = self._attrs["num_scan_inputs"]
        carried, scanned = list(self._node.input[:-count]), list(self._node.input[-count:])
        axes, backward = self._axes("input", count)
        shape = sizes(scanned[0])
        trips = None if shape is None or self._opset < 9 else shape[axes[0]]
        if not trips or trips * len(self._body.node) > _MAX_NODES:
            return None
        self._store_weights()
        scans: list[list[str]] = [[] for _ in self._body.output[len(carried) :]]
        for trip in range(trips):
            items = []
            for k, (name, axis) in enumerate(zip(scanned, axes)):
                position, item = (f"{self._prefix}/{trip}/{kind}{k}" for kind in ("at", "item"))
                self._store(position, np.array(trips - 1 - trip if backward[k] else trip, "int64"))
                items.append(item)
                self._append(onnx.helper.make_node("Gather", [name, position], [item], axis=axis))
            outputs = self._iteration(trip, [*carried, *items])
            carried = outputs[: len(carried)]
            for each, name in zip(scans, outputs[len(carried) :]):
                each.append(name)
        axes, backward = self._axes("output", len(scans))
        scans = [each[::-1] if flag else each for each, flag in zip(scans, backward)]
        return self._with_results(carried, scans, axes)

    def _axes(self, kind: str, count: int) -> tuple[list[int], list[int]]:
        """Return the axes of the inputs or outputs of a `Scan`, and which run backward."""
        names = (f"scan_{kind}_{each}" for each in ("axes", "directions"))
        axes, directions = (self._attrs.get(name, [0] * count) for name in names)
        return axes, directions

    def _store_weights(self) -> None:
        for tensor in self._body.initializer:
            self._weights[tensor.name] = f"{self._prefix}/{tensor.name}"
            self._store(self._weights[tensor.name], tensor)

    def _append(self, node) -> None:
        if not self._fold_node(node):
            self._nodes.append(node)

    def _iteration(self, trip: int, inputs: Sequence[str]) -> list[str]:
        """Append the nodes of an iteration; return the names of the results of the body."""
        import onnx

        prefix = f"{self._prefix}/{trip}"
        names = {**self._weights, **dict(zip((each.name for each in self._body.input), inputs))}
        for each in self._body.node:
            names.update({name: f"{prefix}/{name}" for name in each.output if name})
        for each in self._body.node:
            new = onnx.NodeProto()
            new.CopyFrom(each)
            rename([new], names)
            if new.name:
                new.name = f"{prefix}/{new.name}"
            if new.op_type == "Identity" and not new.domain:
                # Names one value: what follows reads its source.
                names = {k: new.input[0] if v == new.output[0] else v for k, v in names.items()}
            else:
                self._append(new)
        return [names.get(each.name, each.name) for each in self._body.output]

    def _with_results(self, carried, scans, axes=None) -> list[onnx.NodeProto]:
        """Append the nodes that make the results of the loop; return all nodes."""
        import onnx

        axes = [0] * len(scans) if axes is None else axes
        results = carried + [self._stack(*each) for each in zip(range(len(scans)), scans, axes)]
        self._nodes += [
            onnx.helper.make_node("Identity", [source], [output])
            for output, source in zip(self._node.output, results)
            if output
        ]
        return self._nodes

    def _stack(self, number: int, names: Sequence[str], axis: int) -> str:
        """Append the nodes that stack the values of all iterations; return the result's name."""
        import onnx

        prefix = f"{self._prefix}/{number}"
        axes, stack = f"{prefix}/axes", f"{prefix}/stack"
        self._store(axes, np.array([axis]))
        rows = [f"{prefix}/row{k}" for k in range(len(names))]
        for name, row in zip(names, rows):
            is_input = self._opset >= 13
            given = {"inputs": [name, axes]} if is_input else {"inputs": [name], "axes": [axis]}
            self._nodes.append(onnx.helper.make_node("Unsqueeze", outputs=[row], **given))
        self._nodes.append(onnx.helper.make_node("Concat", rows, [stack], axis=axis))
        return stack
