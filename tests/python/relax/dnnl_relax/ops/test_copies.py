# SPDX-License-Identifier: Apache-2.0
"""Ops that repeat, join, select or gather elements, in partitions with what reads them.

`test_composites.py` has the cases of one op.
"""

import numpy as np
import pytest
import tvm_dnnl
from tvm import relax
from tvm.relax import op

from dnnl_relax.modules import (
    X3,
    check,
    compiled,
    composites,
    const,
    module,
    partitions,
    rand,
    run,
    var,
)

HEADS = var("x", 2, 8, 6, 16)
KEYS = var("k", 2, 2, 16, 6)


def repeated(builder, x, k):
    return op.matmul(x, builder.emit(op.repeat(k, 4, 1)))


def expanded(builder, x, k):
    k = builder.emit(op.broadcast_to(builder.emit(op.expand_dims(k, 2)), (2, 2, 4, 16, 6)))
    return op.matmul(x, builder.emit(op.reshape(k, (2, 8, 16, 6))))


def concatenated(builder, x, k):
    """PyTorch's repeat_kv without a view."""
    k = builder.emit(op.expand_dims(k, 2))
    k = builder.emit(op.concat([k] * 4, 2))
    return op.matmul(x, builder.emit(op.reshape(k, (2, 8, 16, 6))))


@pytest.mark.parametrize("build", [repeated, expanded, concatenated])
def test_grouped_heads(build):
    inputs = rand(*HEADS[1]), rand(*KEYS[1], seed=1)
    mod = check(module(build, HEADS, KEYS), None, *inputs, prune=True)
    assert partitions(mod) == 1
    report = tvm_dnnl.offload_report(mod)
    assert report.total == report.offloaded, report


def test_filled():
    """A broadcast of a constant is one where nothing broadcasts it by itself."""

    def build(builder, x):
        ones = builder.emit(op.broadcast_to(relax.const(1.0, "float32"), (2, 1, 8)))
        return op.matmul(builder.emit(op.concat([x, ones], 1)), const(8, 4))

    mod = check(module(build, var("x", 2, 5, 8)), None, rand(2, 5, 8), prune=True)
    assert composites(mod) == {"dnnl.concatenate": 1, "dnnl.dense": 1}


def test_broadcast_of_an_open_size():
    def build(builder, x):
        y = builder.emit(op.broadcast_to(x, (3, 2, x.ty.shape.values[1], 8)))
        return op.matmul(y, const(8, 4))

    mod = tvm_dnnl.partition_for_dnnl(module(build, var("x", 2, "n", 8)))
    assert composites(mod) == {"dnnl.broadcast_to": 1, "dnnl.dense": 1}
    library = compiled(mod)
    for size in (1, 5):
        x = rand(2, size, 8)
        (got,) = run(library, x)
        wanted = np.broadcast_to(x, (3, *x.shape)) @ rand(8, 4, seed=1)
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "mode, indices",
    [
        ("clip", [[0, 9, 3], [-4, 100, 2**31 - 1]]),
        ("clip-int64", [[0, 9, 3], [-(2**40), 2**32 + 1, 5]]),
        ("wrap", [[0, 9, 3], [-4, 100, -100]]),
        ("fast-int64", [[0, 9, 3], [1, 2, 8]]),
    ],
)
def test_rows_by_index(mode, indices):
    mode, *dtype = mode.split("-")
    dtype = dtype[0] if dtype else "int32"

    def build(builder, i):
        return op.matmul(builder.emit(op.take(const(10, 8), i, 0, mode)), const(8, 4, seed=2))

    mod = tvm_dnnl.partition_for_dnnl(module(build, var("i", 2, 3, dtype=dtype)))
    assert composites(mod) == {"dnnl.take": 1, "dnnl.dense": 1}
    (got,) = run(compiled(mod), np.array(indices, dtype))
    rows = np.take(rand(10, 8, seed=1), indices, 0, mode="raise" if mode == "fast" else mode)
    np.testing.assert_allclose(got, rows @ rand(8, 4, seed=2), rtol=1e-5, atol=1e-5)


def _cached(builder, past, x):
    """Attention to the keys of a cache and a new one."""
    key = builder.emit(op.matmul(x, const(8, 8)))
    keys = builder.emit(op.concat([past, key], 1))
    scores = builder.emit(op.matmul(x, builder.emit(op.permute_dims(keys, [0, 2, 1]))))
    weights = builder.emit(op.nn.softmax(scores))
    return relax.Tuple([builder.emit(op.matmul(weights, keys)), keys])


def test_a_cache_that_is_empty_at_first():
    past, x = var("past", 2, "n", 8), var("x", 2, 3, 8)
    mod = tvm_dnnl.partition_for_dnnl(module(_cached, past, x))
    assert partitions(mod) == 1
    assert composites(mod)["dnnl.concatenate"] == 1
    library = compiled(mod)
    for size in (0, 1, 7, 0):
        values = rand(2, size, 8, seed=size), rand(2, 3, 8)
        keys = np.concatenate([values[0], values[1] @ rand(8, 8, seed=1)], 1)
        exponential = np.exp(values[1] @ keys.transpose(0, 2, 1))
        wanted = exponential / exponential.sum(-1, keepdims=True) @ keys
        for got, want in zip(run(library, *values), (wanted, keys)):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def _moved(builder, past, x):
    """A transpose reads the cache first, and oneDNN has no empty tensors."""
    past = builder.emit(op.permute_dims(past, [0, 2, 1]))
    return _cached(builder, past, x)


def _of_caches(builder, past, x):
    """Nothing tells that there is an element."""
    return op.nn.relu(builder.emit(op.concat([past, past], 1)))


@pytest.mark.parametrize(
    "build, shape, reason",
    [
        (_moved, (2, 8, "n"), "tensor 0 may be empty: its size along axis 1 is open"),
        (_of_caches, (2, "n", 8), "each tensor may be empty: their sizes along axis 1 are open"),
    ],
)
def test_caches_that_stay_on_tvm(build, shape, reason):
    mod = module(build, var("past", *shape), var("x", 2, 3, 8))
    report = tvm_dnnl.offload_report(tvm_dnnl.partition_for_dnnl(mod, prune=False))
    assert list(report.reasons["concat"]) == [reason]


@pytest.mark.parametrize("name", ["ceil", "floor", "round", "sign", "trunc"])
def test_special_values(name):
    """Halves, zeros of both signs, numbers without a fraction, infinities, and NaN."""
    x = [0.0, 0.5, 1.5, 2.5, 0.49999997, 0.50000006, 8388607.5, 8388609.0, 3e9, 1e-40, np.inf]
    x = np.float32([*x, *np.negative(x), np.nan] * 3)
    mod = module(lambda b, x: getattr(op, name)(x), var("x", x.size))
    mod = tvm_dnnl.partition_for_dnnl(mod, prune=False)
    assert composites(mod) == {f"dnnl.{name}": 1}
    (got,) = run(compiled(mod), x)
    numpy_name = {"round": "rint"}.get(name, name)
    wanted = getattr(np, numpy_name)(x)
    if name == "sign":
        wanted = np.where(np.isnan(x), np.float32(0), wanted)
    np.testing.assert_array_equal(got, wanted)
    if name != "sign":
        assert (np.signbit(got) == np.signbit(wanted))[~np.isnan(x)].all()


SLICES = {
    "all": (1, -1, -(2**63) + 1, -1),
    "part": (1, 4, 1, -1),
    "steps": (-1, 99, 0, -2),
    "to-last": (0, -2, -5, -1),
}


@pytest.mark.parametrize("axis, begin, end, step", SLICES.values(), ids=SLICES)
def test_slices_in_reverse(axis, begin, end, step):
    x = rand(6, 7, 5)

    def build(builder, data):
        part = op.strided_slice(data, [axis], [begin], [end], [step])
        return op.nn.relu(builder.emit(part))

    partitioned = tvm_dnnl.partition_for_dnnl(module(build, var("x", 6, 7, 5)), prune=False)
    report = tvm_dnnl.offload_report(partitioned)
    assert (report.reasons, report.partitions) == ({}, 1)
    (got,) = run(compiled(partitioned), x)
    index = [slice(None)] * 3
    index[axis] = slice(begin, end, step)
    np.testing.assert_array_equal(got, np.maximum(x[tuple(index)], 0))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_elements_of_constant_indices(axis):
    """As of the relative positions of ProphetNet."""
    x = rand(4, 5, 6)
    indices = np.random.default_rng(0).integers(0, x.shape[axis], (3, 4, 5))

    def build(builder, data):
        items = builder.emit(op.gather_elements(data, relax.const(indices, "int64"), axis))
        return op.nn.relu(items)

    partitioned = tvm_dnnl.partition_for_dnnl(module(build, var("x", 4, 5, 6)), prune=False)
    report = tvm_dnnl.offload_report(partitioned)
    assert (report.reasons, report.partitions) == ({}, 1)
    (got,) = run(compiled(partitioned), x)
    places = list(np.indices(indices.shape))
    places[axis] = indices
    np.testing.assert_array_equal(got, np.maximum(x[tuple(places)], 0))


@pytest.mark.parametrize("mode", ["reflect", "edge"])
def test_pads_of_many_lines(mode):
    """As of the short-time Fourier transform of a voice detector."""
    x, widths = rand(1, 3, 200), ((0, 0), (2, 1), (96, 50))
    name = {"edge": "replicate"}.get(mode, mode)

    def build(builder, data):
        padded = op.nn.pad(data, [width for pair in widths for width in pair], name)
        return op.nn.relu(builder.emit(padded))

    partitioned = tvm_dnnl.partition_for_dnnl(module(build, var("x", 1, 3, 200)), prune=False)
    report = tvm_dnnl.offload_report(partitioned)
    assert (report.reasons, report.partitions) == ({}, 1)
    (got,) = run(compiled(partitioned), x)
    np.testing.assert_array_equal(got, np.maximum(np.pad(x, widths, mode), 0))


def _truths(name):
    """A selection by what an op computes of comparisons."""

    def build(builder, x):
        truths = [builder.emit(op.greater(x, const(8, seed=seed))) for seed in (3, 4)]
        count = 1 if name == "logical_not" else 2
        condition = builder.emit(getattr(op, name)(*truths[:count]))
        return op.where(condition, x, const(8, seed=5))

    return build


def _special(name):
    def build(builder, x):
        # 1 / 0 and 0 / 0, of elements that a relu has made zero.
        zeros = builder.emit(op.nn.relu(x))
        numbers = builder.emit(op.divide(builder.emit(op.minimum(x, zeros)), zeros))
        return op.where(builder.emit(getattr(op, name)(numbers)), x, const(8))

    return build


CASES = {
    "where-scalars": (
        lambda b, x: op.where(
            b.emit(op.greater(x, const(2, 5, 8))),
            relax.const(1.0, "float32"),
            relax.const(-np.inf, "float32"),
        ),
        [X3],
        {"dnnl.greater": 1, "dnnl.where": 1},
    ),
    **{
        name: (_truths(name), [X3], {"dnnl.greater": count, "dnnl.where": count_where})
        for name, count, count_where in (
            ("logical_not", 1, 2),
            ("logical_and", 2, 2),
            ("logical_or", 2, 2),
            ("logical_xor", 2, 3),
        )
    },
    **{name: (_special(name), [X3], None) for name in ("isnan", "isinf", "isfinite")},
    "truths-moved": (
        lambda b, x: op.astype(
            b.emit(
                op.strided_slice(
                    b.emit(op.reshape(b.emit(op.greater(x, const(8))), (10, 8))), [0], [1], [9]
                )
            ),
            "float32",
        ),
        [X3],
        {"dnnl.greater": 1, "dnnl.reshape": 1, "dnnl.strided_slice": 1, "dnnl.cast": 1},
    ),
}
