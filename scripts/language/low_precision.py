# SPDX-License-Identifier: Apache-2.0
"""Quantizes the matmuls of a float32 Llama in ONNX: to int8, or weights of few bits in blocks.

Norms, attention and the table of the embedding stay in float32. The output layer is quantized as
well, so that a tied embedding is stored twice.
"""

import logging

import numpy as np
from onnx import helper, numpy_helper

# Weights of a row that share a scale, as in llama.cpp's types.
BLOCK = 32


def int8(model, target):
    """Write a model of int8 matmuls with onnxruntime's `quantize_dynamic`.

    Each output channel of a weight has a scale; data are quantized to uint8 as the model runs, with
    one scale per tensor. `model` is what `dnnl_tests.models.llama.model` returns; it is changed.
    """
    from onnxruntime import quantization

    fold_transposes(model.graph)
    # It warns that the model was not preprocessed, which would rename the nodes.
    logging.disable(logging.WARNING)
    try:
        quantization.quantize_dynamic(
            model,
            target,
            op_types_to_quantize=["MatMul"],
            per_channel=True,
            weight_type=quantization.QuantType.QInt8,
        )
    finally:
        logging.disable(logging.NOTSET)


def weights(model, bits):
    """Replace matmuls by constants with MatMulNBits, whose weights have a scale for each block.

    `model` is what `dnnl_tests.models.llama.model` returns; it is changed. The output layer has 8
    bits in any case, as in llama.cpp's 4-bit files.
    """
    graph = model.graph
    fold_transposes(graph)
    initializers = {each.name: each for each in graph.initializer}
    nodes = list(matmuls(graph))
    for node in nodes:
        weight = numpy_helper.to_array(initializers[node.input[1]]).T
        own_bits = 8 if node is nodes[-1] else bits
        values = quantized_blocks(weight, own_bits)
        names = [f"{node.input[1]}.{part}" for part in ("packed", "scales", "zeros")]
        named = [numpy_helper.from_array(value, name) for value, name in zip(values, names)]
        graph.initializer.extend(named)
        units, columns = weight.shape
        node.CopyFrom(
            helper.make_node(
                "MatMulNBits",
                [node.input[0], *names[: len(values)]],
                list(node.output),
                node.name,
                domain="com.microsoft",
                N=units,
                K=columns,
                bits=own_bits,
                block_size=BLOCK,
                # Permits that data are quantized to int8 blockwise, as llama.cpp does.
                accuracy_level=4,
            )
        )
    read = {name for node in graph.node for name in node.input}
    kept = [each for each in graph.initializer if each.name in read]
    del graph.initializer[:]
    graph.initializer.extend(kept)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))


def quantized_blocks(weight, bits):
    """Quantize a weight with a scale for each block of a row, and a zero point if it has 4 bits.

    Parameters
    ----------
    weight : numpy.ndarray
        float32 (rows, columns), columns a multiple of twice `BLOCK`.
    bits : int
        4 or 8.

    Returns
    -------
    values : list of numpy.ndarray
        The operands of a MatMulNBits: the packed weight, uint8 (rows, blocks, bytes of a block);
        the scales, float32 (rows * blocks,); for 4 bits the zero points, packed as well, uint8
        (rows * blocks / 2,). Without zero points it is 128.
    """
    blocks = weight.reshape(weight.shape[0], -1, BLOCK)
    if bits == 8:
        scales = _scales(np.abs(blocks).max(-1), 127)
        values = np.rint(blocks / scales[..., None]) + 128
        return [values.astype("uint8"), scales.reshape(-1)]
    # Zero is in the range, so that it has a value of its own.
    low, high = np.minimum(blocks.min(-1), 0), np.maximum(blocks.max(-1), 0)
    scales = _scales(high - low, 15)
    zeros = np.rint(-low / scales)
    values = np.clip(np.rint(blocks / scales[..., None]) + zeros[..., None], 0, 15)
    return [_packed(values), scales.reshape(-1), _packed(zeros).reshape(-1)]


def _scales(ranges, steps):
    """Return the scales of ranges that are divided into steps."""
    return np.where(ranges == 0, 1, ranges / steps).astype("float32")


def _packed(values):
    """Return each two values of the last axis as a byte, the first one in its lowest bits."""
    values = values.astype("uint8")
    return values[..., ::2] | values[..., 1::2] << 4


def matmuls(graph):
    """Yield the matmuls by a constant, in order."""
    constants = {each.name for each in graph.initializer}
    for node in graph.node:
        if node.op_type == "MatMul" and node.input[1] in constants:
            yield node


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
