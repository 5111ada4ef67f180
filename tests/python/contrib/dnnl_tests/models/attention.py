# SPDX-License-Identifier: Apache-2.0
"""Blocks of attention as exporters write them, and inputs for them."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

HEADS, WIDTH = 4, 16
SIZE = HEADS * WIDTH


class _Model:
    """Nodes of a model; each method returns the name of a result."""

    def __init__(self):
        self.nodes, self.weights = [], []

    def const(self, values):
        name = f"c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def __call__(self, op, *inputs, name=None, **attrs):
        name = name or f"n{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name=name, **attrs))
        return name

    def heads(self, x, count, seed):
        """Project to heads: (1, S, SIZE) to (1, count, S, WIDTH)."""
        rng = np.random.default_rng(seed)
        weight = rng.standard_normal((SIZE, count * WIDTH)) / SIZE**0.5
        y = self("MatMul", x, self.const(weight.astype("float32")))
        y = self("Reshape", y, self.const(np.array([0, 0, count, WIDTH], "int64")))
        return self("Transpose", y, perm=[0, 2, 1, 3])

    def repeated(self, x, groups):
        """Repeat each head, as Llama's exporter writes it for any length."""
        if groups == HEADS:
            return x
        shape = self("Shape", x)
        sizes = [self("Gather", shape, self.const(np.array([k], "int64"))) for k in range(4)]
        count = self.const(np.array([HEADS // groups], "int64"))
        wide = self("Concat", *sizes[:2], count, *sizes[2:], axis=0)
        x = self("Expand", self("Unsqueeze", x, self.const(np.array([2], "int64"))), wide)
        heads = self.const(np.array([HEADS], "int64"))
        return self("Reshape", x, self("Concat", sizes[0], heads, *sizes[2:], axis=0))


def decoder(groups, length="s", past="p", scale="scores", batch=1):
    """Attention with a cache and a mask: Llama's with fewer groups than heads, else GPT-2's."""
    make = _Model()
    query = make.heads("x", HEADS, 1)
    key = make("Concat", "past_key", make.heads("x", groups, 2), name="present_key", axis=2)
    value = make("Concat", "past_value", make.heads("x", groups, 3), name="present_value", axis=2)
    key = make("Transpose", make.repeated(key, groups), perm=[0, 1, 3, 2])
    if scale == "operands":
        root = make.const(np.float32(WIDTH**-0.25))
        query, key = make("Mul", query, root), make("Mul", key, root)
    scores = make("MatMul", query, key)
    if scale == "scores":
        scores = make("Div", scores, make.const(np.float32(WIDTH**0.5)))
    weights = make("Softmax", make("Add", scores, "mask"), axis=-1)
    result = make("MatMul", weights, make.repeated(value, groups))
    result = make("Transpose", result, perm=[0, 2, 1, 3])
    make("Reshape", result, make.const(np.array([0, 0, SIZE], "int64")), name="y")
    total = past + length if isinstance(past, int) and isinstance(length, int) else None
    total = total or f"{past} + {length}"
    shapes = {
        "x": [batch, length, SIZE],
        "past_key": [batch, groups, past, WIDTH],
        "past_value": [batch, groups, past, WIDTH],
        "mask": [1, 1, length, total],
    }
    return _model(make, shapes, ["y", "present_key", "present_value"])


def encoder(length):
    """Attention of BERT, whose mask is of keys alone."""
    make = _Model()
    query, key, value = (make.heads("x", HEADS, seed) for seed in (1, 2, 3))
    scores = make("MatMul", query, make("Transpose", key, perm=[0, 1, 3, 2]))
    scores = make("Div", scores, make.const(np.float32(WIDTH**0.5)))
    weights = make("Softmax", make("Add", scores, "mask"), axis=-1)
    result = make("Transpose", make("MatMul", weights, value), perm=[0, 2, 1, 3])
    make("Reshape", result, make.const(np.array([0, 0, SIZE], "int64")), name="y")
    return _model(make, {"x": [1, length, SIZE], "mask": [1, 1, 1, length]}, ["y"])


def _model(make, shapes, outputs):
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in shapes.items()
    ]
    outputs = [helper.make_empty_tensor_value_info(name) for name in outputs]
    for output in outputs:
        output.type.tensor_type.elem_type = TensorProto.FLOAT
    graph = helper.make_graph(make.nodes, "model", inputs, outputs, make.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)


def decoder_inputs(groups, length, past, batch=1):
    rng = np.random.default_rng(past)
    shapes = [(batch, length, SIZE), *[(batch, groups, past, WIDTH)] * 2]
    inputs = [rng.standard_normal(shape).astype("float32") for shape in shapes]
    hidden = np.tri(length, past + length, past) == 0
    return [*inputs, np.where(hidden, np.finfo("float32").min, 0).astype("float32")[None, None]]


def encoder_inputs(length):
    rng = np.random.default_rng(length)
    mask = np.where(np.arange(length) < length - 2, 0, -1e4).astype("float32")
    return [rng.standard_normal((1, length, SIZE)).astype("float32"), mask.reshape(1, 1, 1, -1)]
