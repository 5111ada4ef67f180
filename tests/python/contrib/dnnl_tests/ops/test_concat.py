# SPDX-License-Identifier: Apache-2.0
"""Concatenations, splits and slices: in place where memory allows, and in partitions."""

import pytest
from tvm import relay
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from dnnl_tests import direct
from dnnl_tests.marks import json_only
from dnnl_tests.reference import RTOL, rand
from dnnl_tests.relay import conv, module, partition
from dnnl_tests.single_op import refusal, run_planned, var


def values(*shapes):
    """Return an array for each shape, and the variables that stand for them."""
    arrays = {f"x{i}": rand(*shape, seed=i) for i, shape in enumerate(shapes)}
    return arrays, [var(name, x.shape) for name, x in arrays.items()]


def steps_of(mod, arrays, rtol=RTOL):
    """Run a module as one partition, check it, and return the kinds of its steps."""
    partitioned = partition(mod)
    offload = testing.offload(partitioned)
    assert offload.partitions == 1 and not offload.host_ops, partitioned
    steps = run_planned(partitioned, arrays, direct.run(mod, arrays), rtol)
    assert not [step for step in steps if step["reference"]]
    return [step["kind"] for step in steps]


X = rand(1, 16, 6, 6)


def branches(x, channels=(16, 32)):
    return [conv(x, n, 3, 16, seed=n) for n in channels]


@json_only
class TestInPlace:
    """What is concatenated is computed where it belongs."""

    def test_channels_of_one_image(self):
        arrays = {"x": rand(1, 16, 128, 128)}
        x = var("x", arrays["x"].shape)
        mod = module(relay.tanh(relay.concatenate([relay.exp(x), relay.abs(x)], 1)))
        assert steps_of(mod, arrays) == ["eltwise"] * 3

    def test_channels_of_a_convolution(self):
        """Whether they lie together or not, they are not moved to another layout."""
        x = var("x", X.shape)
        mod = module(conv(relay.concatenate(branches(x), 1), 16, 3, 48))
        kinds = steps_of(mod, {"x": X})
        assert kinds.count("convolution") == 3 and kinds.count("reorder") <= 2

    def test_images(self):
        x = var("x", X.shape)
        mod = module(conv(relay.concatenate(branches(x, (16, 16)), 0), 16, 3, 16))
        kinds = steps_of(mod, {"x": X})
        assert "concat" not in kinds and kinds.count("reorder") <= 2

    def test_the_same_twice(self):
        (y,) = branches(var("x", X.shape), (16,))
        steps_of(module(conv(relay.concatenate([y, y], 1), 16, 3, 32)), {"x": X})

    def test_a_part_of_two(self):
        x = var("x", X.shape)
        a, b = branches(x)
        one, two = relay.concatenate([a, b], 1), relay.concatenate([b, a], 1)
        steps_of(module(conv(one + two, 16, 3, 48)), {"x": X})

    def test_a_part_of_a_part(self):
        x = var("x", X.shape)
        a, b = branches(x)
        inner = relay.concatenate([a, b], 1)
        outer = relay.concatenate([inner, relay.tanh(inner), a], 1)
        kinds = steps_of(module(conv(outer, 16, 3, 112)), {"x": X})
        assert kinds.count("reorder") <= 2

    def test_a_part_that_is_read_again(self):
        x = var("x", X.shape)
        a, b = branches(x)
        joined = conv(relay.concatenate([a, b], 1), 16, 3, 48)
        for seed in range(3):
            joined = conv(joined, 16, 3, 16, seed=seed)
        steps_of(module(relay.concatenate([joined, a], 1) * relay.const(2.0)), {"x": X})

    def test_parts_that_are_results(self):
        x = var("x", X.shape)
        a, b = branches(x)
        mod = module(a, relay.concatenate([a, x, b], 1), b)
        direct.check(mod, {"x": X}, partitions=1, rtol=RTOL, executors=("graph", "vm"))

    def test_result_is_the_concatenation(self):
        x = var("x", X.shape)
        mod = module(relay.concatenate([relay.reshape(y, (-1, 6)) for y in branches(x)], 0))
        steps_of(mod, {"x": X})

    def test_channels_that_are_not_whole_blocks(self):
        x = var("x", X.shape)
        mod = module(conv(relay.concatenate(branches(x, (3, 5, 16)), 1), 16, 3, 24))
        steps_of(mod, {"x": X})

    def test_batch(self):
        x = rand(3, 16, 6, 6)
        mod = module(conv(relay.concatenate(branches(var("x", x.shape)), 1), 16, 3, 48))
        steps_of(mod, {"x": x})

    def test_input_and_constant(self):
        x = var("x", X.shape)
        parts = [x, relay.const(rand(1, 3, 6, 6)), relay.exp(x)]
        steps_of(module(conv(relay.concatenate(parts, 1), 16, 3, 35)), {"x": X})


def test_some_fields_of_a_split():
    """Of queries, keys and values in one tensor, one is read elsewhere."""
    x = rand(64, 48)
    parts = relay.split(relay.nn.dense(var("x", x.shape), relay.const(rand(96, 48))), 3, 1)
    mod = module(relay.nn.dense(parts[0], parts[1]), relay.atan(parts[2]))
    direct.check(mod, {"x": x}, ops={"split": 1, "nn.dense": 2}, partitions=1, rtol=RTOL)


def test_a_split_input_of_which_a_field_is_read_elsewhere():
    x = rand(64, 96)
    parts = relay.split(var("x", x.shape), 2, 1)
    mod = module(relay.nn.dense(parts[0], relay.const(rand(32, 48))), relay.atan(parts[1]))
    partitioned = direct.check(mod, {"x": x}, partitions=1, rtol=RTOL)
    assert testing.offload(partitioned).host_ops["split"] == 1


CHANNELS = {
    "few": (2, 6),
    "blocks": (0, 16),
    "last-block": (16, 32),
    "cut": (5, 21),
    "step": (0, 32, 2),
}


@pytest.mark.parametrize("begin, end, step", [(*c, 1)[:3] for c in CHANNELS.values()], ids=CHANNELS)
def test_slice_of_a_convolution(begin, end, step):
    """As in shuffled and split networks: the tensor is in blocks of channels."""
    x = var("x", X.shape)
    y = conv(x, 32, 3, 16)
    part = relay.strided_slice(y, [begin], [end], [step], axes=[1])
    channels = len(range(begin, end, step))
    steps_of(module(conv(part, 16, 3, channels), relay.nn.relu(part)), {"x": X})


def test_slice_of_a_part_of_a_block():
    y = conv(var("x", X.shape), 32, 3, 16)
    steps_of(module(relay.tanh(relay.strided_slice(y, [2], [6], [1], axes=[1]))), {"x": X})


def test_slice_of_a_constant_and_of_an_input():
    x = rand(4, 6)
    part = relay.strided_slice(var("x", x.shape), [0, 3], [4, 6])
    mod = module(relay.nn.dense(part, relay.const(rand(5, 3))), relay.nn.dense(part, part))
    direct.check(mod, {"x": x}, partitions=1, ops={"strided_slice": 1}, rtol=RTOL)


def test_channel_shuffle():
    x = var("x", X.shape)
    y = relay.reshape(conv(x, 32, 3, 16), (1, 2, 16, 6, 6))
    y = relay.reshape(relay.transpose(y, (0, 2, 1, 3, 4)), (1, 32, 6, 6))
    a, b = relay.split(y, 2, 1)
    steps_of(module(relay.concatenate([a, conv(b, 16, 3, 16)], 1) * relay.const(2.0)), {"x": X})


class TestPartitions:
    def test_moves_alone_stay(self):
        arrays, variables = values((512, 512), (512, 512))
        mod = partition(module(relay.concatenate(variables, 1)))
        report = dnnl.offload_report(mod)
        assert report.reasons["concatenate"] == {"pruned: it only moves data": 1}

    def test_does_not_cut(self):
        x = var("x", X.shape)
        a, b = branches(x)
        c = relay.atan(b)
        mod = module(conv(relay.concatenate([a, b], 1), 16, 3, 48), c)
        direct.check(mod, {"x": X}, partitions=1, ops={"concatenate": 1}, rtol=RTOL)

    def test_a_tuple_that_is_also_a_result(self):
        x = var("x", X.shape)
        parts = relay.Tuple(branches(x))
        mod = module(relay.Tuple([parts, conv(relay.concatenate(parts, 1), 16, 3, 48)]))
        direct.check(mod, {"x": X}, rtol=RTOL, executors=("vm",))

    def test_one_tuple_of_two_calls(self):
        x = var("x", X.shape)
        parts = relay.Tuple(branches(x, (16, 16)))
        sums = [conv(relay.concatenate(parts, 1), 16, 3, 32), relay.concatenate(parts, 0)]
        direct.check(module(*sums), {"x": X}, partitions=1, ops={"concatenate": 2}, rtol=RTOL)

    def test_no_cycle_through_a_tuple(self):
        """The concatenation needs both what the region computes and what is computed from it."""
        x = var("x", X.shape)
        a, b = branches(x)
        mod = module(conv(relay.concatenate([a, relay.atan(b)], 1), 16, 3, 48))
        direct.check(mod, {"x": X}, partitions=2, rtol=RTOL)


PARTS = relay.split(var("x", (2, 6)), 2, 1)
TUPLE = relay.var("t", type_annotation=relay.TupleType([relay.TensorType((2, 3))] * 2))


def of_tuple(value):
    """Concatenate what is a tuple already."""
    call = relay.concatenate([PARTS[0], PARTS[1]], 0)
    return relay.Call(call.op, [value], call.attrs)


REFUSED = {
    "tuple": (of_tuple(PARTS.astuple()), "another call"),
    "parameter": (of_tuple(TUPLE), "another call"),
    "int32": (
        relay.concatenate([relay.var("x", shape=(2, 3), dtype="int32")] * 2, 0),
        "tensor 0 is int32",
    ),
    "last-step": (
        relay.strided_slice(var("x", (3, 5)), [0, 0], [3, 5], [1, 2]),
        "3 steps of 2 extend beyond the 5 values of an axis",
    ),
    "backwards": (
        relay.strided_slice(var("x", (8, 6)), [7, 5], [0, 0], [-1, -1]),
        "strides=[-1, -1] are not all positive",
    ),
}


@pytest.mark.parametrize("expr, text", REFUSED.values(), ids=REFUSED.keys())
def test_refused(expr, text):
    assert text in refusal(expr)
