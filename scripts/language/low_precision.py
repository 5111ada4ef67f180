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
"""Quantizes the matmuls of a float32 ONNX model: int8 weights, or 4-bit weights in blocks.

All matmuls by a constant are quantized, that of the output layer included. Norms, attention and the
table of the embedding stay in float32.
"""

import logging

import numpy as np
from onnx import helper, numpy_helper

# Weights of a row that share a scale and a zero point, as in llama.cpp's 4-bit types.
BLOCK = 32
_LEVELS = 15


def int8(source, target):
    """Write a model whose matmuls have int8 weights, with onnxruntime's `quantize_dynamic`.

    Each output channel of a weight has a scale; data are quantized to uint8 as the model runs.

    Parameters
    ----------
    source : onnx.ModelProto
        The model in float32; it is changed.
    target : str or pathlib.Path
        The file to write.
    """
    from onnxruntime import quantization

    fold_transposes(source.graph)
    # It warns that the model was not preprocessed, which would rename the nodes.
    logging.disable(logging.WARNING)
    try:
        quantization.quantize_dynamic(
            source,
            target,
            op_types_to_quantize=["MatMul"],
            per_channel=True,
            weight_type=quantization.QuantType.QInt8,
        )
    finally:
        logging.disable(logging.NOTSET)


def int4(model):
    """Replace matmuls by constants with MatMulNBits of 4-bit weights.

    Parameters
    ----------
    model : onnx.ModelProto
        The model in float32; it is changed.
    """
    graph = model.graph
    fold_transposes(graph)
    initializers = {each.name: each for each in graph.initializer}
    for node in graph.node:
        if node.op_type != "MatMul" or node.input[1] not in initializers:
            continue
        name = node.input[1]
        weight = numpy_helper.to_array(initializers[name]).T
        parts = dict(zip(("packed", "scales", "zero_points"), quantize_blocks(weight)))
        graph.initializer.extend(
            numpy_helper.from_array(value, f"{name}.{part}") for part, value in parts.items()
        )
        names = [node.input[0], *(f"{name}.{part}" for part in parts)]
        units, columns = weight.shape
        attrs = {"N": units, "K": columns, "bits": 4, "block_size": BLOCK}
        node.CopyFrom(
            helper.make_node(
                "MatMulNBits",
                names,
                list(node.output),
                node.name,
                domain="com.microsoft",
                # Permits that data are quantized to int8, which llama.cpp does as well.
                accuracy_level=4,
                **attrs,
            )
        )
    remove_unused(graph)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))


def quantize_blocks(weight):
    """Quantize a weight to 4 bits, with a scale and a zero point for each block of a row.

    Parameters
    ----------
    weight : numpy.ndarray
        (rows, columns), columns a multiple of twice `BLOCK`.

    Returns
    -------
    packed : numpy.ndarray
        uint8 (rows, blocks, BLOCK / 2), the first value of a byte in its lowest bits.
    scales : numpy.ndarray
        float32 (rows * blocks,).
    zero_points : numpy.ndarray
        uint8 (rows * blocks / 2,), packed as the values.
    """
    blocks = weight.reshape(weight.shape[0], -1, BLOCK)
    # Zero is in the range, so that it has a value of its own.
    low, high = np.minimum(blocks.min(-1), 0), np.maximum(blocks.max(-1), 0)
    scales = (high - low) / _LEVELS
    scales = np.where(scales == 0, 1, scales).astype("float32")
    zeros = np.rint(-low / scales)
    values = np.clip(np.rint(blocks / scales[..., None]) + zeros[..., None], 0, _LEVELS)
    return _pack(values), scales.reshape(-1), _pack(zeros).reshape(-1)


def _pack(values):
    """Return pairs of values of the last axis as bytes."""
    values = values.astype("uint8")
    return values[..., ::2] | values[..., 1::2] << 4


def fold_transposes(graph):
    """Replace transposes of initializers, such as that of a tied embedding, by initializers."""
    initializers = {each.name: each for each in graph.initializer}
    for node in list(graph.node):
        if node.op_type == "Transpose" and node.input[0] in initializers:
            value = numpy_helper.to_array(initializers[node.input[0]])
            (axes,) = (each.ints for each in node.attribute if each.name == "perm")
            value = np.ascontiguousarray(value.transpose(axes))
            graph.initializer.append(numpy_helper.from_array(value, node.output[0]))
            graph.node.remove(node)


def remove_unused(graph):
    """Remove the initializers that no node reads."""
    read = {name for node in graph.node for name in node.input}
    for each in [each for each in graph.initializer if each.name not in read]:
        graph.initializer.remove(each)
