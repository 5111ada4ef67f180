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
"""Makes dynamic reshapes and slices static where their shapes and bounds can be inferred.

Importers write a reshape of open dimensions as `dyn.reshape` to a shape that is read off a tensor,
taken apart and put together. Where each of its elements is a number or an open dimension that is
known, it is a `reshape` with Relay's codes, of which oneDNN's rules know what it keeps. A broadcast
to the shape that a tensor has in every call goes away. A dense or a softmax of rows between two
reshapes, of which the first joins dimensions of the data that the second restores, is one of that
data: no code says how to divide the product of two open dimensions. A slice whose bounds are
computed from open dimensions, and are numbers for all that, has them as attributes.

The nodes keep the dynamic op as their origin, as TVM cannot compile a `reshape` of open dimensions
that it fuses to what follows.
"""

from __future__ import annotations

from ..ir.dim import Size, product
from ..ir.graph import Graph
from ..ir.match import is_op
from ..ir.node import Node
from ..ir.op_view import Tensor
from ..ops.reshape import reshape_codes
from ..ops.rules import Rules
from ..ops.shape_values import ShapeValues

# Ops that compute rows one by one, of any number of dimensions. onnxruntime writes a softmax along
# the last axis as one of rows when it brings a model of an opset before 13 to a newer one.
_SOFTMAX = ("nn.fast_softmax", "nn.log_softmax", "nn.softmax")
_OF_ROWS = ("nn.dense", *_SOFTMAX)

_DYNAMIC = ("dyn.reshape", "dyn.broadcast_to", "dyn.strided_slice")


def static_reshape(graph: Graph, rules: Rules) -> list[Node]:
    """Replace dynamic reshapes and slices with static ones; remove broadcasts to the same shape.

    Returns
    -------
    folded : list[Node]
        What changes nothing.
    """
    folded, values = [], ShapeValues()
    for node in graph.nodes:
        if not is_op(node, *_DYNAMIC) or rules.excludes(node.name):
            continue
        data = node.operands[0]
        if not isinstance(data.type, Tensor):
            continue
        if node.name == "dyn.strided_slice":
            new = _cut(graph, node, values)
        else:
            wanted = values.target(node)
            if wanted is None:
                continue
            if None not in wanted and tuple(wanted) == data.type.dims:
                graph.replace(node, data)
                folded.append(node)
                continue
            new = _reshaped(graph, rules, node, wanted) if node.name == "dyn.reshape" else None
        if new is not None:
            graph.reread(node, new)
    return folded


def _cut(graph: Graph, node: Node, values: ShapeValues) -> Node | None:
    """Return a slice by numbers, or the data where all of it is kept."""
    parts, data = values.cut(node), node.operands[0]
    if parts is None:
        return None
    kept = {axis: part for axis, part in enumerate(parts) if part is not None}
    if not kept:
        return data
    begin, end = (list(each) for each in zip(*kept.values()))
    attrs = dict(begin=begin, end=end, strides=[1] * len(begin), axes=list(kept))
    return graph.call("strided_slice", [data], node, **attrs, slice_mode="end")


def _reshaped(graph: Graph, rules: Rules, node: Node, wanted: list[Size]) -> Node | None:
    """Return a reshape by codes, or an op of rows of the data."""
    data = node.operands[0]
    codes = reshape_codes(data.tensor.dims, wanted)
    dims = tuple(also if size is None else size for size, also in zip(wanted, node.tensor.dims))
    if codes is not None:
        type_ = Tensor(dims, data.tensor.dtype)
        return graph.call("reshape", [data], node, type_, newshape=codes, allowzero=False)
    if not _restores_rows(data, tuple(wanted), rules):
        return None
    flat, *others = data.operands
    attrs = {**vars(data.attrs), **({"axis": -1} if data.name in _SOFTMAX else {})}
    return graph.call(data.name, [flat.operands[0], *others], data, **attrs)


def _restores_rows(node: Node, wanted: tuple, rules: Rules) -> bool:
    """Whether an op of rows, given other dimensions, has those that were joined for it."""
    if not is_op(node, *_OF_ROWS) or rules.excludes(node.name):
        return False
    if len(node.users) != 1:
        return False
    flat = node.operands[0]
    if flat.name not in ("reshape", "dyn.reshape"):
        return False
    if node.name in _SOFTMAX and node.attrs.axis % len(node.tensor.dims) != 1:
        return False
    if node.name == "nn.dense" and None in node.operands[1].tensor.shape:
        return False
    source, rows = flat.operands[0].type, flat.type
    return (
        isinstance(source, Tensor)
        and rows.dims == (product(source.dims[:-1]), source.dims[-1])
        and wanted == (*source.dims[:-1], node.tensor.dims[-1])
    )
