# SPDX-License-Identifier: Apache-2.0
"""Ops that name or order elements in another way, with sizes that are known, open or computed."""

import numpy as np
import pytest
import tvm
import tvm_dnnl
from tvm import relax
from tvm.relax import op

from dnnl_relax.modules import (
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


def _split(given, axis=1):
    """Of each part of a split its relu."""

    def build(builder, x):
        parts = builder.emit(op.split(x, given, axis=axis))
        if not isinstance(parts.ty, relax.TupleType):
            return op.nn.relu(parts)
        fields = [relax.TupleGetItem(parts, k) for k in range(len(parts.ty.fields))]
        fields = [builder.emit(op.nn.relu(builder.emit(field))) for field in fields]
        return relax.Tuple(fields)

    return build


@pytest.mark.parametrize(
    "size, given, parts",
    [
        (10, 3, 3),
        (9, 3, 3),
        (7, 2, 2),
        (4, 2, 2),
        (10, 1, 1),
        (10, [2], 2),
        (4, [2], 2),
        (10, [1, 4], 3),
        (10, [], 1),
    ],
)
def test_split(size, given, parts):
    mod = module(_split(given), var("x", 2, size, 8))
    check(mod, {"dnnl.split": 1, "dnnl.relu": parts}, rand(2, size, 8))


def test_an_op_and_its_post_op_read_two_parts():
    def build(builder, x):
        parts = builder.emit(op.split(x, 2, axis=-1))
        data, gate = (builder.emit(relax.TupleGetItem(parts, k)) for k in range(2))
        return op.multiply(data, builder.emit(op.nn.gelu(gate)))

    wanted = {"dnnl.split": 1, "dnnl.gelu_erf_multiply": 1}
    check(module(build, var("x", 2, 5, 8)), wanted, rand(2, 5, 8))


@pytest.mark.parametrize("given", [[5, 2], [2, 7, 4]])
def test_split_at_unordered_indices(given):
    """TVM gives it a type with parts that overlap."""
    partitioned = tvm_dnnl.partition_for_dnnl(
        module(_split(given), var("x", 2, 10, 8)), prune=False, strict=True
    )
    assert "dnnl.split" not in composites(partitioned)
    (reason,) = tvm_dnnl.offload_report(partitioned).reasons["split"]
    assert "not in ascending order" in reason


@pytest.mark.parametrize("end, is_offloaded", [(8, True), (30, False)])
def test_slice_that_is_assumed_to_be_inside(end, is_offloaded):
    """TVM gives it a type as large as the slice says, and reads after the end of the data."""

    def build(builder, x):
        part = op.strided_slice(x, [1], [2], [end], assume_inbound=True)
        return op.nn.relu(builder.emit(part))

    partitioned = tvm_dnnl.partition_for_dnnl(
        module(build, var("x", 2, 10, 8)), prune=False, strict=True
    )
    assert ("dnnl.strided_slice" in composites(partitioned)) == is_offloaded
    if not is_offloaded:
        (reason,) = tvm_dnnl.offload_report(partitioned).reasons["strided_slice"]
        assert "the slice exceeds axis 1" in reason


def test_part_of_a_split_as_a_post_op():
    """As in the steps of an LSTM, each of which adds its part of the data."""

    def build(builder, x, y):
        parts = builder.emit(op.split(y, 2, axis=0))
        part = builder.emit(relax.TupleGetItem(parts, 1))
        return op.add(builder.emit(op.matmul(x, const(8, 4))), part)

    params = var("x", 1, 3, 8), var("y", 2, 3, 4)
    wanted = {"dnnl.split": 1, "dnnl.dense_sum": 1}
    check(module(build, *params), wanted, rand(1, 3, 8), rand(2, 3, 4))


def test_split_of_a_multiple():
    """It is open, but known to have parts of one size."""
    builder, n = relax.BlockBuilder(), tvm.tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType((n, n * 3), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(_split(3)(builder, x))
        builder.emit_func_output(result)
    partitioned = tvm_dnnl.partition_for_dnnl(builder.get(), prune=False)
    assert composites(partitioned) == {"dnnl.split": 1, "dnnl.relu": 3}
    for rows in (2, 5):
        x = rand(rows, rows * 3)
        for got, part in zip(run(compiled(partitioned), x), np.split(x, 3, 1)):
            np.testing.assert_array_equal(got, np.maximum(part, 0))


@pytest.mark.parametrize(
    "given, reason", [(3, "3 parts may be of unequal sizes"), ([4], "a part may be empty")]
)
def test_splits_of_open_axes_stay(given, reason):
    mod = module(_split(given), var("x", 2, "n", 8))
    partitioned = check(mod, None, rand(2, 10, 8))
    (text,) = tvm_dnnl.offload_report(partitioned).reasons["split"]
    assert text == f"{reason}: the size along axis 1 is open"


def test_split_beside_an_open_axis():
    mod = module(_split([1, 2]), var("x", "n", 5, 8))
    check(mod, {"dnnl.split": 1, "dnnl.relu": 3}, rand(2, 5, 8))


def _reshaped(shape):
    """A reshape to dimensions of the data, by number, or to other numbers as text."""

    def build(builder, x):
        given = x.ty.shape.values
        target = [int(each) if isinstance(each, str) else given[each] for each in shape]
        return op.nn.relu(builder.emit(op.reshape(x, target)))

    return build


ONES = {
    "first": (lambda b, x: op.expand_dims(x, [0]), 2, "expand_dims"),
    "first-two": (lambda b, x: op.expand_dims(x, [0, 1]), 2, "expand_dims"),
    "middle": (lambda b, x: op.expand_dims(x, [1]), 3, "expand_dims"),
    "reshape": (_reshaped(["1", 0, 1]), 2, "expand_dims"),
    "squeeze": (lambda b, x: op.squeeze(x, [0]), (1, "n", "l"), "squeeze"),
    "squeeze-two": (lambda b, x: op.squeeze(x, [0, -2]), (1, "n", 1, "l"), "squeeze"),
    "squeeze-one-of-two": (lambda b, x: op.squeeze(x, [0]), (1, 1, "n", "l"), "squeeze"),
    "reshape-back": (_reshaped([1, 2]), (1, "n", "l"), "squeeze"),
}


@pytest.mark.parametrize("name", ONES)
def test_ones_among_open_dimensions(name):
    build, shape, wanted = ONES[name]
    shape = ("n", "l", "m")[:shape] if isinstance(shape, int) else shape
    mod = module(lambda b, x: op.nn.relu(b.emit(build(b, x))), var("x", *shape))
    partitioned = tvm_dnnl.partition_for_dnnl(mod, prune=False)
    counts = composites(partitioned)
    assert counts.pop(f"dnnl.{wanted}") == 1 and set(counts) == {"dnnl.relu"}
    assert tvm_dnnl.offload_report(partitioned).partitions == 1
    for sizes in ({"n": 2, "l": 3, "m": 4}, {"n": 5, "l": 1, "m": 1}):
        x = rand(*(sizes.get(size, size) for size in shape))
        np.testing.assert_array_equal(*(run(each, x)[0] for each in (compiled(partitioned), mod)))


def _heads(b, x):
    """Join the batch with the heads, as a matmul of three dimensions reads them, and split it."""
    n, heads, rows, columns = x.ty.shape
    y = b.emit(op.nn.relu(b.emit(op.reshape(x, [n * heads, rows, columns]))))
    return op.exp(b.emit(op.reshape(y, [n, heads, rows, columns])))


@pytest.mark.parametrize("shape", [("n", 4, "l", 6), ("n", 4, "l", "l")], ids=str)
def test_heads_joined_with_an_open_batch(shape):
    mod = module(_heads, var("x", *shape))
    partitioned = tvm_dnnl.partition_for_dnnl(mod, prune=False)
    assert composites(partitioned) == {"dnnl.reshape": 2, "dnnl.relu": 1, "dnnl.exp": 1}
    for sizes in ({"n": 2, "l": 3}, {"n": 5, "l": 1}):
        x = rand(*(sizes.get(size, size) for size in shape))
        got, want = (run(each, x)[0] for each in (compiled(partitioned), mod))
        np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.parametrize("axes", [[0, 2], [1, 3]])
def test_ones_at_several_places(axes):
    """Each is split off the dimension that follows."""
    mod = module(lambda b, x: op.nn.relu(b.emit(op.expand_dims(x, axes))), var("x", "n", "l", "m"))
    check(mod, {"dnnl.reshape": 1, "dnnl.relu": 1}, rand(2, 3, 4))


def test_two_open_dimensions_of_one():
    """Their sizes are not those of the data, but of a tensor that it is computed from."""

    def build(b, x):
        n, length, size = x.ty.shape
        joined = b.emit(op.nn.relu(b.emit(op.reshape(x, [n * length, size]))))
        return op.reshape(joined, [n, length, size])

    mod = module(build, var("x", "n", "l", 8))
    check(mod, {"dnnl.reshape": 1, "dnnl.open_reshape": 1, "dnnl.relu": 1}, rand(2, 3, 8))


def test_open_height_and_width():
    """As around attention over an image. No tensor in between has both sizes."""

    def build(b, x, weight):
        batch, channels, height, width = x.ty.shape
        x = b.emit(op.nn.conv2d(x, weight, strides=2))
        size = [x.ty.shape[2], x.ty.shape[3]]
        rows = b.emit(op.permute_dims(x, [0, 2, 3, 1]))
        rows = b.emit(op.reshape(rows, [batch, size[0] * size[1], 8]))
        rows = b.emit(op.nn.softmax(b.emit(op.matmul(rows, const(8, 8)))))
        rows = b.emit(op.reshape(rows, [batch, *size, 2, 4]))
        return op.nn.relu(rows)

    mod = module(build, var("x", "b", 3, "h", "w"), var("weight", 8, 3, 3, 3))
    partitioned = check(mod, None, rand(2, 3, 9, 12), rand(8, 3, 3, 3))
    assert composites(partitioned)["dnnl.open_reshape"] == 1 and partitions(partitioned) == 1


def test_windows_of_open_sizes():
    """Their numbers are sizes of a view only, in an order of its own."""

    def build(b, x):
        batch, height, _, width, _, channels = x.ty.shape
        grid = b.emit(op.permute_dims(b.emit(op.nn.relu(x)), [0, 1, 3, 2, 4, 5]))
        rows = b.emit(op.reshape(grid, [batch * height * width, 4, channels]))
        rows = b.emit(op.matmul(rows, b.emit(op.permute_dims(rows, [0, 2, 1]))))
        grid = b.emit(op.reshape(rows, [batch, height, width, 2, 2, 4]))
        return op.nn.relu(b.emit(op.permute_dims(grid, [0, 1, 3, 2, 4, 5])))

    mod = module(build, var("x", "b", "h", 2, "w", 2, 8))
    partitioned = check(mod, None, rand(2, 4, 2, 3, 2, 8))
    assert composites(partitioned)["dnnl.open_reshape"] == 1 and partitions(partitioned) == 1


def test_sizes_of_another_input():
    """The data is computed from tensors without them."""

    def build(b, x, y):
        rows = b.emit(op.nn.relu(x))
        return op.add(b.emit(op.reshape(rows, y.ty.shape)), y)

    builder, n, length = relax.BlockBuilder(), *(tvm.tirx.Var(each, "int64") for each in "nl")
    x, y = relax.Var("x", relax.TensorType([n * length, 8], "float32")), None
    y = relax.Var("y", relax.TensorType([n, length, 8], "float32"))
    with builder.function("main", [x, y]):
        with builder.dataflow():
            output = builder.emit_output(build(builder, x, y))
        builder.emit_func_output(output)
    wanted = {"dnnl.relu": 1, "dnnl.open_reshape": 1, "dnnl.add": 1}
    check(builder.get(), wanted, rand(6, 8), rand(2, 3, 8))


def test_sizes_that_no_tensor_has():
    """The symbols of a shape, which is no tensor."""
    builder, n, length = relax.BlockBuilder(), *(tvm.tirx.Var(each, "int64") for each in "nl")
    x = relax.Var("x", relax.TensorType([n * length, 8], "float32"))
    sizes = relax.Var("sizes", relax.ShapeType([n, length]))
    with builder.function("main", [x, sizes]):
        with builder.dataflow():
            rows = builder.emit(op.nn.relu(x))
            output = builder.emit_output(op.reshape(rows, [n, length, 8]))
        builder.emit_func_output(output)
    partitioned = tvm_dnnl.partition_for_dnnl(builder.get(), prune=False)
    assert composites(partitioned) == {"dnnl.relu": 1}
    (text,) = tvm_dnnl.offload_report(partitioned).reasons["reshape"]
    assert "more than one open dimension" in text and "T.int64" not in text


def test_sizes_that_a_cast_defines():
    """The expression of the reshape reads what defines its symbols, which no kernel does."""
    builder, n, length = relax.BlockBuilder(), *(tvm.tirx.Var(each, "int64") for each in "nl")
    shapes = [tvm.tirx.Var("m", "int64"), 8], [*(tvm.tirx.Var(k, "int64") for k in "op"), 8]
    x, y = (relax.Var(k, relax.TensorType(dims, "float32")) for k, dims in zip("xy", shapes))
    sizes = relax.Var("sizes", relax.TensorType([2], "int64"))
    with builder.function("main", [x, y, sizes]):
        with builder.dataflow():
            shape = builder.emit(op.tensor_to_shape(sizes))
            builder.match_cast(shape, relax.ShapeType([n, length]))
            rows = builder.match_cast(x, relax.TensorType([n * length, 8], "float32"))
            like = builder.match_cast(y, relax.TensorType([n, length, 8], "float32"))
            rows = builder.emit(op.matmul(rows, const(8, 8)))
            rows = builder.emit(op.reshape(rows, [n, length, 8]))
            output = builder.emit_output(op.add(rows, like))
        builder.emit_func_output(output)
    args = rand(6, 8), rand(2, 3, 8), np.array([2, 3])
    partitioned = check(builder.get(), None, *args)
    assert composites(partitioned)["dnnl.open_reshape"] == 1


def test_concat_of_what_a_call_returns():
    """The parts of a split that stays, not read one by one."""
    mod = module(
        lambda b, x: op.nn.relu(b.emit(op.concat(b.emit(op.split(x, [4], axis=1)), axis=1))),
        var("x", 2, "n", 8),
    )
    partitioned = check(mod, {"dnnl.relu": 1}, rand(2, 10, 8))
    reasons = tvm_dnnl.offload_report(partitioned).reasons["concat"]
    assert list(reasons) == ["the tuple of tensors is the result of another call"]


@pytest.mark.parametrize("name", ["max", "min"])
def test_largest_of_several_tensors(name):
    """ONNX's Max and Min, which its importer writes as a reduction of stacked tensors."""
    binary = {"max": "maximum", "min": "minimum"}[name]

    def build(builder, x, y, z):
        stacked = builder.emit(op.stack([x, y, z], axis=1))
        return getattr(op, name)(stacked, axis=-2)

    params = [var(each, 3, 8) for each in "xyz"]
    wanted = {f"dnnl.{binary}_{binary}": 1}
    check(module(build, *params), wanted, *(rand(3, 8, seed=k) for k in range(3)))


def test_batch_split_between_post_ops():
    """Heads that lie between each other, whose scores get a dimension before they are added to."""

    def build(builder, x, y, z):
        x, y = (builder.emit(op.nn.relu(each)) for each in (x, y))
        x = builder.emit(op.permute_dims(x, [0, 2, 1, 3]))
        y = builder.emit(op.permute_dims(y, [0, 2, 3, 1]))
        scores = builder.emit(op.matmul(x, y))
        return op.add(builder.emit(op.reshape(scores, (2, 3, 1, 5, 6))), z)

    shapes = {"x": (2, 5, 3, 16), "y": (2, 6, 3, 16), "z": (2, 3, 1, 5, 6)}
    mod = module(build, *(var(name, *shape) for name, shape in shapes.items()))
    check(mod, None, *(rand(*shape) for shape in shapes.values()))
