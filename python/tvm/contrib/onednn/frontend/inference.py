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
"""Infers the types of all values of an ONNX model, which may be of any size."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING

from .protobuf import clone, fixed_size

if TYPE_CHECKING:
    import onnx

# Elements of weights that the inference of shapes may read: shapes are smaller.
_MAX_SHAPE = 1024

# Elements that it may compute of a value.
_MAX_PROPAGATED = 2**20


def infer_shapes(model) -> onnx.GraphProto:
    """Return a copy of the graph that has the types of all values.

    Large weights are left out, so models of any size can be inferred.
    """
    import onnx

    skeleton = _skeleton(model)
    try:
        has_few = _most_propagated(skeleton.graph) <= _MAX_PROPAGATED
        return onnx.shape_inference.infer_shapes(skeleton, data_prop=has_few).graph
    except Exception as error:  # of whatever kind: it has several for inconsistent models
        warnings.warn(f"shapes of the model cannot be inferred: {error}", stacklevel=2)
        return skeleton.graph


def check_shapes(model) -> None:
    """Raise an error of `onnx` if the types in a model are inconsistent."""
    import onnx

    skeleton = _skeleton(model)
    del skeleton.graph.value_info[:]
    onnx.shape_inference.infer_shapes(skeleton, strict_mode=True)


def _skeleton(model) -> onnx.ModelProto:
    """Return a copy of a model without its large weights, which become inputs."""
    import onnx

    skeleton = clone(model, without=("initializer", "functions"))
    names = {value.name for value in skeleton.graph.input}
    for tensor in model.graph.initializer:
        if math.prod(tensor.dims) <= _MAX_SHAPE:
            skeleton.graph.initializer.add().CopyFrom(tensor)
        elif tensor.name not in names:
            value = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            skeleton.graph.input.append(value)
    return skeleton


def _most_propagated(graph) -> int:
    """Return how many elements of a vector the inference of shapes may compute.

    Concatenations of a vector with itself double them, and onnx keeps all of them.
    """
    counts = {name: sizes[0] or 1 for name, sizes in sizes_of(graph).items() if len(sizes) == 1}
    counts.update((each.name, each.dims[0]) for each in graph.initializer if len(each.dims) == 1)
    most = 0
    for node in graph.node:
        if node.op_type == "Concat":
            counts[node.output[0]] = sum(counts.get(name, 1) for name in node.input)
            most = max(most, counts[node.output[0]])
    return most


def sizes_of(graph) -> dict[str, list[int | None]]:
    """Return the sizes of values by name, None for those that are not known."""
    return {
        value.name: list(map(fixed_size, tensor.shape.dim))
        for value in (*graph.input, *graph.value_info, *graph.output)
        if (tensor := value.type.tensor_type).HasField("shape")
    }
