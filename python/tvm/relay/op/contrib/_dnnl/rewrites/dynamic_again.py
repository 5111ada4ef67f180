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
"""Makes reshapes of open dimensions dynamic that are left on TVM.

TVM cannot compile a `reshape` of open dimensions that it fuses to what follows, nor a dense of more
than two dimensions.
"""

from __future__ import annotations

from functools import partial

from tvm import relay
from tvm.contrib.onednn.ops.rules import Rules

from ..ir.dataflow_graph import Rewritten, TypedFunction, has_attr, with_attrs
from ..ir.relay_view import op_name, shape_of

# The attribute of a function some of whose reshapes were dynamic.
HAS_STATIC_RESHAPES = "dnnl_static_reshape"


def dynamic_again(function: TypedFunction, rules: Rules) -> Rewritten:
    """Have TVM read the new shape of what is left of these reshapes off their data."""
    if not has_attr(function.func, HAS_STATIC_RESHAPES):
        return Rewritten(function.func)
    graph = function.graph
    replacements = {}
    for i, call in enumerate(graph.nodes):
        name = op_name(call)
        if name not in ("reshape", "nn.dense") or None not in shape_of(call):
            continue
        if name == "reshape":
            replacements[i] = [graph.operands[i][0]], partial(_dynamic, call)
        elif len(shape_of(call)) > 2:
            replacements[i] = graph.operands[i], partial(_dense_of_rows, call)
    return Rewritten(graph.replace(replacements).without_attr(HAS_STATIC_RESHAPES))


def _dynamic(call: relay.Call, data: relay.Expr) -> relay.Expr:
    """Write a reshape with codes as one to a shape that is computed."""
    sizes, rank = relay.shape_of(data, "int64"), len(shape_of(call.args[0]))
    codes, parts, k = list(map(int, call.attrs.newshape)), [], 0

    def size(axis):
        return relay.strided_slice(sizes, [axis], [axis + 1], [1])

    while codes:
        code = codes.pop(0)
        if code == -4:
            left, right = codes.pop(0), codes.pop(0)
            parts.append(_number(left) if left > 0 else relay.divide(size(k), _number(right)))
            parts.append(_number(right) if right > 0 else relay.divide(size(k), _number(left)))
        elif code == -3:
            parts.append(relay.multiply(size(k), size(k + 1)))
            k += 1
        elif code == -2:
            parts += [size(axis) for axis in range(k, rank)]
            k = rank
        else:
            parts.append(size(k) if code == 0 else _number(code))
        k += 1
    return relay.reshape(data, relay.concatenate(parts, 0))


def _dense_of_rows(call: relay.Call, data: relay.Expr, weight: relay.Expr) -> relay.Expr:
    """Write a dense of more than two dimensions as one between two reshapes."""
    columns, units = shape_of(call.args[1])[::-1]
    rows = relay.reshape(data, relay.concatenate([_number(-1), _number(columns)], 0))
    sizes = relay.strided_slice(relay.shape_of(data, "int64"), [0], [-1], [1])
    shape = relay.concatenate([sizes, _number(units)], 0)
    return relay.reshape(with_attrs(call, (rows, weight)), shape)


def _number(value: int) -> relay.Constant:
    return relay.const([value], "int64")
