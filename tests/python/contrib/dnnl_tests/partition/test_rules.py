# SPDX-License-Identifier: Apache-2.0
"""What the policy takes and refuses, op by op, and the reason that it gives."""

import numpy as np
import pytest
from tvm import relay
from tvm.relay.op.contrib import dnnl

from dnnl_tests.relay import const, module, partition, var


def conv2d(data=(1, 8, 6, 6), weight=(4, 8, 3, 3), dtype="float32", **attrs):
    return relay.nn.conv2d(var("x", *data, dtype=dtype), var("w", *weight, dtype=dtype), **attrs)


def dense(data, weight, dtype="float32", **attrs):
    return relay.nn.dense(var("x", *data, dtype=dtype), var("w", *weight, dtype=dtype), **attrs)


def batch_norm(*shape, axis=1, dtype="float32", **attrs):
    channels = shape[axis]
    stats = [var(name, channels, dtype=dtype) for name in ("gamma", "beta", "mean", "var")]
    return relay.nn.batch_norm(var("x", *shape, dtype=dtype), *stats, axis=axis, **attrs)[0]


def relu(*shape, dtype="float32"):
    return relay.nn.relu(var("x", *shape, dtype=dtype))


def bias_add(*shape, axis=1, dtype="float32"):
    return relay.nn.bias_add(
        var("x", *shape, dtype=dtype), var("b", shape[axis], dtype=dtype), axis=axis
    )


def binary(op, lhs, rhs, dtype="float32"):
    return op(var("a", *lhs, dtype=dtype), var("b", *rhs, dtype=dtype))


# What else is accepted, the tests of `ops` run and those of `graphs/test_infer.py` draw.
ACCEPTED = {
    "conv2d-NHWC-HWOI": lambda: conv2d(
        (1, 6, 6, 8), (3, 3, 4, 8), data_layout="NHWC", kernel_layout="HWOI"
    ),
    "conv2d-out-layout-given": lambda: conv2d(out_layout="NCHW"),
    "conv2d-out-dtype-given": lambda: conv2d(out_dtype="float32"),
    "conv2d-padding-4": lambda: conv2d(padding=(0, 1, 2, 3)),
    # One input channel makes two outputs: the weight is (input channels, outputs of each, ...).
    "conv2d-depthwise-twice": lambda: conv2d(
        weight=(8, 2, 3, 3), groups=8, channels=16, kernel_size=(3, 3)
    ),
    "dense-units-given": lambda: dense((2, 8), (4, 8), units=4),
    "dense-out-dtype-given": lambda: dense((2, 8), (4, 8), out_dtype="float32"),
    "dense-rank-5": lambda: dense((1, 2, 3, 2, 8), (4, 8)),
    "batch-norm-axis-last": lambda: batch_norm(1, 4, 8, axis=-1),
    "relu-rank-12": lambda: relu(*[1] * 11, 2),
    "bias-add-axis-last": lambda: bias_add(2, 3, 8, axis=-1),
    "add-broadcast-left": lambda: binary(relay.add, (8, 1), (2, 8, 4)),
    "multiply-scalar": lambda: binary(relay.multiply, (2, 8), ()),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted(name):
    mod = module(ACCEPTED[name]())
    report = dnnl.offload_report(partition(mod, prune=False))
    assert (report.total, report.offloaded, report.partitions) == (1, 1, 1)
    assert not report.reasons
    # Before partitioning the report says the same.
    (reasons,) = dnnl.offload_report(mod).reasons.values()
    assert list(reasons) == ["can be offloaded; the module is not partitioned"]


REFUSED = {
    "conv2d-out-dtype": (
        lambda: conv2d(out_dtype="float64"),
        "result is float64, not float32, bfloat16 or float16",
    ),
    "conv2d-minus-one": (
        lambda: conv2d((-1, 8, 6, 6)),
        "data has shape (-1, 8, 6, 6); give the input a size there, or leave it open",
    ),
    "conv2d-no-output": (
        lambda: conv2d((1, 8, 2, 6)),
        "result has shape (1, 4, 0, 4), which has no elements",
    ),
    # Relay's type relation divides without a look at the remainder.
    "conv2d-groups-and-inputs": (
        lambda: conv2d(weight=(4, 4, 3, 3), data=(1, 9, 6, 6), groups=2),
        "groups=2 does not divide 9 input channels",
    ),
    "conv2d-groups-and-outputs": (
        lambda: conv2d(weight=(5, 4, 3, 3), groups=2),
        "groups=2 does not divide 5 output channels",
    ),
    "dense-rank-1": (
        lambda: dense((8,), (4, 8)),
        "data has shape (8,); at least rank 2 is required",
    ),
    "batch-norm-rank-1": (
        lambda: batch_norm(8, axis=0),
        "data has shape (8,); at least rank 2 is required",
    ),
    "relu-rank-13": (
        lambda: relu(*[1] * 13),
        "data has rank 13; oneDNN supports at most 12 dimensions",
    ),
    "softmax": (lambda: relay.sinh(var("x", 2, 8)), "no rule for this op"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_a_reason(name):
    build, reason = REFUSED[name]
    mod = module(build())
    for checked in (mod, partition(mod, prune=False)):
        report = dnnl.offload_report(checked)
        assert (report.total, report.offloaded, report.partitions) == (1, 0, 0)
        (reasons,) = report.reasons.values()
        assert reasons == {reason: 1}


@pytest.mark.parametrize("dtype", ["float64", "int16", "int64"])
def test_network_of_a_refused_dtype_is_left_as_it_is(dtype):
    data, weight = var("x", 1, 8, 4, 4, dtype=dtype), const(8, 8, 1, 1, dtype=dtype)
    mod = module(relay.nn.relu(relay.nn.conv2d(data, weight) + const(8, 1, 1, dtype=dtype)))
    assert not dnnl.offload_report(partition(mod)).offloaded


def test_weight_computed_in_the_graph_is_accepted():
    weight = relay.sinh(var("w", 4, 8, 3, 3))
    out = relay.nn.conv2d(var("x", 1, 8, 6, 6), weight)
    assert dnnl.offload_report(partition(module(out))).offloaded_ops == {"nn.conv2d": 1}


def test_pipeline_of_tvm():
    """MergeComposite and AnnotateTarget find the patterns and the rules, too."""
    mod = module(relay.sinh(relay.nn.relu(relay.nn.relu(conv2d()))))
    for pass_ in (
        relay.transform.MergeComposite(relay.op.contrib.get_pattern_table("dnnl")),
        relay.transform.AnnotateTarget("dnnl"),
        relay.transform.MergeCompilerRegions(),
        relay.transform.PartitionGraph(),
    ):
        mod = pass_(mod)
    report = dnnl.offload_report(mod)
    assert report.offloaded_ops == {"nn.conv2d": 1, "nn.relu": 2}
    assert report.composites == {"dnnl.conv2d_relu": 1}
    assert report.partitions == 1


def test_import_again():
    """Registering the rules once more is no error."""
    import importlib  # pylint: disable=import-outside-toplevel

    before = len(relay.op.contrib.get_pattern_table("dnnl"))
    importlib.reload(dnnl)
    assert len(relay.op.contrib.get_pattern_table("dnnl")) == before
    assert dnnl.offload_report(partition(module(conv2d()))).offloaded == 1


def test_constant_arithmetic_is_folded_first():
    weight = relay.transpose(relay.const(np.ones((3, 3, 8, 4), "float32")), (3, 2, 0, 1))
    out = relay.nn.conv2d(var("x", 1, 8, 6, 6), weight)
    report = dnnl.offload_report(partition(module(out)))
    assert (report.total, report.offloaded) == (1, 1)
