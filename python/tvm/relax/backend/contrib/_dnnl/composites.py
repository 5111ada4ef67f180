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
"""Composites that are not the partitioner's, such as those of FuseOpsByPattern."""

from __future__ import annotations

import tvm
from tvm import relax
from tvm.contrib.onednn.ir.node import CALL
from tvm.contrib.onednn.ops.rules import Rules
from tvm.contrib.onednn.ops.table import TABLE
from tvm.contrib.onednn.partition.units import Units
from tvm.contrib.onednn.rewrites.fuse_formulas import fuse_formulas

from .kernels import Kernel, kernel_of
from .reader import RelaxGraph


def kernel_of_composite(func: relax.Function) -> Kernel:
    """Return the one kernel that computes what a composite does.

    Its inputs are expressions: parameters of the composite, and constants in it.

    Raises
    ------
    ValueError
        If oneDNN does not compute it by one kernel; it tells why.
    """
    rules = Rules(TABLE)
    graph = RelaxGraph(tvm.IRModule(), func)
    fuse_formulas(graph, rules)
    graph.sort()
    units = Units(graph, rules)
    is_supported = [units.is_supported(i) for i in range(len(graph.nodes))]
    (last,) = graph.operands[-1]
    inside = set(units.members(last) if is_supported[last] else ())
    for i, node in enumerate(graph.nodes[:-1]):
        if i not in inside and node.kind == CALL:
            reason = node.unsupported or rules.refusal(node) or "not fused with what follows"
            raise ValueError(
                f"{func.attrs['Composite']} is not a oneDNN kernel: {node.name}: {reason}"
            )
    kernel = kernel_of(units, last)
    return kernel._replace(inputs=[graph.nodes[i].origin.native.value for i in kernel.inputs])
