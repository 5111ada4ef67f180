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
"""How much of a model's floating-point work is given to DNNL."""

from typing import NamedTuple

from tvm import relay
from tvm.contrib.onednn.ops.rules import Rules
from tvm.contrib.onednn.ops.table import TABLE
from tvm.relay.op.contrib._dnnl.ir.dataflow_graph import STOP_FUSION, is_partition, op_calls
from tvm.relay.op.contrib._dnnl.ir.relay_view import view_of


class Work(NamedTuple):
    """Floating-point operations, those on oneDNN and all."""

    flops: float
    all_flops: float

    @property
    def share(self):
        """The share of the floating-point operations that oneDNN does."""
        return self.flops / self.all_flops if self.all_flops else 0.0


def work(partitioned):
    """Count the floating-point operations of a partitioned module."""
    functions = relay.transform.InferType()(partitioned).functions.values()
    rules = Rules(TABLE)
    counts = [
        (is_partition(func), rules.flops(view_of(call)))
        for func in functions
        for call in (op_calls(func) if isinstance(func, relay.Function) else ())
        if call.op.name != STOP_FUSION
    ]
    return Work(sum(n for offloaded, n in counts if offloaded), sum(n for _, n in counts))
