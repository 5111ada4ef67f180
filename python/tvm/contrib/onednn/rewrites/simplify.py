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
"""Removes no-ops and canonicalizes."""

from __future__ import annotations

import numpy as np

from ..ir.dim import is_same
from ..ir.graph import Graph
from ..ir.match import is_op, scalar_of
from ..ir.node import CALL, FIELD, NATIVE, TUPLE, Node
from ..ir.op_view import Tensor, tensor_of
from ..ops.pool import POOLS
from ..ops.quantize import DEQUANTIZE
from ..ops.rules import Rules
from ..ops.windows import both_sides, for_each, spatial_axes

_SOFTMAX = ("nn.fast_softmax", "nn.log_softmax", "nn.softmax")


def simplify(graph: Graph, rules: Rules) -> list[Node]:
    """Remove no-ops and canonicalize each call.

    Returns
    -------
    folded : list[Node]
        Copies, casts to the same type, dropouts and broadcasts that other ops do themselves.
    """
    folded = []
    for node in graph.nodes:
        rewrite = _REWRITES.get(node.name)
        new = rewrite(graph, rules, node) if rewrite is not None else None
        if node.kind == FIELD:
            new = _passed_on(rules, node)
            folded += [node.operands[0]] if new is not None else []
        elif new is not None and rewrite in (_same, _copied, _concatenated):
            folded.append(node)
        if new is not None:
            graph.reread(node, new)
    for node in graph.nodes:
        if node.is_call and node.name in rules.ops and rules.ops[node.name].post == "binary":
            folded += _broadcast_itself(graph, rules, node)
    return folded


def _passed_on(rules: Rules, field: Node) -> Node | None:
    """Return the operand that a result is equal to: at inference, a dropout changes nothing.

    Nor does a batch_norm change its statistics, its other results.
    """
    op, index = field.operands[0], field.attrs.index
    if op.name == "nn.dropout" and index == 0:
        return op.operands[0]
    if is_op(op, "nn.batch_norm") and index > 0 and not rules.excludes(op.name):
        return op.operands[2 + index]
    return None


def _broadcast_itself(graph: Graph, rules: Rules, node: Node) -> list[Node]:
    """Have a binary op read what was broadcast for it, where its other operand has the shape.

    Importers make a `broadcast_to` of ONNX's Expand, for which oneDNN has no primitive.
    """
    broadcasts = [operand for operand in node.operands if operand.name == "broadcast_to"]
    if rules.excludes(node.name, "broadcast_to"):
        return []
    for each in broadcasts:
        data = each.operands[0]
        if node.name == "nn.bias_add" or not isinstance(data.type, Tensor):
            continue
        operands = [data if operand is each else operand for operand in node.operands]
        new = graph.call(node.name, operands, node, **vars(node.attrs))
        if _is_same_type(new, node) and rules.refusal(new) is None:
            graph.reread(node, new)
            return [each]
    return []


def canonicalize_dense_weights(graph: Graph, rules: Rules) -> None:
    """Replace a matmul by a constant matrix with a dense, for which oneDNN has more kernels."""
    if rules.excludes("nn.dense"):
        return
    # The steps of a recurrent layer multiply by the same weight.
    weights: dict[tuple[Node, bool], Node] = {}
    for node in graph.nodes:
        if not is_op(node, "nn.matmul", "nn.batch_matmul"):
            continue
        data, weight = node.operands
        attrs = node.attrs
        if not weight.is_constant or len(weight.tensor.dims) != 2 or attrs.transpose_a:
            continue
        key = weight, attrs.transpose_b
        if key not in weights:
            weights[key] = graph.constant(weight.value if attrs.transpose_b else weight.value.T)
        operands = [data, weights[key]]
        graph.reread(
            node, graph.call("nn.dense", operands, node, node.type, out_dtype=attrs.out_dtype)
        )


def share_tied_weights(graph: Graph, rules: Rules) -> None:
    """Store once a table that `take` reads and that is a weight as well.

    Language models multiply by the embedding in the output layer; importers transpose a copy.
    """
    calls = [node for node in graph.nodes if node.is_call]
    read = {node.operands[0] for node in calls if node.name == "take"}
    tables = [node for node in read if node.is_constant]
    for node in calls:
        if node.name != "nn.dense" or not node.operands[1].is_constant:
            continue
        weight = node.operands[1]
        table = next((each for each in tables if _has_same_bits(each, weight)), weight)
        graph.replace(weight, table)


def _has_same_bits(one: Node, other: Node) -> bool:
    """Whether two constants have the same type and values."""
    if (one.tensor.dtype, one.tensor.dims) != (other.tensor.dtype, other.tensor.dims):
        return False
    values = [each.value.view(f"u{each.value.itemsize}") for each in (one, other)]
    # Most others differ in the first row.
    return np.array_equal(values[0][:1], values[1][:1]) and np.array_equal(values[0], values[1])


def _transpose(graph: Graph, rules: Rules, node: Node) -> Node | None:
    """Write a transpose of a transpose as one, or none."""
    if not node.is_call:
        return None
    (data,), axes = node.operands, _axes(node)
    if is_op(data, "transpose") and not rules.excludes("transpose"):
        below = _axes(data)
        data, axes = data.operands[0], [below[axis] for axis in axes]
    if axes == sorted(axes):
        return data
    is_changed = data is not node.operands[0]
    return graph.call("transpose", [data], node, node.type, axes=axes) if is_changed else None


def _axes(node: Node) -> list[int]:
    rank = len(node.tensor.dims)
    return [int(axis) % rank for axis in node.attrs.axes or range(rank)[::-1]]


def _same(graph: Graph, rules: Rules, node: Node) -> Node | None:
    """Return the data of a broadcast that changes nothing."""
    return node.operands[0] if _is_same_type(node.operands[0], node) else None


def _is_same_type(one: Node, other: Node) -> bool:
    """Whether two nodes compute tensors of the same size in every run, and of one type."""
    if not all(isinstance(node.type, Tensor) for node in (one, other)):
        return False
    is_alike = one.tensor.dtype == other.tensor.dtype and len(one.tensor.dims) == len(
        other.tensor.dims
    )
    return is_alike and all(map(is_same, one.tensor.dims, other.tensor.dims))


def _copied(graph: Graph, rules: Rules, node: Node) -> Node | None:
    """Return the data of a copy, or of a cast that changes nothing."""
    data = node.operands[0]
    # Ops may read what is returned, too.
    is_only_name = data.kind == CALL and all(
        user is node or user.kind == CALL for user in data.users
    )
    if rules.excludes(node.name) or not (is_only_name or not _is_returned(node)):
        return None
    return data if _is_same_type(data, node) else None


def _concatenated(graph: Graph, rules: Rules, node: Node) -> Node | None:
    """Remove empty operands of a concatenation, which importers slice off."""
    parts = node.operands[0]
    if not node.is_call or parts.kind != TUPLE or rules.excludes(node.name):
        return None
    kept = [part for part in parts.operands if 0 not in getattr(part.type, "shape", ())]
    if len(kept) == 1:
        return _of_one(node, kept[0])
    if not kept or len(kept) == len(parts.operands):
        return None
    return graph.call(node.name, [graph.tuple(kept, node)], node, node.type, **vars(node.attrs))


def _of_one(node: Node, data: Node) -> Node | None:
    """Remove a concatenation of one tensor, as tracers of caches write it."""
    return data if _is_same_type(data, node) and not _is_returned(node) else None


def _is_returned(node: Node) -> bool:
    """Whether a value may be a result of the function, which needs its own buffer."""
    return not node.users or any(
        user.kind == NATIVE or (user.kind == TUPLE and _is_returned(user)) for user in node.users
    )


def _matmul(graph: Graph, rules: Rules, node: Node) -> Node | None:
    """Multiply by a constant matrix without broadcasting it over the batch."""
    data, many = node.operands
    if not node.is_call or many.name != "broadcast_to":
        return None
    matrix = many.operands[0]
    if not matrix.is_constant or len(matrix.tensor.dims) != 2 or node.attrs.transpose_b:
        return None
    new = graph.call("nn.matmul", [data, matrix], node, **vars(node.attrs))
    return new if _is_same_type(new, node) else None


def _clip(graph: Graph, rules: Rules, node: Node) -> Node | None:
    """Write the minimum of a maximum, both of one number, as a clip."""
    if not node.is_call or not is_op(node.operands[0], "maximum"):
        return None
    data = node.operands[0].operands[0]
    low, high = (scalar_of(each.operands[1]) for each in (node.operands[0], node))
    if low is None or high is None or low > high or rules.excludes("clip"):
        return None
    if data.tensor.dims != node.tensor.dims:
        return None
    return graph.call("clip", [data], node, a_min=low, a_max=high)


def _leaky_relu(graph: Graph, rules: Rules, node: Node) -> Node | None:
    """Replace a prelu of one constant slope with a leaky relu."""
    data, slopes = node.operands
    if not node.is_call or not slopes.is_constant or slopes.tensor.shape != (1,):
        return None
    if rules.excludes("nn.leaky_relu"):
        return None
    alpha = float(slopes.value.reshape(()))
    if not np.isfinite(alpha) or not alpha:
        return None
    return graph.call("nn.leaky_relu", [data], node, node.type, alpha=alpha)


def _of_several(graph: Graph, rules: Rules, node: Node) -> Node | None:
    """Write the maximum or minimum of stacked tensors as binary ops, which can be fused.

    Relax's importer writes ONNX's Max and Min so. oneDNN reduces rows of few columns slowly.
    """
    stacked, binary = node.operands[0], {"max": "maximum", "min": "minimum"}[node.name]
    parts = stacked.operands[0] if is_op(stacked, "stack") else None
    if (
        not node.is_call
        or parts is None
        or parts.kind != TUPLE
        or rules.excludes(binary, node.name)
    ):
        return None
    rank, attrs = len(stacked.tensor.dims), node.attrs
    axes = [axis % rank for axis in attrs.axis or ()]
    if axes != [stacked.attrs.axis % rank] or attrs.keepdims or attrs.exclude:
        return None
    result, *others = parts.operands
    for other in others:
        result = graph.call(binary, [result, other], node)
    return result if others and _is_same_type(result, node) else None


def _largest(graph: Graph, rules: Rules, node: Node) -> Node | None:
    return _of_several(graph, rules, node) or _of_images(graph, rules, node)


def _of_images(graph: Graph, rules: Rules, node: Node) -> Node | None:
    """Replace a reduction over both spatial axes with a global pool, which supports int8.

    A max pool drops NaN and infinities, so it is for dequantized images, which have none.
    """
    name = {"mean": "nn.global_avg_pool2d", "max": "nn.global_max_pool2d"}[node.name]
    attrs = node.attrs
    if (
        not node.is_call
        or len(tensor_of(node.args[0]).dims) != 4
        or not attrs.keepdims
        or not attrs.axis
    ):
        return None
    if node.name == "max" and not is_op(node.operands[0], DEQUANTIZE):
        return None
    if sorted(axis % 4 for axis in attrs.axis) != [2, 3] or rules.excludes(name, node.name):
        return None
    return graph.call(name, node.operands, node, node.type, layout="NCHW", out_layout="")


def _window_within(graph: Graph, rules: Rules, node: Node) -> Node | None:
    """Clamp a pooling window to the data along axes with a single window.

    With `ceil_mode`, importers write such. TVM goes through the elements outside of the data, too.
    """
    if not node.is_call or rules.excludes(node.name):
        return None
    attrs, (data,) = node.attrs, node.operands
    axes = spatial_axes(attrs.layout)
    window = for_each(attrs.pool_size, len(axes))
    dilation = for_each(attrs.dilation, len(axes))
    padding = both_sides(attrs.padding, len(axes))
    sizes = [
        (
            data.tensor.shape[axis]
            if (node.tensor.shape[axis], dilation[k], padding[k]) == (1, 1, (0, 0))
            else None
        )
        for k, axis in enumerate(axes)
    ]
    shorter = [own if size is None else min(own, size) for own, size in zip(window, sizes)]
    if shorter == list(window):
        return None
    return graph.call(node.name, [data], node, node.type, **{**vars(attrs), "pool_size": shorter})


def _softmax_of_rows(graph: Graph, rules: Rules, node: Node) -> Node | None:
    """Write a softmax of rows, joined of open sizes that are restored, as one of the data.

    onnxruntime writes a softmax so when it brings a model of an opset before 13 to a newer one.
    """
    if not isinstance(node.type, Tensor) or None not in node.type.shape:
        return None
    rows = node.operands[0]
    if not is_op(rows, *_SOFTMAX) or rules.excludes(rows.name):
        return None
    joined, rank = rows.operands[0], len(rows.tensor.dims)
    if joined.name not in _RESHAPES or rows.attrs.axis % rank != rank - 1:
        return None
    data = joined.operands[0]
    if not isinstance(data.type, Tensor) or not is_same(rows.tensor.dims[-1], data.tensor.dims[-1]):
        return None
    if data.tensor.dims != node.tensor.dims:
        return None
    return graph.call(rows.name, [data], node, node.type, axis=-1)


_RESHAPES = [
    f"{prefix}{name}"
    for name in ("reshape", "expand_dims", "squeeze", "flatten", "nn.batch_flatten")
    for prefix in ("", "relax.")
]

_REWRITES = {
    **dict.fromkeys(_RESHAPES, _softmax_of_rows),
    "concatenate": _concatenated,
    "broadcast_to": _same,
    "cast": _copied,
    "copy": _copied,
    "max": _largest,
    "mean": _of_images,
    "min": _of_several,
    "minimum": _clip,
    **dict.fromkeys(POOLS, _window_within),
    "nn.prelu": _leaky_relu,
    "nn.batch_matmul": _matmul,
    "transpose": _transpose,
}
