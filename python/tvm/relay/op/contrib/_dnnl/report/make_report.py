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
"""Compares a Relay module with the policy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import tvm
from tvm.contrib.onednn import interrupts
from tvm.contrib.onednn.options import Options
from tvm.contrib.onednn.policy.op_spec import OpSpec, Rules
from tvm.contrib.onednn.policy.op_view import OpView
from tvm.contrib.onednn.policy.rules.quantize import DEQUANTIZE
from tvm.contrib.onednn.report.offload_report import LEFT, UNPARTITIONED, OffloadReport, scales_text
from tvm.relay import transform

from ..ir.dataflow_graph import is_partition
from ..ir.relay_view import op_name, shape_of, view_of
from .flow import make_nodes
from .record import Record
from .walk import Unit, Walk

NOT_COMPILED = "; TVM cannot compile it with open dimensions"


@interrupts.deferred()
def make_report(mod: tvm.IRModule, rows: Mapping[str, OpSpec]) -> OffloadReport:
    """Compare a module with the policy; see :py:func:`tvm.relay.op.contrib.dnnl.offload_report`."""
    record = Record.of(mod)
    walk = Walk(transform.InferType()(mod))
    _explain(walk, record, rows)
    report = OffloadReport(nodes=make_nodes(walk))
    report.partitions = sum(is_partition(func) for func in walk.mod.functions.values())
    if record is not None:
        report.folded, report.failures = record.folded, record.failures
        report.in_float32 = record.in_float32
    for unit in walk.units:
        names = Counter(op_name(call) for call in unit.ops)
        report.ops.update(names)
        if unit.offloaded:
            report.offloaded_ops.update(names)
            report.composites.update([unit.composite] if unit.composite else [])
            report.in_8_bits.update(_scales(unit))
        else:
            for name, count in names.items():
                report.reasons.setdefault(name, Counter())[unit.reason] += count
    return report


def _scales(unit: Unit) -> list[str]:
    """Say what kind of scales a composite has, if it reads integers in 8 bits."""
    read = [part for part in unit.parts if op_name(part) == DEQUANTIZE] if unit.composite else []
    if not read:
        return []
    return [scales_text(shape_of(call.args[1]) for call in read)]


def _compiles(call: OpView | None) -> bool:
    """Whether TVM can compile an op that stays, as far as is known of its open dimensions."""
    if call is None:
        return True
    is_open = any(None in getattr(result, "shape", ()) for result in call.results)
    if call.name != "nn.conv2d" or str(call.attrs.data_layout) != "NCHW":
        return call.has_shape_function or not is_open
    # TVM's code for x86 takes no depthwise convolution, and of other groups none of open sizes.
    groups, shape = int(call.attrs.groups), getattr(call.args[0], "shape", ())
    return groups == 1 or None not in (shape if groups == shape[1] else shape[1:])


def _explain(walk: Walk, record: Record | None, rows: Mapping[str, OpSpec]) -> None:
    """Give a reason to each op that stays on TVM."""
    left = UNPARTITIONED if record is None else LEFT
    record = record or Record()
    known = {}
    for name, graph in walk.graphs.items():
        known.update((graph.nodes[i], text) for i, text in record.reasons(name, graph).items())
    rules = Rules(rows, Options(exclude=frozenset(record.excluded)))
    for unit in walk.units:
        if not unit.offloaded and unit.reason is None:
            view = view_of(unit.expr)
            unit.reason = (
                rules.refusal(view)
                or known.get(unit.expr)
                or record.failures.get(unit.function, left)
            )
            if not _compiles(view):
                unit.reason += NOT_COMPILED
