# SPDX-License-Identifier: Apache-2.0
"""onnxruntime's GroupQueryAttention, and RotaryEmbedding."""

import numpy as np
import onnxruntime
import pytest
import tvm
import tvm_dnnl

from dnnl_relax.modules import partitions
from dnnl_relax.onnx.nodes import (
    CONTRIB,
    assert_close,
    check_node,
    node_model,
    normal,
    onnxruntime_results,
    results,
)

HEADS, GROUPS, SIZE, LONGEST = 4, 2, 16, 16


def angles(half, seed=9):
    """Caches of cosines and sines."""
    angle = normal(LONGEST, half, seed=seed)
    return {"cos": np.cos(angle), "sin": np.sin(angle)}


def grouped(lengths, queries, past=None, groups=GROUPS, is_packed=False, **others):
    """Return the operands of a GroupQueryAttention.

    Parameters
    ----------
    lengths : Sequence[int]
        How many positions each sequence has, with its past.
    past : int | None
        The length of the past.
    """
    batch = len(lengths)
    sizes = [HEADS * SIZE, groups * SIZE, groups * SIZE]
    tensors = [normal(batch, queries, size, seed=k) for k, size in enumerate(sizes)]
    if is_packed:
        tensors = [np.concatenate(tensors, -1), None, None]
    pasts = [None, None]
    if past is not None:
        pasts = [normal(batch, groups, past, SIZE, seed=seed) for seed in (3, 4)]
    return {
        **dict(zip("qkv", tensors)),
        **dict(zip(("past_key", "past_value"), pasts)),
        "lengths": np.array(lengths, "int32") - 1,
        "total": np.array((past or 0) + queries, "int32"),
        **dict.fromkeys(("cos", "sin", "positions", "add")),
        **others,
    }


def of_others(**shapes):
    """Return the inputs that follow the bias, in their order, of those that have a shape."""
    names = ("sink", "k_scale", "v_scale", "q_norm", "k_norm", "lengths")
    values = {
        name: normal(shapes[name], seed=k) if name in shapes else None
        for k, name in enumerate(names)
    }
    return {f"other_{name}": value for name, value in values.items()}


ATTRS = dict(num_heads=HEADS, kv_num_heads=GROUPS)
ROTARY, PARTLY = angles(SIZE // 2), angles(SIZE // 4)
CASES = {
    "prompt": (grouped([5, 5], 5), {}),
    "packed": (grouped([5, 5], 5, is_packed=True), {}),
    "as-many-heads": (grouped([5, 5], 5, groups=HEADS), dict(kv_num_heads=HEADS)),
    "one-group": (grouped([5, 5], 5, groups=1), dict(kv_num_heads=1)),
    "scale": (grouped([5], 5), dict(scale=0.3)),
    "softcap": (grouped([5], 5), dict(softcap=0.7)),
    "window": (grouped([5], 5), dict(local_window_size=2)),
    "wide-window": (grouped([5], 5), dict(local_window_size=9)),
    "not-causal": (grouped([5, 5], 5), dict(causal=0)),
    "add": (grouped([5, 5], 5, add=normal(1, 1, 5, 5)), {}),
    "add-and-softcap": (grouped([5], 5, add=normal(1, HEADS, 5, 5)), dict(softcap=0.7)),
    "rotary": (grouped([5, 5], 5, **ROTARY), dict(do_rotary=1)),
    "rotary-interleaved": (
        grouped([5, 5], 5, **ROTARY),
        dict(do_rotary=1, rotary_interleaved=1),
    ),
    "rotary-packed": (grouped([5, 5], 5, is_packed=True, **ROTARY), dict(do_rotary=1)),
    "one-token": (grouped([1], 1), {}),
    "sink": (grouped([5, 5], 5, **of_others(sink=HEADS)), {}),
    "sink-and-softcap": (grouped([5], 5, **of_others(sink=HEADS)), dict(softcap=0.7)),
    "smooth": (grouped([5], 5, groups=HEADS), dict(kv_num_heads=HEADS, smooth_softmax=1)),
    "past-sink-window": (grouped([7], 1, 6, **of_others(sink=HEADS)), dict(local_window_size=3)),
    "past": (grouped([7], 1, 6), {}),
    "past-of-several": (grouped([9], 3, 6), {}),
    "past-window": (grouped([7], 1, 6), dict(local_window_size=3)),
    "past-not-causal": (grouped([9], 3, 6), dict(causal=0)),
    "past-add": (grouped([7], 1, 6, add=normal(1, 1, 1, 7)), {}),
    "past-rotary": (grouped([7], 1, 6, **ROTARY), dict(do_rotary=1)),
    "past-rotary-interleaved": (
        grouped([9], 3, 6, is_packed=True, **ROTARY),
        dict(do_rotary=1, rotary_interleaved=1),
    ),
}
# Several sequences: where the past of each ends is known at run time.
BATCHES = {
    "equal": (grouped([7, 7], 1, 6), {}),
    "unequal": (grouped([7, 4, 2], 1, 6), {}),
    "rotary": (grouped([7, 4], 1, 6, **ROTARY), dict(do_rotary=1)),
    "window": (grouped([7, 4], 1, 6), dict(local_window_size=2)),
    "add": (grouped([7, 4], 1, 6, add=normal(2, 1, 1, 7)), {}),
    "softcap": (grouped([7, 4], 1, 6, is_packed=True, **ROTARY), dict(do_rotary=1, softcap=0.7)),
}


def check_version(attrs):
    """Skip what onnxruntime 1.23, the last for Python 3.10, computes as another window."""
    version = tuple(map(int, onnxruntime.__version__.split(".")[:2]))
    if version < (1, 32) and {"causal", "local_window_size"} & attrs.keys():
        pytest.skip(f"onnxruntime {onnxruntime.__version__} has another window")


@pytest.mark.parametrize("case", CASES)
def test_group_query_attention(case):
    operands, attrs = CASES[case]
    check_version(attrs)
    attrs = {**ATTRS, **attrs, "consts": ("cos", "sin", "total")}
    counts = check_node("GroupQueryAttention", operands, outputs=3, parts=1, **attrs)
    matmuls = sum(n for name, n in counts.items() if name.startswith("dnnl.batch_matmul"))
    assert matmuls + 2 * counts["dnnl.attention"] == 2


def test_normalized_queries_and_keys():
    """The CPU provider of onnxruntime does not have these norms."""
    factors = of_others(q_norm=SIZE, k_norm=SIZE)
    operands = grouped([5, 5], 5, **ROTARY, **factors)
    attrs = {**ATTRS, "do_rotary": 1, "outputs": 3, "consts": ("cos", "sin", "total")}
    got, _ = results(
        node_model("GroupQueryAttention", operands, qk_norm_epsilon=0.1, **attrs), operands
    )
    plain = grouped([5, 5], 5, **ROTARY)
    for name, factor in (("q", factors["other_q_norm"]), ("k", factors["other_k_norm"])):
        heads = operands[name].reshape(2, 5, -1, SIZE)
        scale = np.sqrt((heads**2).mean(-1, keepdims=True) + 0.1)
        plain[name] = (heads / scale * factor).reshape(operands[name].shape).astype("float32")
    assert_close(got, onnxruntime_results(node_model("GroupQueryAttention", plain, **attrs), plain))


def valid(tensors, lengths):
    """Return the output, and the keys and values that sequences have, as the rest may be any."""
    first, *presents = tensors
    return [first, *(p[i, :, :n] for p in presents for i, n in enumerate(lengths))]


@pytest.mark.parametrize("case", BATCHES)
def test_pasts_of_unequal_lengths(case):
    operands, attrs = BATCHES[case]
    check_version(attrs)
    attrs = {**ATTRS, **attrs, "consts": ("cos", "sin")}
    model = node_model("GroupQueryAttention", operands, outputs=3, **attrs)
    got, _ = results(model, operands)
    expected = onnxruntime_results(model, operands)
    assert [each.shape for each in got] == [each.shape for each in expected]
    lengths = operands["lengths"] + 1
    assert_close(valid(got, lengths), valid(expected, lengths))


OPEN = {
    "q": ["b", "s", HEADS * SIZE],
    **dict.fromkeys("kv", ["b", "s", GROUPS * SIZE]),
    **dict.fromkeys(("past_key", "past_value"), ["b", GROUPS, "p", SIZE]),
    "lengths": ["b"],
}


@pytest.mark.parametrize("case", ["rotary", "window"])
def test_open_dimensions(case):
    """One library for prompts, which have an empty past, and for tokens."""
    operands, attrs = BATCHES[case]
    check_version(attrs)
    attrs = {**ATTRS, **attrs, "consts": ("cos", "sin"), "outputs": 3}
    model = node_model("GroupQueryAttention", operands, dims=OPEN, **attrs)
    others = {name: operands[name] for name in ("cos", "sin")}
    for sizes in (([5, 3], 5, 0), ([7, 4], 1, 6), ([7], 3, 4)):
        values = grouped(*sizes, **others)
        got, _ = results(model, values)
        expected = onnxruntime_results(model, values)
        lengths = [min(n, total) for n, total in zip(values["lengths"] + 1, sizes[0])]
        rows = slice(None) if len(set(sizes[0])) == 1 or sizes[2] else slice(min(sizes[0]))
        got[0], expected[0] = got[0][:, rows], expected[0][:, rows]
        assert_close(valid(got, lengths), valid(expected, lengths))


@pytest.mark.parametrize("lengths", [[5, 5], [5, 2]], ids=str)
def test_keys_of_all_positions(lengths):
    """With causal=0, queries see all keys of their sequence, but not its padding."""
    operands = grouped(lengths, 5)
    model = node_model("GroupQueryAttention", operands, outputs=3, causal=0, **ATTRS)
    (got, *_), _ = results(model, operands)
    q, k, v = (x.reshape(2, 5, -1, SIZE).transpose(0, 2, 1, 3) for x in map(operands.get, "qkv"))
    k, v = (np.repeat(x, HEADS // GROUPS, 1) for x in (k, v))
    scores = q.astype("float64") @ k.swapaxes(2, 3) / np.sqrt(SIZE)
    scores[np.arange(5) >= np.array(lengths)[:, None, None, None] + np.zeros_like(scores)] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    wanted = weights / weights.sum(-1, keepdims=True) @ v
    wanted = wanted.transpose(0, 2, 1, 3).reshape(2, 5, -1).astype("float32")
    assert_close([got[0, :5], got[1, : lengths[1]]], [wanted[0], wanted[1, : lengths[1]]])


def test_open_past_of_one_sequence():
    operands = grouped([7], 1, 6, **ROTARY)
    dims = {name: [1 if size == "b" else size for size in shape] for name, shape in OPEN.items()}
    attrs = {**ATTRS, "do_rotary": 1, "dims": dims, "consts": ("cos", "sin"), "outputs": 3}
    check_node("GroupQueryAttention", operands, **attrs)


@pytest.mark.parametrize("is_open", [False, True], ids=["static", "open"])
@pytest.mark.parametrize("past", [6, None], ids=["past", "prompt"])
def test_a_buffer_that_is_longer_than_the_past_is_an_error_at_run_time(past, is_open):
    operands = grouped([4], 1, past)
    attrs = {**ATTRS, "outputs": 3, "dims": OPEN if is_open else None}
    model = node_model("GroupQueryAttention", operands, **attrs)
    with pytest.raises(Exception, match="match_cast error"):
        results(model, {**operands, "total": np.array(4, "int32")})


@pytest.mark.parametrize(
    "operands, attrs, reason",
    [
        (grouped([5], 5, **of_others(lengths=6)), {}, "the input query_seqlens"),
        (grouped([5], 5, **of_others(k_scale=1)), {}, "the input k_scale"),
        (grouped([5], 5, positions=np.arange(5)[None]), {}, "the input position_ids"),
        (grouped([4], 1, 6, total=np.array(4, "int32")), {}, "total_sequence_length=4 instead of"),
        (grouped([5], 5, groups=3), dict(kv_num_heads=3), "4 query heads of 3 key heads"),
    ],
    ids=["lengths", "scale", "positions", "shared-buffer", "heads"],
)
def test_refused(operands, attrs, reason):
    attrs = {**ATTRS, **attrs, "outputs": 3, "consts": ("total",)}
    with pytest.raises(tvm.error.OpAttributeUnImplemented) as error:
        tvm_dnnl.from_onnx(node_model("GroupQueryAttention", operands, **attrs))
    assert f"ONNX GroupQueryAttention, node node: {reason}" in str(error.value)


def rotated(x, positions, cos_and_sin):
    return {"x": x, "positions": positions, **cos_and_sin}


FLAT, SPLIT = normal(2, 5, HEADS * SIZE), normal(2, HEADS, 5, SIZE)
ONE, EACH = np.array([3], "int64"), np.array([[0, 1, 2, 3, 4], [4, 7, 9, 1, 0]], "int64")
PARTIAL = dict(num_heads=HEADS, rotary_embedding_dim=SIZE // 2)
EMBEDDINGS = {
    "rank-3": (rotated(FLAT, EACH, ROTARY), {}),
    "rank-3-heads": (rotated(FLAT, EACH, ROTARY), dict(num_heads=HEADS)),
    "rank-4": (rotated(SPLIT, EACH, ROTARY), {}),
    "first-position": (rotated(FLAT, ONE, ROTARY), {}),
    "first-position-rank-4": (rotated(SPLIT, ONE, ROTARY), {}),
    "part": (rotated(FLAT, EACH, PARTLY), PARTIAL),
    "part-rank-4": (rotated(SPLIT, EACH, PARTLY), PARTIAL),
}


@pytest.mark.parametrize("interleaved", [0, 1], ids=["halves", "interleaved"])
@pytest.mark.parametrize("case", EMBEDDINGS)
def test_rotary_embedding(case, interleaved):
    operands, attrs = EMBEDDINGS[case]
    attrs = dict(attrs, interleaved=interleaved, consts=("cos", "sin"))
    counts = check_node("RotaryEmbedding", operands, parts=1, **attrs)
    assert counts["dnnl.multiply"] == 1 and counts["dnnl.concatenate"]


@pytest.mark.parametrize("position", [EACH, ONE], ids=["each", "first"])
def test_rotary_embedding_of_open_dimensions(position):
    dims = {"x": ["b", "s", HEADS * SIZE], "positions": ["b", "s"] if position is EACH else [1]}
    operands = rotated(FLAT, position, ROTARY)
    check_node("RotaryEmbedding", operands, dims=dims, consts=("cos", "sin"), parts=1)


def standard(x, caches, positions=None):
    return {"x": x, **caches, "positions": positions}


ROWS = {name: cache[EACH] for name, cache in ROTARY.items()}
STANDARD = {
    "rank-4": (standard(SPLIT, ROTARY, EACH), {}),
    "rank-3": (standard(FLAT, ROTARY, EACH), dict(num_heads=HEADS)),
    "no-positions": (standard(SPLIT, ROWS), {}),
    "part": (standard(SPLIT, PARTLY, EACH), PARTIAL),
}


@pytest.mark.parametrize("interleaved", [0, 1], ids=["halves", "interleaved"])
@pytest.mark.parametrize("case", STANDARD)
def test_rotary_embedding_of_opset_23(case, interleaved):
    operands, attrs = STANDARD[case]
    attrs = dict(attrs, interleaved=interleaved, domain="", opset=23)
    check_node("RotaryEmbedding", operands, parts=1, **attrs)


@pytest.mark.parametrize(
    "operands, attrs, reason",
    [
        (EMBEDDINGS["rank-3"][0], dict(scale=2.0), "scale=2.0"),
        (EMBEDDINGS["rank-3"][0], dict(is_packed_batching=1), "is_packed_batching=1"),
        (EMBEDDINGS["part"][0], dict(num_heads=HEADS), "16 rotated elements and angles for 8"),
    ],
    ids=["scale", "packed", "size"],
)
def test_refused_rotary_embedding(operands, attrs, reason):
    model = node_model("RotaryEmbedding", operands, domain=CONTRIB, **attrs)
    with pytest.raises(tvm.error.OpAttributeUnImplemented, match=reason):
        tvm_dnnl.from_onnx(model)


def test_a_token_of_a_decoder_is_one_partition():
    """Rotations, caches of known length and the attention; only integers are on TVM."""
    operands = grouped([7], 1, 6, is_packed=True, **ROTARY)
    attrs = {**ATTRS, "do_rotary": 1, "consts": ("cos", "sin", "total"), "outputs": 3}
    mod = tvm_dnnl.from_onnx(node_model("GroupQueryAttention", operands, **attrs))
    partitioned = tvm_dnnl.partition_for_dnnl(mod, prune=False)
    assert partitions(partitioned) == 1
    report = tvm_dnnl.offload_report(partitioned)
    # The position of the angles is limited to the table.
    assert set(report.reasons) <= {"astype", "call_tir", "maximum", "minimum"}
