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
"""Shape functions: how TVM's VM finds the shape of a result before it calls a partition.

TVM makes one function of those of all ops in the partition. Some ops have none, and neither have
some that stay on TVM, such as atan: one of them, and the module cannot be compiled. TVM's for
windows leave out ceil_mode, padding that differs at the two ends, and some layouts; the ones here
take their place.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import tvm
from tvm import te, tir, topi
from tvm.contrib.onednn.ops.conv import CONVS, CONVS_TRANSPOSED
from tvm.contrib.onednn.ops.pool import ADAPTIVE_POOLS, GLOBAL_POOLS, POOLS
from tvm.contrib.onednn.ops.table import UNARY
from tvm.contrib.onednn.ops.tensors import COMPILER, ints
from tvm.relay.op.op import OpPattern, register_shape_func

_SPATIAL = "DHW"


def shape_tensors(
    shapes: list[te.Tensor], function: Callable, rank: int | None = None
) -> list[te.Tensor]:
    """Return, as one tensor, the shape that a function computes from the dimensions of operands.

    The result has the rank of the first operand, unless another is given.

    It is a stage of its own, which TVM does not inline. Each dimension reads several of the shape
    before it, and inlined their number would be a power of the number of ops in a chain.
    """

    def body(operands, results):
        builder = tir.ir_builder.create()
        result = builder.buffer_ptr(results[0])
        dims = [[each.vload([i]) for i in range(int(each.shape[0]))] for each in operands]
        for i, dim in enumerate(function(*dims)):
            result[i] = tir.const(dim, "int64") if isinstance(dim, int) else dim
        return builder.get()

    rank = int(shapes[0].shape[0]) if rank is None else rank
    return [te.extern((rank,), shapes, body, dtype="int64", name="shape")]


def _axis_values(values, count: int) -> tuple[int, ...]:
    """Return an attribute's integers, one for each spatial axis."""
    values = ints(values)
    return values * count if len(values) == 1 else values


def _padding(attrs, count: int) -> list[int]:
    """Return what is padded at both ends of each spatial axis together."""
    padding = ints(attrs.padding)
    padding = padding * (2 * count // len(padding))
    return [padding[i] + padding[i + count] for i in range(count)]


def _same(count: int = 1) -> Callable:
    """Return a shape function whose results are shaped as the first and the last operands are."""

    def shapes(attrs, inputs, out_ndims):
        shaped_alike = [inputs[0], *inputs[len(inputs) - count + 1 :]]
        return [topi.identity(shape) for shape in shaped_alike]

    return shapes


def _pool(attrs, dims: list) -> list:
    """Return the shape of a pooling's result."""
    layout = str(attrs.layout)
    letters = [letter for letter in _SPATIAL if letter in layout]
    count = len(letters)
    window = _axis_values(attrs.pool_size, count)
    strides, dilation = (_axis_values(getattr(attrs, k), count) for k in ("strides", "dilation"))
    for i, (letter, padded) in enumerate(zip(letters, _padding(attrs, count))):
        axis, reach = layout.index(letter), (window[i] - 1) * dilation[i] + 1
        late = strides[i] - 1 if attrs.ceil_mode else 0
        dims[axis] = te.floordiv(dims[axis] + (padded - reach + late), strides[i]) + 1
    return dims


def _adaptive_pool(attrs, dims: list) -> list:
    """Return the shape of the result of a pooling to a size that is given."""
    layout = str(attrs.layout)
    axes = [layout.index(letter) for letter in _SPATIAL if letter in layout]
    size = ints(attrs.output_size or ())
    for axis, out in zip(axes, size * len(axes) if len(size) == 1 else size):
        dims[axis] = out
    return dims


def _resize3d(attrs, dims: list) -> list:
    """Return the shape of an image that is brought to a size."""
    layout = str(attrs.layout)
    for letter, size in zip(_SPATIAL, ints(attrs.size)):
        dims[layout.index(letter)] = size
    return dims


def _depth_to_space(attrs, dims: list) -> list:
    """Return the shape of an image whose channels become blocks of it."""
    layout, block = str(attrs.layout), int(attrs.block_size)
    for letter in "HW":
        dims[layout.index(letter)] = dims[layout.index(letter)] * block
    dims[layout.index("C")] = te.floordiv(dims[layout.index("C")], block * block)
    return dims


def _space_to_depth(attrs, dims: list) -> list:
    """Return the shape of an image whose blocks become channels."""
    layout, block = str(attrs.layout), int(attrs.block_size)
    for letter in "HW":
        dims[layout.index(letter)] = te.floordiv(dims[layout.index(letter)], block)
    dims[layout.index("C")] = dims[layout.index("C")] * (block * block)
    return dims


def _upsampling(attrs, dims: list) -> list:
    """Return the shape of an image that is enlarged by factors."""
    layout = str(attrs.layout)
    for letter in filter(layout.__contains__, _SPATIAL):
        axis, scale = layout.index(letter), float(getattr(attrs, f"scale_{letter.lower()}"))
        dims[axis] = tir.nearbyint(dims[axis].astype("float64") * scale).astype("int64")
    return dims


def _einsum(attrs, inputs, out_ndims) -> list[te.Tensor]:
    """Return the shape of an Einstein summation, which broadcasts sizes of one."""
    terms, arrow, result = str(attrs.equation).replace(" ", "").partition("->")
    if not arrow:
        letters = sorted(set(terms) - set(",."))
        result = "..." * ("..." in terms) + "".join(x for x in letters if terms.count(x) == 1)
    rank = int(out_ndims[0])

    def labels(term, rank):
        first, _, last = term.partition("...")
        return [*first, *range(len(first) + len(last) - rank, 0), *last]

    def shape(*operands):
        sizes: dict = {}
        for term, dims in zip(terms.split(","), operands):
            for label, size in zip(labels(term, len(dims)), dims):
                sizes[label] = te.max(sizes[label], size) if label in sizes else size
        return [sizes[label] for label in labels(result, rank)]

    return shape_tensors(list(inputs), shape, rank)


def _channels(attrs, data, weight, is_transposed: bool):
    """Return the number of channels of a convolution's result."""
    if attrs.channels is not None:
        return int(attrs.channels)
    groups = int(attrs.groups)
    outputs, inputs = (weight[str(attrs.kernel_layout).index(letter)] for letter in "OI")
    if is_transposed:
        return outputs * groups
    if groups == 1:
        return outputs
    # A depthwise weight may have its outputs for each input channel in the place of the inputs.
    is_depthwise = data[str(attrs.data_layout).index("C")] == groups
    return tir.Select(is_depthwise, outputs * inputs, outputs)


def _conv(is_transposed: bool) -> Callable:
    """Return the function of the dimensions of convolutions' results."""

    def shape(attrs, data: list, weight: list) -> list:
        layout, kernel = str(attrs.data_layout), str(attrs.kernel_layout)
        dims = list(data)
        dims[layout.index("C")] = _channels(attrs, data, weight, is_transposed)
        letters = [letter for letter in _SPATIAL if letter in layout]
        count = len(letters)
        strides, dilation = (
            _axis_values(getattr(attrs, key), count) for key in ("strides", "dilation")
        )
        extra = _axis_values(attrs.output_padding, count) if is_transposed else ()
        for i, (letter, padded) in enumerate(zip(letters, _padding(attrs, count))):
            axis = layout.index(letter)
            reach = (weight[kernel.index(letter)] - 1) * dilation[i] + 1
            if is_transposed:
                dims[axis] = (data[axis] - 1) * strides[i] + reach - padded + extra[i]
            else:
                dims[axis] = te.floordiv(data[axis] + padded - reach, strides[i]) + 1
        return dims

    return shape


def _of(function: Callable, count: int = 1) -> Callable:
    """Return the shape function of a function of attributes and the first operands' dimensions."""

    def shapes(attrs, inputs, out_ndims):
        return shape_tensors(list(inputs[:count]), partial(function, attrs))

    return shapes


def _is_plain(attrs) -> bool:
    """Whether the layouts of a window's op are those that the functions above read."""
    names = ("data_layout", "kernel_layout", "layout", "out_layout")
    keys = {str(key) for key in attrs.keys()}
    layouts = [str(getattr(attrs, name)) for name in names if name in keys]
    data = layouts[0]
    return all(text.isupper() or not text for text in layouts) and layouts[-1] in ("", data)


def _or_else(function: Callable, others: Callable | None) -> Callable:
    """Return a shape function that leaves other layouts than oneDNN's to TVM's own."""
    if others is None:
        return function

    def shapes(attrs, inputs, out_ndims):
        return (function if _is_plain(attrs) else others)(attrs, inputs, out_ndims)

    return shapes


def register() -> None:
    """Register the shape functions that TVM lacks, and those of windows. Can be called again."""
    _register_missing("nn.batch_norm", _same(3))
    own = (name for name in UNARY if not name.startswith(f"{COMPILER}."))
    same = (*own, "cast", "qnn.quantize", "qnn.dequantize")
    for name in (*same, *filter(_is_unary, map(str, tvm.ir.Op.list_op_names()))):
        _register_missing(name, _same())
    for name in ("reverse", "reverse_sequence", "trilu"):
        _register_missing(name, _same())
    _register_missing("einsum", _einsum)
    _register_missing("image.resize3d", _of(_resize3d))
    _register_missing("nn.depth_to_space", _of(_depth_to_space))
    _register_missing("nn.space_to_depth", _of(_space_to_depth))
    for name in ("nn.upsampling", "nn.upsampling3d"):
        _register_missing(name, _of(_upsampling))
    # TVM has one for those to a single element, which have no attribute with the size.
    for name in (*GLOBAL_POOLS, *ADAPTIVE_POOLS):
        _register_missing(name, _of(_adaptive_pool))
    windows = (
        (POOLS, _of(_pool)),
        (CONVS, _of(_conv(is_transposed=False), 2)),
        (CONVS_TRANSPOSED, _of(_conv(is_transposed=True), 2)),
    )
    for names, function in windows:
        for name in names:
            _register(name, function)


def _is_unary(name: str) -> bool:
    """Whether an op computes each element of its result from that of its only operand."""
    op = tvm.ir.Op.get(name)
    return op.num_inputs == 1 and op.get_attr("TOpPattern") == OpPattern.ELEMWISE


def _register_missing(name: str, function: Callable) -> None:
    if tvm.ir.Op.get(name).get_attr("FShapeFunc") is None:
        register_shape_func(name, False, function)


def _register(name: str, function: Callable) -> None:
    """Register a function in the place of TVM's own, which is left the blocked layouts."""
    op = tvm.ir.Op.get(name)
    others = op.get_attr("FShapeFunc")
    for key in ("FShapeFunc", "TShapeDataDependent"):
        op.reset_attr(key)
    register_shape_func(name, False, _or_else(function, others))
