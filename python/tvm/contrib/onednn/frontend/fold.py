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
"""Folds what is constant in an ONNX model, with the evaluator of the package `onnx`."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ..ir.growth import Growth
from .branches import fold_branches
from .evaluate import evaluate, numeric_types
from .inference import infer_shapes, sizes_of
from .loops import Unroller
from .pads import set_pads
from .protobuf import (
    clone,
    initializer_names,
    rename,
    sort_nodes,
    subgraphs,
    uses,
)

if TYPE_CHECKING:
    import onnx

_DOMAINS = ("", "ai.onnx")

# Quantized weights stay in 8 bits, and what is random differs in each run.
_KEPT = {
    *("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"),
    *("Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike"),
    *("RandomUniform", "RandomUniformLike"),
}

# Ops that TVM does not compile for tensors without elements.
_DIVIDES = {
    *("AveragePool", "GlobalAveragePool", "Hardmax", "InstanceNormalization"),
    *("LayerNormalization", "LogSoftmax", "ReduceMean", "Softmax"),
}

# Ops that only move the elements of their first input.
_MOVES = {"Cast", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Unsqueeze"}

# What may be added to the model in place of a node that is larger than its inputs, in bytes.
_MAX_GROWTH = 2**20


def fold(model: onnx.ModelProto) -> None:
    """Fold constants and dead branches, also within branches, and remove unused nodes, in place.

    Parameters
    ----------
    model : onnx.ModelProto
        The model, with its weights.

    Notes
    -----
    A warning says if shapes cannot be inferred. Nodes that `onnx` cannot evaluate stay.
    """
    inline_functions(model)
    sort_nodes(model.graph)
    model.ir_version = max(model.ir_version, 4)  # so that weights are no inputs
    folder = _Folder(model)
    folder.fold()
    inferred = infer_shapes(model)
    while folder.fold(sizes_of(inferred), _empty(inferred)) or fold_branches(model, inferred, fold):
        inferred = infer_shapes(model)
    set_pads(model.graph, sizes_of(inferred))
    del model.graph.value_info[:]
    model.graph.value_info.extend(inferred.value_info)
    for output, known in zip(model.graph.output, inferred.output):
        if not output.type.WhichOneof("value") and known.type.HasField("tensor_type"):
            output.type.tensor_type.elem_type = known.type.tensor_type.elem_type


def inline_functions(model) -> None:
    """Replace calls of the model's own functions with their nodes, in place."""
    if not model.functions:
        return
    import onnx.inliner

    # Without weights, which the inliner would serialize.
    skeleton = clone(model, without=("initializer",))
    with contextlib.suppress(Exception):  # of whatever kind
        inlined = onnx.inliner.inline_local_functions(skeleton)
        del model.graph.node[:], model.functions[:], model.graph.value_info[:]
        model.graph.node.extend(inlined.graph.node)


def _empty(graph) -> dict[str, np.ndarray]:
    """Return the values that have no elements by name: whatever is computed of these is known."""
    import onnx

    numeric = numeric_types()
    types = {
        value.name: value.type.tensor_type.elem_type
        for value in (*graph.input, *graph.value_info, *graph.output)
    }
    return {
        name: np.zeros(
            [size or 0 for size in sizes], onnx.helper.tensor_dtype_to_np_dtype(types[name])
        )
        for name, sizes in sizes_of(graph).items()
        if 0 in sizes and None not in sizes and types[name] in numeric
    }


class _Folder:
    """Folds the nodes of a model's graph.

    Parameters
    ----------
    model : onnx.ModelProto
        The model, which is modified.
    """

    def __init__(self, model):
        self._graph = model.graph
        self._opsets = {each.domain: each.version for each in model.opset_import}
        self._tensors = {tensor.name: tensor for tensor in model.graph.initializer}
        self._values: dict[str, np.ndarray] = {}
        self._growth = Growth(sum(map(_nbytes, model.graph.initializer)))
        self._empty: dict[str, np.ndarray] = {}

    def fold(
        self,
        shapes: dict[str, list[int | None]] | None = None,
        empty: dict[str, np.ndarray] | None = None,
    ) -> bool:
        """Fold what is constant, given shapes and empty values; return whether anything was."""
        shapes, self._empty = shapes or {}, empty or {}
        parts: dict[str, np.ndarray] = {}  # whose elements are int or None
        kept: list = []
        outputs = {value.name for value in self._graph.output}
        aliases: dict[str, str] = {}
        is_changed = False
        for node in list(self._graph.node):
            rename([node], aliases)
            is_standard = node.domain in _DOMAINS
            if is_standard and node.op_type == "Identity" and node.output[0] not in outputs:
                aliases[node.output[0]] = node.input[0]
            elif is_standard and self._is_constant_if(node):
                kept += self._branch(node)
            elif is_standard and (nodes := self._unrolled(node, shapes, parts)):
                kept += nodes
            elif is_standard and self._fold_node(node, shapes, parts):
                pass
            elif is_standard and (nodes := self._without_elements(node)):
                kept += nodes
            else:
                kept.append(node)
                continue
            is_changed = True
        kept = list(_used(kept, outputs))
        is_changed |= len(kept) < len(self._graph.node)
        if is_changed:
            del self._graph.node[:]
            self._graph.node.extend(kept)
        self._store_values(outputs)
        return is_changed

    def _value(self, name) -> np.ndarray | None:
        """Return the value of a constant."""
        import onnx

        if name not in self._values and name in self._tensors:
            tensor = self._tensors[name]
            if tensor.data_type not in numeric_types():
                return None
            self._values[name] = onnx.numpy_helper.to_array(tensor)
        return self._values.get(name, self._empty.get(name))

    def _is_constant(self, name) -> bool:
        return not name or any(name in each for each in (self._values, self._tensors, self._empty))

    def _fold_node(self, node, shapes, parts) -> bool:
        """Compute the outputs of a node if they are constant."""
        if node.op_type in _KEPT or any(subgraphs(node)):
            return False
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            self._tensors[node.output[0]] = node.attribute[0].t
            return True
        if node.op_type in ("Shape", "Size"):
            return self._fold_shape(node, shapes.get(node.input[0]), parts)
        if node.op_type in _MOVES and node.input[0] in parts:
            return self._fold_part(node, parts)
        if not all(map(self._is_constant, node.input)):
            return False
        values = [self._value(name) if name else None for name in node.input]
        if any(value is None for name, value in zip(node.input, values) if name):
            return False
        limit = _MAX_GROWTH + 2 * sum(value.nbytes for value in values if value is not None)
        sizes = [shapes[name] for name in node.output if name in shapes]
        if any(None not in each and math.prod(each) > limit for each in sizes):
            return False
        results = evaluate(node, values, self._opsets)
        if results is None:
            return False
        if self._empty.keys() & {*node.input, *node.output} and not all(r.size for r in results):
            return False  # Relax does not store constants without elements
        total = sum(each.nbytes for each in results)
        operands = [(n, v.nbytes) for n, v in zip(node.input, values) if v is not None]
        if total > limit or not self._growth.admits(total, operands):
            return False
        self._values.update(zip(node.output, results))
        return True

    def _without_elements(self, node) -> list[onnx.NodeProto]:
        """Return what replaces a node without elements, by whose number TVM divides."""
        import onnx

        names = [name for name in node.output if name]
        if node.op_type not in _DIVIDES or not all(name in self._empty for name in names):
            return []
        nodes = []
        for name in names:
            value, shape = self._empty[name], f"{name}/shape"
            self._values[shape] = np.array(value.shape, "int64")
            zero = onnx.numpy_helper.from_array(np.zeros(1, value.dtype))
            nodes.append(onnx.helper.make_node("ConstantOfShape", [shape], [name], value=zero))
        return nodes

    def _fold_shape(self, node, sizes, parts) -> bool:
        if sizes is None:
            value = self._value(node.input[0])
            sizes = None if value is None else list(value.shape)
        if sizes is None:
            return False
        if node.op_type == "Shape":
            bounds = {each.name: each.i for each in node.attribute}
            sizes = sizes[bounds.get("start", 0) : bounds.get("end")]
            parts[node.output[0]] = np.array(sizes, object)
        if None in sizes:
            return False
        value = sizes if node.op_type == "Shape" else math.prod(sizes)
        self._values[node.output[0]] = np.array(value, "int64")
        return True

    def _fold_part(self, node, parts) -> bool:
        """Fold an op that moves sizes, of which some may be unknown, if it drops these."""
        data, *others = node.input
        values = [self._value(name) if name else None for name in others]
        if any(value is None for name, value in zip(others, values) if name):
            return False
        # The same op on the positions of the sizes says where each is moved to.
        positions = np.arange(parts[data].size).reshape(parts[data].shape)
        results = evaluate(node, [positions, *values], self._opsets)
        if results is None or results[0].dtype not in ("int32", "int64"):
            return False
        sizes = np.asarray(parts[data].reshape(-1)[results[0]], object)
        parts[node.output[0]] = sizes
        if None in sizes.reshape(-1):
            return False
        self._values[node.output[0]] = np.array(sizes.tolist(), results[0].dtype)
        return True

    def _is_constant_if(self, node) -> bool:
        return node.op_type == "If" and self._value(node.input[0]) is not None

    def _branch(self, node) -> Iterator[onnx.NodeProto]:
        """Yield the nodes in place of an `If` with a constant condition."""
        import onnx

        condition = self._value(node.input[0])
        assert condition is not None, "the condition is constant"
        name = "then_branch" if bool(condition.reshape(-1)[0]) else "else_branch"
        (branch,) = (each.g for each in node.attribute if each.name == name)
        # Both branches of this and other nodes may use the same names.
        names = {
            inner: f"{node.output[0]}/{inner}"
            for inner in (
                *initializer_names(branch),
                *(output for each in branch.node for output in each.output if output),
            )
        }
        for tensor in branch.initializer:
            self._tensors[names[tensor.name]] = tensor
        for each in branch.node:
            new = onnx.NodeProto()
            new.CopyFrom(each)
            rename([new], names)
            yield new
        for output, inner in zip(node.output, branch.output):
            if output:
                source = names.get(inner.name, inner.name)
                yield onnx.helper.make_node("Identity", [source], [output])

    def _unrolled(self, node, shapes, parts) -> list[onnx.NodeProto] | None:
        """Return the nodes in place of a `Loop` or `Scan` with a known number of iterations."""
        if node.op_type not in ("Loop", "Scan"):
            return None

        def store(name, value):
            (self._values if isinstance(value, np.ndarray) else self._tensors)[name] = value

        def fold_node(each):
            return each.domain in _DOMAINS and self._fold_node(each, shapes, parts)

        def sizes(name):
            value = self._value(name)
            return shapes.get(name) if value is None else value.shape

        opset = max(self._opsets.get(domain, 0) for domain in _DOMAINS)
        unroller = Unroller(node, self._value, store, fold_node, opset)
        return unroller.loop() if node.op_type == "Loop" else unroller.scan(sizes)

    def _store_values(self, outputs) -> None:
        """Make weights of the constants that nodes use, and drop the weights that none uses."""
        import onnx

        used = {*uses(self._graph.node), *outputs}
        needed = used | {value.name for value in self._graph.input}
        present = initializer_names(self._graph)
        for number in reversed(range(len(self._graph.initializer))):
            if self._graph.initializer[number].name not in needed:
                del self._graph.initializer[number]
        for name in sorted(used - present):
            if name in self._tensors:  # of a branch
                tensor = self._graph.initializer.add()
                tensor.CopyFrom(self._tensors[name])
                tensor.name = name
            elif name in self._values:
                value = onnx.numpy_helper.from_array(self._values[name], name)
                self._graph.initializer.append(value)
        self._tensors.update({tensor.name: tensor for tensor in self._graph.initializer})


def _nbytes(tensor) -> int:
    """Return about how many bytes a tensor has."""
    return len(tensor.raw_data) or 4 * math.prod(tensor.dims)


def _used(nodes, outputs) -> list[onnx.NodeProto]:
    """Return the nodes that the outputs of a graph depend on."""
    needed, kept = set(outputs), []
    for node in reversed(nodes):
        if needed.intersection(node.output):
            kept.append(node)
            needed.update(filter(None, uses([node])))
    return kept[::-1]
