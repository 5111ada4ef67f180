# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.  See the NOTICE file
# distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file
# to you under the Apache License, Version 2.0 (the
# "License"); you may not use this file except in compliance
# with the License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing,
# software distributed under the License is distributed on an
# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
# KIND, either express or implied.  See the License for the
# specific language governing permissions and limitations
# under the License.
"""Models of onnxruntime's `quantize_dynamic`: activations get their scales as the model runs."""

import logging

import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from onnxruntime import quantization
from tvm import relay
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from dnnl_tests.reference import rand

SHAPE = (2, 4, 8, 8)
_FLOAT = onnx.TensorProto.FLOAT


def network():
    """Return a convolution and two matmuls in float32."""
    weights = dict(w=(8, 4, 3, 3), b=(8,), w2=(512, 32), b2=(32,), w3=(32, 10))
    initializers = [
        numpy_helper.from_array(rand(*shape, seed=seed), name)
        for seed, (name, shape) in enumerate(weights.items())
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["conv"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["conv"], ["relu"]),
        helper.make_node("Flatten", ["relu"], ["flat"]),
        helper.make_node("MatMul", ["flat", "w2"], ["matmul"]),
        helper.make_node("Add", ["matmul", "b2"], ["sum"]),
        helper.make_node("Relu", ["sum"], ["relu2"]),
        helper.make_node("MatMul", ["relu2", "w3"], ["y"]),
    ]
    source, result = (
        helper.make_tensor_value_info(name, _FLOAT, shape)
        for name, shape in (("x", SHAPE), ("y", (2, 10)))
    )
    graph = helper.make_graph(nodes, "network", [source], [result], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


MATMULS = {"dnnl.dynamic_quantized_dense": 1, "dnnl.dynamic_quantized_dense_bias_relu": 1}
# What is quantized, how, the composites, how often the model computes a scale, the partitions.
CASES = {
    "matmul-per-channel": (
        ["MatMul"],
        dict(weight_type=quantization.QuantType.QInt8, per_channel=True),
        {"dnnl.conv2d_bias_relu": 1, **MATMULS},
        2,
        1,
    ),
    # onnxruntime has no convolution of weights in int8.
    "all-uint8": (
        ["Conv", "MatMul"],
        dict(weight_type=quantization.QuantType.QUInt8),
        {"dnnl.qnn.conv2d_multiply_add_relu": 1, **MATMULS},
        3,
        1,
    ),
}


@pytest.mark.parametrize("freeze", [True, False], ids=["frozen", "params"])
@pytest.mark.parametrize("case", CASES)
def test_dynamic_quantization(case, freeze, tmp_path):
    """A matmul computes the scale of its data; that of a convolution's is outside."""
    ops, choice, composites, scales, partitions = CASES[case]
    plain, target = str(tmp_path / "plain.onnx"), str(tmp_path / "dynamic.onnx")
    onnx.save(network(), plain)
    logging.disable(logging.WARNING)
    try:
        quantization.quantize_dynamic(plain, target, op_types_to_quantize=ops, **choice)
    finally:
        logging.disable(logging.NOTSET)
    model, x = onnx.load(target), rand(*SHAPE)
    assert [node.op_type for node in model.graph.node].count("DynamicQuantizeLinear") == scales
    (want,) = onnxruntime.InferenceSession(target).run(None, {"x": x})
    mod, params = relay.frontend.from_onnx(model, shape={"x": SHAPE}, freeze_params=freeze)
    partitioned = dnnl.partition_for_dnnl(mod, params)
    offload = testing.offload(partitioned)
    assert offload.composites == composites
    assert offload.partitions == partitions
    (got,) = testing.run(partitioned, {"x": x}, {} if freeze else params)
    # The same integers; a scale and a zero point are rounded in the same way.
    testing.assert_close(got, want)
