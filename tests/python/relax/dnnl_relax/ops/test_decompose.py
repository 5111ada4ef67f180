# SPDX-License-Identifier: Apache-2.0
"""Ops of Relax that are written as several of the table, such as an attention."""

import numpy as np
import pytest
import tvm_dnnl
from tvm import relax
from tvm.relax import op

from dnnl_relax.modules import (
    X3,
    X4,
    check_case,
    compiled,
    composites,
    const,
    conv,
    module,
    rand,
    run,
    var,
)

HEADS = [0, 2, 1, 3]
XA = var("x", 2, 5, 2, 4)
# The scale and the mask are parts of it. A constant key is transposed again.
ATTENTION = {"dnnl.attention": 1, "dnnl.transpose": 3}


def _attention(builder, x, **attrs):
    """Queries of 5 positions, keys and values of 7; 2 heads of size 4."""
    key, value = (const(2, 7, 2, 4, seed=seed) for seed in (1, 2))
    return op.nn.attention(x, key, value, **attrs)


def _attention_of_bias(builder, x, bias):
    return op.nn.attention(x, const(2, 7, 2, 4), const(2, 7, 2, 4, seed=2), bias, scale=0.3)


def _self_attention(builder, x, **attrs):
    """As importers write it: with transposes around it, which undo those of the attention."""
    query, key, value = (
        builder.emit(
            op.permute_dims(builder.emit(op.multiply(x, const(1, 1, 1, 4, seed=seed))), HEADS)
        )
        for seed in range(3)
    )
    return op.permute_dims(builder.emit(op.nn.attention(query, key, value, **attrs)), HEADS)


def _take(index, axis, shape=()):
    index = relax.const(np.broadcast_to(np.array(index, "int64"), shape).copy())
    return lambda b, x: op.nn.relu(b.emit(op.take(x, index, axis=axis)))


CASES = {
    "attention": (_attention, [XA], ATTENTION),
    "attention-scale": (lambda b, x: _attention(b, x, scale=0.3), [XA], ATTENTION),
    "attention-bias": (_attention_of_bias, [XA, var("bias", 2, 1, 5, 7)], ATTENTION),
    "attention-causal": (lambda b, x: _attention(b, x, causal_mask="TopLeft"), [XA], ATTENTION),
    "attention-causal-at-the-end": (
        lambda b, x: _attention(b, x, causal_mask="BottomRight"),
        [XA],
        ATTENTION,
    ),
    "attention-of-itself": (
        _self_attention,
        [var("x", 2, 2, 5, 4)],
        {"dnnl.attention": 1, "dnnl.multiply": 3},
    ),
    "take-at-steps": (_take([1, 3, 5], 2, (3,)), [X3], {"dnnl.strided_slice": 1, "dnnl.relu": 1}),
    "matmul-by-a-constant-vector": (
        lambda b, x: op.nn.relu(b.emit(op.matmul(x, const(8)))),
        [X3],
        {"dnnl.dense_relu": 1, "dnnl.reshape": 1},
    ),
    # Where exp is infinite, too.
    "selu": (
        lambda b, x: op.nn.selu(b.emit(op.multiply(x, relax.const(200.0, "float32")))),
        [X3],
        {"dnnl.multiply_elu_multiply": 1},
    ),
    "conv2d-selu": (
        lambda b, x: op.nn.selu(conv(b, x)),
        [X4],
        {"dnnl.conv2d_elu_multiply": 1},
    ),
    "variance-of-images": (
        lambda b, x: op.variance(x, [2, 3], keepdims=True),
        [X4],
        {"dnnl.global_avg_pool2d": 2, "dnnl.subtract_pow": 1},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_op(case):
    check_case(*CASES[case])


@pytest.mark.parametrize(
    "batch, height, width, reshapes",
    [(2, 3, 5, 2), ("n", "h", 5, 2), ("n", "h", "w", 3)],
    ids=["static", "open", "open height and width"],
)
def test_pixel_shuffle(batch, height, width, reshapes):
    """TVM 0.27 itself cannot compile it."""
    mod = module(lambda b, x: op.nn.pixel_shuffle(x, 2), var("x", batch, 12, height, width))
    partitioned = tvm_dnnl.partition_for_dnnl(mod, prune=False)
    assert composites(partitioned) == {"dnnl.reshape": reshapes, "dnnl.transpose": 1}
    x = rand(2, 12, 3, 5)
    want = x.reshape(2, 3, 2, 2, 3, 5).transpose(0, 1, 4, 2, 5, 3).reshape(2, 3, 6, 10)
    np.testing.assert_array_equal(run(compiled(partitioned), x)[0], want)


@pytest.mark.parametrize(
    "index_map, reason",
    [
        (lambda n, c, h, w: (n, c // 4, h, w, c % 4), "blocks of 4 do not divide axis 1"),
        (lambda n, c, h, w: (n * 6 + c, h, w), "neither an axis nor a block of one"),
        (lambda n, c, h, w: (n, c // 2, h, w, c % 3), "neither an axis nor a block of one"),
        (lambda n, c, h, w: (w, c, n, c // 2, h, c % 2), "neither an axis nor a block of one"),
    ],
    ids=["padded", "joined", "of-two-sizes", "twice"],
)
def test_layouts_that_stay(index_map, reason):
    mod = module(lambda b, x: op.layout_transform(x, index_map), X4)
    report = tvm_dnnl.offload_report(tvm_dnnl.partition_for_dnnl(mod, prune=False))
    (text,) = report.reasons["layout_transform"]
    assert reason in text


@pytest.mark.parametrize("key, value", [(2, 2), (1, 1), (4, 2)])
def test_attention_of_fewer_heads_of_keys_stays(key, value):
    """TVM 0.27 accepts it, and reads beyond the keys: there is nothing to compare with."""
    heads = (4, key, value)
    params = [var(name, 1, 5, size, 8) for name, size in zip("qkv", heads)]
    mod = module(lambda b, q, k, v: op.nn.attention(q, k, v), *params)
    partitioned = tvm_dnnl.partition_for_dnnl(mod, prune=False)
    (text,) = tvm_dnnl.offload_report(partitioned).reasons["nn.attention"]
    assert text == f"4 query heads, {key} key heads and {value} value heads"
    compiled(partitioned)
