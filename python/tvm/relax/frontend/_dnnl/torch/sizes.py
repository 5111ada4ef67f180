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
"""Open sizes of inputs that are multiples of a symbol, such as ``2 * Dim("h")``.

TVM reads the value of a symbol from a dimension that is the symbol alone.
"""

from __future__ import annotations

import tvm
from tvm import relax, tirx


def solve(mod: tvm.IRModule) -> tvm.IRModule:
    """Compute the symbols of multiples from the sizes, which are checked at run time."""
    func = mod["main"]
    shapes = [list(param.ty.shape or ()) for param in func.params]
    known = {dim for dims in shapes for dim in dims if isinstance(dim, tirx.Var)}
    params, bindings = [], []
    for param, dims in zip(func.params, shapes):
        sizes = [_unsolved(dim, known) for dim in dims]
        if not any(sizes):
            params.append(param)
            continue
        for axis, multiple in enumerate(sizes):
            if multiple is None:
                continue
            symbol, factor = multiple
            dims[axis] = tirx.Var(f"{symbol.name}_{factor}", "int64")
            if symbol not in known:
                known.add(symbol)
                type_ = relax.ShapeType([symbol])
                value = relax.ShapeExpr([tirx.floordiv(dims[axis], factor)])
                bindings.append(relax.MatchCast(relax.Var(symbol.name, type_), value, type_))
        params.append(relax.Var(param.name, relax.TensorType(dims, param.ty.dtype)))
        bindings.append(relax.MatchCast(param, params[-1], param.ty))
    if not bindings:
        return mod
    blocks = [relax.BindingBlock(bindings), *func.body.blocks]
    body = relax.SeqExpr(blocks, func.body.body)
    mod["main"] = relax.Function(params, body, func.ret_ty, func.is_pure, func.attrs)
    return mod


def _unsolved(dim, known) -> tuple[tirx.Var, int] | None:
    """Return the symbol and the factor of a multiple whose symbol no dimension is."""
    if not isinstance(dim, tirx.Mul):
        return None
    for symbol, factor in ((dim.a, dim.b), (dim.b, dim.a)):
        is_multiple = isinstance(symbol, tirx.Var) and isinstance(factor, tirx.IntImm)
        if is_multiple and symbol not in known:
            return symbol, int(factor)
    return None
