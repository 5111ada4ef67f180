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
"""How TVM, built with oneDNN, comes to know the code generator. Importing this costs nothing."""

from __future__ import annotations

import functools

import tvm
from tvm.contrib.onednn import cpu


def _compile_partitions(functions, options, const_names) -> list:
    from .codegen import compile_partitions

    return compile_partitions(functions, options, const_names)


def _lower_extremum(builder, call):
    from .extrema import lowered

    return lowered(builder, call)


def _lower_in_float32(own, builder, call):
    from .wide import lowered

    return lowered(own, builder, call)


#: Those that sum elements.
_SUMS = (
    *("matmul", "mean", "nn.log_softmax", "nn.softmax", "std", "sum", "variance"),
    *(f"nn.conv{rank}d{kind}" for rank in (1, 2, 3) for kind in ("", "_transpose")),
    *(f"nn.{kind}avg_pool{rank}d" for rank in (1, 2, 3) for kind in ("", "adaptive_")),
)

#: Those for which TVM has no code in float16 or bfloat16.
_FUNCTIONS = (
    *("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cosh", "sinh", "tan"),
    *("isfinite", "isinf", "isnan", "log_add_exp", "mod", "power"),
)


@functools.cache
def register() -> None:
    """Connect the policy to this TVM, and register the code generator if the runtime is there.

    Extrema, sums and functions that stay on TVM are lowered by `extrema` and `wide`, also those
    that importers fold.
    """
    # Above the level of TVM's own, whichever comes first.
    for name in ("max", "min", "argmax", "argmin"):
        tvm.ir.register_op_attr(f"relax.{name}", "FLegalize", _lower_extremum, level=11)
    for name in (*_SUMS, *_FUNCTIONS):
        lower = functools.partial(
            _lower_in_float32, tvm.ir.Op.get(f"relax.{name}").get_attr("FLegalize")
        )
        tvm.ir.register_op_attr(f"relax.{name}", "FLegalize", lower, level=11)
    cpu.connect(functools.partial(tvm.get_global_func, allow_missing=True))
    if tvm.get_global_func("runtime.DNNLJSONRuntimeCreate", allow_missing=True) is not None:
        tvm.register_global_func("relax.ext.dnnl", _compile_partitions, override=True)
