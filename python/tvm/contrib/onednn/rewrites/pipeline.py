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
from collections.abc import Collection, Sequence
from typing import NamedTuple

from .. import interrupts, progress
from ..failures import note_failure
from ..ir.graph import Graph
from ..ops.int8 import weights_in_float32
from ..ops.quantize import DEQUANTIZE
from ..ops.rules import Rules
from .attempt import Rewrite, attempt
from .attention import fuse_attention
from .bias_order import move_bias_first
from .compute_in_float32 import compute_in_float32, ops_in_float32
from .decompose import decompose
from .dynamic_convs import fuse_dynamic_convs
from .dynamic_quantization import fuse_dynamic_quantization
from .exact_nan import propagate_nan
from .experts import fuse_experts
from .fold_constants import fold_constants
from .fold_pad import fold_pad
from .fold_scale import fold_scale
from .fuse_formulas import fuse_formulas
from .merged_rows import split_merged_rows
from .move_in_int8 import (
    fold_dequantized,
    merge_equal,
    move_in_int8,
    move_relu_first,
)
from .narrow_layers import layers_in_float32, narrow_layers
from .open_reshapes import read_open_reshapes
from .propagate_strides import propagate_strides
from .read_qnn import read_dequantize, read_qnn
from .recurrent import hoist_input_products
from .recurrent_layers import read_recurrent_layers
from .reduced_precision import reduce_precision
from .simplify import canonicalize_dense_weights, share_tied_weights, simplify
from .softmax_guards import fuse_softmax_guards
from .static_reshape import static_reshape
from .weight_zero_point import without_weight_zero_points


class Outcome(NamedTuple):
    """The effects of the rewrites, for the report.

    Parameters
    ----------
    folded : Counter
        The ops that were folded into others, by name.
    in_float32 : Counter
        By op and reason: the ops of 8-bit tensors and weights that run in float32, those of types
        that the CPU lacks, and the recurrent layers whose weights stay so with `precision`.
    """

    folded: Counter
    in_float32: Counter


def rewrite(
    graph: Graph,
    rules: Rules,
    function: str,
    failures: dict[str, str],
    first: Sequence[Rewrite] = (),
    skipped: Collection[str] = (),
    last: Sequence[Rewrite] = (),
) -> Outcome:
    """Rewrite a graph for oneDNN.

    A rewrite that raises leaves the ops at which it does, or the graph, as they were, with a
    warning and a line of the report.

    Parameters
    ----------
    graph : Graph
        The graph of a function.
    rules : Rules
        The rules.
    function : str
        What messages call the function.
    failures : dict[str, str]
        By function: which rewrites failed.
    first : Sequence[Rewrite]
        Rewrites of one IR, which precede the others.
    skipped : Collection[str]
        Names of rewrites to leave out.
    last : Sequence[Rewrite]
        Rewrites that prepare the fusion, which precede those of `precision` only.
    """
    run = _Run(graph, rules, function, failures, skipped)
    # One IR's own spellings become those of the graph.
    run.steps(*first)
    # No-ops and dynamic reshapes hide the patterns of all later rewrites.
    run.steps(simplify, static_reshape)
    # Constant folding would compute an 8-bit weight in float32.
    run.steps(read_dequantize, fold_constants)
    # Most rewrites ask the rules, which refuse types that the CPU lacks.
    run.steps(compute_in_float32)
    run.in_float32 += ops_in_float32(graph, rules)
    # A guard tests `isnan`, which `decompose` writes as a comparison. It also reshapes constants.
    run.steps(fuse_softmax_guards, decompose, fold_constants)
    # Later rewrites match the matmul of a constant weight as a dense only.
    run.steps(canonicalize_dense_weights, split_merged_rows, fuse_experts)
    # A recurrent layer is matched as a whole before its matmuls are; QNN has no such layer.
    run.steps(read_recurrent_layers, hoist_input_products, read_qnn)
    # Both match the float ops that `read_qnn` leaves between a dynamic quantize and its product.
    run.steps(fuse_dynamic_quantization, fuse_dynamic_convs)
    _lower_to_int8(run)
    # The rewrites above leave constant subgraphs, casts and copies, which hide what follows.
    run.steps(fold_constants, simplify)
    # A scale that is folded into a tied weight makes a copy of it.
    run.steps(share_tied_weights, fold_scale)
    # Before `fuse_formulas`, which writes a matmul by transposed keys as a dense. The kernel of
    # attention has no float16.
    if rules.options.precision != "float16":
        run.steps(fuse_attention)
    # These two and the formulas match different ops; any order would do.
    run.steps(propagate_strides)
    if not rules.options.keep_bias_order:
        run.steps(move_bias_first)
    run.steps(fuse_formulas)
    # The tensors whose sizes are read would have several users in the patterns above.
    run.steps(read_open_reshapes)
    # Adds ops to results, which would hide the patterns above.
    if rules.options.exact_nan:
        run.steps(propagate_nan)
    # All formulas are one op each now, which moves as a whole; the ops that it stands for are still
    # of its type.
    run.steps(*last)
    # The casts between precisions come last, as no pattern above looks through them.
    if rules.options.precision != "float32":
        run.steps(narrow_layers, reduce_precision)
        run.in_float32 += layers_in_float32(graph, rules)
    return Outcome(run.folded, run.in_float32)


def rewrite_quantized(
    graph: Graph, rules: Rules, function: str, failures: dict[str, str]
) -> Outcome:
    """Rewrite only the quantized ops of a graph; see `rewrite`."""
    run = _Run(graph, rules, function, failures)
    run.steps(read_dequantize, fold_constants, read_qnn)
    _lower_to_int8(run)
    return Outcome(run.folded, run.in_float32)


def _lower_to_int8(run: _Run) -> None:
    """Lower to 8 bits what oneDNN runs in 8 bits, and fold pads."""
    if run.is_quantized:
        # Equal quantizes first: a tensor with one user can move.
        run.steps(merge_equal, move_relu_first, without_weight_zero_points, move_in_int8)
        run.steps(fold_constants)
    # After the moves, which change the types of pads and of what reads them.
    run.steps(fold_pad)
    if run.is_quantized:
        run.count_in_float32()
        # The remaining constants are not weights of 8-bit kernels.
        run.steps(fold_dequantized)


class _Run:
    def __init__(
        self,
        graph: Graph,
        rules: Rules,
        function: str,
        failures: dict[str, str],
        skipped: Collection[str] = (),
    ):
        self._graph, self._rules = graph, rules
        self._function, self._failures, self._skipped = function, failures, skipped
        self.folded: Counter = Counter()
        self.in_float32: Counter = Counter()

    def steps(self, *rewrites: Rewrite) -> None:
        """Run rewrites, and count the ops that they folded and that have no other user."""
        for each in rewrites:
            name = each.__name__
            if name in self._skipped:
                continue
            interrupts.deliver()
            progress.note(f"partition: {name}")
            self._graph.rewrite = name
            folded, failed = attempt(each, self._graph, self._rules)
            self._graph.rewrite = None
            for op, error in failed:
                self._note_failure(name if op is None else f"{name} of {op}", error)
            gone = [node for node in dict.fromkeys(folded) if not node.is_live]
            names = map(self._graph.op_name, gone)
            self.folded.update(name for name in names if name is not None)

    def _note_failure(self, what: str, error: Exception) -> None:
        strict = self._rules.options.strict
        note_failure(self._failures, self._function, what, error, stacklevel=8, strict=strict)

    @property
    def is_quantized(self) -> bool:
        """Whether the graph has quantized tensors."""
        return any(node.name == DEQUANTIZE for node in self._graph.nodes)

    def count_in_float32(self) -> None:
        """Count, for the report, the ops with 8-bit operands that run in float32."""
        self.in_float32 += weights_in_float32(self._graph, self._rules)
