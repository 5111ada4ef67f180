# SPDX-License-Identifier: Apache-2.0
"""What several tests of the tools use."""

import shutil

import pytest

from scripts.layout import ROOT, Layout


@pytest.fixture
def network():
    """Return a convolution and a relu, whose batch is open."""
    from dnnl_tests.models import onnx_networks, open_dims

    net = onnx_networks.Network("small", ("batch", 3, 8, 8))
    model = net.model(net.op("Relu", net.conv("x", 3, 8, 3)), ("batch", 8, 8, 8))
    shapes = [(1, 3, 8, 8), (2, 3, 8, 8)]
    return open_dims.OpenNetwork("mobilenet_v2", "Small", lambda: model, shapes)


@pytest.fixture
def layout(tmp_path):
    """Return a checkout of its own, with the real requirements and a small overlay."""
    for name in ("requirements", "patches"):
        shutil.copytree(ROOT / name, tmp_path / name)
    (tmp_path / "python/tvm").mkdir(parents=True)
    (tmp_path / "python/tvm/a.py").write_text("ours")
    (tmp_path / "src").mkdir()
    (tmp_path / "src/a.cc").write_text("int a;")
    return Layout(tmp_path)


@pytest.fixture(scope="module")
def own_model(tmp_path_factory):
    """Write a model of two inputs, one of them with an open batch; return its path."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper

    def info(name, dtype, shape):
        return helper.make_tensor_value_info(name, dtype, shape)

    weight = np.random.default_rng(0).standard_normal((8, 4)).astype("float32")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        helper.make_node("Gather", ["y", "index"], ["z"], axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "own",
        [info("x", TensorProto.FLOAT, ["n", 8]), info("index", TensorProto.INT64, [2])],
        [info("z", TensorProto.FLOAT, ["n", 2])],
        [onnx.numpy_helper.from_array(weight, "w")],
    )
    path = tmp_path_factory.mktemp("own") / "rec-own.onnx"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = 8
    onnx.save(model, path)
    return str(path)
