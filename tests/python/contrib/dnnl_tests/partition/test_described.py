# SPDX-License-Identifier: Apache-2.0
"""Composites of somebody's own patterns, as the code generators get them described."""

import json
import re

import numpy as np
import pytest
import tvm
from tvm import relay

from dnnl_tests.marks import json_only
from dnnl_tests.reference import rand
from dnnl_tests.single_op import run_fused, var

DATA, WEIGHT = (1, 3, 8, 8), (8, 3, 1, 1)
ROWS = (6, 4), (8, 4)


def described(shapes, build, constants=()):
    """Return what the code generators get of a composite."""
    params = [relay.var(f"p{k}", shape=shape) for k, shape in enumerate(shapes)]
    func = relay.Function(params, build(*params)).with_attr("Composite", "dnnl.any")
    args = [
        relay.const(rand(*shape)) if k in constants else relay.var(f"x{k}", shape=shape)
        for k, shape in enumerate(shapes)
    ]
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Call(func, args)))
    call = mod["main"].body
    return call, tvm.get_global_func("relay.ext.dnnl.describe")(call)


def conv(data, weight, **attrs):
    return relay.nn.conv2d(data, weight, channels=8, kernel_size=(1, 1), **attrs)


def nhwc(data, weight, **attrs):
    return conv(data, weight, kernel_layout="HWIO", **attrs)


def of_rows(data, weight):
    return relay.reshape(relay.nn.dense(data, weight), (2, 3, 8))


def twice_reshaped(data, weight):
    return relay.squeeze(relay.expand_dims(relay.nn.dense(data, weight), 0), [0])


def batch_matmul(data, weight):
    return relay.nn.batch_matmul(data, weight, transpose_b=True)


def matmul(data, weight):
    return relay.nn.matmul(data, weight, transpose_b=True)


BIASES = {
    "per channel": (DATA, WEIGHT, (8, 1, 1), lambda a, b, c: conv(a, b) + c, "1"),
    "first": (DATA, WEIGHT, (1, 8, 1, 1), lambda a, b, c: relay.nn.relu(c + conv(a, b)), "1-"),
    "bias_add": (DATA, WEIGHT, (8,), lambda a, b, c: relay.nn.bias_add(conv(a, b), c), "1"),
    "axis -3": (DATA, WEIGHT, (8,), lambda a, b, c: relay.nn.bias_add(conv(a, b), c, -3), "1"),
    "one": (DATA, WEIGHT, (1,), lambda a, b, c: conv(a, b) + c, "-"),
    "all": (DATA, WEIGHT, (1, 8, 8, 8), lambda a, b, c: conv(a, b) + c, "-"),
    "factor": (DATA, WEIGHT, (8, 1, 1), lambda a, b, c: conv(a, b) * c, "-"),
    "later": (DATA, WEIGHT, (8, 1, 1), lambda a, b, c: relay.nn.relu(conv(a, b)) + c, "--"),
    "two": (DATA, WEIGHT, (8, 1, 1), lambda a, b, c: conv(a, b) + c + c, "1-"),
    "NHWC": (
        (1, 8, 8, 3),
        (1, 1, 3, 8),
        (8,),
        lambda a, b, c: nhwc(a, b, data_layout="NHWC") + c,
        "1",
    ),
    "dense": (*ROWS, (8,), lambda a, b, c: relay.nn.dense(a, b) + c, "1"),
    "matmul": (*ROWS, (8,), lambda a, b, c: relay.nn.bias_add(matmul(a, b), c), "1"),
    "batch_matmul": ((2, 6, 4), (2, 8, 4), (8,), lambda a, b, c: batch_matmul(a, b) + c, "1"),
    "reshaped": (*ROWS, (8,), lambda a, b, c: of_rows(a, b) + c, "-1"),
    "twice": (*ROWS, (8,), lambda a, b, c: twice_reshaped(a, b) + c, "--1"),
    # As wide as the channels are many.
    "axis 2": (DATA, WEIGHT, (8,), lambda a, b, c: relay.nn.bias_add(conv(a, b), c, 2), "-"),
    "a row": (DATA, WEIGHT, (8,), lambda a, b, c: conv(a, b) + c, "-"),
    "no weights": ((1, 8, 4, 4), (1, 8, 4, 4), (1,), lambda a, b, c: a * b + c, "-"),
}


@pytest.mark.parametrize("case", BIASES)
def test_which_post_op_is_the_bias(case):
    *shapes, build, marks = BIASES[case]
    call, kernel = described(shapes, build)
    attrs = json.loads(kernel.op.attrs["dnnl_kernel"])
    marked = ["1" if post_op.get("is_bias") else "-" for post_op in attrs["post_ops"]]
    assert "".join(marked) == marks
    assert set(kernel.args) == set(call.args) and kernel.args[0].same_as(call.args[0])


def test_constant_arguments():
    """A rule may accept only constant weights; the inputs of the kernel are the same constants."""
    shapes = (1, 8, 6, 6), (8, 4, 3, 3), (8, 1, 1)

    def build(a, b, c):
        return relay.nn.conv2d(a, b, groups=2, channels=8, kernel_size=(3, 3)) + c

    call, kernel = described(shapes, build, constants=(1, 2))
    assert [one.same_as(other) for one, other in zip(kernel.args, call.args)] == [True] * 3
    assert str(kernel.op.attrs["Composite"]) == "dnnl.conv2d_bias"


def test_a_single_op():
    _, kernel = described([(4, 8)], relay.exp)
    assert str(kernel.op.attrs["Composite"]) == "exp" and len(kernel.args) == 1


def test_the_first_of_several_results():
    def norm(x, *stats):
        return relay.nn.batch_norm(x, *stats)[0]

    _, kernel = described([(2, 8, 4, 4), *[(8,)] * 4], norm)
    assert str(kernel.op.attrs["Composite"]) == "nn.batch_norm" and len(kernel.args) == 5


NO_KERNEL = {
    "no op": ([(4, 8)], lambda x: x, "no op"),
    "a branch": (
        [DATA, WEIGHT],
        lambda a, b: relay.nn.softmax(conv(a, b)) + conv(a, b),
        "nn.conv2d: not fused",
    ),
}


@pytest.mark.parametrize("shapes, build, reason", NO_KERNEL.values(), ids=NO_KERNEL.keys())
def test_no_kernel(shapes, build, reason):
    message = f"dnnl.any is not a oneDNN kernel: {reason}"
    with pytest.raises(ValueError, match=re.escape(message)):
        described(shapes, build)


CHAINS = {
    "relu(exp)": (lambda x, y: relay.nn.relu(relay.exp(x)) + y, lambda x, y: np.exp(x) + y),
    "a view": (
        lambda x, y: relay.reshape(relay.nn.relu(x), (8, 6)) * y,
        lambda x, y: np.maximum(x, 0).reshape(8, 6) * y,
    ),
    "transposed": (
        lambda x, y: relay.nn.relu(relay.transpose(x)) + y,
        lambda x, y: np.maximum(x.T, 0) + y,
    ),
    "softmax": (
        lambda x, y: relay.sqrt(relay.nn.softmax(x)) * y,
        lambda x, y: np.sqrt(np.exp(x) / np.exp(x).sum(-1, keepdims=True)) * y,
    ),
}


@json_only
@pytest.mark.parametrize("case", CHAINS)
def test_chains_that_the_partitioner_would_not_fuse(case):
    """Where oneDNN has no code for what is fused, the runtime makes steps of their own."""
    build, expected = CHAINS[case]
    x, y = rand(6, 8), rand(6, 8, seed=1)
    if case in ("a view", "transposed"):
        y = rand(8, 6, seed=1)
    body = build(var("x", x.shape), var("y", y.shape))
    run_fused(body, {"x": x, "y": y}, expected(x, y))
