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
"""Decomposes ops that have no row, such as attention, into ops that have one.

Their nodes keep the origin of the op: where all of them stay on TVM, it is written as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ..ir.dim import Dim, product
from ..ir.graph import Graph
from ..ir.node import Node, defined_in
from ..ir.op_view import Tensor
from ..ops.rules import EXCLUDED, Rules
from .attention_ops import attention
from .copies import COPIES
from .logic import LOGIC
from .maker import Maker, UnsupportedOp, check_floats, check_moved

# A selu's factors of what is below zero, and of all.
_SELU = 1.6732632423543772848, 1.0507009873554804934


# Why an op that is written as others has not been read as one of the table.
COMPOSED = "partition_for_dnnl writes it as other ops"


def decompose(graph: Graph, rules: Rules) -> None:
    """Decompose each op that has a decomposition."""
    for node in graph.nodes:
        # Relax's ops say so where they are read.
        is_composed = node.unsupported == COMPOSED or node.is_call
        if not is_composed or node.name not in DECOMPOSITIONS:
            continue
        if rules.excludes(node.name.removeprefix("relax.")):
            continue
        try:
            _check_tensors(node)
            new = DECOMPOSITIONS[node.name](Maker(graph, node), node)
            if new is None:
                continue
            if rules.excludes(*(each.name for each in defined_in(new))):
                raise UnsupportedOp(EXCLUDED)
        except UnsupportedOp as error:
            node.unsupported = str(error)
            continue
        graph.reread(node, new)


def _check_tensors(node: Node) -> None:
    if not all(isinstance(value, Tensor) for value in (*node.args, node.type)):
        raise UnsupportedOp("the rank or the shape of a tensor is unknown")


def _matmul_of_vectors(make: Maker, node: Node) -> Node:
    """Write a matmul with a vector as one with a row or a column."""
    data, weight = node.operands
    ones = []
    if len(data.tensor.dims) == 1:
        data = make.expand_dims(data, 0)
        ones.append(-2)
    if len(weight.tensor.dims) == 1:
        weight = make.expand_dims(weight, 1)
        ones.append(-1)
    product_ = make(_matmul_name(data, weight), data, weight, **vars(node.attrs))
    return make.squeeze(product_, ones)


def _matmul_name(data: Node, weight: Node) -> str:
    dims = (data.tensor.shape[-1], *weight.tensor.shape)
    return "nn.matmul" if len(dims) == 3 and None not in dims else "nn.batch_matmul"


def _product_of_open_sizes(make: Maker, node: Node) -> Node | None:
    """Write a product by a matrix of an open size as one of batches, whose sizes may all be open.

    TVM fails to compile it as a dense: its kernel for x86 packs the columns.
    """
    data, weight = node.operands
    attrs = {"transpose_a": False, "transpose_b": True, **vars(node.attrs)}
    attrs.pop("units", None)
    inner = data.tensor.shape[-2 if attrs["transpose_a"] else -1]
    if None not in (*weight.tensor.shape, inner):
        return None
    ranks = [len(each.tensor.dims) for each in (data, weight)]
    if ranks not in ([2, 2], [3, 2]):
        return None
    data = make.expand_dims(data, 0) if ranks[0] == 2 else data
    product_ = make("nn.batch_matmul", data, make.expand_dims(weight, 0), **attrs)
    return make.squeeze(product_, [0]) if ranks[0] == 2 else product_


def _along_one_axis(name: str, make: Maker, node: Node) -> Node:
    """Write a norm over several trailing axes as one over the last axis, between reshapes."""
    data, *params = node.operands
    dims, axes = data.tensor.dims, [int(axis) for axis in node.attrs.axes]
    if [axis % len(dims) for axis in axes] != list(range(len(dims)))[-len(axes) :]:
        raise UnsupportedOp(f"axes={axes} are not the last axes in order")
    if None in data.tensor.shape[-len(axes) :]:
        raise UnsupportedOp(f"the sizes of axes={axes} are open")
    size = product(dims[-len(axes) :])
    attrs = {key: value for key, value in vars(node.attrs).items() if key != "axes"}
    if name == "nn.layer_norm":
        attrs["axis"] = -1
    data = make.reshape(data, [*dims[: -len(axes)], size])
    params = [make.reshape(param, [size]) for param in params]
    return make.reshape(make(name, data, *params, **attrs), dims)


def _group_norm(make: Maker, node: Node) -> Node:
    """Move the normalized axes of a group_norm after the channels."""
    data, *params = node.operands
    rank = len(data.tensor.dims)
    attrs = {key: value for key, value in vars(node.attrs).items() if key != "axes"}
    channel, axes = attrs["axis"] % rank, node.attrs.axes
    if len({channel, *axes}) != 1 + len(axes):
        raise UnsupportedOp(f"axes={axes} have duplicates, or include the channel axis")
    order = [a for a in range(rank) if a != channel and a not in axes]
    first = len(order)
    order += [channel, *axes]
    data = make.transpose(data, order)
    norm = make("nn.group_norm", data, *params, **{**attrs, "axis": first})
    return make.transpose(norm, [order.index(axis) for axis in range(rank)])


def _selu(make: Maker, node: Node) -> Node:
    """Write a selu as an elu times a number: relu(x) - a * relu(1 - exp(x)) is one op of oneDNN."""
    (data,), dtype = node.operands, check_floats(node)
    below = make("subtract", make.scalar(1.0, dtype), make("exp", data))
    below = make("multiply", make("nn.relu", below), make.scalar(_SELU[0], dtype))
    elu = make("subtract", make("nn.relu", data), below)
    return make("multiply", elu, make.scalar(_SELU[1], dtype))


def _variance(make: Maker, node: Node) -> Node:
    """Write a variance as the mean of squares, as TVM computes it."""
    (data,) = node.operands
    check_floats(node)
    if node.attrs.axis == []:
        raise UnsupportedOp("axis=[] reduces no axis")
    attrs = {"axis": node.attrs.axis, "exclude": False}
    mean = make("mean", data, **attrs, keepdims=True)
    square = make("dnnl.pow", make("subtract", data, mean), alpha=1.0, beta=2.0)
    return make("mean", square, **attrs, keepdims=node.attrs.keepdims)


def _standard_deviation(make: Maker, node: Node) -> Node:
    """Write a standard deviation as the root of a variance."""
    return make("sqrt", _variance(make, node))


def _pixel_shuffle(make: Maker, node: Node) -> Node:
    """Write a pixel shuffle: a step is a row and a column of the square that a position becomes."""
    (data,), step = node.operands, node.attrs.upscale_factor
    check_moved(node)
    *batch, channels, height, width = data.tensor.dims
    if isinstance(channels, Dim):
        raise UnsupportedOp("the number of channels is open")
    if data.tensor.shape[-2:].count(None) > 1:
        # Relay's codes split a dimension in two.
        data = make.reshape(data, [*batch, channels // step, step, height, width])
    split = [*batch, channels // step**2, step, step, height, width]
    axes = [*range(len(batch)), *(len(batch) + axis for axis in (0, 3, 1, 4, 2))]
    return make.reshape(make.transpose(make.reshape(data, split), axes), node.tensor.dims)


def _layout_transform(make: Maker, node: Node) -> Node:
    """Write a change of layout as a transpose of the blocks."""
    (data,), blocks, parts = node.operands, node.attrs.blocks, node.attrs.parts
    check_moved(node)
    dims = data.tensor.dims
    wanted = [(axis, inner) for axis in range(len(dims)) for inner in range(1 + (axis in blocks))]
    if sorted(parts) != wanted:
        raise UnsupportedOp("the index map is not a permutation of axes and their blocks")
    for axis, block in blocks.items():
        if isinstance(dims[axis], Dim) or dims[axis] % block:
            raise UnsupportedOp(f"blocks of {block} do not divide axis {axis} of {list(dims)}")
    sizes = [
        [dim // blocks[axis], blocks[axis]] if axis in blocks else [dim]
        for axis, dim in enumerate(dims)
    ]
    if blocks:
        data = make.reshape(data, [size for each in sizes for size in each])
    return make.transpose(data, [sorted(parts).index(part) for part in parts])


DECOMPOSITIONS: dict[str, Callable[[Maker, Node], Node | None]] = {
    "relax.nn.attention": attention,
    "relax.nn.attention_bias": attention,
    **LOGIC,
    **COPIES,
    "nn.dense": _product_of_open_sizes,
    "nn.matmul": _product_of_open_sizes,
    "relax.matmul": _matmul_of_vectors,
    "relax.nn.layer_norm": partial(_along_one_axis, "nn.layer_norm"),
    "relax.nn.rms_norm": partial(_along_one_axis, "dnnl.rms_norm"),
    "relax.nn.group_norm": _group_norm,
    "relax.nn.selu": _selu,
    "relax.variance": _variance,
    "relax.std": _standard_deviation,
    "relax.nn.pixel_shuffle": _pixel_shuffle,
    "relax.layout_transform": _layout_transform,
}
