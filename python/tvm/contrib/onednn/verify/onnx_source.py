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

import contextlib
import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from ..frontend.fold import inline_functions
from ..frontend.inference import infer_shapes
from ..frontend.prepare import inputs as inputs_of
from ..frontend.protobuf import (
    captured,
    clear_repeated_names,
    clone,
    fixed_size,
    initializer_names,
    sort_nodes,
    subgraphs,
    walk,
)
from . import onnx_runners
from .check import CannotRun, Step
from .compare import EPSILON, coarsest, rounded_at_random
from .inputs import SIZES, TRIED, Spec, input_values
from .onnx_noise import with_noise
from .onnx_windows import WINDOWED, has_window

if TYPE_CHECKING:
    import onnx

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
    "ArgMax",
    "ArgMin",
    "TopK",
    "Floor",
    "Round",
    "Ceil",
    "NonMaxSuppression",
    "NonZero",
    "Sign",
    "Hardmax",
)
#: What the names of ops on 8 bits begin with.
_DYNAMIC = "DynamicQuantize"
_QUANTIZED = ("QLinear", _DYNAMIC)

#: The types that onnxruntime draws random numbers of.
_NOISY = ("float16", "float32", "float64")


class OnnxSource:
    """An ONNX model, run by onnxruntime or onnx's reference; see `check.Source`.

    Parameters
    ----------
    model : onnx.ModelProto
        The model, with the shapes and constants that it is imported with. Its functions are
        inlined and its nodes sorted, in place.
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

    undefined = ()

    def __init__(self, model, run: Callable, inputs: Mapping[str, np.ndarray] | None = None):
        inline_functions(model)
        sort_nodes(model.graph)
        self._wheres = [f"node {node.name}" if node.name else "" for node in model.graph.node]
        clear_repeated_names(model.graph)
        self._model, self._compile = model, run
        specs = {value.name: _spec(value) for value in inputs_of(model)}
        runners = [("onnx's reference evaluator", onnx_runners.run_reference)]
        if onnx_runners.onnxruntime():
            runners.insert(0, ("onnxruntime", onnx_runners.run_onnxruntime))
        draw = functools.partial(input_values, specs, inputs, self._index_bound)
        sizes: tuple[int, ...] = TRIED[:1]
        if any(map(_is_open, specs.values())):
            # onnxruntime runs convolutions and pools of images that are smaller than a window.
            first = next((size for size in TRIED if self._has_windows(draw(size))), TRIED[0])
            sizes = first, *(size for size in TRIED if size != first)
        self._choices = ((*runner, draw(size)) for runner in runners for size in sizes)
        self.framework, self._run, self._feeds = next(self._choices)

    def _has_windows(self, feeds) -> bool:
        """Whether onnxruntime finds each image to be as large as the windows over it."""
        nodes = [node for node in self._model.graph.node if node.op_type in WINDOWED]
        if not nodes:
            return True  # `results` runs it
        names = [node.input[0] for node in nodes if node.input[0] in self._computed]
        model = self._with_results(names) if names else self._model
        try:
            images = onnx_runners.run_onnxruntime(model, feeds)
        except CannotRun:
            return False
        shapes = {name: image.shape for name, image in (*zip(names, images), *feeds.items())}
        return all(has_window(node, shapes.get(node.input[0], ())) for node in nodes)

    @property
    def inputs(self):
        """See `Source`."""
        return [*self._feeds.values()]

    @property
    def input_names(self):
        """The names of the inputs, in order."""
        return [*self._feeds]

    @functools.cached_property
    def dtype(self):
        """See `Source`."""
        return coarsest(*map(self._dtypes.__getitem__, self._computed))

    @functools.cached_property
    def is_discrete(self):
        """See `Source`."""
        return any(map(self._rounds, walk(self._model.graph.node)))

    def _rounds(self, node) -> bool:
        """Whether an op rounds or compares floating-point numbers."""
        if node.op_type in _DISCRETE or node.op_type.startswith(_QUANTIZED):
            return True
        read, written = (
            {self._dtypes[name] for name in names if name in self._dtypes}
            for names in (node.input, node.output)
        )
        return not read.isdisjoint(EPSILON) and not written <= EPSILON.keys()

    @functools.cached_property
    def _dtypes(self) -> dict[str, str]:
        """The types of elements by name, as far as they are known."""
        known = {name: _dtype(value) for name, value in self._types.items()}
        arrays = {**self._initializers, **self._feeds}
        return known | {name: str(each.dtype) for name, each in arrays.items()}

    def results(self):
        """See `Source`.

        Where onnxruntime cannot run the model, open sizes are made larger; where no size helps,
        onnx's reference evaluator runs it.
        """
        reasons: dict[str, CannotRun] = {}
        while True:
            try:
                return self._without_random(self._run(self._model, self._feeds))
            except CannotRun as error:
                reasons.setdefault(self.framework, error)
            choice = next(self._choices, None)
            if choice is None:
                raise CannotRun("; ".join(map(str, reasons.values())))
            self.framework, self._run, self._feeds = choice

    def rounded(self, epsilon, seed):
        """See `Source`."""
        if not epsilon:
            return self.results()
        rng = np.random.default_rng(seed)
        feeds = {name: rounded_at_random(each, epsilon, rng) for name, each in self._feeds.items()}
        names = {name for name in self._computed if self._dtypes[name] in _NOISY}
        noisy = with_noise(self._model, names, epsilon, seed)
        return self._without_random(self._run(noisy, feeds))

    def steps(self):
        """See `Source`."""
        steps, compared = [], self._computed - self._random
        for node, where in zip(self._model.graph.node, self._wheres):
            for name in node.output:
                if name in compared:
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
        for run in onnx_runners.OTHERS:
            with contextlib.suppress(CannotRun):  # it may not have the op
                yield self._evaluated(step, values, 0, 0, run)

    def other_results(self):
        """See `Source`."""
        for run in onnx_runners.OTHERS:
            with contextlib.suppress(CannotRun):
                yield self._without_random(run(self._model, self._feeds))

    def _evaluated(self, step, values, epsilon, seed, run):
        nodes, operands, weights = self._closure(step.name)
        if epsilon and any(node.domain and node.op_type.startswith(_DYNAMIC) for node in nodes):
            epsilon = max(epsilon, 2.0**-8)  # they round their operands to 8 bits
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
    def _computed(self) -> set[str]:
        """The names of the results of known types that depend on the inputs."""
        return self._types.keys() - self._constants

    @functools.cached_property
    def _random(self):
        names: set[str] = set()
        for node in self._model.graph.node:
            if any(map(_is_random, walk([node]))) or names.intersection(_reads(node)):
                names.update(node.output)
        return names

    @functools.cached_property
    def _types(self):
        """The types of results by name."""
        inferred = infer_shapes(self._model)
        types = {
            value.name: value
            for value in (*inferred.value_info, *inferred.output)
            if value.type.tensor_type.elem_type and value.name in self._producers
        }
        # onnx does not know ops of other domains.
        missing = [name for name in self._producers if name not in types]
        if missing and any(node.domain for node in self._model.graph.node):
            types.update(onnx_runners.types_of(self._model, missing))
        return types

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
        sizes = [fixed_size(dim) or max(SIZES) for dim in tensor.shape.dim]
        return int(np.prod(sizes, dtype=float)) * 4

    def _without_random(self, values):
        names = [value.name for value in self._model.graph.output]
        return [None if name in self._random else each for name, each in zip(names, values)]

    def _index_bound(self, name) -> int | None:
        """Return below what an integer is a valid index, wherever it is one; None if nowhere."""
        sizes = [
            self._initializers[node.input[0]].shape[_axis(node)]
            for node in self._model.graph.node
            if node.op_type == "Gather"
            and node.input[1] == name
            and node.input[0] in self._initializers
        ]
        return max(1, min([*sizes, 256])) if sizes else None


def _spec(value) -> Spec | None:
    """Return the type of an input."""
    tensor = value.type.tensor_type
    if not tensor.elem_type or not tensor.HasField("shape"):
        return None
    sizes = ((fixed_size(dim), dim.dim_param or None) for dim in tensor.shape.dim)
    dims = tuple(name if size is None else size for size, name in sizes)
    return Spec(_dtype(value), dims)


def _is_open(spec: Spec | None) -> bool:
    return spec is not None and not all(isinstance(dim, int) for dim in spec.dims)


def _axis(node) -> int:
    return next((each.i for each in node.attribute if each.name == "axis"), 0)


def _is_random(node) -> bool:
    # A dropout with three inputs is perhaps in training.
    return node.op_type in _RANDOM or (node.op_type == "Dropout" and len(node.input) > 2)


def _dtype(value) -> str:
    import onnx

    return str(onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))


def _reads(node) -> list[str]:
    """Return the names of the values that a node reads, also in subgraphs."""
    return [*node.input, *(name for graph in subgraphs(node) for name in captured(graph))]
