# SPDX-License-Identifier: Apache-2.0
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
