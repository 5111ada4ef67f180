# SPDX-License-Identifier: Apache-2.0
"""Networks of open batch, size or length in bfloat16 and with 8-bit operands.

They are compared with libraries of the same precision whose sizes are known.
"""

import itertools

import numpy as np
import onnx
import pytest
from tvm import relay
from tvm.contrib.onednn import cpu
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from dnnl_tests import direct
from dnnl_tests.marks import json_only, nightly_except
from dnnl_tests.models import accuracy, int8, onnx_networks, workloads

pytestmark = json_only


def images(batch="batch", height="height", width="width"):
    """Return a network with a residual that a strided 1x1 convolution reads."""
    net = onnx_networks.Network("images", (batch, 3, height, width))
    x = net.op("Relu", net.conv("x", 3, 16, 3))
    y = net.op("Relu", net.conv(x, 16, 16, 3))
    x = net.op("Relu", net.op("Add", net.conv(y, 16, 16, 3), x))
    x = net.op("Relu", net.conv(x, 16, 32, 1, 2))
    x = net.op("Flatten", net.op("GlobalAveragePool", x), axis=1)
    weight = net.weight(10, 32, fan_in=32)
    return net.model(net.op("Gemm", x, weight, net.vector(10), transB=1), (batch, 10))


def text(batch="batch", length="length"):
    """Return a transformer."""
    return onnx_networks.bert(1, length, 64, 2, batch=batch)


# The network, what is quantized, a shape for the ranges of the activations, and shapes to run.
NETWORKS = {
    "images": (
        images,
        int8.Recipe(("Conv", "Gemm", "Add", "GlobalAveragePool")),
        (2, 3, 16, 16),
        [(2, 3, 16, 16), (3, 3, 9, 14), (1, 3, 1, 2)],
    ),
    "text": (
        text,
        int8.Recipe(("MatMul", "Gemm")),
        (1, 16, 64),
        [(1, 16, 64), (3, 13, 64), (1, 1, 64)],
    ),
}


def uniform(shape, seed=0):
    return np.random.default_rng((seed, *shape)).uniform(-1, 1, shape).astype("float32")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """The files of the networks by name and whether they are quantized."""
    folder, saved = tmp_path_factory.mktemp("open"), {}
    for name, (build, recipe, shape, _) in NETWORKS.items():
        source, target = str(folder / f"{name}.onnx"), str(folder / f"{name}-int8.onnx")
        onnx.save(build(), source)
        int8.quantize(source, target, [{"x": uniform(shape, seed)} for seed in range(8)], recipe)
        saved[name] = {False: source, True: target}
    return saved


# By default each pair of a network, 8 bits or not, and a precision.
PAIRS = {("images", False, "float32"), ("images", True, "bfloat16")}
PAIRS |= {("text", False, "bfloat16"), ("text", True, "float32")}
CASES = list(itertools.product(NETWORKS, (False, True), ("float32", "bfloat16")))
IDS = [f"{name}-{'int8' if is_int8 else 'real'}-{precision}" for name, is_int8, precision in CASES]


@pytest.mark.parametrize("name, is_int8, precision", nightly_except(PAIRS, CASES), ids=IDS)
def test_as_with_known_sizes(name, is_int8, precision, models):
    if precision != "float32" and not cpu.computes(precision):
        pytest.skip(f"oneDNN has no {precision} kernels for this CPU")
    model, shapes = onnx.load(models[name][is_int8]), NETWORKS[name][3]

    def partitioned(**shape):
        mod, params = relay.frontend.from_onnx(model, freeze_params=True, **shape)
        open_mod = dnnl.partition_for_dnnl(mod, params, precision=precision, prune=False)
        report = dnnl.offload_report(open_mod)
        assert (report.offloaded, report.partitions) == (report.total, 1), report
        return open_mod, report.composites

    open_mod, composites = partitioned()
    runner = testing.Runner(testing.build(open_mod, executor="vm"))
    session = workloads.onnx_session(models[name][False])
    statics = {shape: partitioned(shape={"x": shape}) for shape in shapes}
    for shape in (*shapes, shapes[0]):
        x, (static, static_composites) = {"x": uniform(shape)}, statics[shape]
        assert composites == static_composites
        got = runner(x)
        # The same primitives: no bit differs.
        for one, other in zip(got, direct.run(static, x)):
            np.testing.assert_array_equal(one, other)
        if shape == NETWORKS[name][2]:
            exact = session.run(None, x)
            assert accuracy.Accuracy.of(got, exact, False).cosine > 0.99
    assert any(name.startswith("dnnl.qnn.") for name in composites) == is_int8
    (plans,) = testing.plans(runner)
    assert (plans["misses"], plans["hits"]) == (len(shapes), 1)
    if precision == "bfloat16" and not is_int8:
        types = {step["types"] for plan in plans["plans"] for step in plan["primitives"]}
        assert any("bf16" in each for each in types), types
