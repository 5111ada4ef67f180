# SPDX-License-Identifier: Apache-2.0
"""Spellings of attention as builders of graphs: those that are read as one op, and others."""

import numpy as np
from tvm.contrib.onednn.ir.op_view import Tensor

BATCH, HEADS, GROUPS, QUERIES, KEYS, WIDTH = 2, 4, 2, 3, 5, 8
SCALE = 0.25
LOWEST = float(np.finfo("float32").min)
MASK = (BATCH, 1, QUERIES, KEYS)


def matmul(r, left, right, transpose_b=False):
    return r.call("nn.batch_matmul", left, right, transpose_a=False, transpose_b=transpose_b)


def _swapped(r, x, axes=(0, 1, 3, 2)):
    return r.call("transpose", x, axes=list(axes))


def softmax(r, scores, axis=-1, name="nn.softmax"):
    return r.call(name, scores, axis=axis)


def inputs(r, groups=HEADS):
    return [
        r.input(BATCH, HEADS, QUERIES, WIDTH),
        r.input(BATCH, groups, KEYS, WIDTH),
        r.input(BATCH, groups, KEYS, WIDTH),
    ]


def plain(r, name="nn.softmax", axis=-1):
    query, key, value = inputs(r)
    scores = r.call("multiply", matmul(r, query, _swapped(r, key)), r.constant(SCALE))
    return [matmul(r, softmax(r, scores, axis, name), value)]


def transposed_attribute(r):
    query, key, value = inputs(r)
    scores = r.call("divide", matmul(r, query, key, True), r.constant(1 / SCALE))
    return [matmul(r, softmax(r, scores, 3), value)]


def scaled_operands(r):
    query, key, value = inputs(r)
    query = r.call("multiply", query, r.constant(0.5))
    key = r.call("multiply", r.constant(0.5), _swapped(r, key))
    return [matmul(r, softmax(r, matmul(r, query, key)), value)]


def masked(r, mask=MASK, is_first=False, scale=SCALE):
    query, key, value = inputs(r)
    scores = r.call("multiply", matmul(r, query, _swapped(r, key)), r.constant(scale))
    mask = r.input(*mask)
    scores = r.call("add", *((mask, scores) if is_first else (scores, mask)))
    return [matmul(r, softmax(r, scores), value)]


def masks(r, count=2):
    query, key, value = inputs(r)
    scores = r.call("multiply", matmul(r, query, _swapped(r, key)), r.constant(SCALE))
    scores = r.call("add", scores, r.input(1, HEADS, QUERIES, KEYS))
    for _ in range(count - 1):
        scores = r.call("add", r.input(BATCH, 1, 1, KEYS), scores)
    return [matmul(r, softmax(r, scores), value)]


def selected(r, is_kept=True, number=LOWEST, masked_at=None):
    """Masks of truths, as GPT-2 and torch.masked_fill have them; the first row is hidden."""
    query, key, value = inputs(r)
    scores = r.call("multiply", matmul(r, query, _swapped(r, key)), r.constant(SCALE))
    if masked_at == "start":
        scores = r.call("add", scores, r.input(BATCH, 1, 1, KEYS))
    kept = np.tri(QUERIES, KEYS, -1, dtype=bool)[None, None]
    operands = (scores, r.constant(number))
    condition = r.constant(kept if is_kept else ~kept, "bool")
    scores = r.call("where", condition, *(operands if is_kept else operands[::-1]))
    if masked_at == "end":
        scores = r.call("add", scores, r.input(BATCH, 1, 1, KEYS))
    return [matmul(r, softmax(r, scores), value)]


def rows_of_groups(r, mask=None, merged_mask=None):
    """The queries of a group are rows of one matmul, as the importer writes them."""
    query, key, value = inputs(r, GROUPS)
    rows = HEADS // GROUPS * QUERIES
    scores = matmul(r, reshaped(r, query, BATCH, GROUPS, rows, WIDTH), key, True)
    scores = r.call("multiply", scores, r.constant(SCALE))
    if merged_mask is not None:
        scores = r.call("add", scores, r.input(*merged_mask))
    scores = reshaped(r, scores, BATCH, HEADS, QUERIES, KEYS)
    if mask is not None:
        scores = r.call("add", scores, r.input(*mask))
    weights = reshaped(r, softmax(r, scores), BATCH, GROUPS, rows, KEYS)
    return [reshaped(r, matmul(r, weights, value), BATCH, HEADS, QUERIES, WIDTH)]


def merged(r, x, swaps=False):
    """Give batch and heads one axis, as Relay's matmul requires."""
    batch, heads, *lengths = x.type.dims
    type_ = Tensor((batch * heads, *lengths), x.type.dtype)
    x = r.call("reshape", x, type_=type_, newshape=[-3, -2])
    return _swapped(r, x, (0, 2, 1)) if swaps else x


def merged_batch(
    r, groups=HEADS, mask=MASK, repeat=None, swaps=False, merge=merged, merged_mask=None
):
    """Between matmuls of rank 3, all has rank 4, as Relay's importer of ONNX writes it."""
    query, key, value = inputs(r, groups)
    key, value = (each if repeat is None else repeat(r, each) for each in (key, value))
    key = merge(r, key, True) if swaps else merge(r, _swapped(r, key))
    scores = matmul(r, merge(r, query), key)
    if merged_mask is not None:
        scores = r.call("add", scores, r.input(*merged_mask))
    scores = reshaped(r, scores, BATCH, HEADS, QUERIES, KEYS)
    scores = r.call("multiply", scores, r.constant(SCALE))
    scores = r.call("add", scores, r.input(*mask))
    result = matmul(r, merged(r, softmax(r, scores)), merge(r, value))
    return [reshaped(r, result, BATCH, HEADS, QUERIES, WIDTH)]


def merged_inputs(r):
    """Operands of rank 3 and scores of rank 4."""
    query, key, value = (r.input(BATCH * HEADS, n, WIDTH) for n in (QUERIES, KEYS, KEYS))
    scores = reshaped(r, matmul(r, query, key, True), BATCH, HEADS, QUERIES, KEYS)
    scores = r.call("add", scores, r.input(*MASK))
    result = matmul(r, merged(r, softmax(r, scores)), value)
    return [reshaped(r, result, BATCH, HEADS, QUERIES, WIDTH)]


def merged_rows_of_groups(r):
    """As `rows_of_groups`, with matmuls of rank 3."""
    query, key, value = inputs(r, GROUPS)
    rows = HEADS // GROUPS * QUERIES
    query = reshaped(r, query, BATCH * GROUPS, rows, WIDTH)
    scores = matmul(r, query, merged(r, key), True)
    scores = reshaped(r, scores, BATCH, HEADS, QUERIES, KEYS)
    weights = softmax(r, r.call("add", scores, r.input(*MASK)))
    result = matmul(r, reshaped(r, weights, BATCH * GROUPS, rows, KEYS), merged(r, value))
    return [reshaped(r, result, BATCH, HEADS, QUERIES, WIDTH)]


def merged_in_another_order(r):
    """Operands of which heads come before the batch, in scores that are read the other way."""

    def merge(r, x, swaps=False):
        return merged(r, _swapped(r, x, (1, 0, 2, 3)), swaps)

    return merged_batch(r, merge=merge)


def causal(r, queries=QUERIES, hidden=-1e30, rows=1, offset=None):
    """A constant that hides later keys."""
    query, key, value = (r.input(1, HEADS, n, WIDTH) for n in (queries, KEYS, KEYS))
    seen = np.tri(queries, KEYS, KEYS - queries if offset is None else offset, dtype=bool)
    mask = np.where(seen, 0, hidden).astype("float32")[None, None].repeat(rows, 1)
    scores = r.call("add", matmul(r, query, key, True), r.constant(mask))
    return [matmul(r, softmax(r, scores), value)]


def heads_last(r):
    """As BERT has it: the key's axes in one order that swaps all of them."""
    query, key, value = (r.input(BATCH, n, HEADS, WIDTH) for n in (QUERIES, KEYS, KEYS))
    key = _swapped(r, key, (0, 2, 3, 1))
    query, value = (_swapped(r, each, (0, 2, 1, 3)) for each in (query, value))
    scores = r.call("multiply", matmul(r, query, key), r.constant(SCALE))
    return [_swapped(r, matmul(r, softmax(r, scores), value), (0, 2, 1, 3))]


def reshaped(r, x, *shape):
    return r.call("reshape", x, newshape=list(shape), allowzero=False)


def _broadcast(r, x):
    x = r.call("expand_dims", x, axis=2, num_newaxis=1)
    shape = [BATCH, GROUPS, HEADS // GROUPS, KEYS, WIDTH]
    return reshaped(r, r.call("broadcast_to", x, shape=shape), BATCH, HEADS, KEYS, WIDTH)


def _stacked(r, x):
    many = r.call("stack", r.tuple(x, x), axis=2)
    return reshaped(r, many, BATCH, HEADS, KEYS, WIDTH)


def _tiled(r, x):
    """Heads in another order: not each repeated, but all of them."""
    return r.call("concatenate", r.tuple(x, x), axis=1)


def grouped(r, repeat=_broadcast):
    query, key, value = inputs(r, GROUPS)
    scores = matmul(r, query, _swapped(r, repeat(r, key)))
    scores = r.call("multiply", scores, r.constant(SCALE))
    return [matmul(r, softmax(r, scores), repeat(r, value))]


def one_repeated(r):
    """Keys repeat heads, values have all of them."""
    query, key = r.input(BATCH, HEADS, QUERIES, WIDTH), r.input(BATCH, GROUPS, KEYS, WIDTH)
    value = r.input(BATCH, HEADS, KEYS, WIDTH)
    scores = matmul(r, query, _swapped(r, _broadcast(r, key)))
    return [matmul(r, softmax(r, scores), value)]


def without_batch(r, mask=None):
    query, key, value = (r.input(HEADS, n, WIDTH) for n in (QUERIES, KEYS, KEYS))
    scores = r.call("multiply", matmul(r, query, key, True), r.constant(SCALE))
    if mask is not None:
        scores = r.call("add", scores, r.input(*mask))
    return [matmul(r, softmax(r, scores), value)]


def probabilities_read_elsewhere(r):
    (result,) = plain(r)
    return [result, result.operands[0]]


def scores_read_elsewhere(r):
    (result,) = masked(r)
    return [result, result.operands[0].operands[0].operands[0]]


def scaled_behind_the_mask(r):
    query, key, value = inputs(r)
    scores = r.call("add", matmul(r, query, key, True), r.input(*MASK))
    scores = r.call("multiply", scores, r.constant(SCALE))
    return [matmul(r, softmax(r, scores), value)]


def scaled_values(r):
    query, key, value = inputs(r)
    value = r.call("multiply", value, r.constant(SCALE))
    return [matmul(r, softmax(r, matmul(r, query, key, True)), value)]


def halves(r):
    query, key, value = (
        r.input(BATCH, HEADS, n, WIDTH, dtype="float16") for n in (QUERIES, KEYS, KEYS)
    )
    return [matmul(r, softmax(r, matmul(r, query, key, True)), value)]


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
    "without-batch-masked": (lambda r: without_batch(r, (HEADS, 1, KEYS)), HEADS),
    "merged": (merged_batch, HEADS),
    "merged-swapped": (lambda r: merged_batch(r, swaps=True), HEADS),
    "merged-mask-of-keys": (lambda r: merged_batch(r, mask=(BATCH, 1, 1, KEYS)), HEADS),
    "merged-grouped": (lambda r: merged_batch(r, GROUPS, repeat=_broadcast), GROUPS),
    "merged-grouped-swapped": (
        lambda r: merged_batch(r, GROUPS, repeat=_broadcast, swaps=True),
        GROUPS,
    ),
    "merged-inputs": (merged_inputs, HEADS),
    "merged-in-another-order": (merged_in_another_order, HEADS),
    "merged-grouped-rows": (merged_rows_of_groups, GROUPS),
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
    "merged-mask-of-matmuls": lambda r: merged_batch(r, merged_mask=(BATCH * HEADS, 1, KEYS)),
    "merged-and-masked": lambda r: rows_of_groups(r, merged_mask=(QUERIES * 2, KEYS)),
    "float16": halves,
}
