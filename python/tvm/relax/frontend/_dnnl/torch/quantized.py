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
"""Programs that PT2E quantized, whose ops are `quantized_decomposed`, and activations of torchao.

A tensor in 8 bits is dequantized, computed with and quantized again, which partitioning fuses into
a kernel that computes in int8, as in ONNX models with QDQ.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import torch
from torch.fx import Node
from tvm import relax

from ..onnx.quantized_node import EIGHT_BITS, QuantizedNode
from .graphs import argument, aten

_KINDS = "per_tensor.default", "per_tensor.tensor", "per_tensor.tensor2", "per_channel.default"
_DEQUANTIZE = [f"dequantize_{kind}" for kind in _KINDS]


def is_kept(node: Node) -> bool:
    """Whether a node dequantizes what kernels read in 8 bits, so that it is not folded."""
    return node.target.__name__ in _DEQUANTIZE and _type(argument(node, "dtype")) in EIGHT_BITS


def rewrite(program) -> None:
    """Leave out a relu of what a quantize clips at zero, in place."""
    for node in program.graph.nodes:
        if node.op != "call_function" or node.target.__name__ != "quantize_per_tensor.default":
            continue
        relu, (zero_point, smallest) = node.args[0], node.args[2:4]
        if relu.target is aten.relu.default and len(relu.users) == 1 and zero_point == smallest:
            node.replace_input_with(relu, relu.args[0])


def converters(values: dict):
    """Return the converters of a program whose constants have these values."""
    quantize, dequantize = (functools.partial(each, values) for each in (_quantize, _dequantize))
    return {
        **{f"quantize_{kind}": quantize for kind in _KINDS},
        **dict.fromkeys(_DEQUANTIZE, dequantize),
        "_int_mm.default": _int_mm,
    }


def _quantize(values, node, importer):
    builder, operands, axis = _operands(values, node, importer)
    x, dtype = builder.cast(operands[0], "float32"), _type(argument(node, "dtype"))
    result = builder.quantize(x, *operands[1:], dtype, axis)
    limits = [argument(node, name) for name in ("quant_min", "quant_max")]
    limits = [int(values[each]) if isinstance(each, Node) else each for each in limits]
    if limits == [np.iinfo(dtype).min, np.iinfo(dtype).max]:
        return result
    return importer.block_builder.emit(relax.op.clip(result, *limits))


def _dequantize(values, node, importer):
    builder, operands, axis = _operands(values, node, importer)
    result = builder.dequantize("the input", *operands, axis)
    return builder.cast(result, _type(node.meta["val"].dtype))


def _operands(values, node, importer):
    """Return a builder, the data with its scale and zero point, and the axis of several scales."""
    name = {"tvm_custom": {"name": node.name}}
    builder = QuantizedNode(node.target.__name__, importer.block_builder, name)
    axis = argument(node, "axis") if "per_channel" in node.target.__name__ else None
    parameters = (
        _parameter(each, dtype, values, importer)
        for each, dtype in zip(node.args[1:3], ("float32", "int32"))
    )
    return builder, [importer.env[node.args[0]], *parameters], axis


def _parameter(value, dtype, values, importer):
    if not isinstance(value, Node):
        return None if value is None else relax.const(value, dtype)
    if value in values:
        return relax.const(values[value].numpy())
    if value.target is aten.view.default and value.meta["val"].numel() == 1:
        # The number that a choose_qparams computes: a reshape separates it from its use.
        value = value.args[0]
    return importer.env[value]


def _int_mm(node, importer):
    """Convert a matmul of integers, in int32."""
    emit = importer.block_builder.emit
    x, y = (emit(relax.op.astype(importer.env[each], "int32")) for each in node.args)
    return emit(relax.op.matmul(x, y, out_dtype="int32"))


def _type(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _choose_qparams(x, quant_min, quant_max, eps, dtype):
    """Write the scale and zero point of a range as ONNX's DynamicQuantizeLinear does."""
    zero = torch.zeros((), dtype=torch.float32)
    low = torch.minimum(_all(x, aten.amin.default), zero)
    high = torch.maximum(_all(x, aten.amax.default), zero)
    scale = torch.maximum((high - low) / (quant_max - quant_min), zero + eps)
    zero_point = torch.round(torch.clamp(quant_min - low / scale, quant_min, quant_max))
    return scale.reshape(1), zero_point.to(torch.int32).reshape(1)


def _choose_symmetric_qparams(x, quant_min, quant_max, eps, dtype):
    zero = torch.zeros((), dtype=torch.float32)
    largest = _all(x.abs(), aten.amax.default)
    scale = torch.maximum(largest / ((quant_max - quant_min) / 2), zero + eps)
    zero_point = torch.full((1,), 128 if dtype == torch.uint8 else 0, dtype=torch.int32)
    return scale.reshape(1), zero_point


def _all(x, reduction):
    """Reduce all axes, the last one first: oneDNN reduces to tensors and not to one value."""
    x = x.to(torch.float32)
    return reduction(reduction(x, [-1]) if x.dim() > 1 else x)


def _quantize_affine(x, block_size, scale, zero_point, dtype, quant_min, quant_max):
    """Write a quantize with scales along axes as a division, and a quantize with a scale of 1."""
    along = [1 if size == block else size for size, block in zip(x.shape, block_size)]
    if _type(dtype) not in EIGHT_BITS or math.prod(along) != scale.numel():
        return NotImplemented
    steps = x.to(torch.float32) * (1.0 / scale.reshape(along))
    if zero_point is not None and zero_point.numel():
        steps = torch.round(steps) + zero_point.reshape(along)
    quantize = torch.ops.quantized_decomposed.quantize_per_tensor.default
    return quantize(steps, 1.0, 0, quant_min, quant_max, dtype)


def decompositions() -> dict:
    """Return the decompositions of the ops that are registered, as those of a program are."""
    own, torchao, table = torch.ops.quantized_decomposed, torch.ops.torchao, {}
    if hasattr(own, "choose_qparams"):
        table[own.choose_qparams.tensor] = _choose_qparams
        table[own.choose_qparams_symmetric.tensor] = _choose_symmetric_qparams
    if hasattr(own, "quantize_per_tensor") and hasattr(torchao, "quantize_affine"):
        table[torchao.quantize_affine.default] = _quantize_affine
    return table
