# SPDX-License-Identifier: Apache-2.0
"""Partitions with open dimensions on the VM: each family, several sizes in one library."""

import math

import numpy as np
import pytest
from tvm import relay
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from dnnl_tests.marks import json_only, nightly_except
from dnnl_tests.reference import conv2d, rand
from dnnl_tests.relay import const, conv, module, partition, var

pytestmark = json_only

nn, ANY = relay.nn, None


def check(expr, sizes, composites=None):
    """Run an expression with and without oneDNN, for several shapes of its variables.

    Parameters
    ----------
    expr : relay.Expr
        The expression, of which all is offloaded.
    sizes : list of dict
        The shapes of the variables of each run.
    composites : dict, optional
        The composites that there must be.
    """
    mod = module(expr)
    partitioned = partition(mod, prune=False)
    report = dnnl.offload_report(partitioned)
    assert (report.offloaded, report.partitions) == (report.total, 1), report
    if composites is not None:
        assert report.composites == composites
    runner, plain = (
        testing.Runner(testing.build(m, executor="vm", opt_level=1)) for m in (partitioned, mod)
    )
    for shapes in (*sizes, sizes[0]):
        inputs = {name: rand(*shape) for name, shape in shapes.items()}
        testing.assert_close(runner(inputs), plain(inputs))
    return runner


def of_x(*shapes):
    """Return shapes of the only variable x."""
    return [{"x": shape} for shape in shapes]


IMAGES = of_x((1, 8, 9, 11), (3, 8, 7, 6), (2, 8, 16, 5))
ROWS = of_x((1, 5, 16), (4, 1, 16), (2, 9, 16))


def image(size=8):
    """Return an image of open batch and size."""
    return var("x", ANY, size, ANY, ANY)


def rows(size=16):
    """Return vectors in an open batch of open length."""
    return var("x", ANY, ANY, size)


CASES = {
    "conv-bias-relu": (
        lambda: nn.relu(nn.bias_add(conv(image()), const(8))),
        IMAGES,
        {"dnnl.conv2d_bias_relu": 1},
    ),
    "conv-strided": (lambda: conv(image(), strides=(2, 2)), IMAGES, {}),
    "conv-asymmetric": (lambda: conv(image(), padding=(0, 1, 1, 0), strides=(2, 2)), IMAGES, {}),
    "max_pool": (
        lambda: nn.max_pool2d(image(), (3, 3), (2, 2), padding=(1, 1)),
        IMAGES,
        {},
    ),
    "avg_pool": (lambda: nn.avg_pool2d(image(), (2, 2), (2, 2)), IMAGES, {}),
    "global_avg_pool": (lambda: nn.global_avg_pool2d(image()), IMAGES, {}),
    "dense": (
        lambda: nn.relu(nn.dense(var("x", ANY, 16), const(8, 16)) + const(8)),
        of_x((1, 16), (7, 16), (3, 16)),
        {"dnnl.dense_bias_relu": 1},
    ),
    "softmax-open-axis": (lambda: nn.softmax(var("x", ANY, ANY)), of_x((2, 5), (1, 1), (3, 8)), {}),
    "layer_norm": (lambda: nn.layer_norm(rows(), const(16), const(16)), ROWS, {}),
    "mean-open-axis": (lambda: relay.mean(rows(), [1]), ROWS, {}),
    "sigmoid": (lambda: relay.sigmoid(rows()), ROWS, {}),
    "multiply-vector": (lambda: rows() * const(16), ROWS, {}),
    "transpose-relu": (lambda: nn.relu(relay.transpose(rows(), (1, 0, 2))), ROWS, {}),
    "slice-relu": (
        lambda: nn.relu(relay.strided_slice(rows(), [4], [12], axes=[2])),
        ROWS,
        {},
    ),
}


EACH = ("conv-bias-relu", "max_pool", "dense", "softmax-open-axis", "slice-relu")


@pytest.mark.parametrize("name", nightly_except(EACH, CASES))
def test_family(name):
    make, sizes, composites = CASES[name]
    check(make(), sizes, composites)


def check_against_numpy(expr, reference, sizes, composites):
    """Run an expression that TVM alone cannot with open dimensions."""
    partitioned = partition(module(expr), prune=False)
    report = dnnl.offload_report(partitioned)
    assert report.composites == composites and report.offloaded == report.total
    runner = testing.Runner(testing.build(partitioned, executor="vm", opt_level=1))
    for shapes in sizes:
        x = rand(*shapes["x"])
        testing.assert_close(runner({"x": x}), [reference(x)])


def test_two_inputs_of_open_length():
    """Attention of one sequence over another."""
    query, key = var("x", ANY, ANY, 16), var("y", ANY, ANY, 16)
    scores = nn.softmax(nn.batch_matmul(query, key) * relay.const(0.25))
    sizes = [{"x": (2, n, 16), "y": (2, m, 16)} for n, m in ((3, 5), (1, 7), (4, 4))]
    check(scores, sizes, {"dnnl.batch_matmul_multiply": 1})


PRODUCTS = {
    "both-open": (lambda: nn.dense(var("x", ANY, 4), var("y", ANY, 4)), (3, 4), (5, 4)),
    "columns-open": (lambda: nn.dense(var("x", ANY, ANY), var("y", ANY, ANY)), (3, 6), (17, 6)),
    "rows-fixed": (lambda: nn.dense(var("x", 2, 4), var("y", ANY, 4)), (2, 4), (33, 4)),
    "batch": (lambda: nn.dense(var("x", ANY, ANY, 4), var("y", ANY, 4)), (2, 3, 4), (5, 4)),
    "matmul": (
        lambda: nn.matmul(var("x", 4, ANY), var("y", ANY, 4), transpose_a=True, transpose_b=True),
        (4, 3),
        (5, 4),
    ),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_product_by_an_open_matrix(name):
    """TVM alone cannot compile these."""
    make, *shapes = PRODUCTS[name]
    partitioned = partition(module(make()))
    report = dnnl.offload_report(partitioned)
    assert report.partitions == 1 and report.offloaded == report.total
    runner = testing.Runner(testing.build(partitioned, executor="vm", opt_level=1))
    x, y = (rand(*shape) for shape in shapes)
    want = (x.T if name == "matmul" else x) @ y.T
    testing.assert_close(runner({"x": x, "y": y}), [want])


def test_residual():
    data, other = image(), var("y", ANY, 8, ANY, ANY)
    sizes = [{"x": shape, "y": shape} for shape in ((1, 8, 9, 11), (3, 8, 7, 6))]
    check(conv(data) + other, sizes, {"dnnl.conv2d_sum": 1})


def test_formula():
    """The body of a virtual op has ops for which TVM has no shape function."""
    data = rows()
    half = data * relay.const(0.5)
    gelu = half * (relay.erf(data * relay.const(0.5**0.5)) + relay.const(1.0))
    erf = np.vectorize(math.erf)
    check_against_numpy(
        gelu, lambda x: x / 2 * (1 + erf(x / np.sqrt(2))), ROWS, {"dnnl.gelu_erf": 1}
    )


@pytest.mark.parametrize(
    "attrs", [{}, {"padding": (0, 1, 2, 1), "strides": (2, 1)}], ids=["plain", "asymmetric"]
)
def test_depthwise(attrs):
    """TVM has no kernel for it with open dimensions."""
    attrs = {"groups": 8, "channels": 8, "kernel_size": (3, 3), **attrs}
    expr = nn.conv2d(image(), const(8, 1, 3, 3), **attrs)
    check_against_numpy(expr, lambda x: conv2d(x, rand(8, 1, 3, 3), attrs), IMAGES, {})


def test_saved_and_loaded(tmp_path):
    """A library with open dimensions runs in a new process."""
    partitioned = partition(module(nn.relu(conv(image()))), prune=False)
    exe = testing.build(partitioned, executor="vm", opt_level=1)
    path = str(tmp_path / "open.so")
    exe.mod.export_library(path)
    runner = testing.Runner(exe)
    for shapes in IMAGES[:1]:
        inputs = {"x": rand(*shapes["x"])}
        got = testing.run_in_new_process(path, inputs, executor="vm")
        testing.assert_close(got, runner(inputs), rtol=0)
