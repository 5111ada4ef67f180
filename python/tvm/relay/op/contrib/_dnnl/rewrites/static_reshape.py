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
"""Reshapes and slices to what the module computes become such as say what they do.

Importers write a reshape of open dimensions as `dyn.reshape` to a shape that is read off a tensor,
taken apart and put together. Where each of its elements is a number or an open dimension that is
known by name, it is a `reshape` with Relay's codes, of which oneDNN's rules know what it keeps. A
broadcast to the shape that a tensor has in every call goes away. A dense or a softmax of rows
between two reshapes, of which the first joins dimensions of the data that the second restores, is
one of that data: no code says how to divide the product of two open dimensions. A slice whose
bounds are computed from open dimensions, and are numbers for all that, has them as attributes.

TVM cannot compile a `reshape` of open dimensions that it fuses to what follows, nor a dense of more
than two dimensions. Those that stay on TVM are dynamic again in the end.
"""

from __future__ import annotations

from collections import Counter
from functools import partial

from tvm import relay
from tvm.contrib.onednn.policy.op_spec import Rules

from ..ir.dataflow_graph import DataflowGraph, Rewritten, TypedFunction, has_attr, with_attrs
from ..ir.relay_view import op_name, shape_of
from ..ir.shape_kinds import Dim, Shape, product

_DYNAMIC = ("dyn.reshape", "dyn.broadcast_to", "dyn.strided_slice")

# Ops that compute rows one by one, of any number of dimensions. onnxruntime writes a softmax along
# the last axis as one of rows when it brings a model of an opset before 13 to a newer one.
_SOFTMAX = ("nn.fast_softmax", "nn.log_softmax", "nn.softmax")
_OF_ROWS = ("nn.dense", *_SOFTMAX)

# The attribute of a function some of whose reshapes were dynamic.
_ATTR = "dnnl_static_reshape"


def static_reshape(function: TypedFunction, rules: Rules) -> Rewritten:
    """Write dynamic reshapes and slices with attributes, leave out broadcasts to the same shape.

    This is not for the driver of rewrites: types become more precise, and what oneDNN does not run
    is dynamic again in the end.
    """
    graph = function.graph
    names = enumerate(graph.ops)
    dynamic = [i for i, name in names if name in _DYNAMIC and not rules.excludes(name)]
    if not dynamic:
        return Rewritten(function.func)
    symbolic = graph.symbolic
    replacements, folded = {}, Counter()
    for i in dynamic:
        data = graph.operands[i][0]
        if graph.ops[i] == "dyn.strided_slice":
            parts = symbolic.cut(i)
            if parts is not None:
                replacements[i] = [data], partial(_cut, parts) if any(parts) else _same
            continue
        source, wanted = symbolic.shapes[data], symbolic.of_value(i)
        if source is None or wanted is None:
            continue
        if None not in wanted and tuple(wanted) == source:
            replacements[i] = [data], _same
            folded[graph.ops[i]] += 1
        elif graph.ops[i] == "dyn.reshape":
            codes = reshape_codes(source, wanted)
            if codes is not None:
                replacements[i] = [data], partial(_reshape, codes)
            elif _restores_rows(graph, data, tuple(wanted), rules):
                flat, *others = graph.operands[data]
                operands = [graph.operands[flat][0], *others]
                replacements[i] = operands, partial(_of_rows, graph.nodes[data])
    if not replacements:
        return Rewritten(function.func)
    func = graph.replace(replacements).with_attr(_ATTR, 1)
    if function.name == "main":
        # Nobody calls it, so its result may be of the type that is known now.
        func = relay.Function(func.params, func.body, None, func.type_params, func.attrs)
    return Rewritten(func, folded)


def dynamic_again(function: TypedFunction, rules: Rules) -> Rewritten:
    """Have TVM read the new shape of what is left of these reshapes off their data."""
    if not has_attr(function.func, _ATTR):
        return Rewritten(function.func)
    graph = function.graph
    replacements = {}
    for i, name in enumerate(graph.ops):
        call = graph.nodes[i]
        if name not in ("reshape", "nn.dense") or None not in shape_of(call):
            continue
        if name == "reshape":
            replacements[i] = [graph.operands[i][0]], partial(_dynamic, call)
        elif len(shape_of(call)) > 2:
            replacements[i] = graph.operands[i], partial(_dense_of_rows, call)
    return Rewritten(graph.replace(replacements).without_attr(_ATTR))


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


def _restores_rows(graph: DataflowGraph, i: int, wanted: Shape, rules: Rules) -> bool:
    """Whether an op of rows, given other dimensions, has those that were joined for it."""
    name, call = graph.ops[i], graph.nodes[i]
    if name not in _OF_ROWS or rules.excludes(name) or len(graph.users[i]) != 1:
        return False
    flat = graph.operands[i][0]
    if graph.ops[flat] not in ("reshape", "dyn.reshape"):
        return False
    if name in _SOFTMAX and int(call.attrs.axis) % len(shape_of(call)) != 1:
        return False
    if name == "nn.dense" and None in shape_of(call.args[1]):
        return False
    shapes = graph.symbolic.shapes
    source, rows = shapes[graph.operands[flat][0]], shapes[flat]
    return (
        source is not None
        and rows == (product(source[:-1]), source[-1])
        and wanted == (*source[:-1], shapes[i][-1])
    )


def _of_rows(call: relay.Call, *args: relay.Expr) -> relay.Expr:
    return with_attrs(call, args, **({"axis": -1} if op_name(call) in _SOFTMAX else {}))


def _dense_of_rows(call: relay.Call, data: relay.Expr, weight: relay.Expr) -> relay.Expr:
    """Write a dense of more than two dimensions as one between two reshapes."""
    columns, units = shape_of(call.args[1])[::-1]
    rows = relay.reshape(data, relay.concatenate([_number(-1), _number(columns)], 0))
    sizes = relay.strided_slice(relay.shape_of(data, "int64"), [0], [-1], [1])
    shape = relay.concatenate([sizes, _number(units)], 0)
    return relay.reshape(with_attrs(call, (rows, weight)), shape)


def _number(value: int) -> relay.Constant:
    return relay.const([value], "int64")


def _same(data: relay.Expr) -> relay.Expr:
    return data


def _reshape(codes: list[int], data: relay.Expr) -> relay.Expr:
    return relay.reshape(data, codes)


def _cut(parts: list[tuple[int, int] | None], data: relay.Expr) -> relay.Expr:
    kept = {axis: part for axis, part in enumerate(parts) if part is not None}
    begin, end = zip(*kept.values())
    return relay.strided_slice(data, list(begin), list(end), axes=list(kept))


def reshape_codes(source: Shape, wanted: list[Dim | None]) -> list[int] | None:
    """Return the new shape for Relay's `reshape`, with its codes for what is open.

    Parameters
    ----------
    source : Shape
        The shape of the data.
    wanted : list[Dim | None]
        The shape of the result, None for what is not known.

    Returns
    -------
    codes : list[int] | None
        None where the codes cannot say it.
    """
    return _by_groups(source, wanted) or _by_position(source, wanted)


def _by_position(source: Shape, wanted: list[Dim | None]) -> list[int] | None:
    """Say each dimension by itself: 0 is that of the data, -1 is left for one."""
    codes = []
    for k, dim in enumerate(wanted):
        if dim is not None and not dim.names:
            codes.append(dim.number)
        elif dim is not None and k < len(source) and source[k] == dim:
            codes.append(0)
        else:
            codes.append(-1)
    return codes if codes.count(-1) <= 1 and all(code >= -1 for code in codes) else None


def _by_groups(source: Shape, wanted: list[Dim | None]) -> list[int] | None:
    """Say what becomes of the data's dimensions: each stays (0), meets the next (-3), or is split.

    -1 may stand for one dimension that is not known, as the first, where all others stay.
    """
    codes, k, rest = [], 0, list(wanted)
    if rest and rest[0] is None and len(rest) == len(source) - 1:
        rest[0] = product(source).over(product(rest[1:])) if None not in rest[1:] else None
    if None in rest:
        return None
    while rest:
        if k == len(source):
            return None
        if rest[0] == source[k]:
            codes.append(0)
            k, rest = k + 1, rest[1:]
        elif k + 1 < len(source) and rest[0] == source[k].times(source[k + 1]):
            codes.append(-3)
            k, rest = k + 2, rest[1:]
        elif len(rest) > 1 and rest[0].times(rest[1]) == source[k]:
            parts = [-1 if dim.names else dim.number for dim in rest[:2]]
            if parts == [-1, -1]:
                return None
            codes += [-4, *parts]
            k, rest = k + 1, rest[2:]
        else:
            return None
    return codes if k == len(source) else None
