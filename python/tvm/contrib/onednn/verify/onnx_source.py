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
"""An ONNX model as the source that a compiled model is verified against."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..frontend.prepare import inputs as inputs_of
from ..frontend.protobuf import captured, clone, fixed_size, initializer_names, subgraphs
from .check import CannotRun, Step
from .compare import EPSILON, rounded_at_random

if TYPE_CHECKING:
    import onnx

#: Sizes of open dimensions: of the first axis, and of the others.
_SIZES = 2, 8
_RANDOM = (
    "Bernoulli",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
)
#: Ops after which values are discrete: rounding decides some of them either way.
_DISCRETE = (
    "QuantizeLinear",
    "DynamicQuantizeLinear",
    "ArgMax",
    "ArgMin",
    "TopK",
    "Floor",
    "Round",
    "Ceil",
    "NonMaxSuppression",
    "QLinearConv",
    "QLinearMatMul",
    "NonZero",
)


_REFERENCE = "onnx's reference evaluator"


class OnnxSource:
    """An ONNX model, run by onnxruntime or onnx's reference; see `check.Source`.

    Parameters
    ----------
    model : onnx.ModelProto
        The model, with the shapes and constants that it is imported with.
    run : Callable
        Imports and compiles a model with a precision, or without oneDNN if that is None, and runs
        it on arrays; returns arrays.
    inputs : Mapping[str, numpy.ndarray] | None
        Values of inputs by name. Others are drawn: normal numbers, and integers that are valid
        where they are an index.

    Raises
    ------
    CannotRun
        An input has a type for which nothing can be drawn.
    """

    dtype, undefined = "float32", ()

    def __init__(self, model, run: Callable, inputs: Mapping[str, np.ndarray] | None = None):
        self._model, self._compile, self._run = model, run, _run
        self.framework = "onnxruntime" if _onnxruntime() else _REFERENCE
        given = dict(inputs or {})
        self._feeds = {
            value.name: given[value.name] if value.name in given else self._drawn(value)
            for value in inputs_of(model)
        }
        self.inputs, self.input_names = [*self._feeds.values()], [*self._feeds]
        ops = {node.op_type for node in model.graph.node}
        self.is_discrete = not ops.isdisjoint(_DISCRETE)

    def results(self):
        """See `Source`."""
        try:
            return self._without_random(self._run(self._model, self._feeds))
        except CannotRun:
            if self.framework == _REFERENCE:
                raise
            # It lacks types and newer ops.
            self.framework, self._run = _REFERENCE, _run_reference
            return self.results()

    def rounded(self, epsilon, seed):
        """See `Source`."""
        if not epsilon:
            return self.results()
        rng = np.random.default_rng(seed)
        feeds = {name: rounded_at_random(each, epsilon, rng) for name, each in self._feeds.items()}
        return self._without_random(self._run(self._noisy(epsilon, seed), feeds))

    def steps(self):
        """See `Source`."""
        steps, random = [], self._random
        for node in self._model.graph.node:
            if node.output[0] in self._constants:
                continue
            where = f"node {node.name}" if node.name else ""
            for name in filter(None, node.output):
                if name in self._types and name not in random:
                    op = f"{node.domain}.{node.op_type}".lstrip(".")
                    operands = tuple(self._closure(name)[1])
                    steps.append(Step(name, op, where, operands, self._bytes(name)))
        return steps

    def compiled(self, names, precision):
        """See `Source`."""
        return self._compile(self._with_results(names), precision, self.inputs)

    def values(self, names):
        """See `Source`."""
        return self._run(self._with_results(names), self._feeds)

    def _with_results(self, names):
        """Return the model with other results."""
        model = clone(self._model)
        del model.graph.output[:]
        model.graph.output.extend(self._types[name] for name in names)
        return model

    def evaluate(self, step, values, epsilon=0, seed=0):
        """See `Source`."""
        return self._evaluated(step, values, epsilon, seed, self._run)

    def opinions(self, step, values):
        """Return the results of other implementations, where the first differs."""
        try:
            yield self._evaluated(step, values, 0, 0, _run_reference)
        except CannotRun:  # it may not have the op
            return

    def _evaluated(self, step, values, epsilon, seed, run):
        nodes, operands, weights = self._closure(step.name)
        rng, feeds = np.random.default_rng(seed), {}
        for name in (*operands, *weights):
            if name in self._initializers:
                array = self._initializers[name]
                feeds[name] = self._rounded_weight(array, epsilon, rng)
            else:
                array = self._feeds[name] if name in self._feeds else values[name]
                feeds[name] = rounded_at_random(array, epsilon, rng) if epsilon else array
        return run(self._extract(nodes, feeds, step.name), feeds)[0]

    def _rounded_weight(self, array, epsilon, rng):
        is_exact = epsilon <= EPSILON["float32"]
        return array if is_exact else rounded_at_random(array, epsilon, rng)

    def _extract(self, nodes, feeds, output):
        """Return a model of some nodes."""
        import onnx

        def info(name):
            dtype = onnx.helper.np_dtype_to_tensor_dtype(feeds[name].dtype)
            return onnx.helper.make_tensor_value_info(name, dtype, feeds[name].shape)

        result = onnx.ValueInfoProto()
        result.CopyFrom(self._types[output])
        result.type.tensor_type.ClearField("shape")
        graph = onnx.helper.make_graph(nodes, "step", [*map(info, feeds)], [result])
        model = clone(self._model, without=["graph"])
        model.graph.CopyFrom(graph)
        return model

    @functools.cached_property
    def _producers(self):
        return {name: node for node in self._model.graph.node for name in node.output if name}

    @functools.cached_property
    def _initializers(self):
        import onnx

        graph = self._model.graph
        return {each.name: onnx.numpy_helper.to_array(each) for each in graph.initializer}

    @functools.cached_property
    def _constants(self):
        """The names of the values that depend on weights only."""
        known = {*initializer_names(self._model.graph), ""}
        for node in self._model.graph.node:
            if all(name in known for name in _reads(node)) and node.op_type not in _RANDOM:
                known.update(node.output)
        return known

    @functools.cached_property
    def _random(self):
        names: set[str] = set()
        for node in self._model.graph.node:
            is_random = node.op_type in _RANDOM or (
                node.op_type == "Dropout" and len(node.input) > 2  # training, perhaps
            )
            if is_random or names.intersection(_reads(node)):
                names.update(node.output)
        return names

    @functools.cached_property
    def _types(self):
        """The types of tensors by name."""
        import onnx

        try:
            inferred = onnx.shape_inference.infer_shapes(self._model, data_prop=True).graph
        except Exception as error:  # of whatever kind: the model may be too large, for example
            raise CannotRun(f"its types cannot be inferred: {error}") from error
        return {
            value.name: value
            for value in (*inferred.value_info, *inferred.output)
            if value.type.tensor_type.elem_type and value.name in self._producers
        }

    def _closure(self, output):
        """Return the nodes to evaluate for a result, the steps and the weights that they read."""
        nodes: list[onnx.NodeProto] = []
        operands: dict[str, None] = {}
        weights: dict[str, None] = {}

        def visit(name, is_root=False):
            producer = self._producers.get(name)
            if name in self._initializers or name in self._feeds:
                weights[name] = None
            elif not is_root and name in self._types and name not in self._constants:
                operands[name] = None
            elif producer is not None and producer not in nodes:
                for each in filter(None, _reads(producer)):
                    visit(each)
                nodes.append(producer)

        visit(output, is_root=True)
        return nodes, [*operands], [*weights]

    def _bytes(self, name):
        tensor = self._types[name].type.tensor_type
        sizes = [fixed_size(dim) or max(_SIZES) for dim in tensor.shape.dim]
        return int(np.prod(sizes, dtype=float)) * 4

    def _without_random(self, values):
        names = [value.name for value in self._model.graph.output]
        return [None if name in self._random else each for name, each in zip(names, values)]

    def _noisy(self, epsilon, seed):
        """Return the model with a random relative error of each intermediate result."""
        import onnx

        model, real = clone(self._model), onnx.TensorProto.FLOAT
        make, nodes = onnx.helper.make_node, []
        for i, node in enumerate(model.graph.node):
            nodes.append(node)
            names = [
                name
                for name in node.output
                if name in self._types and self._types[name].type.tensor_type.elem_type == real
            ]
            if node.domain or node.output[0] in self._constants:
                continue
            for k, name in enumerate(node.output):
                if name not in names:
                    continue
                old, noise, noisy = (f"{name}.{each}" for each in ("exact", "noise", "noisy"))
                node.output[k] = old
                low, high = 1 - epsilon, 1 + epsilon
                attrs = dict(low=low, high=high, seed=float(seed * 65536 + i))
                nodes.append(make("RandomUniformLike", [old], [noise], **attrs))
                nodes.append(make("Mul", [old, noise], [noisy]))
                nodes.append(make("Floor", [old], [f"{name}.floor"]))
                nodes.append(make("Equal", [old, f"{name}.floor"], [f"{name}.whole"]))
                nodes.append(make("Where", [f"{name}.whole", old, noisy], [name]))
        rng = np.random.default_rng(seed)
        for tensor in model.graph.initializer if epsilon > EPSILON["float32"] else ():
            array = rounded_at_random(onnx.numpy_helper.to_array(tensor), epsilon, rng)
            tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
        del model.graph.node[:]
        model.graph.node.extend(nodes)
        return model

    def _drawn(self, value):
        """Return a value for an input."""
        import onnx

        tensor, name = value.type.tensor_type, value.name.lower()
        if not tensor.elem_type or not tensor.HasField("shape"):
            raise CannotRun(f"input {value.name} is no tensor of a known rank")
        shape = [
            _SIZES[axis > 0] if (size := fixed_size(dim)) is None else size
            for axis, dim in enumerate(tensor.shape.dim)
        ]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        rng = np.random.default_rng(sum(map(ord, name)))
        if dtype.kind == "f":
            return rng.standard_normal(shape).astype(dtype)
        if dtype.kind not in "iub":
            raise CannotRun(f"input {value.name} has the type {dtype}")
        if "mask" in name:
            return np.ones(shape, dtype)
        if "position" in name and shape:
            return np.broadcast_to(np.arange(shape[-1]), shape).astype(dtype)
        return rng.integers(0, self._index_bound(value.name), shape).astype(dtype)

    def _index_bound(self, name) -> int:
        """Return below what an integer is a valid index, wherever it is one."""
        sizes = [
            self._initializers[node.input[0]].shape[_axis(node)]
            for node in self._model.graph.node
            if node.op_type == "Gather"
            and node.input[1] == name
            and node.input[0] in self._initializers
        ]
        return min([*sizes, 256]) if sizes else 2


def _axis(node) -> int:
    return next((each.i for each in node.attribute if each.name == "axis"), 0)


def _reads(node) -> list[str]:
    """Return the names of the values that a node reads, also in subgraphs."""
    return [*node.input, *(name for graph in subgraphs(node) for name in captured(graph))]


@functools.cache
def _onnxruntime():
    try:
        import onnxruntime
    except ImportError:
        return None
    return onnxruntime


def _run(model, feeds) -> Sequence[np.ndarray]:
    runtime = _onnxruntime()
    if runtime is None:
        return _run_reference(model, feeds)
    options = runtime.SessionOptions()
    # Each op as the model has it.
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    providers = ["CPUExecutionProvider"]
    try:
        text = model.SerializeToString()
        session = runtime.InferenceSession(text, options, providers=providers)
        return session.run(None, dict(feeds))
    except Exception as error:  # of whatever kind
        line = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise CannotRun(f"onnxruntime cannot run it: {line}") from error


def _run_reference(model, feeds) -> Sequence[np.ndarray]:
    try:
        from onnx.reference import ReferenceEvaluator

        return [*map(np.asarray, ReferenceEvaluator(model).run(None, dict(feeds)))]
    except Exception as error:  # of whatever kind
        raise CannotRun(f"onnx's reference cannot run it: {error}") from error
