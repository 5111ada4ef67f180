# SPDX-License-Identifier: Apache-2.0
"""ONNX's Attention, MultiHeadAttention and RotaryEmbedding."""

import numpy as np
import pytest
import tvm
import tvm_dnnl

from dnnl_relax.modules import compiled, run
from dnnl_relax.onnx.nodes import (
    assert_close,
    check_node,
    node_model,
    normal,
    onnxruntime_results,
)

BATCH, LENGTH, HEADS, SIZE, PAST = 2, 4, 2, 8, 3
HIDDEN, TOTAL = HEADS * SIZE, PAST + LENGTH


def check_core(counts):
    """Check that attention is on oneDNN: as one op, or as two matmuls and a softmax."""
    fused, matmuls = counts["dnnl.attention"], [n for n in counts if n.startswith("dnnl.batch_m")]
    assert counts["dnnl.softmax"] + fused == 1
    assert sum(counts[name] for name in matmuls) == 2 * (1 - fused)


def past(seed, size=SIZE):
    return normal(BATCH, HEADS, PAST, size, seed=seed)


def integers(*values):
    return np.array(values, "int32")


def padding(*shape):
    """A mask that hides some positions, and none of the first."""
    mask = np.random.default_rng(7).integers(0, 2, shape).astype("int32")
    mask[..., 0] = 1
    return mask


def queries(**others):
    operands = {name: normal(BATCH, LENGTH, HIDDEN, seed=k) for k, name in enumerate("qkv")}
    operands.update(dict.fromkeys(("bias", "mask", "add", "past_key", "past_value")))
    return {**operands, **others}


PASTS = dict(past_key=past(3), past_value=past(4))
MASKS = {
    "none": None,
    "ends": integers(3, 2),
    "ends-of-3-batches": integers(3, 2, 0, 4, 8, 0, 4, 8),
    "ends-and-starts": integers(4, 3, 1, 0),
    "keys": padding(BATCH, LENGTH),
    "queries-and-keys": padding(BATCH, LENGTH, LENGTH),
}


@pytest.mark.parametrize("unidirectional", [0, 1], ids=["all", "causal"])
@pytest.mark.parametrize("mask", [name for name in MASKS if name != "ends-and-starts"])
def test_masks_of_multi_head_attention(mask, unidirectional):
    operands = queries(mask=MASKS[mask])
    attrs = dict(num_heads=HEADS, unidirectional=unidirectional)
    check_node("MultiHeadAttention", operands, parts=1, **attrs)


MULTI_HEAD = {
    "plain": queries(),
    "bias": queries(bias=normal(3 * HIDDEN, seed=5)),
    "other-value-size": queries(v=normal(BATCH, LENGTH, HEADS * 3, seed=2)),
    "other-value-size-bias": queries(
        v=normal(BATCH, LENGTH, HEADS * 3, seed=2), bias=normal(2 * HIDDEN + HEADS * 3)
    ),
    "cross": queries(k=normal(BATCH, 7, HIDDEN, seed=1), v=normal(BATCH, 7, HIDDEN, seed=2)),
    "cross-of-past": queries(k=past(1), v=past(2)),
    "add": queries(add=normal(BATCH, HEADS, LENGTH, LENGTH)),
    "add-to-all-heads": queries(add=normal(BATCH, 1, LENGTH, LENGTH)),
    "add-to-all": queries(add=normal(1, 1, LENGTH, LENGTH)),
    "past": queries(**PASTS),
    "past-and-all": queries(
        **PASTS,
        bias=normal(3 * HIDDEN, seed=5),
        mask=padding(BATCH, TOTAL),
        add=normal(1, HEADS, LENGTH, TOTAL),
    ),
    "past-and-a-mask-of-queries": queries(**PASTS, mask=padding(BATCH, LENGTH, TOTAL)),
    "past-and-ends": queries(**PASTS, mask=integers(6, 3)),
}


@pytest.mark.parametrize(
    "case, unidirectional",
    [(case, n) for case in MULTI_HEAD for n in (0, 1) if not (n and "cross" in case)],
)
def test_multi_head_attention(case, unidirectional):
    operands = MULTI_HEAD[case]
    has_past = operands["past_key"] is not None
    attrs = dict(num_heads=HEADS, unidirectional=unidirectional, outputs=3 if has_past else 1)
    counts = check_node("MultiHeadAttention", operands, parts=1, **attrs)
    check_core(counts)


@pytest.mark.parametrize(
    "attrs",
    [dict(scale=0.3), dict(mask_filter_value=-1.0), dict(mask_filter_value=-1.0, unidirectional=1)],
    ids=str,
)
def test_attributes_of_multi_head_attention(attrs):
    operands = queries(mask=padding(BATCH, LENGTH))
    check_node("MultiHeadAttention", operands, parts=1, num_heads=HEADS, **attrs)


def test_a_row_without_positions():
    """All scores are low, so the weights are those of the scores, with 10,000 added in float32."""
    mask = np.zeros((BATCH, LENGTH), "int32")
    check_node("MultiHeadAttention", queries(mask=mask), tolerance=2e-3, num_heads=HEADS)


@pytest.mark.parametrize("count", [3, 2], ids=["qkv", "kv"])
def test_packed(count):
    """Without a kernel of onnxruntime for CPUs: the same as with parts."""
    parts = [normal(BATCH, LENGTH, HEADS, SIZE, seed=k) for k in range(3)]
    merged = [part.reshape(BATCH, LENGTH, HIDDEN) for part in parts]
    operands = queries(**dict(zip("qkv", merged)))
    plain = node_model("MultiHeadAttention", operands, num_heads=HEADS)
    expected = onnxruntime_results(plain, operands)
    tensors = [*merged[: 3 - count], np.stack(parts[3 - count :], 3), None, None][:3]
    packed = queries(**dict(zip("qkv", tensors)))
    check_node("MultiHeadAttention", packed, expected, parts=1, num_heads=HEADS)


OPEN = {
    **dict.fromkeys("qkv", ["b", "s", HIDDEN]),
    "mask": ["b", "t"],
    "add": [1, HEADS, "s", "t"],
    "past_key": ["b", HEADS, "p", SIZE],
    "past_value": ["b", HEADS, "p", SIZE],
}


@pytest.mark.parametrize("unidirectional", [0, 1], ids=["all", "causal"])
@pytest.mark.parametrize("case", ["plain", "past-and-all"])
def test_open_dimensions_of_multi_head_attention(case, unidirectional):
    operands = MULTI_HEAD[case]
    attrs = dict(num_heads=HEADS, unidirectional=unidirectional, dims=OPEN)
    outputs = 3 if "past" in case else 1
    # The run-time check of an open past against the mask splits the layer.
    parts = None if "past" in case else 1
    counts = check_node("MultiHeadAttention", operands, outputs=outputs, parts=parts, **attrs)
    check_core(counts)


def test_an_empty_past():
    empty = normal(BATCH, HEADS, 0, SIZE)
    operands = queries(past_key=empty, past_value=empty)
    check_core(check_node("MultiHeadAttention", operands, outputs=3, num_heads=HEADS))


@pytest.mark.parametrize(
    "name, others",
    [
        ("mask", padding(BATCH, LENGTH + 1)),
        ("mask", padding(BATCH, 1)),
        ("mask", padding(1, LENGTH)),
        ("add", normal(1, HEADS, LENGTH, 1)),
        ("past_value", normal(BATCH, HEADS, PAST - 1, SIZE)),
    ],
    ids=["longer-mask", "mask-of-one", "mask-of-one-batch", "add", "values"],
)
def test_sizes_of_other_names_are_compared_at_run_time(name, others):
    """Also those that would broadcast, and where one name is known to be another."""
    operands = queries(mask=padding(BATCH, LENGTH), add=normal(1, HEADS, LENGTH, LENGTH))
    dims = {**OPEN, "mask": ["c", "t"], "add": [1, HEADS, "s", "u"]}
    if name == "past_value":
        operands, dims = queries(**PASTS), {**OPEN, name: ["b", HEADS, "o", SIZE]}
    # Without the outputs of the present, onnxruntime ignores the past.
    attrs = dict(num_heads=HEADS, dims=dims, outputs=3 if "past" in name else 1)
    model = node_model("MultiHeadAttention", operands, **attrs)
    partitioned = tvm_dnnl.partition_for_dnnl(tvm_dnnl.from_onnx(model), prune=False)
    machine = compiled(partitioned)
    values = [operands[each.name] for each in model.graph.input]
    assert_close(run(machine, *values), onnxruntime_results(model, operands))
    values = [{**operands, name: others}[each.name] for each in model.graph.input]
    with pytest.raises(Exception, match="match_cast error"):
        run(machine, *values)


def embedded(**others):
    operands = {
        "x": normal(BATCH, LENGTH, 5),
        "weight": normal(5, 3 * HIDDEN, seed=1),
        "bias": normal(3 * HIDDEN, seed=2),
    }
    operands.update(dict.fromkeys(("mask", "past", "add")))
    return {**operands, **others}


PAIR = normal(2, BATCH, HEADS, PAST, SIZE, seed=3)
ATTENTION = {
    "plain": (embedded(), {}),
    "other-value-size": (
        embedded(weight=normal(5, 2 * HIDDEN + 6), bias=normal(2 * HIDDEN + 6)),
        dict(qkv_hidden_sizes=[HIDDEN, HIDDEN, 6]),
    ),
    "scale": (embedded(), dict(scale=0.3)),
    "mask-value": (embedded(mask=padding(BATCH, LENGTH)), dict(mask_filter_value=-1.0)),
    "add": (embedded(add=normal(BATCH, HEADS, LENGTH, LENGTH)), {}),
    "add-and-mask": (
        embedded(add=normal(1, 1, LENGTH, LENGTH), mask=padding(BATCH, LENGTH)),
        {},
    ),
    "present": (embedded(), dict(outputs=2)),
    "past": (embedded(past=PAIR), dict(outputs=2)),
    "past-and-mask": (embedded(past=PAIR, mask=padding(BATCH, TOTAL)), dict(outputs=2)),
    "past-and-3-axes": (embedded(past=PAIR, mask=padding(BATCH, LENGTH, TOTAL)), dict(outputs=2)),
    **{f"mask-of-{name}": (embedded(mask=mask), {}) for name, mask in MASKS.items()},
}


@pytest.mark.parametrize("unidirectional", [0, 1], ids=["all", "causal"])
@pytest.mark.parametrize("case", ATTENTION)
def test_attention(case, unidirectional):
    operands, attrs = ATTENTION[case]
    attrs = dict(attrs, num_heads=HEADS, unidirectional=unidirectional, consts=("weight", "bias"))
    counts = check_node("Attention", operands, parts=1, **attrs)
    check_core(counts)


def test_attention_without_a_bias():
    """The same as one of zeros; onnxruntime 1.23 crashes without one."""
    zeros = embedded(bias=np.zeros(3 * HIDDEN, "float32"))
    expected = onnxruntime_results(node_model("Attention", zeros, num_heads=HEADS), zeros)
    check_node("Attention", embedded(bias=None), expected, parts=1, num_heads=HEADS)


def test_open_dimensions_of_attention():
    operands = embedded(past=PAIR, mask=padding(BATCH, TOTAL))
    dims = {"x": ["b", "s", 5], "mask": ["b", "t"], "past": [2, "b", HEADS, "p", SIZE]}
    attrs = dict(num_heads=HEADS, unidirectional=1, dims=dims, consts=("weight", "bias"))
    check_core(check_node("Attention", operands, outputs=2, **attrs))


def heads_first(heads=HEADS, length=LENGTH, seed=0):
    return normal(BATCH, heads, length, SIZE, seed=seed)


def standard(**others):
    operands = {"q": heads_first(4), "k": heads_first(seed=1), "v": heads_first(seed=2)}
    return {**operands, **dict.fromkeys(("mask", "past_key", "past_value")), **others}


MERGED = {
    "q": normal(BATCH, LENGTH, 4 * SIZE),
    "k": normal(BATCH, LENGTH, HIDDEN, seed=1),
    "v": normal(BATCH, LENGTH, HIDDEN, seed=2),
}
BOOL = np.tril(np.ones((LENGTH, LENGTH), "bool"))
STANDARD = {
    "plain": (standard(), {}),
    "same-heads": (standard(q=heads_first()), {}),
    "rank-3": (standard(**MERGED), dict(q_num_heads=4, kv_num_heads=HEADS)),
    "causal": (standard(), dict(is_causal=1)),
    "scale": (standard(), dict(scale=0.3)),
    "softcap": (standard(), dict(softcap=0.7)),
    "mask": (standard(mask=normal(LENGTH, LENGTH)), {}),
    "mask-of-all": (standard(q=heads_first(), mask=normal(BATCH, HEADS, LENGTH, LENGTH)), {}),
    "mask-of-batches": (standard(mask=normal(BATCH, 1, LENGTH, LENGTH)), dict(is_causal=1)),
    "mask-of-bools": (standard(mask=BOOL), {}),
    "past": (standard(**PASTS), dict(outputs=3)),
    "past-causal": (standard(**PASTS), dict(outputs=3, is_causal=1)),
}


@pytest.mark.parametrize("case", STANDARD)
def test_attention_of_opset_23(case):
    operands, attrs = STANDARD[case]
    check_node("Attention", operands, domain="", opset=23, parts=1, **attrs)


@pytest.mark.parametrize(
    "op, operands, attrs, reason",
    [
        ("Attention", embedded(), dict(num_heads=2, do_rotary=1), "do_rotary=1"),
        ("Attention", embedded(mask=padding(2, 1, 4, 4)), dict(num_heads=2), "a mask of rank 4"),
        ("Attention", embedded(), dict(num_heads=3), "3 heads of a hidden size of 16"),
        ("Attention", standard(mask=BOOL), dict(softcap=1.0), "softcap=1.0 with a mask"),
        ("Attention", standard(), dict(outputs=4), "the output qk_matmul_output"),
        ("MultiHeadAttention", queries(), dict(num_heads=2, outputs=4), "the output qk"),
        (
            "MultiHeadAttention",
            MULTI_HEAD["cross"],
            dict(num_heads=2, unidirectional=1),
            "unidirectional=1 with 4 queries and 7 keys",
        ),
        ("MultiHeadAttention", queries(mask=integers(1, 2, 3)), dict(num_heads=2), "a mask of the"),
        (
            "MultiHeadAttention",
            {**queries(), "length": integers(1)},
            dict(num_heads=2),
            "the input past_sequence_length",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_refused(op, operands, attrs, reason):
    with pytest.raises(tvm.error.OpAttributeUnImplemented) as error:
        tvm_dnnl.from_onnx(node_model(op, operands, **attrs))
    assert f"ONNX {op}, node node: {reason}" in str(error.value)


def test_a_layer_is_one_partition():
    """Only the integers of the mask are compared on TVM."""
    operands = MULTI_HEAD["past-and-all"]
    model = node_model("MultiHeadAttention", operands, num_heads=HEADS, consts=("bias",))
    partitioned = tvm_dnnl.partition_for_dnnl(tvm_dnnl.from_onnx(model), prune=False)
    report = tvm_dnnl.offload_report(partitioned)
    assert report.partitions == 1
    assert set(report.reasons) == {"greater"}


def masked_attention(q, k, v, hidden):
    """Return an attention of which a row without a key is 0, in float64."""
    scores = q.astype("float64") @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1])
    scores = np.where(hidden, -np.inf, scores)
    largest = scores.max(-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isneginf(largest), 0, largest))
    total = weights.sum(-1, keepdims=True)
    return (weights / np.where(total == 0, 1, total) @ v).astype("float32")


@pytest.mark.parametrize("is_open", [False, True], ids=["static", "open"])
@pytest.mark.parametrize("dtype", ["bool", "float32"])
def test_queries_without_a_key(dtype, is_open):
    """They give 0; the guard is part of the attention."""
    q, k, v = (normal(2, HEADS, 5, SIZE, seed=seed) for seed in range(3))
    hidden = np.random.default_rng(4).random((2, 1, 5, 5)) < 0.5
    hidden[0, 0, 1:3] = True
    mask = ~hidden if dtype == "bool" else np.where(hidden, -np.inf, 0).astype(dtype)
    operands = dict(q=q, k=k, v=v, mask=mask)
    dims = dict.fromkeys("qkv", ["b", HEADS, "s", SIZE]) if is_open else None
    options = dict(domain="", opset=24, dims=dims)
    wanted = masked_attention(q, k, v, hidden)
    assert not wanted[0, :, 1:3].any()
    counts = check_node("Attention", operands, [wanted], parts=1, **options)
    assert counts["dnnl.attention"] or counts["dnnl.masked_softmax"]


WINDOWS = {
    "before": (dict(left_window_size=1, right_window_size=0), 5),
    "around": (dict(left_window_size=2, right_window_size=1), 5),
    "after": (dict(right_window_size=2), 5),
    "causal": (dict(left_window_size=1, is_causal=1), 5),
    "own": (dict(left_window_size=0, right_window_size=0), 5),
    "more queries than keys": (dict(left_window_size=1, is_causal=1), 8),
}


@pytest.mark.parametrize("is_open", [False, True], ids=["static", "open"])
@pytest.mark.parametrize("name", WINDOWS)
def test_windows(name, is_open):
    """Of opset 25; a query that is too far from all keys gives 0."""
    attrs, count = WINDOWS[name]
    q, k, v = (normal(2, HEADS, size, SIZE, seed=size) for size in (count, 5, 5))
    distance = np.arange(count)[:, None] - np.arange(5)
    before, after = attrs.get("left_window_size", 9), attrs.get("right_window_size", 9)
    hidden = (distance > before) | (distance < -(0 if "is_causal" in attrs else after))
    dims = {name: ["b", HEADS, f"s{name}", SIZE] for name in "qkv"} if is_open else None
    wanted = masked_attention(q, k, v, hidden)
    options = dict(domain="", opset=25, dims=dims)
    check_node("Attention", dict(q=q, k=k, v=v), [wanted], **options, **attrs)


def test_attributes_that_are_not_read():
    """One with its default may be there; another is refused by name, also of TVM's converters."""
    operands = dict(x=normal(2, 3))
    for op, attrs in (("Relu", dict(slope=2)), ("Softmax", dict(axis=-1, temperature=0.5))):
        model = node_model(op, operands, domain="", **attrs)
        with pytest.raises(tvm.error.OpAttributeUnImplemented) as error:
            tvm_dnnl.from_onnx(model)
        name = list(attrs)[-1]
        assert f"ONNX {op}, node node: the attribute {name}={attrs[name]}" in str(error.value)
    check_node("Cast", operands, domain="", to=1, saturate=1, opset=19)
