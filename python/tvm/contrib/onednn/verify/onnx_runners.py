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
"""Runs ONNX models by onnxruntime and by onnx's reference evaluator."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..frontend.layer_weights import dequantized
from ..frontend.protobuf import clone
from .check import CannotRun

if TYPE_CHECKING:
    import onnx

_QUANTIZED_LSTM = "DynamicQuantizeLSTM"


@functools.cache
def onnxruntime():
    """Return the package onnxruntime, None if it is not installed.

    Its telemetry is off, unless the program has imported it before.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    try:
        import onnxruntime
    except ImportError:
        return None
    return onnxruntime


def run_onnxruntime(model: onnx.ModelProto, feeds: Mapping) -> Sequence[np.ndarray]:
    """Run a model by onnxruntime, each op as the model has it.

    Raises
    ------
    CannotRun
        It cannot run the model, or is not installed.
    """
    if onnxruntime() is None:
        raise CannotRun("onnxruntime is not installed")
    try:
        return _session(model).run(None, dict(feeds))
    except Exception as error:  # of whatever kind
        line = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise CannotRun(f"onnxruntime cannot run it: {line}") from error


def _session(model):
    options = onnxruntime().SessionOptions()
    options.graph_optimization_level = onnxruntime().GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    text = model.SerializeToString()
    return onnxruntime().InferenceSession(text, options, providers=["CPUExecutionProvider"])


def types_of(model: onnx.ModelProto, names: Sequence[str]) -> dict[str, onnx.ValueInfoProto]:
    """Return the types of tensors that onnxruntime infers, by name; none if it cannot."""
    import onnx

    model = clone(model)
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    try:
        outputs = _session(model).get_outputs()
    except Exception:  # of whatever kind, also without onnxruntime
        return {}
    types = {value.name: _type(value.type) for value in outputs}
    make = onnx.helper.make_tensor_value_info
    return {
        value.name: make(value.name, types[value.name], value.shape)
        for value in outputs
        if types[value.name]
    }


def _type(text: str) -> int | None:
    """Return onnx's number of a type such as "tensor(float)"; None for one of no tensor."""
    import onnx

    name = text.removeprefix("tensor(").removesuffix(")").upper()
    return dict(onnx.TensorProto.DataType.items()).get(name)


def run_reference(model: onnx.ModelProto, feeds: Mapping) -> Sequence[np.ndarray]:
    """Run a model by onnx's reference evaluator; errors are those of `run_onnxruntime`."""
    try:
        from onnx.reference import ReferenceEvaluator

        return [*map(np.asarray, ReferenceEvaluator(model).run(None, dict(feeds)))]
    except Exception as error:  # of whatever kind
        raise CannotRun(f"onnx's reference cannot run it: {error}") from error


def run_with_float_data(model: onnx.ModelProto, feeds: Mapping) -> Sequence[np.ndarray]:
    """Run a model whose LSTMs do not quantize their data, which is more exact.

    Raises
    ------
    CannotRun
        It has no such LSTM; as `run_onnxruntime`.
    """
    import onnx

    model, known = clone(model), dict(feeds)
    known.update((each.name, onnx.numpy_helper.to_array(each)) for each in model.graph.initializer)
    layers = [node for node in model.graph.node if node.op_type == _QUANTIZED_LSTM]
    if not all(name in known for node in layers for name in (*node.input[1:3], *node.input[8:])):
        layers = []
    if not layers:
        raise CannotRun("the model quantizes no data of an LSTM")
    for i, node in enumerate(layers):
        weights = (node.input[1], *node.input[8:10]), (node.input[2], *node.input[10:12])
        for k, names in enumerate(weights):
            array = dequantized(*(known[name] for name in names)).astype(np.float32)
            node.input[1 + k] = f"{node.input[1 + k]}.float.{i}.{k}"
            model.graph.initializer.append(onnx.numpy_helper.from_array(array, node.input[1 + k]))
        del node.input[8:]
        node.domain, node.op_type = "", "LSTM"
    return run_onnxruntime(model, feeds)


#: Runners whose results are right, too, where they differ from onnxruntime's, which saturates sums
#: of 8-bit products on CPUs without VNNI.
OTHERS = run_reference, run_with_float_data
