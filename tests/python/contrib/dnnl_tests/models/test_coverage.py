# SPDX-License-Identifier: Apache-2.0
"""Whole networks stay on oneDNN, and give what onnxruntime gives."""

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from dnnl_tests import direct
from dnnl_tests.marks import nightly_after
from dnnl_tests.models import work, workloads

# Float32 through some fifty layers, relative to the largest output.
RTOL = 1e-4
# The most partitions of each network.
NETWORKS = {"mobilenet_v2": 1, "resnet50": 1, "bert": 1, "det": 1}


def check_plan(plan):
    """Assert that layouts stay blocked from one convolution to the next, with all ops fused."""
    convs = [step for step in plan["primitives"] if step["kind"] == "convolution"]
    assert len(convs) > 50 and not any(step["reference"] for step in convs)
    assert sum("eltwise_clip" in "".join(step["post_ops"]) for step in convs) > 30
    assert not [step for step in plan["primitives"] if step["kind"] in ("eltwise", "binary")]
    # One in, one out, and where oneDNN's choices change; not one for each convolution.
    reorders = [step for step in plan["primitives"] if step["kind"] == "reorder"]
    assert len(reorders) < len(convs) / 2, reorders
    # Intermediates share the arena.
    assert plan["arena_bytes"] < plan["arena_bytes_unshared"]


@pytest.mark.slow
@pytest.mark.parametrize("name", nightly_after(1, NETWORKS))
def test_network(name):
    workload = workloads.WORKLOADS[name]
    partitioned = dnnl.partition_for_dnnl(*workload.load())
    assert dnnl.offload_report(partitioned).partitions <= NETWORKS[name]
    assert work.work(partitioned).share > 0.98

    x = np.random.default_rng(0).uniform(-1, 1, workload.shape).astype("float32")
    expected = workloads.onnx_session(workload.onnx_path()).run(None, {workload.input_name: x})
    runner = direct.Runner(partitioned)
    testing.assert_close(runner({workload.input_name: x}), expected, RTOL)
    # A second run and another input: nothing of the first may stick.
    assert testing.difference(runner({workload.input_name: -x}), expected).relative > RTOL
    testing.assert_close(runner({workload.input_name: x}), expected, RTOL)
    if name == "mobilenet_v2" and dnnl.dnnl_codegen() == "JSON":
        check_plan(*testing.plans(runner))


@pytest.mark.parametrize(
    "name, expected",
    [
        ("conv2d", 2 * 16 * 36 * 4 * 9),
        ("conv2d_depthwise", 2 * 16 * 36 * 9),
        ("conv2d_transpose", 2 * 8 * 64 * 3 * 4),
        ("dense", 2 * 5 * 3 * 7),
        ("max_pool3d", 2 * 27 * 8),
        ("mean", 8 * 64),
        ("batch_norm", 8 * 64),
        ("add", 6),
        ("erf", 6),
        ("reshape", 0),
    ],
)
def test_flops(name, expected):
    def var(*shape):
        return relay.var(f"x{len(shape)}", shape=shape)

    expr = {
        "conv2d": lambda: relay.nn.conv2d(
            var(1, 8, 8, 8), relay.const(np.ones((16, 4, 3, 3), "float32")), groups=2
        ),
        "conv2d_depthwise": lambda: relay.nn.conv2d(
            var(1, 8, 8, 8),
            relay.const(np.ones((8, 2, 3, 3), "float32")),
            groups=8,
            channels=16,
            kernel_size=(3, 3),
        ),
        "conv2d_transpose": lambda: relay.nn.conv2d_transpose(
            var(1, 8, 8, 8),
            relay.const(np.ones((8, 3, 2, 2), "float32")),
            channels=3,
            kernel_size=(2, 2),
            strides=(2, 2),
        ),
        "max_pool3d": lambda: relay.nn.max_pool3d(var(1, 2, 6, 6, 6), (2, 2, 2), (2, 2, 2)),
        "mean": lambda: relay.mean(var(1, 8, 8, 8), axis=[2, 3]),
        "batch_norm": lambda: relay.nn.batch_norm(
            var(1, 8, 8, 8), *(relay.const(np.ones(8, "float32")) for _ in range(4))
        )[0],
        "erf": lambda: relay.erf(var(2, 3)),
        "dense": lambda: relay.nn.dense(var(5, 7), relay.const(np.ones((3, 7), "float32"))),
        "add": lambda: var(2, 3) + relay.const(1.0),
        "reshape": lambda: relay.reshape(var(2, 3), (6,)),
    }[name]()
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(expr))
    assert work.work(mod) == (0, expected)
