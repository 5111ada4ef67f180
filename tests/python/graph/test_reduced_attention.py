# SPDX-License-Identifier: Apache-2.0
"""Attention in reduced precision: what reads a cache in float32 stays, and so do masks."""

import numpy as np
import pytest
from graph_reader import Reader
from tvm.contrib.onednn import cpu
from tvm.contrib.onednn.ops.rules import Rules
from tvm.contrib.onednn.ops.table import TABLE
from tvm.contrib.onednn.options import Options
from tvm.contrib.onednn.rewrites.attention import fuse_attention
from tvm.contrib.onednn.rewrites.reduced_precision import reduce_precision

HEADS, WIDTH, PAST = 2, 8, 6
SIZE = HEADS * WIDTH
RULES = Rules(TABLE, Options(precision="bfloat16"))


@pytest.fixture(autouse=True)
def any_cpu(monkeypatch):
    """Pretend that the CPU has all types, but no AMX; no TVM has to be there to say so."""
    monkeypatch.setattr(cpu, "computes", lambda dtype: True)
    monkeypatch.setattr(cpu, "has_amx", lambda: False)


def heads(r, x, seed):
    """Project to heads."""
    weight = np.random.default_rng(seed).standard_normal((SIZE, SIZE))
    y = r.call("nn.dense", r.call("reshape", x, newshape=[-1, SIZE]), r.constant(weight))
    y = r.call("reshape", y, newshape=[1, x.type.shape[1], HEADS, WIDTH])
    return r.call("transpose", y, axes=[0, 2, 1, 3])


def layer(r, length, has_cache):
    """A layer of attention with a mask, and the cache as a result."""
    x = r.input(1, length, SIZE)
    query, key, value = (heads(r, x, seed) for seed in range(3))
    if has_cache:
        pasts = [r.input(1, HEADS, PAST, WIDTH) for _ in range(2)]
        key, value = (
            r.call("concatenate", r.tuple(past, new), axis=2)
            for past, new in zip(pasts, (key, value))
        )
    mask = r.call("multiply", r.input(1, 1, length, key.type.shape[2]), r.constant(-3.4e38))
    product = dict(transpose_a=False)
    scores = r.call("nn.batch_matmul", query, key, transpose_b=True, **product)
    weights = r.call("nn.softmax", r.call("add", scores, mask), axis=-1)
    y = r.call("nn.batch_matmul", weights, value, transpose_b=False, **product)
    y = r.call("reshape", r.call("transpose", y, axes=[0, 2, 1, 3]), newshape=[-1, SIZE])
    weight = np.random.default_rng(3).standard_normal((SIZE, SIZE))
    y = r.call("nn.dense", y, r.constant(weight))
    return [y, key, value] if has_cache else [y]


def reduced(length, has_cache):
    r = Reader()
    graph = r.returns(*layer(r, length, has_cache))
    for rewrite in (fuse_attention, reduce_precision):
        rewrite(graph, RULES)
        graph.sort()
        graph.verify()
    return [node for node in graph.nodes if node.is_call]


@pytest.mark.parametrize("has_cache", [False, True], ids=["encoder", "decoder"])
def test_types(has_cache):
    calls = reduced(4, has_cache)
    (attention,) = (node for node in calls if node.name == "dnnl.attention")
    dtype = "float32" if has_cache else "bfloat16"
    assert [operand.type.dtype for operand in attention.operands] == [dtype] * 3 + ["float32"]
    assert attention.type.dtype == dtype
    dense = [node for node in calls if node.name == "nn.dense"]
    assert all(node.operands[1].type.dtype == "bfloat16" for node in dense)
    # Sums that are read in float32 are written so; nothing of the cache is cast.
    assert [node.type.dtype for node in dense] == [dtype] * 3 + ["float32"]
    cast = [node.type.shape for node in calls if node.name == "cast"]
    assert all(int(np.prod(shape)) == 4 * SIZE for shape in cast), cast


def test_matmuls_of_oneDNN_for_many_queries_of_a_known_length():
    """They multiply in bfloat16, and the kernel of attention in float32."""
    names = [node.name for node in reduced(17, False)]
    assert "dnnl.attention" not in names and names.count("nn.batch_matmul") == 2


@pytest.mark.parametrize("length", [191, 192])
def test_one_kernel_for_many_keys_with_amx(monkeypatch, length):
    """Heads of any width: those of this layer are narrower than a tile."""
    monkeypatch.setattr(cpu, "has_amx", lambda: True)
    names = [node.name for node in reduced(length, False)]
    assert ("dnnl.attention" in names) == (length == 192)
