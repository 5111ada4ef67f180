# SPDX-License-Identifier: Apache-2.0
"""Rewrites of graphs: what they leave computes the same, in the ops that are wanted.

Each case is a graph that is evaluated in numpy before and after. No IR and no runtime is involved;
what becomes of models of Relay and Relax is tested beside their readers.
"""

from collections import Counter

import numpy as np
import pytest
from graph_reader import Reader
from tvm.contrib.onednn.ir.dim import Dim
from tvm.contrib.onednn.ir.node import CALL, INPUT, Origin
from tvm.contrib.onednn.ops.evaluate import evaluate
from tvm.contrib.onednn.ops.rules import Rules
from tvm.contrib.onednn.ops.table import TABLE
from tvm.contrib.onednn.options import Options
from tvm.contrib.onednn.rewrites.bias_order import move_bias_first
from tvm.contrib.onednn.rewrites.decompose import COMPOSED, decompose
from tvm.contrib.onednn.rewrites.fold_constants import fold_constants
from tvm.contrib.onednn.rewrites.fold_pad import fold_pad
from tvm.contrib.onednn.rewrites.fold_scale import fold_scale
from tvm.contrib.onednn.rewrites.fuse_formulas import fuse_formulas
from tvm.contrib.onednn.rewrites.move_in_int8 import (
    fold_dequantized,
    merge_equal,
    move_in_int8,
    move_relu_first,
)
from tvm.contrib.onednn.rewrites.propagate_strides import propagate_strides
from tvm.contrib.onednn.rewrites.read_qnn import read_qnn
from tvm.contrib.onednn.rewrites.simplify import canonicalize_dense_weights, simplify

RULES = Rules(TABLE)
CONV = dict(
    strides=[1, 1],
    padding=[0, 0, 0, 0],
    dilation=[1, 1],
    groups=1,
    data_layout="NCHW",
    kernel_layout="OIHW",
    out_layout="",
)


def rand(*shape, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype("float32")


def names_of(graph):
    """Count the ops of a graph."""
    return Counter(node.name for node in graph.nodes if node.kind == CALL)


def conv(r, x, out=4, size=1, seed=1, **attrs):
    weight = r.constant(rand(out, x.type.shape[1], size, size, seed=seed))
    return r.call("nn.conv2d", x, weight, **{**CONV, **attrs})


def quantization(r, name, x, scale=0.1, zero=3, dtype="uint8"):
    parameters = r.constant(np.float32(scale)), r.constant(np.int32(zero), "int32")
    out = dtype if name == "qnn.quantize" else "float32"
    return r.call(name, x, *parameters, axis=-1, out_dtype=out)


def padded(r):
    x = r.input(1, 3, 6, 6)
    width = [[0, 0], [0, 0], [1, 2], [0, 1]]
    pad = r.call("nn.pad", x, r.constant(0.0), pad_width=width, pad_mode="constant")
    return [conv(r, pad, size=3)]


def scaled(r):
    y = r.call("multiply", conv(r, r.input(1, 3, 6, 6)), r.constant(rand(4, 1, 1, seed=2)))
    return [r.call("add", y, r.constant(rand(4, 1, 1, seed=3)))]


def normalized(r):
    """A batch norm after a relu, which nothing can fold."""
    return [r.field(batch_norm(r), 0)]


def batch_norm(r):
    x = r.call("nn.relu", r.input(2, 3, 4, 4))
    gamma, beta, mean = (r.constant(rand(3, seed=k)) for k in (1, 2, 3))
    variance = r.constant(np.abs(rand(3, seed=4)) + 0.5)
    attrs = dict(axis=1, epsilon=1e-5, center=True, scale=True)
    return r.call("nn.batch_norm", x, gamma, beta, mean, variance, **attrs)


def results_of_a_batch_norm(r):
    norm = batch_norm(r)
    return [r.field(norm, index) for index in range(3)]


def gates(r):
    """A part of what is computed of constants, such as a gate's of an LSTM."""
    parts = r.call("split", r.constant(rand(2, 6)), indices_or_sections=3, axis=1)
    return [r.call("add", r.input(2, 2), r.field(parts, index)) for index in range(2)]


def two_transposes(r):
    x = r.call("transpose", r.input(2, 3, 4), axes=[2, 0, 1])
    return [r.call("nn.relu", r.call("transpose", x, axes=[1, 2, 0]))]


def bounded(r):
    x = r.call("maximum", r.input(2, 3), r.constant(-0.5))
    return [r.call("minimum", x, r.constant(0.25))]


def matmul(r):
    weight = r.constant(rand(8, 5, seed=1))
    attrs = dict(transpose_a=False, transpose_b=False)
    return [r.call("nn.matmul", r.input(3, 8), weight, **attrs)]


def constants(r):
    one, other = r.constant(rand(3, seed=1)), r.constant(rand(3, seed=2))
    return [r.call("add", r.input(2, 3), r.call("exp", r.call("multiply", one, other)))]


def swish(r):
    x = r.input(2, 8)
    return [r.call("multiply", x, r.call("sigmoid", r.call("multiply", x, r.constant(1.5))))]


def layer_norm(r):
    x = r.input(4, 8)
    attrs = dict(axis=[-1], keepdims=True, exclude=False)
    centred = r.call("subtract", x, r.call("mean", x, **attrs))
    square = r.call("multiply", centred, centred)
    spread = r.call("add", r.call("mean", square, **attrs), r.constant(1e-5))
    normal = r.call("divide", centred, r.call("sqrt", spread))
    scaled_ = r.call("multiply", normal, r.constant(rand(8, seed=1)))
    return [r.call("add", scaled_, r.constant(rand(8, seed=2)))]


def strided(r):
    x = r.call("nn.relu", conv(r, r.input(1, 3, 8, 8), seed=1))
    return [conv(r, x, seed=2, strides=[2, 2])]


def residual_then_bias(r):
    x, other = r.input(1, 3, 4, 4), r.input(1, 4, 4, 4)
    y = r.call("add", conv(r, x), other)
    return [r.call("nn.bias_add", y, r.constant(rand(4, seed=2)), axis=1)]


def moved(r):
    """A dequantize before a transpose and a reshape, and a quantize of the same scale."""
    real = quantization(r, "qnn.dequantize", r.input(2, 6, dtype="uint8"))
    y = r.call("transpose", real, axes=[1, 0])
    y = r.call("reshape", y, newshape=[3, 4], allowzero=False)
    return [quantization(r, "qnn.quantize", y)]


def joined(r):
    reals = [quantization(r, "qnn.dequantize", r.input(2, 3, dtype="uint8")) for _ in range(2)]
    return [r.call("concatenate", r.tuple(*reals), axis=0)]


def joined_alone(r):
    """A concatenation of one tensor, which another one reads."""
    x, y = r.input(2, 3), r.input(2, 3)
    one = r.call("concatenate", r.tuple(x), axis=0)
    return [r.call("concatenate", r.tuple(one, y), axis=0)]


def rounded_twice(r):
    x = r.input(2, 6)
    one, other = (quantization(r, "qnn.quantize", x) for _ in range(2))
    return [quantization(r, "qnn.dequantize", each) for each in (one, other)]


def relu_of_rounded(r):
    bits = quantization(r, "qnn.quantize", r.input(1, 3, 6, 6))
    real = r.call("nn.relu", quantization(r, "qnn.dequantize", bits))
    pool = dict(pool_size=[2, 2], strides=[2, 2], padding=[0] * 4, dilation=[1, 1])
    return [r.call("nn.max_pool2d", real, **pool, layout="NCHW", out_layout="", ceil_mode=False)]


def bias_in_8_bits(r):
    bias = r.constant(np.array([1, -2, 3]), "int8")
    return [r.call("add", r.input(2, 3), quantization(r, "qnn.dequantize", bias, zero=0))]


def qnn_sum(r):
    x, y = (r.input(2, 3, dtype="uint8") for _ in range(2))
    parameters = [
        r.constant(value, dtype)
        for value, dtype in ((np.float32(0.1), "float32"), (np.int32(3), "int32"))
    ]
    operands = [x, *parameters, y, *parameters, *parameters]
    order = [0, 3, 1, 2, 4, 5, 6, 7]
    args = [operands[k] for k in order]
    return [r.call("qnn.add", *args, type_=x.type, lhs_axis=-1, rhs_axis=-1)]


def selu(r):
    x = r.input(2, 3)
    node = r.call("relax.nn.selu", x, type_=x.type)
    node.unsupported = COMPOSED
    return [node]


# What is rewritten, by what, into which ops.
CASES = {
    "pad": (padded, [fold_pad], {"nn.conv2d": 1}),
    "scale": (scaled, [fold_scale], {"nn.conv2d": 1, "add": 1}),
    "batch-norm": (normalized, [fold_scale], {"nn.relu": 1, "multiply": 1, "add": 1}),
    "statistics": (
        results_of_a_batch_norm,
        [simplify, fold_scale],
        {"nn.relu": 1, "multiply": 1, "add": 1},
    ),
    "transposes": (two_transposes, [simplify], {"nn.relu": 1}),
    "bounds": (bounded, [simplify], {"clip": 1}),
    "concat-of-one": (joined_alone, [simplify], {"concatenate": 1}),
    "matmul": (matmul, [canonicalize_dense_weights], {"nn.dense": 1}),
    "constants": (constants, [fold_constants], {"add": 1}),
    "gates": (gates, [fold_constants], {"add": 2}),
    "swish": (swish, [fuse_formulas], {"dnnl.swish": 1}),
    "layer-norm": (layer_norm, [fuse_formulas], {"nn.layer_norm": 1}),
    "strides": (strided, [propagate_strides], {"nn.conv2d": 2, "nn.relu": 1}),
    "bias": (residual_then_bias, [move_bias_first], {"nn.conv2d": 1, "nn.bias_add": 1, "add": 1}),
    "moved": (moved, [move_in_int8], {"transpose": 1, "reshape": 1}),
    "joined": (joined, [move_in_int8], {"concatenate": 1, "qnn.dequantize": 1}),
    "equal": (rounded_twice, [merge_equal], {"qnn.quantize": 1, "qnn.dequantize": 1}),
    "relu": (
        relu_of_rounded,
        [move_relu_first],
        {"nn.relu": 1, "qnn.quantize": 1, "qnn.dequantize": 1, "nn.max_pool2d": 1},
    ),
    "dequantized": (bias_in_8_bits, [fold_dequantized], {"add": 1}),
}


@pytest.mark.parametrize("name", CASES)
def test_the_same_is_computed(name):
    build, rewrites, wanted = CASES[name]
    r = Reader()
    graph = r.returns(*build(r))
    inputs = {}
    for seed, node in enumerate(node for node in graph.nodes if node.kind == INPUT):
        values = rand(*node.type.shape, seed=seed + 10)
        is_real = node.type.dtype == "float32"
        inputs[node] = values if is_real else (values * 100 + 120).astype(node.type.dtype)
    given, before = evaluate(graph, inputs), names_of(graph)
    restore = graph.checkpoint()
    for rewrite in rewrites:
        rewrite(graph, RULES)
        graph.sort()
        graph.verify()
    assert names_of(graph) == wanted
    for one, other in zip(evaluate(graph, inputs), given):
        # Weights are rounded once more to float32.
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    restore()
    graph.verify()
    assert names_of(graph) == before


def test_strides_move_to_the_convolution_before():
    r = Reader()
    graph = r.returns(*strided(r))
    propagate_strides(graph, RULES)
    graph.sort()
    strides = [node.attrs.strides for node in graph.nodes if node.name == "nn.conv2d"]
    assert strides == [(2, 2), (1, 1)]


def test_open_sizes_that_differ_are_kept():
    """A residual of another open size may be broadcast, so its positions are not skipped."""
    r = Reader()
    x = conv(r, r.input(1, 3, Dim.symbol("h"), 8))
    y = r.call("add", x, r.input(1, 4, Dim.symbol("k"), 8))
    graph = r.returns(conv(r, y, strides=[2, 2]))
    propagate_strides(graph, RULES)
    graph.sort()
    strides = [node.attrs.strides for node in graph.nodes if node.name == "nn.conv2d"]
    assert strides[-1] == (2, 2)


@pytest.mark.parametrize("build, rewrite", [(qnn_sum, read_qnn), (selu, decompose)])
def test_an_op_that_is_read_as_several_is_the_origin_of_all(build, rewrite):
    r = Reader()
    (node,) = build(r)
    node.origin = Origin("expression", node.operands)
    node.origin.nodes.append(node)
    graph = r.returns(node)
    rewrite(graph, RULES)
    graph.sort()
    graph.verify()
    nodes = [each for each in graph.nodes if each.kind == CALL]
    assert len(nodes) > 1 and {each.origin for each in nodes} == {node.origin}
    assert node.origin.nodes == nodes and node.origin.is_intact


@pytest.mark.parametrize(
    "build, rewrite, excluded",
    [
        (padded, fold_pad, "nn.pad"),
        (scaled, fold_scale, "add"),
        (swish, fuse_formulas, "sigmoid"),
    ],
)
def test_what_is_excluded_stays(build, rewrite, excluded):
    r = Reader()
    graph = r.returns(*build(r))
    before = names_of(graph)
    rewrite(graph, Rules(TABLE, Options(exclude=frozenset([excluded]))))
    graph.sort()
    assert names_of(graph)[excluded] == before[excluded]
