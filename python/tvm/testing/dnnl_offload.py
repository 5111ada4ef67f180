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
"""What a partitioned module gives to DNNL, counted independently of the offload report."""

import collections

import tvm
from tvm import relay

COMPILER = "dnnl"

Offload = collections.namedtuple("Offload", ["partitions", "composites", "ops", "host_ops"])
Offload.__doc__ = """What a partitioned module gives to DNNL.

partitions: how many functions; composites: Counter of composite names in them; ops: Counter of
Relay op names in them, inside composites too; host_ops: Counter of the others."""


def offload(mod, compiler=COMPILER):
    """Count what a partitioned module gives to DNNL, independently of the offload report.

    Another compiler's name counts what goes to that one.
    """
    partitions, composites = 0, collections.Counter()
    ops, host_ops = collections.Counter(), collections.Counter()

    def discount(node):
        if _composite(node):
            composites[_composite(node)] -= 1

    for func in mod.functions.values():
        if not isinstance(func, relay.Function):
            continue
        inside = "Compiler" in (func.attrs or {}) and func.attrs["Compiler"] == compiler
        partitions += inside
        counter = ops if inside else host_ops

        def visit(node, counter=counter):
            if isinstance(node, relay.Call) and isinstance(node.op, tvm.ir.Op):
                counter[node.op.name] += 1
            elif _composite(node):
                composites[_composite(node)] += 1
                # One inside of another is a part of it, as a virtual op is.
                relay.analysis.post_order_visit(node.op.body, discount)

        relay.analysis.post_order_visit(func, visit)
    return Offload(partitions, +composites, ops, host_ops)


def _composite(node):
    """Return the name of the composite that `node` calls, or None."""
    attrs = getattr(node.op, "attrs", None) if isinstance(node, relay.Call) else None
    return str(attrs["Composite"]) if attrs is not None and "Composite" in attrs else None
