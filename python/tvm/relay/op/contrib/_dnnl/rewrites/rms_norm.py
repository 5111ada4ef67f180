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
"""Finds x / sqrt(mean(x ** 2) + epsilon) * gamma along the last axis, which transformers have."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tvm.contrib.onednn.policy.op_spec import Rules
from tvm.contrib.onednn.rewrites.norm_readers import RMSNormReader

from ..ir.dataflow_graph import DataflowGraph, Rewritten, TypedFunction
from .driver import Match, rewrite
from .virtual_ops import virtual_op


def wrap_rms_norms(function: TypedFunction, rules: Rules) -> Rewritten:
    """Put the ops of each normalization into the function of a virtual op."""
    return rewrite(function, rules, _find)


def _find(graph: DataflowGraph, rules: Rules, calls_of: Callable) -> Iterator[Match]:
    reader = RMSNormReader(graph)
    # The last op comes first: with the factor before without.
    for root in calls_of(*reader.roots):
        norm = reader.read(root)
        if norm is not None:
            attrs = {"epsilon": norm.epsilon}
            yield from virtual_op(graph, "dnnl.rms_norm", attrs, root, norm.operands())
