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
"""The rewrites of a graph, in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from .. import interrupts
from ..graph.graph import Graph
from ..policy.op_spec import Rules
from ..policy.quantized import weights_in_float32
from ..policy.rules.quantize import DEQUANTIZE
from ..report.failures import note_failure
from .decompose import decompose
from .fold_constants import fold_constants
from .fold_pad import fold_pad
from .fold_scale import fold_scale
from .fuse_formulas import fuse_formulas
from .move_in_int8 import (
    fold_dequantized,
    merge_equal,
    move_dequantize_first,
    move_in_int8,
    move_relu_first,
)
from .propagate_strides import propagate_strides
from .reduced_precision import reduce_precision
from .simplify import simplify, weights_as_dense_has_them
from .weight_zero_point import without_weight_zero_points

Rewrite = Callable[[Graph, Rules], None]


class Outcome(NamedTuple):
    """What the rewrites have done, for the report.

    Parameters
    ----------
    folded : Counter
        The ops that were folded into others, by name.
    in_float32 : Counter
        By op and reason: the ops of 8-bit tensors and weights that run in float32.
    """

    folded: Counter
    in_float32: Counter


def rewrite(graph: Graph, rules: Rules, function: str, failures: dict[str, str]) -> Outcome:
    """Rewrite a graph into what oneDNN runs well.

    A rewrite that raises leaves the graph as it was, with a warning and a line of the report.

    Parameters
    ----------
    graph : Graph
        The graph of a function.
    rules : Rules
        The policy.
    function : str
        What messages call the function.
    failures : dict[str, str]
        By function: which rewrites failed.
    """
    run = _Run(graph, rules, function, failures)
    run.steps(fold_constants, decompose, fold_constants, simplify, weights_as_dense_has_them)
    run.steps(fold_pad, is_folding=True)
    in_float32: Counter = Counter()
    is_quantized = DEQUANTIZE in graph.ops
    if is_quantized:
        run.steps(merge_equal, move_relu_first, without_weight_zero_points, move_in_int8)
        run.steps(fold_constants, simplify)
        in_float32 = weights_in_float32(graph, rules)
        run.steps(fold_dequantized, fold_constants, simplify, weights_as_dense_has_them)
    run.steps(fold_scale, is_folding=True)
    run.steps(propagate_strides, fuse_formulas)
    if rules.options.precision != "float32":
        run.steps(reduce_precision)
    if is_quantized:
        run.steps(move_dequantize_first)
    return Outcome(run.folded, in_float32)


class _Run:
    def __init__(self, graph: Graph, rules: Rules, function: str, failures: dict[str, str]):
        self._graph, self._rules = graph, rules
        self._function, self._failures = function, failures
        self.folded: Counter = Counter()

    def steps(self, *rewrites: Rewrite, is_folding: bool = False) -> None:
        """Run some rewrites; of those that fold, count what is gone."""
        given = self._ops() if is_folding else None
        for each in rewrites:
            interrupts.deliver()
            restore = self._graph.checkpoint()
            try:
                each(self._graph, self._rules)
                self._graph.sort()
            # A model must not fail to compile because a part of it cannot be rewritten.
            except Exception as error:  # pylint: disable=broad-except
                restore()
                note_failure(self._failures, self._function, each.__name__, error, stacklevel=6)
        if given is not None:
            self.folded += given - self._ops()

    def _ops(self) -> Counter:
        names = (self._graph.op_name(node) for node in self._graph.nodes)
        return Counter(name for name in names if name is not None)
