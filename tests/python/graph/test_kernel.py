# SPDX-License-Identifier: Apache-2.0
"""The description of a kernel: what both TVMs write to the JSON graph."""

import json

import numpy as np
import pytest
from graph_reader import Reader
from tvm.contrib.onednn.ir.op_view import Tensor
from tvm.contrib.onednn.ops.quantize import DEQUANTIZE, QUANTIZE
from tvm.contrib.onednn.ops.rules import Rules
from tvm.contrib.onednn.ops.table import TABLE
from tvm.contrib.onednn.partition.json_graph import JsonGraph
from tvm.contrib.onednn.partition.kernel import KernelNode, composite_name, kernel_of
from tvm.contrib.onednn.partition.units import Units

CONV = dict(strides=[1, 1], padding=[0, 0, 0, 0], dilation=[1, 1], groups=1)
CONV.update(data_layout="NCHW", kernel_layout="OIHW", out_layout="", out_dtype="")


def read(reader, *results):
    """Return the kernel of the first result."""
    graph = reader.returns(*results)
    return kernel_of(Units(graph, Rules(TABLE)), results[0])


def conv(reader):
    return reader.call("nn.conv2d", reader.input(1, 3, 8, 8), weight(reader, 4, 3, 1, 1), **CONV)


def weight(reader, *shape):
    return reader.constant(np.ones(shape))


@pytest.mark.parametrize("op", ["nn.bias_add", "add"])
def test_bias_and_post_ops(op):
    r = Reader()
    root = conv(r)
    is_add = op == "add"
    bias = weight(r, *((4, 1, 1) if is_add else (4,)))
    biased = r.call(op, root, bias, **({} if is_add else {"axis": 1}))
    residual = r.input(1, 4, 8, 8)
    relu = r.call("nn.relu", r.call("subtract", biased, residual))
    kernel = read(r, relu)
    assert (kernel.name, kernel.root) == ("dnnl.conv2d_bias_subtract_relu", "nn.conv2d")
    assert kernel.inputs == [*root.operands, bias, residual] and kernel.attrs["groups"] == 1
    first, second, last = kernel.post_ops
    assert first.is_bias and (first.operand, first.operand_first) == (2, False)
    # From the end, as a reshape of the rows leaves it.
    assert first.attrs.get("axis") == (None if is_add else -3)
    assert not second.is_bias and second.operand == 3
    assert last.name == "nn.relu" and last.operand is None
    attrs = kernel.node(kernel.inputs).attrs
    assert attrs["root_op"] == "nn.conv2d" and attrs["padding"] == [0] * 4
    axis = {} if is_add else {"axis": -3}
    assert attrs["post_ops"] == [
        {"op": op, **axis, "operand": 2, "is_bias": True},
        {"op": "subtract", "operand": 3},
        {"op": "nn.relu"},
    ]


def test_an_operand_that_comes_first_and_one_that_is_no_bias():
    r = Reader()
    root, scale = conv(r), weight(r, 4, 1, 1)
    product = r.call("multiply", scale, root)
    # Only the first thing that is added is the bias.
    kernel = read(r, r.call("add", product, weight(r, 4, 1, 1)))
    assert [each.is_bias for each in kernel.post_ops] == [False, False]
    assert kernel.post_ops[0].operand_first and kernel.inputs[2] is scale


def test_quantized():
    r = Reader()
    one, zero = r.constant(1.0), r.constant(0, "int32")
    own = r.constant(0.5)
    real = [
        r.call(DEQUANTIZE, bits, one, zero, axis=-1, out_dtype="float32")
        for bits in (r.input(4, 8, dtype="int8"), r.constant(np.ones((6, 8)), "int8"))
    ]
    dense = r.call("nn.dense", *real)
    bits = r.call(QUANTIZE, r.call("nn.relu", dense), own, zero, axis=-1, out_dtype="int8")
    kernel = read(r, bits)
    assert kernel.name == "dnnl.qnn.dense_relu_quantize"
    data, matrix = (each.operands[0] for each in real)
    assert kernel.inputs == [data, matrix, one, zero, one, zero, own, zero]
    assert [each.parameters for each in kernel.dequantized.values()] == [(2, 3), (4, 5)]
    assert kernel.post_ops[1].parameters == (6, 7) and kernel.post_ops[0].parameters is None
    attrs = kernel.node(kernel.inputs).attrs
    assert attrs["dequantize"] == [
        {
            "input": i,
            "axis": -1,
            "out_dtype": "float32",
            "scale": 2 * i + 2,
            "zero_point": 2 * i + 3,
        }
        for i in (0, 1)
    ]
    assert attrs["post_ops"][1]["zero_point"] == 7


def test_one_op():
    r = Reader()
    joined = r.call("concatenate", r.tuple(r.input(2, 3), r.input(2, 4)), axis=1)
    kernel = read(r, joined)
    assert kernel.name == kernel.root == "concatenate" and not kernel.post_ops
    assert kernel.inputs == joined.operands[0].operands
    node = kernel.node(["a", "b"])
    assert node.attrs["axis"] == 1 and "root_op" not in node.attrs
    assert KernelNode.from_json(node.to_json(), node.inputs) == node
    assert composite_name("nn.conv2d") == "dnnl.conv2d" and composite_name("dnnl.pow") == "dnnl.pow"


@pytest.mark.parametrize("value", [float("inf"), -float("inf"), float("nan")])
def test_numbers_that_json_lacks(value):
    """Infinities and NaN are strings, which the runtime reads as numbers."""
    r = Reader()
    kernel = read(r, r.call("clip", r.input(2, 3), a_min=0.0, a_max=1.0))
    attrs = (
        kernel._replace(attrs={"a_max": value, "rows": ((1, 2.5), (value, None))}).node([]).attrs
    )
    assert attrs == {"a_max": repr(value), "rows": [[1, 2.5], [repr(value), None]]}


def test_the_graph():
    """The layout of the JSON document, for which the runtime has a reader of its own."""
    graph = JsonGraph("main")
    types = [Tensor((2, None), "float32"), Tensor((), "int8")]
    (x,) = graph.add_leaf("input", "main_i0", types[:1])
    (c,) = graph.add_leaf("const", "main_c", types[1:])
    first, second = graph.add_kernel("split", {"axis": 1}, [x, c, x], types)
    assert graph.const_names == ["main_c"] and graph.num_nodes == 3
    assert json.loads(graph.text([second, first])) == {
        "format_version": 2,
        "symbol": "main",
        "nodes": [
            {"op": "input", "name": "main_i0", "attrs": {"shape": [[2, -1]], "dtype": ["float32"]}},
            {"op": "const", "name": "main_c", "attrs": {"shape": [[]], "dtype": ["int8"]}},
            {
                "op": "kernel",
                "name": "split",
                "inputs": [[0, 0, 0], [1, 0, 0], [0, 0, 0]],
                "attrs": {"axis": 1, "shape": [[2, -1], []], "dtype": ["float32", "int8"]},
            },
        ],
        "arg_nodes": [0, 1],
        "heads": [[2, 1, 0], [2, 0, 0]],
        "node_row_ptr": [0, 1, 2, 4],
    }
