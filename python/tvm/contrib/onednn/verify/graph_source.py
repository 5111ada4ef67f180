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
"""A module of either TVM, as numpy defines it, as the source of a compiled model.

Each op is computed in float64 by its numpy definition and rounded once to the type of its result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from ..ir.graph import Graph
from ..ir.node import CALL, CONSTANT, FIELD, NATIVE, Node
from ..ir.numpy_types import UndefinedResult
from ..ir.op_view import Tensor
from ..ops.evaluate import is_defined, sizes_of, value_of
from ..ops.tensors import EIGHT_BITS
from .check import CannotRun, Step
from .compare import EPSILON, coarsest, rounded_at_random
from .inputs import SIZES, Spec, input_values

#: Ops with discrete results of floating-point operands: rounding decides some either way.
_DISCRETE = ("qnn.quantize", "argmax", "argmin", "topk", "floor", "ceil", "round", "sign")


class GraphSource:
    """A function, whose ops are computed by their numpy definitions; see `check.Source`.

    Parameters
    ----------
    graph : Graph
        The function as it was read.
    parameters : Mapping[str, Node]
        The inputs by name, in order, also those that nothing reads.
    name_of : Callable[[Node], str | None]
        What the IR calls a node; None for one that cannot be a result of the function.
    run : Callable[[Sequence[Node], str | None, list], list]
        Compiles the function with these results with a precision, or without oneDNN if that is
        None, and runs it on arrays; returns arrays.
    inputs : Mapping[str, numpy.ndarray] | Sequence[numpy.ndarray] | None
        Values of inputs by name or in order. Others are drawn: normal numbers, and small integers.

    Raises
    ------
    CannotRun
        An input is no tensor, or of a type for which nothing can be drawn.
    TypeError, ValueError
        There is no such input, or a value has another shape or dtype.
    """

    framework = "numpy"

    def __init__(
        self,
        graph: Graph,
        parameters: Mapping[str, Node],
        name_of: Callable,
        run: Callable,
        inputs=None,
    ):
        self._run = run
        self._graph, self._results = graph, results_of(graph)
        self._nodes: dict[str, Node] = {}
        self._names: dict[Node, str] = {}
        for node in graph.nodes:
            if node.kind not in (CALL, FIELD, NATIVE) or not isinstance(node.type, Tensor):
                continue
            name = name_of(node) if node is not graph.nodes[-1] else None
            if name is not None:
                name = name if name not in self._nodes else f"{name}.{node.index}"
                self._nodes[name], self._names[node] = node, name
        specs = {name: _spec(node) for name, node in parameters.items()}
        self._feeds = dict(zip(parameters.values(), input_values(specs, inputs).values()))
        self.inputs, self.input_names = [*self._feeds.values()], [*parameters]
        self._sizes = sizes_of(self._feeds)
        dtypes = [node.type.dtype for node in graph.nodes if isinstance(node.type, Tensor)]
        self.dtype = coarsest(*dtypes)
        ops = {node.name for node in graph.nodes}
        self.is_discrete = not ops.isdisjoint(_DISCRETE) or not set(dtypes).isdisjoint(EIGHT_BITS)
        self._reference: dict[Node, object] = {}
        # The values of ops that have no definition, from TVM without oneDNN.
        self._undefined: dict[Node, np.ndarray] | None = None

    @property
    def undefined(self) -> list[Step]:
        """The ops that are not compared, as they have no numpy definition."""
        return [self._step(node) for node in self._nodes.values() if not self._is_compared(node)]

    def results(self):
        """See `Source`."""
        return self.rounded(0, 0)

    def rounded(self, epsilon, seed):
        """See `Source`."""
        values = self._evaluated(epsilon, seed)
        return [values[node] for node in self._results]

    def steps(self):
        """See `Source`."""
        return [self._step(node) for node in self._nodes.values() if self._is_compared(node)]

    def compiled(self, names, precision):
        """See `Source`."""
        return self._run([self._nodes[name] for name in names], precision, self.inputs)

    def values(self, names):
        """See `Source`."""
        self._reference = self._reference or self._evaluated(0, 0)
        return [self._reference[self._nodes[name]] for name in names]

    def evaluate(self, step, values, epsilon=0, seed=0):
        """See `Source`."""
        rng, node, known = np.random.default_rng(seed), self._nodes[step.name], {}

        def value(each):
            if each not in known:
                if each in self._names and each is not node:
                    known[each] = rounded_at_random(values[self._names[each]], epsilon, rng)
                else:
                    for operand in each.operands:
                        value(operand)
                    known[each] = self._noisy(each, known, epsilon, rng)
            return known[each]

        for operand in node.operands:
            value(operand)
        return value_of(node, known, self._feeds, self._sizes)

    def opinions(self, step, values):
        """See `Source`."""
        return ()

    def other_results(self):
        """See `Source`."""
        return ()

    def _is_compared(self, node: Node) -> bool:
        of = node.operands[0] if node.kind == FIELD else node
        return is_defined(of)

    def _step(self, node: Node) -> Step:
        operands, op = tuple(dict.fromkeys(self._operands(node))), self._title(node)
        shape = node.type.shape if isinstance(node.type, Tensor) else ()
        size = math.prod(each or max(SIZES) for each in shape)
        return Step(self._names[node], op, "", operands, size * 4)

    def _title(self, node: Node) -> str:
        of = node.operands[0] if node.kind == FIELD else node
        return self._graph.title(of) if of.kind == CALL else of.kind

    def _operands(self, node: Node):
        for each in node.operands:
            if each in self._names:
                yield self._names[each]
            else:
                yield from self._operands(each)

    def _evaluated(self, epsilon, seed) -> dict:
        """Compute all nodes, each with a random relative error."""
        values, rng = {}, np.random.default_rng(seed)
        for node in self._graph.nodes[:-1]:
            if node in self._names and not self._is_compared(node):
                values[node] = rounded_at_random(self._without_definition()[node], epsilon, rng)
                continue
            try:
                values[node] = self._noisy(node, values, epsilon, rng)
            except (KeyError, UndefinedResult, ValueError) as error:
                if node in self._results or node in self._names:
                    where = f"{self._names.get(node, '')} ({self._title(node)})".lstrip()
                    raise CannotRun(f"numpy cannot compute {where}: {error}") from error
        return values

    def _without_definition(self) -> dict[Node, np.ndarray]:
        if self._undefined is None:
            nodes = [node for node in self._names if not self._is_compared(node)]
            self._undefined = dict(zip(nodes, self._run(nodes, None, self.inputs)))
        return self._undefined

    def _noisy(self, node: Node, values, epsilon, rng):
        value = value_of(node, values, self._feeds, self._sizes)
        is_exact = node.kind == CONSTANT and epsilon <= EPSILON["float32"]
        if not epsilon or is_exact or isinstance(value, list):
            return value
        return rounded_at_random(value, epsilon, rng)


def results_of(graph: Graph) -> list[Node]:
    """Return what a function returns, without the tuples around it."""

    def leaves(node):
        return (
            [x for each in node.operands for x in leaves(each)] if node.kind == "tuple" else [node]
        )

    return [leaf for node in graph.nodes[-1].operands for leaf in leaves(node)]


def _spec(node: Node) -> Spec | None:
    """Return the type of an input."""
    return Spec(node.type.dtype, node.type.dims) if isinstance(node.type, Tensor) else None
