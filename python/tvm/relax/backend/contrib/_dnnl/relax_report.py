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

import json
from collections import Counter
from collections.abc import Mapping

import tvm
from tvm import relax
from tvm.contrib.onednn import interrupts
from tvm.contrib.onednn.policy.op_spec import OpSpec, Rules
from tvm.contrib.onednn.policy.tensors import COMPILER
from tvm.contrib.onednn.report.describe import Description
from tvm.contrib.onednn.report.offload_report import Node, OffloadReport
from tvm.contrib.onednn.rewrites.decompose import decompose

from .reader import RelaxGraph, ops_of
from .reading import OPAQUE, is_opaque

# The attribute of a module that partition_for_dnnl has been at, JSON text.
RECORD = "dnnl_partition_record"


@interrupts.deferred()
def make_report(mod: tvm.IRModule, rows: Mapping[str, OpSpec]) -> OffloadReport:
    """Return what was recorded of a module, or what the policy says of it; see `offload_report`."""
    text = mod.get_attr(RECORD)
    record = {} if text is None else json.loads(str(text))
    report = OffloadReport(failures=dict(record.get("failures", {})))
    for key in ("folded", "in_float32", "in_8_bits"):
        setattr(report, key, Counter(record.get(key, {})))
    normal = relax.transform.Normalize()(mod)
    known = record.get("functions", {})
    for var, func in normal.functions_items():
        name = var.name_hint
        if not isinstance(func, relax.Function):
            continue
        if str(func.attrs.get("Codegen", "")) == COMPILER:
            report.partitions += 1
        elif is_opaque(func):
            mark = next(key for key in OPAQUE if key in func.attrs)
            ops = ops_of(func)
            reason = f"in a function marked '{mark}'"
            report.add([Node("tvm", op, name, [op], reason=reason) for op in ops])
        elif name in known:
            report.add(Node(**node) for node in known[name])
        else:
            report.add(_described(normal, func, name, rows, report.failures.get(name)))
    return report


def _described(mod, func, name: str, rows, failure: str | None) -> list[Node]:
    """Describe a function that was not partitioned."""
    graph, rules = RelaxGraph(mod, func), Rules(rows)
    # For its reasons only.
    decompose(graph, rules)
    nodes = Description(graph, rules, name).nodes
    for node in nodes if failure else ():
        if node.kind == "tvm":
            node.reason = failure
    return nodes
