# SPDX-License-Identifier: Apache-2.0
"""JSON graphs that are written by hand, and modules of them: the runtime without a codegen."""

import copy
import functools
import json

import numpy as np
import tvm
import tvm_ffi

SYMBOL = "f"


def node(op, name, shape, inputs=None, **attrs):
    """Return a node of float32."""
    fields = {"shape": [shape], "dtype": ["float32"], **attrs}
    if inputs is None:
        return {"op": op, "name": name, "attrs": fields}
    return {"op": op, "name": name, "inputs": [[i, 0, 0] for i in inputs], "attrs": fields}


def graph(nodes, heads):
    """Return the graph of some nodes, each of one output."""
    leaves = [i for i, one in enumerate(nodes) if one["op"] != "kernel"]
    rows = list(range(len(nodes) + 1))
    outputs = [[head, 0, 0] for head in heads]
    top = {"format_version": 2, "symbol": SYMBOL, "nodes": nodes, "arg_nodes": leaves}
    return {**top, "heads": outputs, "node_row_ptr": rows}


def rand(*shape, seed=0):
    """Return an array of normally distributed numbers."""
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


W, B, S = rand(8, 8, 3, 3, seed=1), rand(8, 1, 1, seed=2), rand(8, 1, 6, seed=3)
_CONV = {
    "root_op": "nn.conv2d",
    "post_ops": [{"op": "add", "operand": 2, "is_bias": True}, {"op": "nn.relu"}],
    "strides": [1, 1],
    "padding": [1, 1, 1, 1],
    "dilation": [1, 1],
    "groups": 1,
    "data_layout": "NCHW",
    "kernel_layout": "OIHW",
}


@functools.cache
def _conv():
    shape = [1, 8, 6, 6]
    nodes = [
        node("input", "x", shape),
        node("const", "w", list(W.shape)),
        node("const", "b", list(B.shape)),
        node("kernel", "dnnl.conv2d_bias_relu", shape, [0, 1, 2], **_CONV),
        node("const", "s", list(S.shape)),
        node("kernel", "multiply", shape, [3, 4]),
    ]
    return graph(nodes, [3, 5])


def conv():
    """Return y = relu(conv2d(x, w) + b) and y * s as a graph of its own."""
    return copy.deepcopy(_conv())


def conv_reference(x):
    """Return the two results of the graph."""
    padded = np.pad(x.astype("float64"), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    y = np.maximum(np.einsum("nchwij,ocij->nohw", windows, W.astype("float64")) + B, 0)
    return [y, y * S]


def matmul():
    """Return x[?, 4] times a constant w[4, 5] as a graph."""
    nodes = [
        node("input", "x", [-1, 4]),
        node("const", "w", [4, 5]),
        node("kernel", "nn.matmul", [-1, 5], [0, 1], transpose_a=False, transpose_b=False),
    ]
    return graph(nodes, [2])


def tensor(array):
    """Return a tensor of TVM."""
    return tvm.runtime.tensor(np.ascontiguousarray(array))


def create(text, names=("w", "b", "s")):
    """Return the module of a graph, or of its text."""
    text = text if isinstance(text, str) else json.dumps(text)
    return tvm_ffi.get_global_func("runtime.DNNLJSONRuntimeCreate")(SYMBOL, text, list(names))


def initialised(text, values=(W, B, S), names=("w", "b", "s")):
    """Return the module with its constants bound."""
    module = create(text, names)
    assert module["__init_" + SYMBOL]([tensor(value) for value in values]) == 0
    return module


def run(module, x, *shapes):
    """Run the module on x and return its outputs, which have these shapes."""
    outputs = [tensor(np.full(shape, np.nan, "float32")) for shape in shapes]
    module[SYMBOL](tensor(x), *outputs)
    return [output.numpy() for output in outputs]
