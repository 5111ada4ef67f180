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
"""Attention that is read as one op: its spellings, and what it does not stand for."""

import numpy as np
import pytest
from graph_reader import Reader, ops, rewritten
from tvm.contrib.onednn.graph.dim import Dim
from tvm.contrib.onednn.graph.evaluate import evaluate
from tvm.contrib.onednn.options import Options
from tvm.contrib.onednn.policy.op_spec import Rules
from tvm.contrib.onednn.policy.op_view import Tensor
from tvm.contrib.onednn.policy.table import TABLE
from tvm.contrib.onednn.rewrites.attention import fuse_attention

BATCH, HEADS, GROUPS, QUERIES, KEYS, WIDTH = 2, 4, 2, 3, 5, 8
SCALE = 0.25
LOWEST = float(np.finfo("float32").min)
MASK = (BATCH, 1, QUERIES, KEYS)


def _matmul(r, left, right, transpose_b=False):
    return r.call("nn.batch_matmul", left, right, transpose_a=False, transpose_b=transpose_b)


def _swapped(r, x, axes=(0, 1, 3, 2)):
    return r.call("transpose", x, axes=list(axes))


def _softmax(r, scores, axis=-1, name="nn.softmax"):
    return r.call(name, scores, axis=axis)


def _inputs(r, groups=HEADS):
    return [
        r.input(BATCH, HEADS, QUERIES, WIDTH),
        r.input(BATCH, groups, KEYS, WIDTH),
        r.input(BATCH, groups, KEYS, WIDTH),
    ]


def plain(r, name="nn.softmax", axis=-1):
    query, key, value = _inputs(r)
    scores = r.call("multiply", _matmul(r, query, _swapped(r, key)), r.constant(SCALE))
    return [_matmul(r, _softmax(r, scores, axis, name), value)]


def transposed_attribute(r):
    query, key, value = _inputs(r)
    scores = r.call("divide", _matmul(r, query, key, True), r.constant(1 / SCALE))
    return [_matmul(r, _softmax(r, scores, 3), value)]


def scaled_operands(r):
    query, key, value = _inputs(r)
    query = r.call("multiply", query, r.constant(0.5))
    key = r.call("multiply", r.constant(0.5), _swapped(r, key))
    return [_matmul(r, _softmax(r, _matmul(r, query, key)), value)]


def masked(r, mask=MASK, is_first=False, scale=SCALE):
    query, key, value = _inputs(r)
    scores = r.call("multiply", _matmul(r, query, _swapped(r, key)), r.constant(scale))
    mask = r.input(*mask)
    scores = r.call("add", *((mask, scores) if is_first else (scores, mask)))
    return [_matmul(r, _softmax(r, scores), value)]


def masks(r, count=2):
    query, key, value = _inputs(r)
    scores = r.call("multiply", _matmul(r, query, _swapped(r, key)), r.constant(SCALE))
    scores = r.call("add", scores, r.input(1, HEADS, QUERIES, KEYS))
    for _ in range(count - 1):
        scores = r.call("add", r.input(BATCH, 1, 1, KEYS), scores)
    return [_matmul(r, _softmax(r, scores), value)]


def selected(r, is_kept=True, number=LOWEST, masked_at=None):
    """Masks of truths, as GPT-2 and torch.masked_fill have them; the first row is hidden."""
    query, key, value = _inputs(r)
    scores = r.call("multiply", _matmul(r, query, _swapped(r, key)), r.constant(SCALE))
    if masked_at == "start":
        scores = r.call("add", scores, r.input(BATCH, 1, 1, KEYS))
    kept = np.tri(QUERIES, KEYS, -1, dtype=bool)[None, None]
    operands = (scores, r.constant(number))
    condition = r.constant(kept if is_kept else ~kept, "bool")
    scores = r.call("where", condition, *(operands if is_kept else operands[::-1]))
    if masked_at == "end":
        scores = r.call("add", scores, r.input(BATCH, 1, 1, KEYS))
    return [_matmul(r, _softmax(r, scores), value)]


def rows_of_groups(r, mask=None, merged_mask=None):
    """The queries of a group are rows of one matmul, as the importer writes them."""
    query, key, value = _inputs(r, GROUPS)
    rows = HEADS // GROUPS * QUERIES
    scores = _matmul(r, _reshaped(r, query, BATCH, GROUPS, rows, WIDTH), key, True)
    scores = r.call("multiply", scores, r.constant(SCALE))
    if merged_mask is not None:
        scores = r.call("add", scores, r.input(*merged_mask))
    scores = _reshaped(r, scores, BATCH, HEADS, QUERIES, KEYS)
    if mask is not None:
        scores = r.call("add", scores, r.input(*mask))
    weights = _reshaped(r, _softmax(r, scores), BATCH, GROUPS, rows, KEYS)
    return [_reshaped(r, _matmul(r, weights, value), BATCH, HEADS, QUERIES, WIDTH)]


def causal(r, queries=QUERIES, hidden=-1e30, rows=1, offset=None):
    """A constant that hides later keys."""
    query, key, value = (r.input(1, HEADS, n, WIDTH) for n in (queries, KEYS, KEYS))
    seen = np.tri(queries, KEYS, KEYS - queries if offset is None else offset, dtype=bool)
    mask = np.where(seen, 0, hidden).astype("float32")[None, None].repeat(rows, 1)
    scores = r.call("add", _matmul(r, query, key, True), r.constant(mask))
    return [_matmul(r, _softmax(r, scores), value)]


def heads_last(r):
    """As BERT has it: the key's axes in one order that swaps all of them."""
    query, key, value = (r.input(BATCH, n, HEADS, WIDTH) for n in (QUERIES, KEYS, KEYS))
    key = _swapped(r, key, (0, 2, 3, 1))
    query, value = (_swapped(r, each, (0, 2, 1, 3)) for each in (query, value))
    scores = r.call("multiply", _matmul(r, query, key), r.constant(SCALE))
    return [_swapped(r, _matmul(r, _softmax(r, scores), value), (0, 2, 1, 3))]


def _reshaped(r, x, *shape):
    return r.call("reshape", x, newshape=list(shape), allowzero=False)


def _broadcast(r, x):
    x = r.call("expand_dims", x, axis=2, num_newaxis=1)
    shape = [BATCH, GROUPS, HEADS // GROUPS, KEYS, WIDTH]
    return _reshaped(r, r.call("broadcast_to", x, shape=shape), BATCH, HEADS, KEYS, WIDTH)


def _stacked(r, x):
    many = r.call("stack", r.tuple(x, x), axis=2)
    return _reshaped(r, many, BATCH, HEADS, KEYS, WIDTH)


def _tiled(r, x):
    """Heads in another order: not each repeated, but all of them."""
    return r.call("concatenate", r.tuple(x, x), axis=1)


def grouped(r, repeat=_broadcast):
    query, key, value = _inputs(r, GROUPS)
    scores = _matmul(r, query, _swapped(r, repeat(r, key)))
    scores = r.call("multiply", scores, r.constant(SCALE))
    return [_matmul(r, _softmax(r, scores), repeat(r, value))]


def one_repeated(r):
    """Keys repeat heads, values have all of them."""
    query, key = r.input(BATCH, HEADS, QUERIES, WIDTH), r.input(BATCH, GROUPS, KEYS, WIDTH)
    value = r.input(BATCH, HEADS, KEYS, WIDTH)
    scores = _matmul(r, query, _swapped(r, _broadcast(r, key)))
    return [_matmul(r, _softmax(r, scores), value)]


def without_batch(r):
    query, key, value = (r.input(HEADS, n, WIDTH) for n in (QUERIES, KEYS, KEYS))
    scores = r.call("multiply", _matmul(r, query, key, True), r.constant(SCALE))
    return [_matmul(r, _softmax(r, scores), value)]


def probabilities_read_elsewhere(r):
    (result,) = plain(r)
    return [result, result.operands[0]]


def scores_read_elsewhere(r):
    (result,) = masked(r)
    return [result, result.operands[0].operands[0].operands[0]]


def scaled_behind_the_mask(r):
    query, key, value = _inputs(r)
    scores = r.call("add", _matmul(r, query, key, True), r.input(*MASK))
    scores = r.call("multiply", scores, r.constant(SCALE))
    return [_matmul(r, _softmax(r, scores), value)]


def scaled_values(r):
    query, key, value = _inputs(r)
    value = r.call("multiply", value, r.constant(SCALE))
    return [_matmul(r, _softmax(r, _matmul(r, query, key, True)), value)]


def halves(r):
    query, key, value = (
        r.input(BATCH, HEADS, n, WIDTH, dtype="float16") for n in (QUERIES, KEYS, KEYS)
    )
    return [_matmul(r, _softmax(r, _matmul(r, query, key, True)), value)]


# The heads of keys and values that are read.
FUSED = {
    "plain": (plain, HEADS),
    "transposed-attribute": (transposed_attribute, HEADS),
    "scaled-operands": (scaled_operands, HEADS),
    "masked": (masked, HEADS),
    "mask-first": (lambda r: masked(r, (KEYS,), is_first=True), HEADS),
    "heads-last": (heads_last, HEADS),
    "two-masks": (masks, HEADS),
    "grouped-broadcast": (grouped, GROUPS),
    "grouped-rows": (rows_of_groups, GROUPS),
    "grouped-rows-masked": (lambda r: rows_of_groups(r, MASK), GROUPS),
    "selected": (selected, HEADS),
    "filled": (lambda r: selected(r, is_kept=False), HEADS),
    "selected-then-masked": (lambda r: selected(r, masked_at="end"), HEADS),
    "masked-then-selected": (lambda r: selected(r, masked_at="start"), HEADS),
    "grouped-stack": (lambda r: grouped(r, _stacked), GROUPS),
    "tiled": (lambda r: grouped(r, _tiled), HEADS),
    "one-repeated": (one_repeated, HEADS),
    "without-batch": (without_batch, HEADS),
    "nan-safe": (lambda r: plain(r, "dnnl.nan_safe_softmax"), HEADS),
    "masked-softmax": (lambda r: plain(r, "dnnl.masked_softmax"), HEADS),
    "scaled-values": (scaled_values, HEADS),
}
KEPT = {
    "three-masks": lambda r: masks(r, 3),
    "another-axis": lambda r: plain(r, axis=2),
    "probabilities-read-elsewhere": probabilities_read_elsewhere,
    "scores-read-elsewhere": scores_read_elsewhere,
    "scaled-behind-the-mask": scaled_behind_the_mask,
    # In a row that is hidden as a whole, the scores count.
    "selected-with-a-small-number": lambda r: selected(r, number=-1e4),
    "merged-and-masked": lambda r: rows_of_groups(r, merged_mask=(QUERIES * 2, KEYS)),
    "float16": halves,
}


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
        scores = r.call("add", _matmul(r, query, key, True), mask)
        return [_matmul(r, _softmax(r, scores), value)]

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
        scores = r.call("add", _matmul(r, query, key, True), r.input(2, 1, 1, KEYS))
        return [_matmul(r, _softmax(r, scores), value)]

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
    graph = r.returns(_matmul(r, _softmax(r, _matmul(r, query, key, True)), value))
    assert ("dnnl.attention" in _fused(graph)) == is_fused


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
