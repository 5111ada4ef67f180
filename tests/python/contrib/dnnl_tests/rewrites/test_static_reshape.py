# SPDX-License-Identifier: Apache-2.0
"""Reshapes to a computed shape become reshapes with codes, where that is exactly right."""

import itertools

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.contrib.onednn.ir.dim import Dim
from tvm.contrib.onednn.ops.reshape import reshape_codes
from tvm.relay.op.contrib import dnnl
from tvm.relay.op.contrib._dnnl.ir.dataflow_graph import op_calls
from tvm.testing import dnnl as testing
from tvm.testing.dnnl import host_target

from dnnl_tests import direct
from dnnl_tests.marks import json_only, nightly_after, nightly_except
from dnnl_tests.onnx_models import onnx_model
from dnnl_tests.reference import rand
from dnnl_tests.relay import const, module, partition, var, without_dnnl

ANY = None
N, L = Dim.symbol("n"), Dim.symbol("l")

CODES = {
    "split-last": ((N, L, 96), (N, L, 12, 8), [0, 0, -4, 12, 8]),
    "join-last": ((N, L, 12, 8), (N, L, 96), [0, 0, -3]),
    "split-first": ((N * 12, L, L), (N, 12, L, L), [-4, -1, 12, 0, 0]),
    "join-first": ((N, 12, L, L), (N * 12, L, L), [-3, 0, 0]),
    "join-inferred": ((N, 12, L, L), (None, L, L), [-3, 0, 0]),
    "flat": ((N, 8, 4), (N, 32), [0, -3]),
    "flat-three": ((N, 8, 4, 2), (N, 64), [0, 64]),
    "rows": ((N, L, 8), (N * L, 8), [-3, 0]),
    "unknown-one": ((N, L, 8), (None, 4), [-1, 4]),
    "swapped": ((N, L, 8), (L, N, 8), None),
    "unknown-two": ((N, L, 8), (None, None, 4), None),
    "of-another": ((N, L, 8), (Dim.symbol("m"), L, 8), [-1, 0, 8]),
}


@pytest.mark.parametrize("name", CODES)
def test_codes(name):
    source, wanted, codes = CODES[name]
    assert reshape_codes(source, list(wanted)) == codes


def shape(data, *parts):
    """Return the expression that importers make of a shape.

    A part is a number, or the axis of the data whose dimension is meant, in a list.
    """
    sizes, fields = relay.shape_of(data, "int64"), []
    for part in parts:
        if isinstance(part, list):
            one = relay.take(sizes, relay.const(part[0]), axis=0)
            fields.append(relay.expand_dims(one, 0))
        else:
            fields.append(relay.const([part], "int64"))
    return relay.concatenate(fields, 0)


def check(expr, gone):
    """Check that dynamic reshapes have gone, or have not, and return the report."""
    partitioned = partition(module(expr), prune=False)
    report = dnnl.offload_report(partitioned)
    left = [name for name in report.ops if name.startswith("dyn.") or name == "shape_of"]
    assert (not left) == gone, report
    return report


def test_split_into_heads_and_back():
    data = var("x", ANY, ANY, 96)
    heads = relay.reshape(data, shape(data, [0], [1], 12, 8))
    turned = relay.transpose(relay.nn.relu(heads), (0, 2, 1, 3))
    joined = relay.reshape(turned, shape(turned, -1, [2], 8))
    assert check(joined, gone=True).ops["reshape"] == 2


def test_shape_of_an_operand_of_the_same_shape():
    """The shape may be read off what the data was computed from."""
    data = var("x", ANY, ANY, 96)
    weights = relay.nn.softmax(relay.nn.dense(data, const(96, 96)) + const(96))
    check(relay.reshape(weights, shape(data, [0], [1], 12, 8)), gone=True)


@pytest.mark.parametrize("op", [relay.max, relay.mean, relay.variance])
def test_shape_of_a_reduction(op):
    """A variance has the mean as its second operand."""
    data = var("x", ANY, ANY, 8)
    real = relay.nn.relu(data) - op(data, axis=[-1], keepdims=True)
    check(relay.reshape(real, shape(data, [0], [1], 4, 2)), gone=True)


def test_shape_of_another_tensor_stays():
    """Its open dimensions may be others, and two of them could be swapped unseen."""
    data, other = var("x", ANY, ANY, 8), var("y", ANY, ANY)
    check(relay.reshape(relay.nn.relu(data), shape(other, [0], [1], 8)), gone=False)


def test_sum_of_two_is_none_of_them():
    """Either may be broadcast."""
    data = var("x", ANY, ANY, 8)
    both = data + var("y", ANY, ANY, 8)
    check(relay.reshape(both, shape(data, [0], [1], 4, 2)), gone=False)


def test_broadcast_to_its_own_shape_goes():
    data = var("x", ANY, 4, 8)
    sizes = relay.shape_of(data, "int64")
    batch = relay.maximum(relay.strided_slice(sizes, [0], [1]), relay.const([1], "int64"))
    same = relay.concatenate([batch, relay.strided_slice(sizes, [1], [3])], 0)
    report = check(relay.nn.relu(relay.broadcast_to(data, same)), gone=True)
    assert report.folded == {"dyn.broadcast_to": 1}


def test_broadcast_that_may_be_one_stays():
    data, other = var("x", ANY, 8), var("y", ANY)
    check(relay.broadcast_to(data, shape(other, [0], 8)), gone=False)


def test_shape_from_a_constant():
    data = var("x", ANY, 8, 4)
    wanted = relay.concatenate([relay.const([0], "int64"), relay.const([-1], "int64")], 0)
    assert check(relay.reshape(relay.nn.relu(data), wanted), gone=True).ops["reshape"] == 1


def onnx_slice(starts, ends, axes, steps=None):
    """Return the module that TVM's importer makes of a slice of (?, ?, 3, 8)."""
    bounds = {"starts": starts, "ends": ends, "axes": axes, **({"steps": steps} if steps else {})}
    nodes = ["r = Relu(x)", "t = Transpose <perm = [2, 0, 1, 3]> (r)"]
    nodes.append(f"y = Slice({', '.join(['t', *bounds])})")
    constants = {name: np.array(value, "int64") for name, value in bounds.items()}
    model = onnx_model(nodes, {"x": ["n", "l", 3, 8]}, constants, opset=13)
    return relay.frontend.from_onnx(model, freeze_params=True)[0]


SLICES = {
    "of-a-number": (([1], [2], [0]), (slice(1, 2),)),
    "from-behind": (([-2], [-1], [0]), (slice(-2, -1),)),
    "beyond-the-end": (([1], [2**31 - 1], [0]), (slice(1, None),)),
    "of-two": (([0, 2], [2, 7], [0, 3]), (slice(0, 2), ..., slice(2, 7))),
    "of-none": (([0], [2**31 - 1], [1]), (...,)),
    "of-open": (([1], [2], [1]), (slice(None), slice(1, 2))),
    "with-steps": (([0], [8], [3], [2]), (..., slice(0, 8, 2))),
}


@json_only
@pytest.mark.parametrize("name", SLICES)
def test_slices(name):
    """Where the axis that is cut has a size that is known, what is kept is an attribute."""
    bounds, index = SLICES[name]
    partitioned = partition(onnx_slice(*bounds), prune=False)
    report = dnnl.offload_report(partitioned)
    is_known = name != "of-open"
    assert ("dyn.strided_slice" not in report.ops) == is_known, report
    if is_known:
        assert (report.offloaded, report.partitions) == (report.total, 1), report
        assert report.ops["strided_slice"] == (name != "of-none")
    runner = testing.Runner(testing.build(partitioned, executor="vm"))
    for batch, length in ((1, 5), (4, 2)):
        x = rand(batch, length, 3, 8)
        expected = np.maximum(x, 0).transpose(2, 0, 1, 3)[index]
        testing.assert_close(runner({"x": x}), [expected])


@pytest.mark.parametrize("exclude", [(), ("nn.relu",), ("transpose",)])
def test_what_stays_is_dynamic_again(exclude):
    """TVM cannot compile open reshapes that it fuses; the results are the same."""
    data = var("x", ANY, ANY, 24)
    heads = relay.nn.relu(relay.reshape(data, shape(data, [0], [1], 3, 8)))
    turned = relay.transpose(heads, (0, 2, 1, 3))
    mod = module(relay.reshape(turned, shape(turned, -1, [2], 8)))
    rewritten = without_dnnl(partition(mod, exclude=exclude))
    names = [call.op.name for call in op_calls(rewritten["main"])]
    assert names.count("dyn.reshape") == 2 and "reshape" not in names
    if exclude:
        return  # The same functions as without.
    runs = [
        relay.create_executor("vm", each, target=host_target()).evaluate()
        for each in (mod, rewritten)
    ]
    for size in ((1, 1), (2, 5), (3, 1)):
        values = tvm.nd.array(rand(*size, 24))
        want, got = (run(values).numpy() for run in runs)
        np.testing.assert_array_equal(got, want)


def test_all_that_remain_are_dynamic_again():
    data = var("x", ANY, ANY, 24)
    heads = relay.nn.relu(relay.reshape(data, shape(data, [0], [1], 3, 8)))
    mod = module(relay.reshape(heads, (0, -2, 1)))
    # As it is, TVM does not run it.
    rewritten = without_dnnl(partition(mod, exclude=["nn.relu"]))
    run = relay.create_executor("vm", rewritten, target=host_target()).evaluate()
    for size in ((1, 1), (2, 5)):
        x = rand(*size, 24)
        want = np.maximum(x, 0).reshape(*size, 3, 8, 1)
        np.testing.assert_array_equal(run(tvm.nd.array(x)).numpy(), want)


def test_part_of_a_shape_that_is_empty():
    data = var("x", ANY, 6)
    empty = relay.strided_slice(relay.shape_of(data, "int64"), [0], [0])
    wanted = relay.concatenate([empty * relay.const([2], "int64"), shape(data, [0], 2, 3)], 0)
    check(relay.reshape(relay.nn.relu(data), wanted), gone=True)


def test_shape_of_another_window_stays():
    """Open kernels may be of other sizes."""
    data = var("x", ANY, 1, ANY, ANY)
    first, second = (relay.nn.conv2d(data, var(name, 1, 1, ANY, ANY)) for name in "vw")
    same = relay.reshape(first, shape(second, [0], 1, [2], [3]))
    check(relay.nn.relu(same), gone=False)


def test_the_result_is_of_the_type_that_is_known():
    """A sum at the end, of a batch of one that the importer forgot, is fused."""
    data = var("x", 1, ANY, 96)
    rows = relay.reshape(relay.nn.relu(data), shape(data, [0], [1], 96)) + const(96)
    report = check(rows, gone=True)
    assert (report.offloaded, report.partitions) == (report.total, 1), report


@pytest.mark.parametrize(
    "dtype, exclude",
    nightly_except(
        {("float32", ()), ("float64", ("nn.dense",))},
        itertools.product(["float32", "float64"], [(), ("nn.dense",)]),
    ),
)
def test_dense_of_rows_that_are_joined(dtype, exclude):
    """As importers write a product of three dimensions with a matrix that is computed."""
    data, weight = var("x", ANY, ANY, 16), relay.nn.relu(var("w", 8, 16))
    real, weight = (relay.cast(each, dtype) for each in (relay.nn.relu(data), weight))
    rows = relay.nn.dense(relay.reshape(real, shape(data, -1, [2])), weight)
    rows = relay.reshape(rows, shape(data, [0], [1], 8)) + relay.const(np.ones(8), dtype)
    mod = module(relay.cast(rows, "float32"))
    partitioned = partition(mod, prune=False, exclude=exclude)
    report = dnnl.offload_report(partitioned)
    if dtype == "float32" and not exclude:
        assert (report.offloaded, report.partitions) == (report.total, 1), report
    ours, plain = (
        testing.Runner(testing.build(m, executor="vm", opt_level=1)) for m in (partitioned, mod)
    )
    for batch, length in ((1, 5), (3, 2), (2, 1)):
        values = {"x": rand(batch, length, 16), "w": rand(8, 16)}
        testing.assert_close(ours(values), plain(values))


def joined_rows(data, op, axis):
    """Return an op along an axis of the rows of (batch, 4, length, length), restored."""
    sizes = relay.shape_of(data, "int64")
    parts = (relay.strided_slice(sizes, [0], [3]), relay.strided_slice(sizes, [3], [4]))
    flat = relay.concatenate([relay.prod(part, keepdims=True) for part in parts], 0)
    return relay.reshape(op(relay.reshape(data, flat), axis=axis), sizes)


@pytest.mark.parametrize(
    "op", nightly_after(1, [relay.nn.softmax, relay.nn.log_softmax, relay.nn.fast_softmax])
)
@pytest.mark.parametrize("axis", [-1, 1])
def test_softmax_of_rows_that_are_joined(op, axis):
    """As onnxruntime converts a softmax of an opset before 13."""
    data = var("x", ANY, 4, ANY, ANY)
    mod = module(relay.nn.relu(joined_rows(relay.exp(data), op, axis)))
    partitioned = partition(mod, prune=False)
    report = dnnl.offload_report(partitioned)
    assert (report.offloaded, report.total, report.partitions) == (3, 3, 1), report
    ours = testing.Runner(testing.build(partitioned, executor="vm"))
    for sizes in ((1, 4, 5, 5), (3, 4, 2, 7)):
        value = rand(*sizes)
        plain = module(relay.nn.relu(op(relay.exp(var("x", *sizes)), axis=-1)))
        testing.assert_close(ours({"x": value}), direct.run(plain, {"x": value}))


def test_softmax_of_columns_of_joined_rows_stays():
    """It sums over what the reshape joined."""
    check(joined_rows(var("x", ANY, 4, ANY, ANY), relay.nn.softmax, 0), gone=False)


def test_excluded_softmax_of_rows_stays():
    data = joined_rows(relay.exp(var("x", ANY, 4, ANY, ANY)), relay.nn.softmax, 1)
    report = dnnl.offload_report(partition(module(data), prune=False, exclude=["nn.softmax"]))
    assert "dyn.reshape" in report.ops, report


def test_softmax_of_rows_that_is_pruned_runs_on_tvm():
    data = var("x", ANY, 4, ANY, ANY)
    partitioned = partition(module(joined_rows(data, relay.nn.softmax, 1)))
    report = dnnl.offload_report(partitioned)
    assert (report.offloaded, report.partitions) == (0, 0), report
    value, plain = rand(3, 4, 2, 7), module(relay.nn.softmax(var("x", 3, 4, 2, 7)))
    want = direct.run(plain, {"x": value})
    testing.assert_close(direct.run(partitioned, {"x": value}, executor="vm"), want)
