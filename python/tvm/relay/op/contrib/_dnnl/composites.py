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
"""Composites of patterns that are not ours: each is read as a function of one oneDNN kernel."""

from __future__ import annotations

import tvm
from tvm import relay
from tvm.contrib.onednn.ir.node import INPUT
from tvm.contrib.onednn.ops.rules import Rules
from tvm.contrib.onednn.ops.table import TABLE
from tvm.contrib.onednn.ops.tensors import COMPILER
from tvm.contrib.onednn.partition.kernel import whole_kernel

from .body import Body
from .ir.dataflow_graph import OPAQUE, has_attr
from .reader import RelayGraph
from .writer import composite


def described(call: relay.Call) -> relay.Call:
    """Return the call of a composite with the description that the code generators copy.

    Parameters
    ----------
    call : relay.Call
        The call, typed. Its arguments are not looked into, unless they are constants.

    Returns
    -------
    call : relay.Call
        A call without a type. Its arguments are the inputs of the kernel in order: arguments of
        `call`, and constants.

    Raises
    ------
    ValueError
        If oneDNN does not compute the composite by one kernel; it tells why.
    """
    func, args = call.op, dict(zip(call.op.params, call.args))
    for key in OPAQUE:
        func = func.without_attr(key) if has_attr(func, key) else func
    bound = {var: arg for var, arg in args.items() if isinstance(arg, relay.Constant)}
    graph = RelayGraph(func, bound=bound)
    known = {node: args[node.origin.native] for node in graph.nodes if node.kind == INPUT}
    units, node = whole_kernel(graph, Rules(TABLE), str(call.op.attrs["Composite"]))
    return composite(units, node, Body(known, is_for_onednn=True))


def register() -> None:
    """Register the reader for `relay.ext.dnnl`. Can be called again."""
    tvm.register_func(f"relay.ext.{COMPILER}.describe", described, override=True)
