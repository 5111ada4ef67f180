# SPDX-License-Identifier: Apache-2.0
"""Ops between layers that would cut a model into partitions if they stayed on TVM."""

import numpy as np
import pytest
import tvm
import tvm_dnnl
from tvm import relax
from tvm.relax import op

from dnnl_relax.modules import check, compiled, conv, module, partitions, rand, run, var

IMAGE = var("x", 2, 6, 9, 9)


def snake(builder, x):
    """The activation of vocoders: x + sin(a * x)^2 / a."""
    factor = relax.const(1.5, "float32")
    sine = builder.emit(op.sin(builder.emit(op.multiply(x, factor))))
    square = builder.emit(op.multiply(sine, sine))
    return op.add(x, builder.emit(op.divide(square, factor)))


def cosine(builder, x):
    return op.cos(x)


def flipped(builder, x):
    return op.flip(builder.emit(op.flip(x, 1)), 3)


def gated_by_two_broadcasts(builder, x):
    channels = builder.emit(op.mean(x, [2, 3], keepdims=True))
    positions = builder.emit(op.sigmoid(builder.emit(op.mean(x, 1, keepdims=True))))
    return op.multiply(channels, positions)


def divided_broadcast(builder, x):
    positions = builder.emit(op.exp(builder.emit(op.mean(x, 1, keepdims=True))))
    return op.divide(relax.const(rand(6, 1, 1), "float32"), positions)


def alternating(builder, x):
    """Of full shape, and along axes that are not adjacent."""
    return op.add(x, builder.emit(op.mean(x, [1, 3], keepdims=True)))


def with_an_empty_part(builder, x):
    all_columns = builder.emit(op.strided_slice(x, [1], [0], [6]))
    rest = builder.emit(op.strided_slice(x, [1], [6], [6]))
    return op.concat([builder.emit(op.tanh(all_columns)), rest], 1)


def with_empty_parts(builder, x):
    rest = builder.emit(op.strided_slice(x, [1], [6], [6]))
    first = builder.emit(op.strided_slice(x, [1], [0], [2]))
    return op.concat([builder.emit(op.tanh(x)), rest, first, rest], 1)


def reduced(builder, x):
    return op.add(x, builder.emit(op.max(x, 0, keepdims=True)))


CASES = [
    snake,
    cosine,
    flipped,
    gated_by_two_broadcasts,
    divided_broadcast,
    alternating,
    with_an_empty_part,
    with_empty_parts,
    reduced,
]


@pytest.mark.parametrize("build", CASES, ids=lambda build: build.__name__)
def test_between_convolutions(build):
    def layers(builder, x):
        y = builder.emit(build(builder, conv(builder, x, channels=6)))
        return conv(builder, y)

    partitioned = check(module(layers, IMAGE), None, rand(2, 6, 9, 9), prune=True)
    assert partitions(partitioned) == 1
    report = tvm_dnnl.offload_report(partitioned)
    assert set(report.reasons) <= {"strided_slice"}, report


def test_broadcasts_of_open_sizes():
    """Either operand is broadcast, or both are."""

    def build(builder, x, y):
        return conv(builder, builder.emit(op.multiply(x, y)))

    x, y = var("x", "n", 6, 1, "w"), var("y", "n", 1, "h", 1)
    mod = tvm_dnnl.partition_for_dnnl(module(build, x, y))
    assert partitions(mod) == 1
    library = compiled(mod)
    for n, h, w in ((1, 9, 7), (2, 8, 8)):
        data = rand(n, 6, 1, w), rand(n, 1, h, 1, seed=1)
        (got,) = run(library, *data)
        (want,) = run(module(build, var("x", n, 6, 1, w), var("y", n, 1, h, 1)), *data)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["avg", "max"])
@pytest.mark.parametrize("include", [False, True])
def test_a_window_larger_than_the_image(kind, include):
    """With ceil_mode there is one window, of which TVM visits each position."""
    attrs = {"count_include_pad": include} if kind == "avg" else {}

    def build(builder, x):
        y = conv(builder, x)
        pool = getattr(op.nn, f"{kind}_pool2d")
        y = builder.emit(pool(y, (40, 7), (40, 2), ceil_mode=True, **attrs))
        return op.reshape(y, (2, -1))

    mod = module(build, IMAGE)
    partitioned = tvm_dnnl.partition_for_dnnl(mod)
    assert partitions(partitioned) == 1
    assert not tvm_dnnl.offload_report(partitioned).reasons
    x = rand(2, 6, 9, 9)
    for one, other in zip(run(compiled(partitioned), x), run(mod, x)):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def test_a_dequantize_that_two_partitions_read():
    """Each computes it; it makes neither wait for the other."""
    # A power of two, so that nothing is rounded but to a step.
    scale, zero = relax.const(np.float32(1 / 64)), relax.const(np.int8(0))

    def in_int8(builder, x):
        integers = builder.emit(op.quantize(x, scale, zero, axis=0, out_dtype="int8"))
        return builder.emit(op.dequantize(integers, scale, zero, axis=0, out_dtype="float32"))

    def product(builder, x, seed):
        values = relax.const((40 * rand(16, 16, seed=seed)).astype("int8"))
        weight = builder.emit(op.dequantize(values, scale, zero, axis=0, out_dtype="float32"))
        return in_int8(builder, builder.emit(op.matmul(x, weight)))

    def build(builder, x):
        x = in_int8(builder, x)
        for layer in range(3):
            branch = product(builder, x, 2 * layer)
            # TVM computes it.
            branch = in_int8(builder, builder.emit(op.atan(branch)))
            branch = product(builder, branch, 2 * layer + 1)
            x = in_int8(builder, builder.emit(op.add(x, branch)))
        return x

    mod = module(build, var("x", 8, 16))
    partitioned = tvm_dnnl.partition_for_dnnl(mod, prune=False)
    values = [binding.value for binding in partitioned["main"].body.blocks[0].bindings]
    calls = [each for each in values if isinstance(getattr(each, "op", None), tvm.ir.GlobalVar)]
    assert len(calls) == partitions(partitioned) == 4
    x = rand(8, 16)
    np.testing.assert_array_equal(run(compiled(partitioned), x), run(mod, x))
