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
"""Turns a layer normalization that is written out, as exporters do, into Relay's op.

That is (x - mean(x)) / sqrt(mean((x - mean(x)) ** 2) + epsilon) * gamma + beta along the last axis.
The factor and the summand may be missing, and each step may be written in another way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from tvm import relay
from tvm.contrib.onednn.policy.op_spec import Rules
from tvm.contrib.onednn.rewrites.norm_readers import LayerNormReader, Normalization

from ..ir.constants import to_constant, to_double
from ..ir.dataflow_graph import DataflowGraph, Rewritten, TypedFunction
from ..ir.relay_view import shape_of
from .driver import Match, rewrite


def _layer_norm(graph: DataflowGraph, norm: Normalization, *operands: relay.Expr) -> relay.Call:
    """Return Relay's op for a normalization, of what its operands have become."""
    done = dict(zip(norm.operands(), operands))
    size = shape_of(graph.nodes[norm.data])[-1]

    def vector(number, otherwise):
        if number is None:
            dtype = graph.nodes[norm.data].checked_type.dtype
            return to_constant(np.full(size, otherwise), dtype)
        operand = done[number]
        if isinstance(operand, relay.Constant):
            return to_constant(to_double(operand).reshape(size), operand.data.dtype)
        is_vector = shape_of(graph.nodes[number]) == (size,)
        return operand if is_vector else relay.reshape(operand, (size,))

    return relay.nn.layer_norm(
        done[norm.data],
        vector(norm.gamma, 1),
        vector(norm.beta, 0),
        axis=-1,
        epsilon=norm.epsilon,
        center=norm.beta is not None,
        scale=norm.gamma is not None,
    )


def fold_layer_norm(function: TypedFunction, rules: Rules) -> Rewritten:
    """Replace layer normalizations that are written out by Relay's op."""
    return rewrite(function, rules, _find)


def _find(graph: DataflowGraph, rules: Rules, calls_of: Callable) -> Iterator[Match]:
    reader = LayerNormReader(graph)
    # The last op comes first: with the factor and the summand before without.
    for root in calls_of(*reader.roots):
        norm = reader.read(root)
        if norm is not None:
            operands = norm.operands()
            group = graph.closed_group(root, operands)
            yield Match(group, operands, partial(_layer_norm, graph, norm), folded=group or ())
