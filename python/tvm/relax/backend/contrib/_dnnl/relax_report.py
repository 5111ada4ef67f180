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
"""Tells which ops of a Relax module run on oneDNN, and why the others do not."""

from __future__ import annotations

from collections.abc import Mapping

import tvm
from tvm import relax
from tvm.contrib.onednn import interrupts
from tvm.contrib.onednn.ir.node import Node
from tvm.contrib.onednn.ops.schema import OpSchema
from tvm.contrib.onednn.ops.tensors import COMPILER
from tvm.contrib.onednn.partition.kernel import composite_name
from tvm.contrib.onednn.report import record
from tvm.contrib.onednn.report.describe import Description
from tvm.contrib.onednn.report.offload_report import OffloadReport
from tvm.contrib.onednn.rewrites.decompose import decompose

from .reader import RelaxGraph, ops_of
from .reading import OPAQUE
from .size_checks import is_match_cast


@interrupts.deferred()
def make_report(mod: tvm.IRModule, rows: Mapping[str, OpSchema]) -> OffloadReport:
    """Return what was recorded of a module, or what the policy says of it; see `offload_report`."""
    noted, mod = record.Record.of(mod), relax.transform.Normalize()(mod)
    functions = {
        var.name_hint: func
        for var, func in mod.functions_items()
        if isinstance(func, relax.Function)
    }
    own = {
        name: func
        for name, func in functions.items()
        if str(func.attrs.get("Codegen", "")) != COMPILER
    }

    def closed(func):
        marks = [key for key in OPAQUE if key in func.attrs]
        return (ops_of(func), f"in a function marked '{marks[0]}'") if marks else None

    def described(func, rules, *args, **fields):
        graph = RelaxGraph(mod, func, noted.excluded)
        # For its reasons only.
        decompose(graph, rules)
        return RelaxDescription(graph, rules, *args, **fields)

    partitions = len(functions) - len(own)
    report = record.make_report(noted, own, partitions, rows, closed, described)
    if partitions:
        # Without it, tvm.compile fails with an internal error.
        report.next_step = "relax.transform.RunCodegen(), then tvm.compile"
    return report


class RelaxDescription(Description):
    """The nodes of the report for a function of Relax."""

    def kernel_name(self, node: Node) -> str:
        """Return the name of the composite that an op is written in alone."""
        return composite_name(node.name)

    def op_names(self, node: Node) -> list[str]:
        """Return the ops of Relax that a call is; a check of sizes is none."""
        return [] if is_match_cast(node) else super().op_names(node)

    def _on_tvm(self, node: Node) -> list[int]:
        return self._read(node) if is_match_cast(node) else super()._on_tvm(node)
