# SPDX-License-Identifier: Apache-2.0
"""Small models of the documentation's recipes: a sentence encoder and a streaming detector."""

import numpy as np
import onnx
from onnx import TensorProto, helper

from dnnl_tests.models.onnx_networks import Network

OPSET = 17


def _model(net, inputs, outputs):
    """Return the model of a network with several inputs and outputs."""
    values = [
        [helper.make_tensor_value_info(name, dtype, shape) for name, (dtype, shape) in part.items()]
        for part in (inputs, outputs)
    ]
    graph = helper.make_graph(net.nodes, net.name, *values, net.constants)
    opsets = [helper.make_opsetid("", OPSET)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    onnx.checker.check_model(proto)
    return proto


def encoder(words=100, size=64, heads=4):
    """Return a transformer block over token ids and a mask, of open batch and length."""
    net = Network("encoder", ())
    shape = ("batch", "length")
    x = net.op("Gather", net.weight(words, size, fan_in=1), "input_ids")
    mask = net.op("Cast", "attention_mask", to=TensorProto.FLOAT)
    hidden = net.op("Sub", net.constant(1.0), mask)
    hidden = net.op("Mul", hidden, net.constant(np.finfo("float32").min))
    hidden = net.op("Unsqueeze", hidden, net.constant([1, 2], "int64"))

    def split(perm):
        value = net.linear(x, size, size)
        value = net.op("Reshape", value, net.constant([0, 0, heads, size // heads], "int64"))
        return net.op("Transpose", value, perm=perm)

    query, key, value = (split(perm) for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]))
    scores = net.op("Mul", net.op("MatMul", query, key), net.constant((size // heads) ** -0.5))
    weights = net.op("Softmax", net.op("Add", scores, hidden), axis=-1)
    context = net.op("Transpose", net.op("MatMul", weights, value), perm=[0, 2, 1, 3])
    context = net.op("Reshape", context, net.constant([0, 0, size], "int64"))
    x = net.op("Add", x, net.linear(context, size, size))
    x = net.op("Add", x, net.feed_forward(net.layer_norm(x, size, 1e-6), size))
    inputs = {name: (TensorProto.INT64, shape) for name in ("input_ids", "attention_mask")}
    return _model(net, inputs, {x: (TensorProto.FLOAT, (*shape, size))})


def detector(samples=512, size=64):
    """Return an LSTM that reads a chunk of audio, and whose state is an input and an output."""
    net = Network("detector", ())
    features = net.op("Relu", net.linear("chunk", samples, size))
    steps = net.op("Unsqueeze", features, net.constant([0], "int64"))
    states = net.op("Split", "state", axis=0, outputs=2)
    weights = [net.weight(1, 4 * size, size, fan_in=size) for _ in range(2)]
    bias = net.vector((1, 8 * size))
    lstm = net.op("LSTM", steps, *weights, bias, "", *states, outputs=3, hidden_size=size)
    state = net.op("Concat", *lstm[1:], axis=0)
    last = net.op("Squeeze", lstm[1], net.constant([0], "int64"))
    probability = net.op("Sigmoid", net.linear(last, size, 1))
    shape = (2, 1, size)
    return _model(
        net,
        {"chunk": (TensorProto.FLOAT, (1, samples)), "state": (TensorProto.FLOAT, shape)},
        {probability: (TensorProto.FLOAT, (1, 1)), state: (TensorProto.FLOAT, shape)},
    )
