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
"""Lowers ops of 16 bits that stay on TVM and sum, or compute functions, as ops of float32.

So do oneDNN, PyTorch and onnxruntime. TVM sums in the type of the elements: a mean of 10,000
elements in float16 is off by half of its value. TVM has no code for functions such as `acos`.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax, topi

from .reading import with_attrs

_NARROW = ("float16", "bfloat16")


def lowered(own: Callable, builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Return what TVM's own lowering makes of a call, computed in float32 if its type is narrower.

    Parameters
    ----------
    own : Callable
        TVM's own lowering.
    builder : relax.BlockBuilder
        Gets the casts.
    call : relax.Call
        The call.
    """
    dtypes = {str(each.ty.dtype) for each in call.args if _is_tensor(each)}
    if len(dtypes) != 1 or dtypes.isdisjoint(_NARROW):
        return own(builder, call)
    (dtype,) = dtypes
    args = [
        builder.emit_te(topi.cast, each, "float32") if _is_tensor(each) else each
        for each in call.args
    ]
    wide = relax.Call(call.op, args, call.attrs, call.ty_args)
    if str(getattr(call.attrs, "out_dtype", None)) == dtype:
        wide = with_attrs(wide, out_dtype="float32")
    wide = builder.normalize(wide)
    result = own(builder, wide)
    if result.same_as(wide):
        return call
    if str(call.ty.dtype) != dtype:
        return result
    return builder.call_te(topi.cast, builder.emit(result), dtype)


def _is_tensor(arg: relax.Expr) -> bool:
    return isinstance(arg.ty, relax.TensorType)
