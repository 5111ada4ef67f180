# SPDX-License-Identifier: Apache-2.0
"""Rewrites: elements are moved in 8 bits, and indices are known."""

import numpy as np
import pytest
import tvm_dnnl
from tvm import relax
from tvm.relax import op

from dnnl_relax.modules import (
    check,
    compiled,
    composites,
    const,
    module,
    rand,
    run,
    var,
)


def relu(builder, x):
    return builder.emit(op.nn.relu(x))


def real(builder, x, scale=0.05, zero_point=3):
    """Return what integers in 8 bits stand for."""
    zero = relax.const(zero_point, str(x.ty.dtype))
    return builder.emit(op.dequantize(x, relax.const(scale, "float32"), zero, axis=1))


def bits(builder, x, scale=0.05, zero_point=3):
    """Return the integers in 8 bits that represent floating-point values."""
    scale, zero = relax.const(scale, "float32"), relax.const(np.int8(zero_point))
    return builder.emit(op.quantize(x, scale, zero, axis=1, out_dtype="int8"))


def qconv(builder, x, channels=6, seed=0):
    weight = np.random.default_rng(seed).integers(-9, 9, (6, channels, 1, 1)).astype("int8")
    scale, zero = relax.const(rand(6) ** 2 + 0.1), relax.const(np.zeros(6, "int8"))
    weight = builder.emit(op.dequantize(relax.const(weight), scale, zero, axis=0))
    return builder.emit(op.nn.conv2d(x, weight))


def _views(builder, x):
    y = builder.emit(op.permute_dims(real(builder, x), [0, 2, 3, 1]))
    return qconv(builder, builder.emit(op.reshape(y, (1, 6, 16, 12))))


def _split(builder, x):
    parts = builder.emit(op.split(real(builder, x), 2, axis=3))
    left, right = (builder.emit(relax.TupleGetItem(parts, k)) for k in (0, 1))
    return op.add(qconv(builder, left), qconv(builder, right))


def _quantized_after(builder, x):
    y = bits(
        builder, builder.emit(op.concat([real(builder, x), qconv(builder, real(builder, x))], 1))
    )
    return qconv(builder, real(builder, y), 12)


def _layer(builder, x):
    """A matmul with bias between reshapes, as onnxruntime quantizes one of three dimensions."""
    weight = np.random.default_rng(0).integers(-9, 9, (16, 24)).astype("int8")
    scale, zero = relax.const(rand(24) ** 2 + 0.1), relax.const(np.zeros(24, "int8"))
    weight = builder.emit(op.dequantize(relax.const(weight), scale, zero, axis=1))
    y = real(builder, builder.emit(op.reshape(x, (72, 16))))
    y = builder.emit(op.add(builder.emit(op.matmul(y, weight)), const(24)))
    y = real(builder, bits(builder, y, 0.5), 0.5)
    y = builder.emit(op.tanh(builder.emit(op.reshape(y, (6, 12, 24)))))
    return builder.emit(op.reshape(y, (72, 24)))


def by_channel(builder, data, axis, size):
    """Return floating-point values with a scale and a zero point for each item of an axis."""
    scale, zero = rand(size) ** 2 + 0.1, np.arange(size) % 3
    args = relax.const(scale), relax.const(zero.astype("int8"))
    return builder.emit(op.dequantize(data, *args, axis=axis))


def _moved_by_channel(builder, x):
    """Both are read in 8 bits: after a dequantize they would be moved in 32."""
    y = builder.emit(op.permute_dims(by_channel(builder, x, 1, 6), [0, 2, 3, 1]))
    y = builder.emit(op.reshape(y, (12, 16, 3, 2)))
    z = builder.emit(op.reshape(by_channel(builder, x, 2, 12), (2, 3, 12, 16)))
    parts = builder.emit(op.split(z, 2, axis=3))
    left, right = (builder.emit(relax.TupleGetItem(parts, k)) for k in (0, 1))
    return relax.Tuple([y, op.tanh(left), op.exp(right)])


def _split_channels(builder, x):
    """What takes the axis apart is done to floating-point values."""
    parts = builder.emit(op.split(by_channel(builder, x, 1, 6), 2, axis=1))
    left, right = (builder.emit(relax.TupleGetItem(parts, k)) for k in (0, 1))
    return op.add(left, right)


def _offset_weight(builder, x, *shape, **attrs):
    """A convolution by uint8 numbers, which less their zero point do not fit into int8."""
    weight = np.random.default_rng(0).integers(0, 256, shape).astype("uint8")
    weight = real(builder, relax.const(weight), 0.01, 100)
    return relu(builder, builder.emit(op.nn.conv2d(real(builder, x), weight, **attrs)))


def _offset_matrix(builder, x):
    layouts = dict(data_layout="NHWC", kernel_layout="HWIO")
    return _offset_weight(builder, x, 1, 1, 16, 12, **layouts)


# By name: the function, and what is in its partitions. Relay's tests have the other cases:
# `rewrites/test_move_in_int8.py` and `rewrites/test_weight_zero_point.py`.
IN_8_BITS = {
    "views": (_views, {"dnnl.transpose": 1, "dnnl.reshape": 1, "dnnl.qnn.conv2d": 1}),
    "split": (_split, {"dnnl.split": 1, "dnnl.qnn.conv2d": 1, "dnnl.qnn.conv2d_sum": 1}),
    "quantized-after": (
        _quantized_after,
        {"dnnl.qnn.conv2d_quantize": 1, "dnnl.concatenate": 1, "dnnl.qnn.conv2d": 1},
    ),
    "moved-by-channel": (
        _moved_by_channel,
        {
            "dnnl.transpose": 1,
            "dnnl.reshape": 2,
            "dnnl.split": 1,
            "dnnl.dequantize": 3,
            "dnnl.tanh": 1,
            "dnnl.exp": 1,
        },
    ),
    "split-channels": (_split_channels, {"dnnl.dequantize": 1, "dnnl.split": 1, "dnnl.add": 1}),
    "weight-zero-point": (
        lambda b, x: _offset_weight(b, x, 6, 6, 3, 3, padding=1),
        {"dnnl.qnn.conv2d": 2, "dnnl.add_relu": 1},
    ),
    "matrix-zero-point": (_offset_matrix, {"dnnl.qnn.dense_relu": 1}),
    "layer": (_layer, {"dnnl.reshape": 2, "dnnl.qnn.matmul_bias_quantize_tanh": 1}),
}


@pytest.mark.parametrize("name", IN_8_BITS)
def test_moved_in_8_bits(name):
    build, wanted = IN_8_BITS[name]
    x = np.random.default_rng(1).integers(-128, 127, (1, 6, 12, 16)).astype("int8")
    # Sums of integers, of which the largest is near 300.
    check(module(build, var("x", *x.shape, dtype="int8")), wanted, x, tolerance=1e-4)


def test_index_of_constants():
    """ONNX's Gather adds the size to a negative index, which constants tell."""

    def build(b, x):
        size = b.emit(op.take(b.emit(op.shape_to_tensor(b.emit(op.shape_of(x)))), const(1), axis=0))
        is_negative = b.emit(op.less(const(-2), const(0)))
        index = b.emit(op.where(is_negative, b.emit(op.add(const(-2), size)), const(-2)))
        return op.nn.relu(b.emit(op.take(x, index, axis=1)))

    def const(value):
        return relax.const(value, "int64")

    partitioned = tvm_dnnl.partition_for_dnnl(module(build, var("x", 2, 5, 8)), prune=False)
    assert composites(partitioned)["dnnl.strided_slice"] == 1
    assert tvm_dnnl.offload_report(partitioned).partitions == 1
    x = rand(2, 5, 8)
    np.testing.assert_array_equal(run(compiled(partitioned), x)[0], np.maximum(x[:, 3], 0))


@pytest.mark.parametrize("dtype", ["int64", "float64"])
def test_constants_keep_their_type(dtype):
    """Ops of constants, and a weight in 64 bits, which stays on TVM."""
    w = rand(8, 4).astype(dtype)

    def build(b, x):
        shift = b.emit(op.add(relax.const(w[:1], dtype), b.emit(op.arange(0, 4, 1, dtype))))
        return op.add(b.emit(op.matmul(x, relax.const(w, dtype))), shift)

    mod = module(build, var("x", 3, 8, dtype=dtype))
    x = (rand(3, 8) * 10).astype(dtype)
    partitioned = tvm_dnnl.partition_for_dnnl(mod, prune=False)
    np.testing.assert_allclose(
        run(compiled(partitioned), x)[0], x @ w + w[:1] + np.arange(4), rtol=1e-12
    )


def test_last_index():
    """TVM's kernel reads another; PyTorch's importer means the last."""
    mod = module(
        lambda b, x: op.nn.relu(b.emit(op.take(x, relax.const(-1, "int64"), axis=1))),
        var("x", 2, 5, 8),
    )
    partitioned = tvm_dnnl.partition_for_dnnl(mod, prune=False)
    assert composites(partitioned)["dnnl.strided_slice"] == 1
    x = rand(2, 5, 8)
    np.testing.assert_array_equal(run(compiled(partitioned), x)[0], np.maximum(x[:, -1], 0))
