# SPDX-License-Identifier: Apache-2.0
"""ONNX nodes that are refused when they are imported, with an error that names the node."""

import numpy as np
import pytest
import tvm
import tvm_dnnl
from onnx import TensorProto, helper

from dnnl_relax.onnx.nodes import check_node, node_model, normal


def refused(op, operands, message, **options):
    model = node_model(op, operands, domain="", **options)
    with pytest.raises(tvm.error.OpNotImplemented, match=message):
        tvm_dnnl.from_onnx(model)


@pytest.mark.parametrize("name", ["FLOAT8E4M3FN", "FLOAT8E5M2", "INT4", "UINT4", "STRING"])
def test_types_of_results(name):
    operands = {"x": normal(2, 3)}
    model = node_model("Cast", operands, domain="", opset=21, to=TensorProto.DataType.Value(name))
    with pytest.raises(tvm.error.OpNotImplemented, match=f"Cast, node node: .* type {name}"):
        tvm_dnnl.from_onnx(model)


def test_types_of_inputs():
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT8E5M2, [2, 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])
    node = helper.make_node("Cast", ["x"], ["y"], name="widen", to=TensorProto.FLOAT)
    graph = helper.make_graph([node], "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    with pytest.raises(tvm.error.OpNotImplemented, match="Cast, node widen: x is a tensor"):
        tvm_dnnl.from_onnx(model)


BOXES = {"boxes": np.zeros((1, 4, 4), "float32"), "scores": np.zeros((1, 1, 4), "float32")}


def test_thresholds_that_are_not_constant():
    operands = {**BOXES, "count": np.array([3]), "iou_threshold": np.float32([0.3])}
    refused("NonMaxSuppression", operands, "node: iou_threshold .* `constants`", consts=["count"])
    given = {"iou_threshold": [0.3]}
    model = node_model("NonMaxSuppression", operands, domain="", consts=["count"])
    assert tvm_dnnl.from_onnx(model, constants=given)["main"].params


def test_training():
    operands = {"x": normal(2, 3), "ratio": np.float32(0.5), "mode": np.array(True)}
    refused("Dropout", operands, "node: training_mode", consts=["ratio", "mode"])
    operands["mode"] = np.array(False)
    check_node("Dropout", operands, operands["x"][None], domain="", consts=["ratio", "mode"])


def test_maximum_of_regions():
    operands = {"x": normal(1, 1, 4, 4), "rois": normal(1, 4), "batch": np.array([0])}
    refused("RoiAlign", operands, "node: mode=max", mode="max")


def test_type_of_top_k():
    operands = {"x": np.arange(6, dtype="uint64"), "k": np.array([2])}
    refused("TopK", operands, "node: data of the type uint64", outputs=2, consts=["k"])


def test_resize_of_axes_to_sizes_that_are_not_constant():
    operands = {"x": normal(1, 1, 4, 4), "roi": None, "scales": np.float32([2, 2])}
    refused("Resize", operands, "node: axes with sizes or a roi", opset=18, axes=[2, 3])


def test_results_that_are_not_computed():
    options = dict(outputs=2, domain="", kernel_shape=[2, 2], strides=[2, 2])
    model = node_model("MaxPool", {"x": normal(1, 1, 4, 4)}, **options)
    with pytest.raises(
        tvm.error.OpAttributeUnImplemented, match="node node: more than 1 of 2 results"
    ):
        tvm_dnnl.from_onnx(model)


@pytest.mark.parametrize("op, domain", [("Scaler", "ai.onnx.ml"), ("Adagrad", "")])
def test_ops_without_a_converter(op, domain):
    """The message names the first node, and what to do about trees and scalers."""
    model = node_model(op, {"x": normal(2, 3)}, domain=domain)
    with pytest.raises(tvm.error.OpNotImplemented, match=f"ONNX {op}, node node: .*{op}") as error:
        tvm_dnnl.from_onnx(model)
    assert ("onnxruntime has these" in str(error.value)) == bool(domain)


def test_inputs_that_are_not_read():
    """Of TVM's converters, too."""
    model = node_model("Relu", {"x": normal(2, 3), "y": normal(2, 3)}, domain="")
    message = "ONNX Relu, node node: the input 1 cannot be imported"
    with pytest.raises(tvm.error.OpAttributeUnImplemented, match=message):
        tvm_dnnl.from_onnx(model)
