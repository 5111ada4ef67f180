# SPDX-License-Identifier: Apache-2.0
"""Ops of Relax that are fused or read as others: the composites, and the results.

`test_net.py` has the ops alone.
"""

import pytest
from tvm import relax
from tvm.relax import op

from dnnl_relax.modules import (
    X3,
    X4,
    check_case,
    const,
    conv,
    conv_bias_relu,
    rand,
    residual,
    var,
)
from dnnl_relax.ops.test_copies import CASES as COPY_CASES


def _conv_nhwc(builder, x):
    return op.nn.conv2d(x, const(4, 3, 3, 6), data_layout="NHWC", kernel_layout="OHWI")


def _add_first(builder, x):
    return op.add(const(1, 4, 1, 1), conv(builder, x))


def _batch_norm(builder, x, bias=False):
    y = conv(builder, x)
    if bias:
        y = builder.emit(op.add(y, const(1, 4, 1, 1)))
    params = [const(4, seed=seed) for seed in range(3)]
    variance = relax.const(rand(4) ** 2 + 0.5)
    y = builder.emit(op.nn.batch_norm(y, *params, variance, axis=1, training=False))
    return op.nn.relu(builder.emit(relax.TupleGetItem(y, 0)))


def _lone_batch_norm(builder, x):
    params = [const(6, seed=seed) for seed in range(3)]
    y = op.nn.batch_norm(x, *params, relax.const(rand(6) ** 2 + 0.5), axis=1, training=False)
    return relax.TupleGetItem(builder.emit(y), 0)


def _gelu(builder, x):
    y = builder.emit(op.divide(x, relax.const(2**0.5, "float32")))
    y = builder.emit(op.add(builder.emit(op.erf(y)), relax.const(1.0, "float32")))
    y = builder.emit(op.multiply(x, y))
    return op.multiply(y, relax.const(0.5, "float32"))


def _tokens(builder, x):
    """Rows of channels of a convolution, to which an activation is fused nonetheless."""
    y = builder.emit(op.reshape(conv(builder, x), (2, 4, 81)))
    return builder.emit(op.permute_dims(y, [0, 2, 1]))


def _layer_norm_of_ops(builder, x):
    mean = builder.emit(op.mean(x, [-1], keepdims=True))
    centred = builder.emit(op.subtract(x, mean))
    square = builder.emit(op.power(centred, relax.const(2.0, "float32")))
    variance = builder.emit(op.mean(square, [-1], keepdims=True))
    root = builder.emit(op.sqrt(builder.emit(op.add(variance, relax.const(1e-5, "float32")))))
    y = builder.emit(op.divide(centred, root))
    return op.add(builder.emit(op.multiply(y, const(8))), const(8, seed=2))


def _split(builder, x):
    parts = builder.emit(op.split(x, 2, axis=1))
    one = builder.emit(relax.TupleGetItem(parts, 0))
    other = builder.emit(relax.TupleGetItem(parts, 1))
    return op.nn.relu(builder.emit(op.concat([other, one], axis=1)))


def _reshapes(builder, x):
    y = builder.emit(op.permute_dims(builder.emit(op.reshape(x, (5, 16)))))
    return op.squeeze(builder.emit(op.expand_dims(y, [0])), [0])


def _two_results(builder, x):
    y = conv(builder, x)
    return relax.Tuple([builder.emit(op.nn.relu(y)), builder.emit(op.tanh(y))])


def _one_matrix(builder, x):
    return op.matmul(x, builder.emit(op.broadcast_to(const(8, 3), (2, 8, 3))))


def _written_mask(builder, x):
    """As exporters write a causal mask."""
    rows = builder.emit(op.expand_dims(builder.emit(op.arange(0, 5, 1, "int64")), 1))
    columns = builder.emit(op.arange(0, 8, 1, "int64"))
    zeros, ones = (relax.const(value, "float32") for value in (0.0, 1.0))
    kept = builder.emit(op.full((5, 8), relax.const(True, "bool"), "bool"))
    kept = builder.emit(op.logical_and(builder.emit(op.less_equal(columns, rows)), kept))
    mask = builder.emit(op.where(kept, zeros, ones))
    return op.add(builder.emit(op.broadcast_to(x, (2, 5, 8))), mask)


def _batches(left, right):
    """Matrices, or batches of them, that broadcast each other, as parameters."""
    params = [var("x", *left), var("y", *right)]
    return lambda b, x, y: op.matmul(x, y), params, {"dnnl.batch_matmul": 1}


def _heads_of_one_image(builder, x, y):
    """Rows of heads that lie between each other; the second operand has one image."""
    x = builder.emit(op.permute_dims(x, HEADS))
    return op.matmul(x, builder.emit(op.permute_dims(y, [0, 2, 3, 1])))


def _batches_bias_relu(builder, x):
    y = builder.emit(op.add(builder.emit(op.matmul(x, const(6, 9, 5))), const(5)))
    return op.nn.relu(builder.emit(op.add(y, const(2, 6, 9, 5))))


HEADS = [0, 2, 1, 3]

CASES = {
    "matmul-of-one-matrix": (_one_matrix, [X3], {"dnnl.dense": 1}),
    "mask-of-constants": (_written_mask, [X3], {"dnnl.add": 1}),
    "dropout": (
        lambda b, x: op.nn.relu(b.emit(relax.TupleGetItem(b.emit(op.nn.dropout(x)), 0))),
        [X3],
        {"dnnl.relu": 1},
    ),
    "conv2d": (lambda b, x: conv(b, x), [X4], {"dnnl.conv2d": 1}),
    "conv2d-strided-dilated": (
        lambda b, x: conv(b, x, strides=2, dilation=2),
        [X4],
        {"dnnl.conv2d": 1},
    ),
    "conv2d-depthwise": (lambda b, x: conv(b, x, channels=6, groups=6), [X4], {"dnnl.conv2d": 1}),
    "conv2d-bias-relu": (conv_bias_relu, [X4], {"dnnl.conv2d_bias_relu": 1}),
    "conv2d-nhwc": (_conv_nhwc, [var("x", 2, 9, 9, 6)], {"dnnl.conv2d": 1}),
    "conv2d-residual": (residual, [X4], {"dnnl.conv2d_bias_sum_relu": 1}),
    "conv2d-bias-first": (_add_first, [X4], {"dnnl.conv2d_bias": 1}),
    "conv2d-batch_norm": (_batch_norm, [X4], {"dnnl.conv2d_bias_relu": 1}),
    "conv2d-bias-batch_norm": (
        lambda b, x: _batch_norm(b, x, bias=True),
        [X4],
        {"dnnl.conv2d_bias_relu": 1},
    ),
    "batch_norm": (_lone_batch_norm, [X4], {"dnnl.multiply_add": 1}),
    "matmul-bias-gelu": (
        lambda b, x: op.nn.gelu(b.emit(op.add(b.emit(op.matmul(x, const(8, 3))), const(3)))),
        [X3],
        {"dnnl.dense_bias_gelu_erf": 1},
    ),
    **{
        f"matmul-{left}-by-{right}": _batches(left, right)
        for left, right in (
            ((2, 3, 5, 8), (1, 3, 8, 4)),
            ((1, 3, 5, 8), (2, 1, 8, 4)),
            ((2, 1, 3, 5, 8), (2, 4, 1, 8, 3)),
            ((5, 8), (2, 8, 4)),
            ((3, 5, 8), (2, 3, 8, 4)),
            ((2, 3, 5, 8), (3, 8, 4)),
            ((2, 3, 5, 8), (1, 8, 4)),
        )
    },
    "matmul-heads-of-one-image": (
        _heads_of_one_image,
        [var("x", 2, 5, 3, 8), var("y", 1, 7, 3, 8)],
        {"dnnl.transpose": 2, "dnnl.batch_matmul": 1},
    ),
    "matmul-batches-bias-sum-relu": (
        _batches_bias_relu,
        [X4],
        {"dnnl.batch_matmul_bias_sum_relu": 1},
    ),
    "gelu-of-ops": (_gelu, [X3], {"dnnl.gelu_erf": 1}),
    "gelu-of-tokens": (
        lambda b, x: op.nn.gelu(_tokens(b, x)),
        [X4],
        {"dnnl.conv2d_gelu_erf": 1, "dnnl.reshape": 1, "dnnl.transpose": 1},
    ),
    "gelu-of-ops-of-tokens": (
        lambda b, x: _gelu(b, _tokens(b, x)),
        [X4],
        {"dnnl.conv2d_gelu_erf": 1, "dnnl.reshape": 1, "dnnl.transpose": 1},
    ),
    "factor-of-tokens": (
        lambda b, x: op.multiply(_tokens(b, x), relax.const(0.3, "float32")),
        [X4],
        {"dnnl.conv2d": 1, "dnnl.reshape": 1, "dnnl.transpose": 1},
    ),
    "layer_norm-of-ops": (_layer_norm_of_ops, [X3], {"dnnl.layer_norm": 1}),
    "group_norm": (
        lambda b, x: op.nn.group_norm(
            x, const(6), const(6, seed=2), num_groups=3, channel_axis=1, axes=[2, 3]
        ),
        [X4],
        {"dnnl.group_norm": 1},
    ),
    "prelu-by-one-slope": (
        lambda b, x: op.nn.prelu(conv(b, x), const(1), axis=3),
        [X4],
        {"dnnl.conv2d_leaky_relu": 1},
    ),
    "prelu-by-one-slope-of-a-call": (
        lambda b, x, a: op.nn.prelu(conv(b, x), a, axis=3),
        [X4, var("a", 1)],
        {"dnnl.conv2d": 1, "dnnl.prelu": 1},
    ),
    "conv-prelu": (lambda b, x: op.nn.prelu(conv(b, x), const(4)), [X4], {"dnnl.conv2d_prelu": 1}),
    "max-of-images": (
        lambda b, x: op.max(x, [-1, 2], keepdims=True),
        [X4],
        {"dnnl.max": 1},
    ),
    "split": (
        _split,
        [var("x", 2, 6, 8)],
        {"dnnl.split": 1, "dnnl.concatenate": 1, "dnnl.relu": 1},
    ),
    "reshapes": (_reshapes, [X3], {"dnnl.reshape": 3, "dnnl.transpose": 1}),
    **COPY_CASES,
    "conv3d": (
        lambda b, x: op.nn.conv3d(x, const(4, 6, 3, 3, 3), padding=1),
        [var("x", 2, 6, 5, 5, 5)],
        {"dnnl.conv3d": 1},
    ),
    "two-results": (
        _two_results,
        [X4],
        {"dnnl.conv2d": 1, "dnnl.relu": 1, "dnnl.tanh": 1},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_op(case):
    check_case(*CASES[case])
