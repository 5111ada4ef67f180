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
"""Offload policy of the example code generator `ccompiler`: a few ops that any C compiler runs.

Importing this module is what makes ``AnnotateTarget(["ccompiler"])`` find the ops.
"""

from __future__ import annotations

import tvm
from tvm import relay

# Keep in step with codegen_c/codegen.cc; a test compares the two.
OPS = ("add", "subtract", "multiply")

_DTYPES = {"float32", "float64"} | {f"{u}int{bits}" for u in ("u", "") for bits in (8, 16, 32, 64)}


def refusal(call: relay.Call) -> str | None:
    """Say why a call of one of `OPS` stays on TVM; None if it becomes C code."""
    for index, tensor in enumerate([*call.args, call]):
        name = f"argument {index}" if index < len(call.args) else "the result"
        tensor_type = tensor.checked_type
        if tensor_type.dtype not in _DTYPES:
            return f"{name} is {tensor_type.dtype}, and C has no such number"
        if not all(isinstance(dim, tvm.tir.IntImm) for dim in tensor_type.shape):
            return f"{name} has a dynamic shape"
        if any(int(dim) == 0 for dim in tensor_type.shape):
            return f"{name} has no elements"
    return None


for _name in OPS:
    # Registering twice is an error in TVM, and a reload of the module would do that.
    tvm.ir.Op.get(_name).reset_attr("target.ccompiler")
    tvm.ir.register_op_attr(_name, "target.ccompiler", lambda call: refusal(call) is None)
