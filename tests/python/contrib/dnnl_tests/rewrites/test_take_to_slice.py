# SPDX-License-Identifier: Apache-2.0
"""`take` with a constant index, which becomes a slice."""

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from dnnl_tests import direct
from dnnl_tests.reference import rand
from dnnl_tests.relay import const, module, partition, var

SHAPE = (2, 5, 8)
TAKEN = {
    "first": dict(indices=0, axis=1),
    "last": dict(indices=4, axis=1),
    "negative-axis": dict(indices=3, axis=-1),
    "outermost": dict(indices=1, axis=0),
    "axis-kept": dict(indices=[2], axis=1),
    "axes-added": dict(indices=[[2]], axis=1),
    "clip": dict(indices=4, axis=1, mode="clip"),
    "fast": dict(indices=4, axis=1, mode="fast"),
    "wrap": dict(indices=4, axis=1, mode="wrap"),
    "two": dict(indices=[0, 1], axis=1),
    "every-second": dict(indices=[1, 3], axis=1),
}
LEFT = {
    "negative": dict(indices=-1, axis=1, mode="wrap"),
    "out-of-range": dict(indices=5, axis=1),
    "flat": dict(indices=3, axis=None),
    "batch": dict(indices=[[0], [0]], axis=1, batch_dims=1),
}


GATHERED = {
    "backwards": dict(indices=[4, 2, 0], axis=1),
    "uneven": dict(indices=[[0, 1, 3], [0, 0, 4]], axis=1),
}


def items_of(data, indices, dtype="int32", **attrs):
    return relay.take(data, relay.const(np.array(indices, dtype)), **attrs)


def classified(data, **attrs):
    """Between two ops of oneDNN, as a transformer's classifier takes its token."""
    return relay.nn.relu(items_of(relay.tanh(data), **attrs))


@pytest.mark.parametrize("attrs", TAKEN.values(), ids=TAKEN.keys())
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_one_partition(attrs, dtype):
    x = rand(*SHAPE)
    mod = module(classified(var("x", *SHAPE), dtype=dtype, **attrs))
    report = dnnl.offload_report(partition(mod, prune=False))
    assert report.partitions == 1 and report.offloaded == report.total
    assert "take" not in report.ops and report.ops["strided_slice"] == 1
    reference = np.maximum(np.take(np.tanh(x), attrs["indices"], attrs["axis"]), 0)
    direct.check(mod, {"x": x}, options={"prune": False}, reference=[reference])


def test_the_only_element():
    """As ONNX's importer reads the condition of an If."""
    x = rand(1, 1)
    mod = module(classified(var("x", 1, 1), indices=0, dtype="int64"))
    report = dnnl.offload_report(partition(mod, prune=False))
    assert report.partitions == 1 and "take" not in report.ops
    direct.check(
        mod, {"x": x}, options={"prune": False}, reference=[np.maximum(np.tanh(x), 0)[0, 0]]
    )


@pytest.mark.parametrize("attrs", LEFT.values(), ids=LEFT.keys())
def test_others_stay(attrs):
    report = dnnl.offload_report(
        partition(module(classified(var("x", *SHAPE), **attrs)), prune=False)
    )
    assert report.ops["take"] == 1 and "strided_slice" not in report.ops


STAYS = {
    "integers": var("x", *SHAPE, dtype="int32"),
    "open-axis": var("x", 2, None, 8),
}


@pytest.mark.parametrize("data", STAYS.values(), ids=STAYS.keys())
def test_data_that_stays(data):
    item = items_of(data, 1, axis=1)
    report = dnnl.offload_report(partition(module(item, relay.nn.relu(var("y", 2, 3)))))
    assert report.ops["take"] == 1


@pytest.mark.parametrize("name", ["strided_slice", "reshape"])
def test_excluded(name):
    mod = module(classified(var("x", *SHAPE), indices=0, axis=1))
    report = dnnl.offload_report(partition(mod, prune=False, exclude=[name]))
    assert report.ops["take"] == 1 and name not in report.ops


@pytest.mark.parametrize("attrs", GATHERED.values(), ids=GATHERED.keys())
def test_other_steps(attrs):
    """What no slice expresses is gathered in the same partition."""
    x = rand(*SHAPE)
    mod = module(classified(var("x", *SHAPE), dtype="int64", **attrs))
    reference = np.maximum(np.take(np.tanh(x), attrs["indices"], attrs["axis"]), 0)
    direct.check(mod, {"x": x}, options={"prune": False}, reference=[reference])
    report = dnnl.offload_report(partition(mod, prune=False))
    assert report.partitions == 1 and report.offloaded == report.total == 3


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("shape", [(), (2,), (3, 2)])
@pytest.mark.parametrize("mode", ["clip", "wrap"])
def test_a_variable_index(dtype, shape, mode):
    """TVM converts indices to int32, but for those in int64 that are wrapped."""
    index = np.random.default_rng(0).integers(-7, 12, shape).astype(dtype)
    item = relay.take(relay.tanh(var("x", *SHAPE)), var("i", *shape, dtype=dtype), 1, mode=mode)
    mod = module(relay.nn.relu(item))
    x = rand(*SHAPE)
    reference = np.maximum(np.take(np.tanh(x), index, 1, mode=mode), 0)
    direct.check(mod, {"x": x, "i": index}, options={"prune": False}, reference=[reference])
    report = dnnl.offload_report(partition(mod, prune=False))
    assert report.partitions == (2 if (dtype, mode) == ("int64", "wrap") else 1)


def test_the_classifier_of_a_transformer():
    """Only the row that is taken goes through the last product."""
    normal = relay.nn.layer_norm(var("x", 1, 197, 64), const(64), const(64, seed=1))
    logits = relay.nn.dense(items_of(normal, 0, "int64", axis=1), const(10, 64, seed=2))
    direct.check(module(logits), {"x": rand(1, 197, 64)}, partitions=1, ops={"nn.dense": 1})


def test_data_of_other_open_dimensions():
    """As the key and the value of a decoder are taken from its past."""
    past = relay.tanh(var("x", 2, None, 4, None, 8))
    mod = module(relay.nn.relu(items_of(past, 1, axis=0)))
    partitioned = partition(mod, prune=False)
    report = dnnl.offload_report(partitioned)
    assert (report.offloaded, report.partitions) == (report.total, 1), report
    run = testing.Runner(testing.build(partitioned, executor="vm"))
    for batch, length in ((1, 5), (3, 2)):
        x = rand(2, batch, 4, length, 8)
        testing.assert_close(run({"x": x}), [np.maximum(np.tanh(x[1]), 0)])


def test_elements_of_constant_indices():
    """A gather of elements by constants is a `take` of the flattened data."""
    data, x = relay.var("x", shape=(3, 5)), rand(3, 5)
    indices = np.array([[4, 0], [1, 1], [2, 3]])
    items = relay.gather(relay.tanh(data), 1, relay.const(indices))
    mod = tvm.IRModule.from_expr(relay.Function([data], relay.nn.relu(items)))
    model = dnnl.compile(mod, prune=False, strict=True)
    assert (model.report.offloaded, model.report.partitions) == (model.report.total, 1)
    reference = np.maximum(np.take_along_axis(np.tanh(x), indices, 1), 0)
    # tanh of oneDNN is accurate to a few bits.
    np.testing.assert_allclose(model(x), reference, rtol=0, atol=2e-6)


@pytest.mark.parametrize("steps", [(2, 1), (2, 3), (4, 2)])
def test_a_last_step_that_ends_outside(steps):
    """0, 2 and 4 of five elements are no view: oneDNN's would end with the sixth."""
    x = rand(*SHAPE)
    part = relay.strided_slice(relay.tanh(var("x", *SHAPE)), [0, 1], [5, 8], steps, axes=[1, 2])
    mod = module(relay.nn.relu(part))
    report = dnnl.offload_report(partition(mod, prune=False))
    assert report.partitions == 1 and report.offloaded == report.total
    reference = np.maximum(np.tanh(x)[:, :: steps[0], 1 :: steps[1]], 0)
    direct.check(mod, {"x": x}, options={"prune": False}, reference=[reference])
