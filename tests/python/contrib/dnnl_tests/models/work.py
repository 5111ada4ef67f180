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

import math
from typing import NamedTuple

from tvm import relay
from tvm.relay.op.contrib._dnnl.report.walk import Walk

# These move values, or only look at them in another way.
NO_WORK = {
    *("reshape", "squeeze", "expand_dims", "transpose", "layout_transform", "nn.batch_flatten"),
    *("concatenate", "split", "strided_slice", "take", "nn.pad", "cast", "broadcast_to", "full"),
    *("nn.dropout", "copy", "zeros", "ones", "shape_of", "stack", "contrib_reverse_reshape"),
}


class Work(NamedTuple):
    """Floating-point operations, those on oneDNN and all."""

    flops: float
    all_flops: float

    @property
    def share(self):
        """The share of the floating-point operations that oneDNN does."""
        return self.flops / self.all_flops if self.all_flops else 0.0


def _shape(type_):
    return [int(dim) for dim in type_.shape]


def flops(call):
    """Count the floating-point operations of a call of a Relay op with static shapes.

    A matmul or a convolution takes two for each element of the weight that an element
    of the result needs, a pooling or a reduction one for each element that it looks at, all else
    one for each element of the result.
    """
    name = call.op.name
    if name in NO_WORK:
        return 0
    result = call.checked_type
    result = result.fields[0] if isinstance(result, relay.TupleType) else result
    size = math.prod(_shape(result))
    args = [arg.checked_type for arg in call.args]
    if name.startswith("nn.conv"):
        weight = _shape(args[1])
        if name.endswith("_transpose"):
            size = math.prod(_shape(args[0]))
        return 2 * size * math.prod(weight) / weight[call.attrs.kernel_layout.index("O")]
    if name in ("nn.dense", "nn.matmul", "nn.batch_matmul"):
        transposed = name != "nn.dense" and call.attrs.transpose_a
        return 2 * size * _shape(args[0])[-2 if transposed else -1]
    if name in ("nn.max_pool2d", "nn.avg_pool2d"):
        return size * math.prod(int(dim) for dim in call.attrs.pool_size)
    if name in ("mean", "sum", "max", "min", "prod") or "pool" in name:
        return math.prod(_shape(args[0]))
    return size


def work(partitioned):
    """Count the floating-point operations of a partitioned module."""
    units = Walk(relay.transform.InferType()(partitioned)).units
    counts = [(unit.offloaded, flops(call)) for unit in units for call in unit.ops]
    return Work(sum(n for offloaded, n in counts if offloaded), sum(n for _, n in counts))
