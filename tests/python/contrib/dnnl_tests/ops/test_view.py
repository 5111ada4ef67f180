# SPDX-License-Identifier: Apache-2.0
"""Ops that give the same elements other dimensions: in a chain they cost nothing, or one copy."""

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from dnnl_tests import direct
from dnnl_tests.marks import json_only
from dnnl_tests.reference import RTOL, conv2d, rand
from dnnl_tests.relay import const, conv, module, partition
from dnnl_tests.single_op import reasons, run_alone, run_planned, var


def transform(x, src, dst):
    """Return Relay's layout_transform."""
    return relay.layout_transform(x, src, dst)


def blocked(x, block):
    """Return NCHW data in blocks of channels."""
    n, c, h, w = x.shape
    return x.reshape(n, c // block, block, h, w).transpose(0, 1, 3, 4, 2)


SHAPE = (2, 16, 6, 5)
# The op in Relay and in numpy.
CASES = {
    "reshape": (lambda x: relay.reshape(x, (4, 8, -1)), lambda x: x.reshape(4, 8, 30)),
    "reshape-copied-dims": (lambda x: relay.reshape(x, (0, -1)), lambda x: x.reshape(2, 480)),
    "reshape-ones": (
        lambda x: relay.reshape(x, (2, 1, 16, 30, 1)),
        lambda x: x.reshape(2, 1, 16, 30, 1),
    ),
    "reverse-reshape": (
        lambda x: relay.reverse_reshape(x, (-1, 0)),
        lambda x: x.reshape(192, 5),
    ),
    "squeeze": (
        lambda x: relay.squeeze(relay.expand_dims(x, 1, 2), [1]),
        lambda x: x.reshape(2, 1, 16, 6, 5),
    ),
    "expand_dims": (
        lambda x: relay.expand_dims(x, axis=-1, num_newaxis=2),
        lambda x: x[..., None, None],
    ),
    "batch_flatten": (relay.nn.batch_flatten, lambda x: x.reshape(2, -1)),
    "transpose": (lambda x: relay.transpose(x, (0, 2, 3, 1)), lambda x: x.transpose(0, 2, 3, 1)),
    "transpose-negative": (
        lambda x: relay.transpose(x, (0, -1, 1, -2)),
        lambda x: x.transpose(0, 3, 1, 2),
    ),
    "reversed": (relay.transpose, lambda x: x.transpose()),
    "to-nhwc": (lambda x: transform(x, "NCHW", "NHWC"), lambda x: x.transpose(0, 2, 3, 1)),
    "to-blocks": (lambda x: transform(x, "NCHW", "NCHW8c"), lambda x: blocked(x, 8)),
    "to-blocks-first": (
        lambda x: transform(x, "NCHW", "NC4cHW2n"),
        lambda x: x.reshape(1, 2, 4, 4, 6, 5).transpose(0, 2, 3, 4, 5, 1),
    ),
    "heads": (
        lambda x: relay.transpose(relay.reshape(x, (2, 16, 5, 6)), (0, 2, 1, 3)),
        lambda x: x.reshape(2, 16, 5, 6).transpose(0, 2, 1, 3),
    ),
}


@pytest.mark.parametrize("op, reference", CASES.values(), ids=CASES.keys())
def test_between_functions_of_one_element(op, reference):
    x = rand(*SHAPE)
    expr = relay.exp(op(relay.abs(var("x", SHAPE))))
    expected = reference(np.exp(np.abs(x)))
    run_alone(expr, {"x": x}, None, expected, kinds=["eltwise", "eltwise"], rtol=1e-6)


@pytest.mark.parametrize("op, reference", CASES.values(), ids=CASES.keys())
def test_behind_a_convolution(op, reference):
    """The convolution's result is in blocks of channels."""
    x, w = rand(2, 8, 6, 5), rand(16, 8, 3, 3, seed=1)
    attrs = dict(kernel_size=(3, 3), channels=16, padding=(1, 1))
    y = op(relay.nn.conv2d(var("x", x.shape), var("w", w.shape), **attrs))
    result = reference(conv2d(x, w, attrs))
    factor = rand(*result.shape, seed=2)
    inputs, kinds = {"x": x, "z": factor}, ["convolution", "binary"]
    product = y * var("z", factor.shape)
    run_alone(product, inputs, {"w": w}, result * factor, kinds=kinds, rtol=RTOL)
    # A function of single elements moves before the view.
    run_alone(relay.tanh(y), {"x": x}, {"w": w}, np.tanh(result), kinds=kinds[:1], rtol=RTOL)


# Every family that reads its input in the layout it finds, after a view of an odd layout.
CONSUMERS = {
    "conv2d": lambda y: conv(y, 16, 3, 5),
    "max_pool2d": lambda y: relay.nn.max_pool2d(y, (2, 2), (2, 2)),
    "avg_pool2d": lambda y: relay.nn.avg_pool2d(y, (2, 2), (2, 2)),
    "global": relay.nn.global_avg_pool2d,
    "batch_norm": lambda y: relay.nn.batch_norm(y, *(relay.abs(const(5)) for _ in range(4)))[0],
    "layer_norm": lambda y: relay.nn.layer_norm(y, const(6), const(6)),
    "instance_norm": lambda y: relay.nn.instance_norm(y, const(5), const(5)),
    "group_norm": lambda y: relay.nn.group_norm(y, const(5), const(5), 5),
    "softmax": lambda y: relay.nn.softmax(y, -1),
    "softmax-axis": lambda y: relay.nn.softmax(y, 1),
    "lrn": lambda y: relay.nn.lrn(y, 3),
    "l2_normalize": lambda y: relay.nn.l2_normalize(y, 1e-6, [1]),
    "mean": lambda y: relay.mean(y, [2, 3]),
    "prelu": lambda y: relay.nn.prelu(y, const(5)),
    "add": lambda y: y + const(2, 5, 16, 6),
    "bias": lambda y: relay.nn.bias_add(y, const(5)),
    "dense": lambda y: relay.nn.dense(relay.reshape(y, (-1, 96)), const(7, 96)),
    "batch_matmul": lambda y: relay.nn.batch_matmul(
        relay.reshape(y, (10, 16, 6)), relay.reshape(y, (10, 16, 6))
    ),
    "leaky_relu": lambda y: relay.nn.leaky_relu(y, 0.1),
}


@pytest.mark.parametrize("is_blocked", [False, True], ids=["plain", "blocked"])
@pytest.mark.parametrize("consumer", CONSUMERS.values(), ids=CONSUMERS.keys())
def test_in_front_of_every_family(consumer, is_blocked):
    x = rand(*SHAPE)
    data = conv(var("x", SHAPE), 16, 3, 16) if is_blocked else relay.exp(var("x", SHAPE))
    mod = module(consumer(relay.transpose(data, (0, 3, 1, 2))))
    partitioned = dnnl.partition_for_dnnl(mod, prune=False)
    offload = testing.offload(partitioned)
    assert offload.partitions == 1 and not offload.host_ops, partitioned
    assert offload.ops["transpose"] == 1
    steps = run_planned(partitioned, {"x": x}, direct.run(mod, {"x": x}), RTOL)
    slow = [step for step in steps if step["reference"]]
    # Without AVX-512 oneDNN has nothing better for a window over any five channels.
    assert not [step for step in slow if step["kind"] != "lrn"], slow


ODD = {
    "order": lambda x: relay.transpose(x, (1, 2, 0, 3)),
    "gaps": lambda x: relay.split(relay.concatenate([x, x], 3), (1,), 3)[1],
    "gaps-of-channels": lambda x: relay.strided_slice(x, [0, 1, 0, 0], [2, 15, 6, 5]),
    "steps": lambda x: relay.strided_slice(x, [0, 0, 0, 0], [2, 16, 6, 5], [1, 1, 2, 1]),
}


@pytest.mark.parametrize("is_blocked", [False, True], ids=["plain", "blocked"])
@pytest.mark.parametrize("view", ODD.values(), ids=ODD.keys())
def test_second_operands_and_layouts_of_views(view, is_blocked):
    """Parts with gaps and unusual orders were read as if they were whole and usual."""
    x = rand(*SHAPE)
    data = conv(var("x", SHAPE), 16, 3, 16) if is_blocked else relay.exp(var("x", SHAPE))
    y = view(data)
    a, b, c, d = module(y)["main"].body.checked_type.shape
    a, b, c, d = int(a), int(b), int(c), int(d)
    outputs = [
        y + const(a, 1, 1, d),
        y * const(b, 1, 1),
        relay.sigmoid(y * const(a, b, c, d)),
        relay.tanh(y) + const(a, b, c, d),
        relay.nn.bias_add(y, const(b)),
        relay.nn.prelu(y, const(b)),
        const(a, b, c, d) - relay.mean(y, 1, keepdims=True),
        conv(const(a, b, c, d), b, 3, b) + y,
        relay.nn.max_pool2d(y, (2, 2)),
        relay.nn.softmax(y, 1),
    ]
    mod = module(*outputs)
    partitioned = partition(mod, prune=False)
    assert not testing.offload(partitioned).host_ops
    got = direct.run(partitioned, {"x": x})
    for i, pair in enumerate(zip(got, direct.run(mod, {"x": x}))):
        assert testing.difference(*([value] for value in pair)).relative <= RTOL, i


def _run(expr, x, partitions=1, executors=("graph", "vm"), **expected):
    return direct.check(
        module(expr), {"x": x}, partitions=partitions, executors=executors, rtol=RTOL, **expected
    )


class TestAliases:
    """A result is memory of the caller: no view may be one."""

    x = rand(2, 8, 6, 6)

    def both(self, view):
        y = conv(var("x", self.x.shape))
        return y, view(y)

    @pytest.mark.parametrize("prune", [False, True])
    def test_a_result_and_a_view_of_it(self, prune):
        y, z = self.both(lambda y: relay.reshape(y, (2, -1)))
        direct.check(module(y, z), {"x": self.x}, partitions=1, rtol=RTOL, options={"prune": prune})

    def test_a_result_twice(self):
        y, z = self.both(lambda y: relay.transpose(y, (0, 2, 3, 1)))
        mod = module(relay.tanh(z), z, y, z)
        direct.check(mod, {"x": self.x}, partitions=1, rtol=RTOL, options={"prune": False})

    def test_two_views_of_one_result(self):
        y, z = self.both(lambda y: relay.reshape(y, (2, -1)))
        mod = module(z, relay.reshape(y, (16, 36)), relay.expand_dims(y, 0))
        direct.check(mod, {"x": self.x}, partitions=1, rtol=RTOL, options={"prune": False})

    def test_a_view_of_an_input(self):
        x = var("x", self.x.shape)
        flat = relay.reshape(x, (2, -1))
        mod = module(flat, conv(relay.reshape(flat, self.x.shape)))
        direct.check(mod, {"x": self.x}, partitions=1, rtol=RTOL, options={"prune": False})

    def test_a_view_outlives_what_it_is_a_view_of(self):
        """The arena must not give the memory away while a view of it is read."""
        y = conv(var("x", self.x.shape))
        kept = relay.reshape(y, (2, 8, 36))
        z = y
        for seed in range(4):
            z = relay.tanh(conv(z, seed=seed))
        _run(relay.reshape(z, (2, 8, 36)) * kept, self.x)


class TestPartitions:
    x = rand(2, 8, 6, 6)

    def test_views_do_not_cut(self):
        y = relay.reshape(conv(var("x", self.x.shape)), (2, 8, 36))
        y = relay.transpose(relay.tanh(y), (0, 2, 1))
        y = relay.nn.dense(relay.reshape(y, (-1, 8)), const(5, 8))
        offload = testing.offload(_run(relay.expand_dims(y, 0), self.x))
        assert (
            not offload.host_ops and offload.ops["reshape"] == 2 and offload.ops["transpose"] == 1
        )

    def test_no_partition_of_views_alone(self):
        x = var("x", (512, 1024))
        mod = partition(module(relay.reshape(relay.transpose(relay.expand_dims(x, 0)), (-1,))))
        report = dnnl.offload_report(mod)
        assert report.partitions == 0 and report.offloaded == 0
        for op in ("reshape", "transpose", "expand_dims"):
            assert report.reasons[op] == {"pruned: it only moves data": 1}

    def test_views_do_not_count_as_work(self):
        x = var("x", (512, 100))
        mod = partition(module(relay.nn.relu(relay.reshape(x, (100, 512)))))
        assert dnnl.offload_report(mod).partitions == 0

    def test_a_view_of_an_input_that_others_use_stays_outside(self):
        x = var("x", self.x.shape)
        flat = relay.reshape(x, (2, -1))
        mod = module(conv(relay.reshape(flat, self.x.shape)), relay.atan(flat))
        partitioned = partition(mod)
        report = dnnl.offload_report(partitioned)
        assert report.offloaded_ops["reshape"] == 1 and report.ops["reshape"] == 2
        assert report.reasons["reshape"] == {"left out: a view at the edge of a partition": 1}
        direct.check(mod, {"x": self.x}, partitions=1, rtol=RTOL)

    def test_a_view_of_a_result_that_others_use_stays_outside(self):
        y = conv(var("x", self.x.shape))
        mod = module(relay.atan(relay.reshape(y, (2, -1))), y)
        report = dnnl.offload_report(partition(mod))
        assert "reshape" not in report.offloaded_ops
        direct.check(mod, {"x": self.x}, partitions=1, rtol=RTOL)

    @json_only
    def test_a_result_may_be_a_view(self):
        """Nothing is copied: the step before writes into the caller's memory."""
        expr = relay.reshape(relay.exp(var("x", (512, 512))), (-1,))
        x = rand(512, 512)
        steps = run_planned(partition(module(expr)), {"x": x}, [np.exp(x).reshape(-1)])
        assert [step["kind"] for step in steps] == ["eltwise"]


REFUSED = {
    "rank": (relay.expand_dims(var("x", (2, 3)), 0, 11), "rank 13; oneDNN supports at most 12"),
    "layout": (
        transform(var("x", (2, 6, 4, 4)), "NCHW", "NCHW4c"),
        "NCHW4c has blocks of 4, which do not divide C=6",
    ),
}


@pytest.mark.parametrize("expr, text", REFUSED.values(), ids=REFUSED.keys())
def test_refused(expr, text):
    (reason,) = reasons(expr)
    assert text in reason


@pytest.mark.parametrize("shape", [(50, 8, 1), (400,), (1, 16, 25, 1)], ids=str)
def test_one_channel_in_blocks_is_no_other_dimension(shape):
    """The result of a convolution of one channel has blocks of channels, nearly all padding."""
    x, w = rand(16, 1, 24), rand(1, 1, 3, seed=1)
    attrs = dict(kernel_size=(3,), channels=1, padding=(1, 0))
    expr = relay.nn.conv1d_transpose(var("x", x.shape), relay.const(w), **attrs)
    mod = tvm.IRModule.from_expr(relay.tanh(relay.reshape(expr, shape)))
    direct.check(mod, {"x": x}, partitions=1, options={"prune": False})
