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
"""Linear layers with weights of 4 or 8 bits of torchao, which stay packed as ONNX's MatMulNBits."""

from __future__ import annotations

import functools

import numpy as np
import torch
from torch.fx import Node
from tvm import relax

from ..onnx.block_quantized import block_quantized_dense
from .graphs import argument, aten, call, constants, shape

_DEQUANTIZE = "dequantize_affine.default", "dequantize_per_channel_group.default"
#: The blocks that a channel with a single scale is split to: kernels in int8 have these sizes.
_BLOCKS = 256, 128, 64, 32


def kept_ops() -> list:
    """Return the ops that are not decomposed, as far as they are registered."""
    ops = torch.ops.torchao
    return [ops.dequantize_affine.default] if hasattr(ops, "dequantize_affine") else []


def is_kept(node: Node) -> bool:
    """Whether a node dequantizes the weight of linear layers only, in blocks of rows."""
    if node.op != "call_function" or node.target.__name__ not in _DEQUANTIZE:
        return False
    users, blocks = node.users, _blocks(node)
    is_weight = all(each.target is aten.linear.default and each.args[1] is node for each in users)
    return is_weight and len(blocks) == 2 and blocks[0] == 1 and blocks[1] % 32 == 0


def _blocks(node: Node) -> list[int]:
    """Return the shape of the elements that share a scale."""
    if node.target.__name__ == _DEQUANTIZE[0]:
        return list(argument(node, "block_size"))
    return [1, argument(node, "group_size")]


def _operands(node: Node) -> list:
    """Return the values, scales and zero points of a dequantize."""
    first = 2 if node.target.__name__ == _DEQUANTIZE[0] else 1
    return [node.args[0], *node.args[first : first + 2]]


def rewrite(program) -> None:
    """Write torchao's linear of weights in int8 as the op that PyTorch has for it, in place."""
    known, graph = constants(program), program.graph
    for node in graph.find_nodes(op="call_function", target=aten._assert_tensor_metadata.default):
        graph.erase_node(node)
    for node in graph.find_nodes(op="call_function", target=aten.mul.Tensor):
        weight = _int8_weight(node.args[0], known)
        if weight is not None and shape(node.args[1]) == shape(weight)[:1]:
            with graph.inserting_before(node):
                operands = node.args[0].args[0], weight, node.args[1]
                node.replace_all_uses_with(call(aten._weight_int8pack_mm.default, *operands))
    graph.eliminate_dead_code()


def _int8_weight(node, known: dict) -> Node | None:
    """Return the constant of which a matmul reads the transpose, converted from int8."""
    for target in (aten.mm.default, aten._to_copy.default, aten.permute.default):
        if getattr(node, "target", None) is not target or len(node.users) != 1:
            return None
        node = node.args[1 if target is aten.mm.default else 0]
    return node if node in known and known[node].dtype == torch.int8 else None


def converters(values: dict):
    """Return the converters of a program whose constants have these values."""
    own = {
        "linear.default": _linear,
        "_weight_int8pack_mm.default": _weight_int8pack_mm,
        "_weight_int4pack_mm_for_cpu.default": _weight_int4pack_mm,
    }
    table = {name: functools.partial(convert, values) for name, convert in own.items()}
    return {**table, **dict.fromkeys(_DEQUANTIZE, _dequantize)}


def _dequantize(node, importer):
    """Convert the dequantize of a tensor, of which a block has one scale.

    That of a weight is not read: the converter of `linear` reads the weight itself.
    """
    emit, op, blocks = importer.block_builder.emit, relax.op, _blocks(node)
    values, scales, zeros = (each and importer.env[each] for each in _operands(node))
    sizes = list(values.ty.shape)
    # Each axis is split to blocks and their elements.
    counts = [size if block == 1 else size // block for size, block in zip(sizes, blocks)]
    split = [each for pair in zip(counts, blocks) for each in pair]
    x = emit(op.reshape(_cast(importer, values), split))
    for apply, each in ((op.subtract, zeros), (op.multiply, scales)):
        if each is not None:
            split = [each for count in counts for each in (count, 1)]
            x = emit(apply(x, emit(op.reshape(_cast(importer, each), split))))
    return _cast(importer, emit(op.reshape(x, sizes)), _result_type(node))


def _linear(values, node, importer):
    x, weight = node.args[:2]
    operands = _operands(weight) if is_kept(weight) else [weight, None]
    bias = argument(node, "bias")
    if len(operands) < 3 or any(each not in values for each in operands if each is not None):
        # TVM's converter returns float32, whatever the operands are.
        tensors = (each and importer.env[each] for each in (x, weight, bias))
        return importer.block_builder.emit(relax.op.linear(*tensors))
    limits = [argument(weight, name) for name in ("quant_min", "quant_max")]
    result = _block_dense(importer, x, *map(values.get, operands), limits)
    if bias is not None:
        bias = _cast(importer, importer.env[bias])
        result = importer.block_builder.emit(relax.op.add(result, bias))
    return _cast(importer, result, _result_type(node))


def _weight_int8pack_mm(values, node, importer):
    x, *weight = node.args
    result = _block_dense(importer, x, *_known(node, weight, values), None, (-128, 127))
    return _cast(importer, result, _result_type(node))


def _weight_int4pack_mm(values, node, importer):
    """Convert a matmul by `scale * (weight - 8) + shift`, with both for each block of a row.

    The order of the packed weight depends on the CPU: the op itself multiplies it by ones. Shifts
    are multiplied by the sums of the blocks of the data.
    """
    x, packed, block, parameters = node.args
    packed, parameters = _known(node, (packed, parameters), values)
    scales, shifts = parameters.to(torch.float32).unbind(-1)
    plain = torch.stack([torch.ones_like(scales), torch.zeros_like(scales)], -1)
    ones = torch.eye(shape(x)[1])
    weight = node.target(ones, packed, block, plain).T.to(torch.int8)
    result = _block_dense(importer, x, weight, scales.T, None, (-8, 7))
    emit, op = importer.block_builder.emit, relax.op
    data = _cast(importer, importer.env[x])
    blocks = emit(op.reshape(data, [data.ty.shape[0], -1, block]))
    shifts = relax.const(shifts.contiguous().numpy())
    shifts = emit(op.matmul(emit(op.sum(blocks, axis=[-1])), shifts))
    return _cast(importer, emit(op.add(result, shifts)), _result_type(node))


def _known(node, operands, values) -> list:
    if any(each not in values for each in operands):
        raise ValueError(f"{node.name}: the weight or its scales are not constant")
    return [values[each] for each in operands]


def _block_dense(importer, x, values, scales, zeros, limits):
    """Multiply by a weight of 4 or 8 bits in blocks, in float32.

    Parameters
    ----------
    values, scales, zeros : torch.Tensor
        The integers, (rows, columns), and the scales and zero points, in the order of the blocks.
    limits : Sequence[int | None]
        The smallest and the largest integer, by default those of the type.
    """
    default = torch.iinfo(values.dtype)
    limits = [
        own if given is None else given for given, own in zip(limits, (default.min, default.max))
    ]
    rows, columns = values.shape
    # A range without its smallest integer, such as [-127, 127], is that of all bits.
    low = min(limits[0], -limits[1] - 1) if limits[0] < 0 else limits[0]
    bits = 4 if limits[1] - low < 16 else 8
    scales = scales.to(torch.float32).reshape(rows, -1)
    zeros = torch.zeros(1, 1) if zeros is None else zeros.reshape(rows, -1)
    zeros = (zeros.to(torch.int32) - low).expand(scales.shape)
    block = columns // scales.shape[1]
    size = next((each for each in _BLOCKS if block % each == 0), _BLOCKS[-1])
    scales, zeros = (each.repeat_interleave(-(-block // size), 1) for each in (scales, zeros))
    return block_quantized_dense(
        importer.block_builder,
        _cast(importer, importer.env[x]),
        _packed(torch.nn.functional.pad(values.to(torch.int32) - low, [0, -columns % size]), bits),
        scales.numpy(),
        _packed(zeros, bits) if (zeros != 2 ** (bits - 1)).any() else None,
        *(bits, size, rows, columns),
        accuracy_level=0,
    )


def _packed(values: torch.Tensor, bits: int) -> np.ndarray:
    """Return rows of uint8, of which those of 4 bits are joined to bytes, the first one lowest."""
    values = values.to(torch.uint8).numpy()
    if bits == 8:
        return values
    values = np.pad(values, [(0, 0), (0, values.shape[1] % 2)])
    return values[:, ::2] | values[:, 1::2] << 4


def _cast(importer, x, dtype="float32"):
    if x.ty.dtype.dtype == dtype:
        return x
    return importer.block_builder.emit(relax.op.astype(x, dtype))


def _result_type(node: Node) -> str:
    return str(node.meta["val"].dtype).removeprefix("torch.")
