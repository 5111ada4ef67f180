# SPDX-License-Identifier: Apache-2.0
"""TVM's PagedKVCache, whose attention is the kernel of `dnnl.attention`."""

import runpy

import numpy as np
import pytest
import tvm
import tvm_dnnl
from dnnl_tests.models import llama
from tvm import relax

from dnnl_relax.language.test_llama import PROMPT, reference
from scripts.layout import ROOT

EXAMPLE = runpy.run_path(str(ROOT / "docs" / "examples" / "paged_kv_cache.py"))
SIZES, CONFIG = EXAMPLE["SIZES"], llama.TINY
FUNCTIONS = [f"runtime.contrib.dnnl.{name}" for name in ("ragged_prefill", "paged_prefill")]
FUNCTIONS.append("runtime.contrib.dnnl.paged_decode")
LAYER = {"out": "o", "down": "down", "norm": "input_norm", "mlp_norm": "post_norm"}


def weights():
    """Return the weights of a Llama, and the same by the names of the example."""
    given = llama.random_weights(CONFIG)
    named = {"embedding": given["embedding"], "head": given["embedding"], "norm": given["norm"]}
    for n in range(CONFIG.layers):
        parts = {"qkv": ["q", "k", "v"], "gate_up": ["gate", "up"]}
        parts |= {theirs: [ours] for theirs, ours in LAYER.items()}
        for name, several in parts.items():
            tensors = [given[f"{n}.{part}"] for part in several]
            named[f"layers.{n}.{name}"] = np.concatenate(tensors)
    return given, {f"{name}.weight": value for name, value in named.items()}


def symbols(mod):
    """Return the external functions that a module names."""
    names = set()

    def visit(node):
        if isinstance(node, relax.ExternFunc):
            names.add(str(node.global_symbol))

    for func in mod.functions.values():
        if isinstance(func, relax.Function):
            relax.analysis.post_order_visit(func, visit)
    return names


def test_logits():
    """Prompts of several pages, and tokens; the second prompt follows what is in the cache."""
    given, named = weights()
    run, expected = EXAMPLE["decoder"](SIZES, named), reference(llama.model(CONFIG, given))
    cache, random = None, np.random.default_rng(0)
    for count in (20, 1, 30, 1, 1):
        ids = [int(each) for each in random.integers(0, CONFIG.vocabulary, count)]
        logits, *cache = expected(llama.inputs(CONFIG, ids, cache))
        # float32 sums in another order, over two layers.
        np.testing.assert_allclose(run(ids), logits, rtol=0, atol=1e-5 * np.abs(logits).max())


def test_generate():
    given, named = weights()
    expected, cache, new = [], None, PROMPT
    run = reference(llama.model(CONFIG, given))
    for _ in range(6):
        logits, *cache = run(llama.inputs(CONFIG, new, cache))
        new = [int(logits[0, -1].argmax())]
        expected += new
    assert EXAMPLE["generate"](SIZES, named, PROMPT, 6) == expected


def test_partitions():
    """The layers are divided where the cache is called."""
    mod, params = EXAMPLE["module"](SIZES)
    partitioned = tvm_dnnl.partition_for_dnnl(mod, prune=False)
    assert tvm_dnnl.offload_report(partitioned).partitions == SIZES["layers"] + 1
    assert symbols(partitioned).issuperset(FUNCTIONS)
    assert not symbols(mod) & set(FUNCTIONS), "the caller's module was changed"


def test_excluded():
    mod = EXAMPLE["module"](SIZES)[0]
    excluded = tvm_dnnl.partition_for_dnnl(mod, exclude=["dnnl.attention"])
    assert not symbols(excluded) & set(FUNCTIONS)


def paged(lengths, page=4, heads=4, groups=2, size=8):
    """Return a cache of some sequences, whose pages are in any order, and queries of each."""
    random = np.random.default_rng(0)
    counts = [-(-length // page) for length in lengths]
    pages = random.standard_normal((sum(counts) + 2, 2, groups, page, size)).astype("float32")
    numbers = random.permutation(len(pages))[: sum(counts)].astype("int32")
    ends = np.cumsum([0, *counts]).astype("int32")
    last = [length - (count - 1) * page for length, count in zip(lengths, counts)]
    return pages, ends, numbers, np.array(last, "int32")


def attended(query, key, value, scale, is_causal):
    """Return the attention of (queries, heads, size), and the logarithms of its sums."""
    count = query.shape[1] // key.shape[1]
    key, value = (np.repeat(each, count, 1).transpose(1, 0, 2) for each in (key, value))
    scores = query.transpose(1, 0, 2).astype("float64") @ key.transpose(0, 2, 1) * scale
    if is_causal:
        rows, columns = scores.shape[1:]
        scores = np.where(np.tri(rows, columns, columns - rows, dtype=bool), scores, -np.inf)
    sums = np.exp(scores).sum(-1)
    out = np.exp(scores) @ value / sums[..., None]
    return out.transpose(1, 0, 2), np.log2(sums).T


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("is_causal", [False, True], ids=["", "causal"])
def test_functions(is_causal, threads):
    """Several sequences, each with its number of pages, and of queries."""
    lengths, queries, heads, size = [9, 4, 1, 300], [3, 4, 1, 70], 4, 8
    pages, ends, numbers, last = paged(lengths)
    random, scale = np.random.default_rng(1), 0.3
    query = random.standard_normal((sum(queries), heads, size)).astype("float32")
    starts = np.cumsum([0, *queries]).astype("int32")
    keys, values = (
        [
            pages[numbers[ends[n] : ends[n + 1]], which]
            .transpose(0, 2, 1, 3)
            .reshape(-1, 2, size)[:k]
            for n, k in enumerate(lengths)
        ]
        for which in (0, 1)
    )
    rows = [query[starts[n] : starts[n + 1]] for n in range(len(lengths))]
    each = [attended(*args, scale, is_causal) for args in zip(rows, keys, values)]
    wanted = [np.concatenate(parts) for parts in zip(*each)]
    set_threads = tvm.get_global_func("runtime.contrib.dnnl.set_num_threads")

    def results(name, query, *args):
        out = [np.zeros_like(query), np.zeros(query.shape[:2], "float32")]
        tensors = [
            tvm.runtime.tensor(each) if isinstance(each, np.ndarray) else each for each in args
        ]
        out = [tvm.runtime.tensor(each) for each in out]
        place = next((k for k, each in enumerate(tensors) if isinstance(each, int)), len(tensors))
        function = tvm.get_global_func(f"runtime.contrib.dnnl.{name}")
        function(tvm.runtime.tensor(query), *tensors[:place], *out, *tensors[place:])
        return [each.numpy() for each in out]

    offset, where = np.zeros(len(lengths), "int32"), np.zeros(sum(queries), "int32")
    cache, tail = (pages, ends, numbers), (0, 1.0, 1e4, scale)
    set_threads(threads)
    try:
        got = results(
            "paged_prefill", query, starts, *cache, last, offset, where, int(is_causal), *tail
        )
        joined = [np.concatenate(parts) for parts in (keys, values)]
        all_keys = np.cumsum([0, *lengths]).astype("int32")
        ragged = results(
            "ragged_prefill", query, starts, *joined, all_keys, where, offset, int(is_causal), *tail
        )
        first = query[starts[:-1]]
        decoded = results("paged_decode", first, *cache, last, offset, offset, *tail)
    finally:
        set_threads(0)
    for one, other in ((got, wanted), (ragged, wanted)):
        for left, right in zip(one, other):
            np.testing.assert_allclose(left, right, rtol=1e-5, atol=1e-5)
    single = [
        attended(first[n : n + 1], *kv, scale, False) for n, kv in enumerate(zip(keys, values))
    ]
    for left, right in zip(decoded, map(np.concatenate, zip(*single))):
        np.testing.assert_allclose(left, right, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "changed, reason",
    [
        ({"numbers": [7, 0]}, r"page_indices\[0\] is 7, expected: 0 to 3"),
        ({"numbers": [-1, 0]}, r"page_indices\[0\] is -1, expected: 0 to 3"),
        ({"numbers": [0]}, r"page_indptr\[1\] is 2, expected: 0 to 1"),
        ({"ends": [1, 0]}, r"page_indptr\[1\] is 0, expected: 1 to 2"),
        ({"last": [5]}, r"length_info\[0\] is 5, expected: 1 to 4"),
        ({"last": [0]}, r"length_info\[0\] is 0, expected: 1 to 4"),
        ({"last": []}, "length_info has 0 elements, expected: 1"),
        ({"ends": [0, 1, 2], "last": [4, 1]}, "2 sequences have 1 rows of the query"),
        ({"sums": (2, 4)}, "lse has 2 rows of 4 heads, but the query 1 of 4"),
        ({"output": (1, 3, 8)}, "the output has 1 rows of 3 heads"),
        ({"pages": (4, 2, 3, 4, 8)}, "4 heads of the query do not share 3 of the keys"),
        ({"pages": (4, 2, 2, 4, 6)}, "rows of keys and values have 6 and 6 elements"),
        ({"pages": (4, 1, 2, 4, 8)}, "a dimension of 1 for keys and values"),
        ({"starts": [0, 2]}, r"qo_indptr\[1\] is 2, expected: 0 to 1"),
        ({"starts": [0]}, "qo_indptr has 1 elements, expected: 2"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_ranges(changed, reason):
    """Numbers that point outside of a tensor are refused."""
    sizes = {"pages": (4, 2, 2, 4, 8), "output": (1, 4, 8), "sums": (1, 4)}
    numbers = {"ends": [0, 2], "numbers": [0, 1], "last": [1], "starts": [0, 1]}
    given = {
        **{name: np.zeros(changed.get(name, size), "float32") for name, size in sizes.items()},
        **{name: np.array(changed.get(name, each), "int32") for name, each in numbers.items()},
        "query": np.zeros((1, 4, 8), "float32"),
        "offset": np.zeros(1, "int32"),
    }
    given = {name: tvm.runtime.tensor(each) for name, each in given.items()}
    names = ["query", "starts", "pages", "ends", "numbers", "last", "offset", "offset"]
    results, causal = [given["output"], given["sums"]], []
    name = "paged_decode"
    if "starts" in changed:
        name, causal = "paged_prefill", [0]
    else:
        names.remove("starts")
    function = tvm.get_global_func(f"runtime.contrib.dnnl.{name}")
    with pytest.raises(Exception, match=reason):
        function(*(given[each] for each in names), *results, *causal, 0, 1.0, 1.0, 1.0)


def test_refused():
    """Keys that are rotated where they are read, and another type."""
    pages, ends, numbers, last = (tvm.runtime.tensor(each) for each in paged([5]))
    query, sums = np.zeros((1, 4, 8), "float32"), tvm.runtime.tensor(np.zeros((1, 4), "float32"))
    offset = tvm.runtime.tensor(np.zeros(1, "int32"))
    function = tvm.get_global_func("runtime.contrib.dnnl.paged_decode")
    for dtype, mode, reason in (
        ("float32", 1, "INLINE"),
        ("float16", 0, "expected: rank 3 and 32"),
    ):
        tensor = tvm.runtime.tensor(query.astype(dtype))
        with pytest.raises(Exception, match=reason):
            function(
                tensor, pages, ends, numbers, last, offset, offset, tensor, sums, mode, 1, 1, 1
            )
