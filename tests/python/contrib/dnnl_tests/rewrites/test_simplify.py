# SPDX-License-Identifier: Apache-2.0
"""What computes nothing: copies, which importers make of Identity, dropouts, broadcasts."""

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from dnnl_tests import direct
from dnnl_tests.reference import rand

X = rand(1, 8, 6, 6)


def conv(expr, channels=8):
    weight = relay.const(rand(8, channels, 1, 1))
    return relay.nn.conv2d(expr, weight, channels=8, kernel_size=(1, 1))


def copies(results):
    """Partition a function of x; return its copies that are left, and assert that it runs right."""
    x = relay.var("x", shape=X.shape)
    results = results(x)
    body = relay.Tuple(results) if isinstance(results, list) else results
    mod = tvm.IRModule.from_expr(relay.Function([x], body))
    partitioned = dnnl.partition_for_dnnl(mod)
    testing.assert_close(direct.run(partitioned, {"x": X}), direct.run(mod, {"x": X}), 1e-5)
    assert testing.offload(partitioned).partitions == 1
    return testing.offload(partitioned).host_ops["copy"]


def test_copies_between_ops_go():
    assert not copies(lambda x: relay.nn.relu(relay.copy(relay.copy(conv(relay.copy(x))))))
    assert not copies(
        lambda x: conv(relay.concatenate([relay.copy(x), relay.copy(conv(x))], 1), 16)
    )
    assert not copies(lambda x: relay.copy(conv(x))), "the partition's result is returned instead"

    def read_too(x):
        y = conv(x)
        return [relay.nn.relu(y), relay.copy(y)]

    assert not copies(read_too)


def test_two_copies_of_one_result_are_two():
    def twice(x):
        y = conv(x)
        return [relay.copy(y), relay.copy(y)]

    assert copies(twice) == 1


def test_copies_that_are_results_of_their_own_stay():
    assert copies(lambda x: [conv(x), relay.copy(x)]) == 1

    def twice(x):
        y = conv(x)
        return [y, relay.copy(y)]

    assert copies(twice) == 1


def test_dropout_goes():
    x = relay.var("x", shape=X.shape)
    mod = tvm.IRModule.from_expr(relay.nn.relu(relay.nn.dropout(conv(x))))
    partitioned = dnnl.partition_for_dnnl(mod)
    assert testing.offload(partitioned).composites == {"dnnl.conv2d_relu": 1}
    report = dnnl.offload_report(partitioned)
    assert report.folded == {"nn.dropout": 1}
    expected = np.maximum(direct.run(tvm.IRModule.from_expr(conv(x)), {"x": X})[0], 0)
    testing.assert_close(direct.run(partitioned, {"x": X}), [expected], 1e-5)


def broadcasts(body, **inputs):
    """Partition a function; return its broadcasts that are left, and assert that it runs right."""
    mod = tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(body), body))
    partitioned = dnnl.partition_for_dnnl(mod)
    inputs = {"x": X, **inputs}
    testing.assert_close(direct.run(partitioned, inputs), direct.run(mod, inputs), 1e-5)
    left = testing.offload(partitioned).host_ops["broadcast_to"]
    assert (testing.offload(partitioned).partitions == 1) == (not left), partitioned
    assert dnnl.offload_report(partitioned).folded.get("broadcast_to", 0) == (not left)
    return left


@pytest.mark.parametrize(
    "op", [relay.multiply, relay.add, relay.divide], ids=lambda op: op.__name__
)
@pytest.mark.parametrize("sizes", ["int32", "int64"])
def test_a_broadcast_that_a_binary_op_does_itself_goes(op, sizes):
    """As in squeeze and excitation, with sizes in 32 bits or as ONNX's Expand has them."""
    y = conv(relay.var("x", shape=X.shape))
    shape = [tvm.tir.IntImm(sizes, size) for size in X.shape]
    gate = relay.broadcast_to(relay.sigmoid(relay.nn.global_avg_pool2d(y)), shape)
    assert not broadcasts(conv(op(y, gate)))


def test_broadcasts_of_both_operands():
    """One of them gives the result its shape; so does one that another op than a binary reads."""
    y = conv(relay.var("x", shape=X.shape))
    rows = relay.broadcast_to(relay.max(y, axis=2, keepdims=True), X.shape)
    columns = relay.broadcast_to(relay.max(y, axis=3, keepdims=True), X.shape)
    mod = tvm.IRModule.from_expr(conv(relay.add(rows, columns)))
    results = direct.run(dnnl.partition_for_dnnl(mod), {"x": X})
    testing.assert_close(results, direct.run(mod, {"x": X}), 1e-5)
    column = relay.nn.global_avg_pool2d(y)
    wide = relay.broadcast_to(column, X.shape)
    mod = tvm.IRModule.from_expr(conv(relay.concatenate([conv(wide), y], 1), 16))
    report = dnnl.offload_report(dnnl.partition_for_dnnl(mod))
    assert report.offloaded_ops["broadcast_to"] == 1 and report.partitions == 1


def test_a_broadcast_of_an_open_dimension_stays():
    """The batch may be one, and the result of two all the same."""
    x = relay.var("x", shape=(relay.Any(), 8, 6, 6))
    y = conv(x) + relay.broadcast_to(relay.var("b", shape=(1, 8, 1, 1)), (2, 8, 6, 6))
    mod = tvm.IRModule.from_expr(relay.nn.relu(y))
    partitioned = dnnl.partition_for_dnnl(mod)
    inputs = {"x": X, "b": rand(1, 8, 1, 1, seed=3)}
    results = direct.run(partitioned, inputs, executor="vm")
    assert results[0].shape == (2, 8, 6, 6)
    testing.assert_close(results, direct.run(mod, inputs, executor="vm"), 1e-5)


def filled(value, shape, dtype):
    like = relay.const(np.zeros(shape, dtype))
    yield relay.full(relay.const(np.array(value, dtype)), shape, dtype)
    yield relay.full_like(like, relay.const(np.array(value, dtype)))
    if value in (0, 1):
        name = "ones" if value else "zeros"
        yield getattr(relay, name)(shape, dtype)
        yield getattr(relay, f"{name}_like")(like)


@pytest.mark.parametrize("value", [0, 1, 2.5])
def test_tensors_of_one_value_are_constants(value):
    y = conv(relay.var("x", shape=X.shape))
    for each in filled(value, X.shape, "float32"):
        mod = tvm.IRModule.from_expr(relay.nn.relu(relay.subtract(y, each)))
        partitioned = dnnl.partition_for_dnnl(mod)
        report = dnnl.offload_report(partitioned)
        assert report.partitions == 1 and report.offloaded == report.total == 3
        outputs = direct.run(partitioned, {"x": X})
        testing.assert_close(outputs, direct.run(mod, {"x": X}), 1e-5)


@pytest.mark.parametrize("dtype", ["bfloat16", "int64", "bool", "float64"])
def test_tensors_of_one_value_of_other_types(dtype):
    ones = relay.ones((2, 3), dtype)
    mod = tvm.IRModule.from_expr(relay.Tuple([ones, conv(relay.var("x", shape=X.shape))]))
    constant = dnnl.partition_for_dnnl(mod)["main"].body.fields[0]
    assert isinstance(constant, relay.Constant) and constant.data.dtype == dtype
    assert constant.data.shape == (2, 3)


def test_large_or_open_tensors_of_one_value_stay():
    x = relay.var("x", shape=(relay.Any(), 8, 6, 6))
    for each in (relay.zeros_like(x), relay.zeros((1025, 1024), "float32")):
        mod = tvm.IRModule.from_expr(relay.Tuple([each, conv(x)]))
        report = dnnl.offload_report(dnnl.partition_for_dnnl(mod))
        assert {"zeros", "zeros_like"} & set(report.ops)


@pytest.mark.parametrize("then", [None, relay.nn.relu], ids=["alone", "fused"])
def test_a_window_that_is_larger_than_the_data_is_shortened(then):
    """Importers write such with `ceil_mode`; oneDNN gets the window as the rewrite has it."""
    x = relay.var("x", shape=(1, 4, 1, 3))
    data = relay.nn.relu(x)
    pooled = relay.nn.max_pool2d(data, pool_size=(2, 2), strides=(2, 2), ceil_mode=True)
    mod = tvm.IRModule.from_expr(relay.Function([x], then(pooled) if then else pooled))
    options = {"prune": False, "strict": True}
    value = rand(1, 4, 1, 3)
    partitioned = direct.check(mod, {"x": value}, partitions=1, rtol=0, options=options)
    assert testing.offload(partitioned).ops["nn.max_pool2d"] == 1
