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
"""Random errors of the intermediate results of ONNX models."""

from __future__ import annotations

from collections.abc import Set
from typing import TYPE_CHECKING

import numpy as np

from ..frontend.protobuf import clone, walk
from .compare import EPSILON, rounded_at_random

if TYPE_CHECKING:
    import onnx


def with_noise(model: onnx.ModelProto, names: Set[str], epsilon: float, seed: int):
    """Return a model in which intermediate results have a random relative error.

    Integral values keep theirs. Weights have the error, too, if it is larger than that of float32.

    Parameters
    ----------
    model : onnx.ModelProto
        The model. It is not modified.
    names : Set[str]
        The floating-point values that have the error, of types that onnxruntime draws.
    epsilon : float
        The largest error.
    seed : int
        Errors of different seeds differ.
    """
    import onnx

    model, make, mark = clone(model), onnx.helper.make_node, "noise"
    while any(mark in name for node in walk(model.graph.node) for name in node.output):
        mark += "_"
    nodes: list[onnx.NodeProto] = []
    for i, node in enumerate(model.graph.node):
        nodes.append(node)
        for k, name in enumerate(node.output):
            if name not in names:
                continue
            parts = ("exact", "factor", "product", "floor", "integral")
            exact, factor, product, floor, is_integral = (f"{name}.{mark}.{each}" for each in parts)
            node.output[k] = exact
            limits = dict(low=1 - epsilon, high=1 + epsilon, seed=float(seed * 65536 + i))
            nodes += [
                make("RandomUniformLike", [exact], [factor], **limits),
                make("Mul", [exact, factor], [product]),
                make("Floor", [exact], [floor]),
                make("Equal", [exact, floor], [is_integral]),
                make("Where", [is_integral, exact, product], [name]),
            ]
    rng = np.random.default_rng(seed)
    for tensor in model.graph.initializer if epsilon > EPSILON["float32"] else ():
        array = rounded_at_random(onnx.numpy_helper.to_array(tensor), epsilon, rng)
        tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model
