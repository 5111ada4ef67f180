# SPDX-License-Identifier: Apache-2.0
"""Attention that is read as one op: its spellings, and what it does not stand for."""

import numpy as np
import pytest
from attention_spellings import (
    FUSED,
    HEADS,
    KEPT,
    KEYS,
    QUERIES,
    WIDTH,
    causal,
    matmul,
    merged,
    plain,
    selected,
    softmax,
)
from graph_reader import Reader, ops, rewritten
from tvm.contrib.onednn.ir.dim import Dim
from tvm.contrib.onednn.ir.graph import Graph
from tvm.contrib.onednn.ir.node import NATIVE, Node
from tvm.contrib.onednn.ir.numpy_types import numpy_type
from tvm.contrib.onednn.ir.op_view import NoTensor, Tensor
from tvm.contrib.onednn.ops.draw import drawn
from tvm.contrib.onednn.ops.evaluate import evaluate
from tvm.contrib.onednn.ops.rules import Rules
from tvm.contrib.onednn.ops.table import TABLE
from tvm.contrib.onednn.options import Options
from tvm.contrib.onednn.rewrites.attention import fuse_attention
from tvm.contrib.onednn.rewrites.attention_ops import attention_ops


def _graph(build):
    r = Reader()
    return r.returns(*build(r))


def _fused(graph, **options):
    """Fuse attention, and return the ops of the calls."""
    return rewritten(fuse_attention, graph, Rules(TABLE, Options(**options)))


def _values(graph):
    random = np.random.default_rng(0)
    shapes = [node.type.shape for node in graph.nodes if node.kind == "input"]
    return [random.standard_normal(shape).astype("float32") for shape in shapes]


@pytest.mark.parametrize("case", FUSED)
def test_fused(case):
    build, groups = FUSED[case]
    graph = _graph(build)
    values = _values(graph)
    before = evaluate(graph, values)
    names = _fused(graph)
    assert names.count("dnnl.attention") == 1
    assert not {"nn.batch_matmul", "nn.softmax"} & set(names)
    (node,) = (node for node in graph.nodes if node.name == "dnnl.attention")
    assert node.operands[1].type.shape[-3] == groups == node.operands[2].type.shape[-3]
    for one, other in zip(before, evaluate(graph, values)):
        # Factors are multiplied in another order.
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("case", KEPT)
def test_kept(case):
    graph = _graph(KEPT[case])
    before = ops(graph)
    assert _fused(graph) == before


@pytest.mark.parametrize(
    "options, is_causal",
    [
        ({}, True),
        ({"hidden": -np.inf}, True),
        ({"rows": HEADS}, False),
        ({"hidden": -1e4}, False),
        ({"offset": 0}, False),
        ({"queries": 1}, True),
        ({"queries": 17}, None),
    ],
    ids=["", "infinite", "heads", "small-number", "first-query", "one-query", "fewer-keys"],
)
def test_a_causal_constant(options, is_causal):
    graph = _graph(lambda r: causal(r, **options))
    values = _values(graph)
    before = evaluate(graph, values)
    _fused(graph)
    nodes = [node for node in graph.nodes if node.name == "dnnl.attention"]
    assert [node.attrs.causal for node in nodes] == ([] if is_causal is None else [is_causal])
    for one, other in zip(before, evaluate(graph, values)):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_many_causal_rows_are_fused():
    def build(r):
        query, key, value = (r.input(1, HEADS, 32, WIDTH) for _ in range(3))
        mask = r.constant(np.triu(np.full((32, 32), -1e30), 1))
        scores = r.call("add", matmul(r, query, key, True), mask)
        return [matmul(r, softmax(r, scores), value)]

    assert "dnnl.attention" in _fused(_graph(build))


def test_a_selection_is_kept_where_nan_counts():
    """It hides a score of NaN, and a sum does not."""
    assert "dnnl.attention" not in _fused(_graph(selected), exact_nan=True)


@pytest.mark.parametrize("excluded", ["dnnl.attention", "nn.softmax", "nn.batch_matmul"])
def test_excluded(excluded):
    assert "dnnl.attention" not in _fused(_graph(plain), exclude=frozenset([excluded]))


def test_a_mask_that_enlarges_the_scores_is_kept():
    def build(r):
        query, key, value = (r.input(1, HEADS, n, WIDTH) for n in (QUERIES, KEYS, KEYS))
        scores = r.call("add", matmul(r, query, key, True), r.input(2, 1, 1, KEYS))
        return [matmul(r, softmax(r, scores), value)]

    assert "dnnl.attention" not in _fused(_graph(build))


@pytest.mark.parametrize(
    "queries,keys,is_fused", [(16, 64, True), (17, 64, False), (17, None, True), (None, 64, True)]
)
def test_many_rows_are_fused_where_a_length_is_open(queries, keys, is_fused):
    r = Reader()
    query, key, value = (r.input(1, HEADS, n, WIDTH) for n in (queries, keys, keys))
    if None in (queries, keys):
        sizes = {None: Dim.symbol("s")}
        query, key, value = (
            r.input(1, HEADS, sizes.get(n, n), WIDTH) for n in (queries, keys, keys)
        )
    graph = r.returns(matmul(r, softmax(r, matmul(r, query, key, True)), value))
    assert ("dnnl.attention" in _fused(graph)) == is_fused


def open_merged(r, mask, batch=1, value_keys=None):
    """Matmuls of rank 3 of open lengths: `s` queries, `t` keys."""
    sizes = {name: Dim.symbol(name) for name in "bstmn"}
    batch, keys = sizes.get(batch, batch), sizes.get(value_keys, sizes["t"])
    query, key, value = (
        r.input(batch, HEADS, length, WIDTH) for length in (sizes["s"], sizes["t"], keys)
    )
    query, key, value = (merged(r, each) for each in (query, key, value))
    scores = matmul(r, query, key, True)
    type_ = Tensor((batch, HEADS, *scores.type.dims[1:]), "float32")
    scores = r.call("reshape", scores, type_=type_, newshape=[-4, -1, HEADS, -2])
    mask = r.input(*(sizes.get(size, size) for size in mask))
    weights = softmax(r, r.call("add", scores, mask))
    result = matmul(r, merged(r, weights), value)
    type_ = Tensor((batch, HEADS, *result.type.dims[1:]), "float32")
    return [r.call("reshape", result, type_=type_, newshape=[-4, -1, HEADS, -2])]


@pytest.mark.parametrize(
    "options, is_fused",
    [
        ({"mask": (1, 1, 1, "t")}, True),
        ({"mask": ("b", 1, 1, "t"), "batch": "b"}, True),
        # It may have one column, or as many as there are values: else there is no result.
        ({"mask": (1, 1, 1, "m")}, True),
        ({"mask": (1, 1, 1, "m"), "value_keys": "n"}, False),
        ({"mask": (1, 1, "m", "t")}, False),
        ({"mask": ("m", 1, 1, "t")}, False),
    ],
    ids=["same", "batch", "columns", "columns-of-other-values", "rows", "batches"],
)
def test_masks_of_open_lengths(options, is_fused):
    graph = _graph(lambda r: open_merged(r, **options))
    shapes = [(1, HEADS, 3, WIDTH), (1, HEADS, 5, WIDTH), (1, HEADS, 5, WIDTH), (1, 1, 1, 5)]
    random = np.random.default_rng(0)
    values = [random.standard_normal(shape).astype("float32") for shape in shapes]
    before = evaluate(graph, values)
    assert ("dnnl.attention" in _fused(graph)) == is_fused
    np.testing.assert_allclose(evaluate(graph, values)[0], before[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_as_ops(dtype):
    """What TVM computes of an attention that it is left with."""
    for call in drawn(TABLE["dnnl.attention"]):
        tensors = [value.astype(numpy_type(dtype)) for value in call.values[:3]]
        values = [*tensors, *call.values[3:]]
        r = Reader()
        operands = [r.input(*value.shape, dtype=str(value.dtype)) for value in values]
        node = r.call("dnnl.attention", *operands, **call.attrs)
        want = evaluate(r.returns(node), values)[0]
        inputs, result = attention_ops(node)
        graph = Graph()
        for each in (*inputs, Node(NATIVE, None, [result], NoTensor("return"))):
            graph.append(each)
        graph.sort()
        got = evaluate(graph, values)[0]
        assert (result.type.dims, result.type.dtype) == (node.type.dims, node.type.dtype)
        assert got.dtype == want.dtype
        rtol = 1e-5 if dtype == "float32" else 2**-7
        got, want = (each.astype("float32") for each in (got, want))
        np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol)


REASONS = {
    "width": ([(1, 4, 3, 8), (1, 4, 5, 6), (1, 4, 5, 8)], "query, key and value have shapes"),
    "heads": ([(1, 4, 3, 8), (1, 3, 5, 8), (1, 3, 5, 8)], "4 heads are no multiple of 3"),
    "open-width": ([(1, 4, 3, None), (1, 4, 5, None), (1, 4, 5, 8)], "has an open width"),
    "rank": ([(1, 1, 4, 3, 8)] * 3, "rank 3 or 4 is required"),
    "open-heads": ([(1, None, 3, 8), (1, 4, 5, 8), (1, 4, 5, 8)], "no multiple"),
}


@pytest.mark.parametrize("case", REASONS)
def test_reason(case):
    shapes, reason = REASONS[case]
    r = Reader()
    operands = [r.input(*shape) for shape in shapes]
    node = r.call(
        "dnnl.attention",
        *operands,
        type_=Tensor(shapes[0], "float32"),
        scale=1.0,
        causal=False,
        softmax="nn.softmax",
    )
    assert reason in Rules(TABLE).refusal(node)
