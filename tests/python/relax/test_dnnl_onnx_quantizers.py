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
"""Models as onnxruntime's quantizers write them, through `tvm_dnnl.from_onnx`."""

import numpy as np
import onnx
import pytest
import tvm_dnnl
from dnnl_modules import compiled, composites, run
from dnnl_quantized_nodes import onnxruntime_results, real
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import quantization


def network():
    """A network with convolutions, pools, a residual, a concat and a classifier."""
    nodes, weights = [], []

    def add(op, *inputs, **attrs):
        names = list(inputs)
        for k, value in enumerate(inputs):
            if not isinstance(value, str):
                names[k] = f"w{len(weights)}"
                weights.append(numpy_helper.from_array(np.asarray(value), names[k]))
        nodes.append(helper.make_node(op, names, [f"y{len(nodes)}"], f"n{len(nodes)}", **attrs))
        return nodes[-1].output[0]

    def conv(x, channels, out, kernel=3, seed=0, **attrs):
        scale = (channels * kernel**2 / 3) ** -0.5
        weight = real(out, channels, kernel, kernel, seed=seed) * np.float32(scale)
        return add("Conv", x, weight, real(out, seed=seed), pads=[kernel // 2] * 4, **attrs)

    x = add("Relu", conv("x", 3, 8, seed=1, strides=[2, 2]))
    y = add("LeakyRelu", conv(x, 8, 8, seed=2), alpha=0.1)
    x = add("Add", x, conv(y, 8, 8, seed=3))
    x = add("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2])
    gate = add("Sigmoid", conv(x, 8, 8, 1, seed=4))
    x = add("Concat", add("Mul", x, gate), x, axis=1)
    x = add("Flatten", add("GlobalAveragePool", conv(x, 16, 24, seed=5)))
    result = add("Gemm", x, real(24, 10, seed=6), real(10, seed=7))
    infos = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", [2, 3, 16, 16]), (result, [2, 10]))
    ]
    graph = helper.make_graph(nodes, "model", infos[:1], infos[1:], weights)
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=8)


class Samples(quantization.CalibrationDataReader):
    """The inputs for the calibration."""

    def __init__(self):
        self._samples = iter([{"x": real(2, 3, 16, 16, seed=seed)} for seed in range(4)])

    def get_next(self):
        return next(self._samples, None)


def quantized(tmp_path, quantize, *args, **options):
    source, target = str(tmp_path / "float.onnx"), str(tmp_path / "int8.onnx")
    onnx.save(network(), source)
    quantize(source, target, *args, **options)
    return onnx.load(target)


def check(model, steps):
    """Compare with onnxruntime; values that are rounded to the next step may differ."""
    partitioned = tvm_dnnl.partition_for_dnnl(tvm_dnnl.from_onnx(model), prune=False)
    x = real(2, 3, 16, 16, seed=9)
    (got,), (want,) = run(compiled(partitioned), x), onnxruntime_results(model, [x])
    assert np.abs(got - want).max() <= steps * np.ptp(want) / 255
    return partitioned


@pytest.mark.parametrize("activations", ["QUInt8", "QInt8"])
@pytest.mark.parametrize("per_channel", [False, True], ids=["per-tensor", "per-channel"])
def test_static(tmp_path, per_channel, activations):
    options = dict(per_channel=per_channel, quant_format=quantization.QuantFormat.QOperator)
    options["activation_type"] = getattr(quantization.QuantType, activations)
    options["weight_type"] = quantization.QuantType.QInt8
    model = quantized(tmp_path, quantization.quantize_static, Samples(), **options)
    ops = {node.op_type for node in model.graph.node}
    assert {"QLinearConv", "QLinearAdd", "QLinearConcat", "QLinearSigmoid", "QGemm"} <= ops
    partitioned = check(model, steps=3)
    report = tvm_dnnl.offload_report(partitioned)
    assert not report.in_float32
    kinds = composites(partitioned)
    assert sum(count for name, count in kinds.items() if "qnn.conv2d" in name) == 5
    assert sum(count for name, count in kinds.items() if "qnn.matmul" in name) == 1


def test_dynamic(tmp_path):
    """Convolutions and the matmul run in 8 bits with scales that are computed at run time."""
    # onnxruntime has no ConvInteger of int8.
    options = dict(weight_type=quantization.QuantType.QUInt8)
    model = quantized(tmp_path, quantization.quantize_dynamic, **options)
    partitioned = check(model, steps=3)
    kinds = composites(partitioned)
    assert not tvm_dnnl.offload_report(partitioned).in_float32
    # A weight with a zero point of 126 is read by two convolutions in 8 bits.
    assert sum(count for name, count in kinds.items() if "qnn.conv2d" in name) >= 5
    assert not any(name.startswith("dnnl.conv2d") for name in kinds)
    assert sum(count for name, count in kinds.items() if "dynamic_quantized_dense" in name) == 1
