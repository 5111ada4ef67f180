# SPDX-License-Identifier: Apache-2.0
"""Networks with open dimensions, each one library for all shapes, beside onnxruntime."""

import numpy as np
import onnx
import pytest
from tvm import relay
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from dnnl_tests.marks import json_only, nightly_after
from dnnl_tests.models import onnx_networks, open_dims, workloads

pytestmark = [pytest.mark.slow, json_only]

# Some dozen products in a row, in float32.
RTOL = 1e-4

# By default the beginning of a network, which is compiled in a fifth of the time.
START = open_dims.OpenNetwork(
    "start",
    "MobileNet v2, 3 stages",
    lambda: onnx_networks.mobilenet_v2(image=64, batch="batch", stages=3),
    [(batch, 3, 64, 64) for batch in (1, 2)],
)
NETWORKS = {"start": START, **open_dims.NETWORKS}

# Smaller than those of the measurements, where the network allows it.
SHAPES = {
    "start": START.shapes,
    "mobilenet_v2": [(batch, 3, 224, 224) for batch in (1, 2)],
    "resnet50": [(1, 3, 64, 64), (1, 3, 40, 72), (1, 3, 33, 47)],
    "rec": [(1, 3, 48, width) for width in (64, 128, 161)],
    "bert": [(1, length, 512) for length in (64, 37, 1)],
}


@pytest.mark.parametrize("name", nightly_after(1, NETWORKS))
def test_one_library_takes_every_shape(name, tmp_path):
    network = NETWORKS[name]
    model = network.model()
    mod, params = relay.frontend.from_onnx(model, freeze_params=True)
    partitioned = dnnl.partition_for_dnnl(mod, params)
    report = dnnl.offload_report(partitioned)
    assert (report.offloaded, report.partitions) == (report.total, 1), report
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    session = workloads.onnx_session(str(path))
    (source,) = session.get_inputs()
    runner = testing.Runner(testing.build(partitioned, executor="vm"))
    # One of another batch, too.
    shapes = [*SHAPES[name], (3, *SHAPES[name][-1][1:])]
    for shape in (*shapes, shapes[0]):
        x = np.random.default_rng(shape).uniform(-1, 1, shape).astype("float32")
        expected = session.run(None, {source.name: x})
        testing.assert_close(runner({mod["main"].params[0].name_hint: x}), expected, RTOL)
    (plans,) = testing.plans(runner)
    assert (plans["misses"], plans["hits"]) == (len(shapes), 1)
