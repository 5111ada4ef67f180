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
"""Quantized TFLite models: QNN ops with a requantize after each sum, from TVM's importer."""

from typing import NamedTuple

import flatbuffers
import numpy as np
import pytest
import tflite
from tvm import relay
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from dnnl_tests.quantized import Quantization, assert_within_one_step
from dnnl_tests.reference import conv

_TYPES = {
    "uint8": tflite.TensorType.UINT8,
    "int8": tflite.TensorType.INT8,
    "int32": tflite.TensorType.INT32,
}


class Writer:
    """Writes a TFLite model of quantized tensors, op by op."""

    def __init__(self):
        self.builder = flatbuffers.Builder(1024)
        self.tensors, self.buffers, self.operators, self.codes = [], [self._buffer(b"")], [], []

    def _vector(self, start, values, prepend):
        start(self.builder, len(values))
        for value in reversed(values):
            prepend(value)
        return self.builder.EndVector()

    def _offsets(self, start, offsets):
        return self._vector(start, offsets, self.builder.PrependUOffsetTRelative)

    def _buffer(self, data):
        vector = self._vector(tflite.BufferStartDataVector, data, self.builder.PrependByte)
        tflite.BufferStart(self.builder)
        tflite.BufferAddData(self.builder, vector)
        return tflite.BufferEnd(self.builder)

    def tensor(self, shape, quantization, values=None):
        """Add a tensor, a constant if there are values; return its number."""
        builder, name = self.builder, self.builder.CreateString(f"t{len(self.tensors)}")
        scales = np.atleast_1d(np.float32(quantization.scale)).tolist()
        zeros = [quantization.zero_point] * len(scales)
        scale = self._vector(
            tflite.QuantizationParametersStartScaleVector, scales, builder.PrependFloat32
        )
        zero = self._vector(
            tflite.QuantizationParametersStartZeroPointVector, zeros, builder.PrependInt64
        )
        tflite.QuantizationParametersStart(builder)
        tflite.QuantizationParametersAddScale(builder, scale)
        tflite.QuantizationParametersAddZeroPoint(builder, zero)
        tflite.QuantizationParametersAddQuantizedDimension(builder, max(quantization.axis, 0))
        parameters = tflite.QuantizationParametersEnd(builder)
        dims = self._vector(tflite.TensorStartShapeVector, shape, builder.PrependInt32)
        if values is not None:
            self.buffers.append(self._buffer(values.astype(quantization.dtype).tobytes()))
        tflite.TensorStart(builder)
        tflite.TensorAddShape(builder, dims)
        tflite.TensorAddType(builder, _TYPES[quantization.dtype])
        tflite.TensorAddBuffer(builder, 0 if values is None else len(self.buffers) - 1)
        tflite.TensorAddName(builder, name)
        tflite.TensorAddQuantization(builder, parameters)
        self.tensors.append(tflite.TensorEnd(builder))
        return len(self.tensors) - 1

    def op(self, name, inputs, output, **options):
        """Add an operator, such as "Conv2D", with its options; return its output."""
        builder, kind = self.builder, getattr(tflite.BuiltinOperator, _CODES[name])
        table = f"{name}Options"
        getattr(tflite, f"{table}Start")(builder)
        for key, value in options.items():
            getattr(tflite, f"{table}Add{key}")(builder, value)
        parameters = getattr(tflite, f"{table}End")(builder)
        inputs = self._vector(tflite.OperatorStartInputsVector, inputs, builder.PrependInt32)
        outputs = self._vector(tflite.OperatorStartOutputsVector, [output], builder.PrependInt32)
        if kind not in self.codes:
            self.codes.append(kind)
        tflite.OperatorStart(builder)
        tflite.OperatorAddOpcodeIndex(builder, self.codes.index(kind))
        tflite.OperatorAddInputs(builder, inputs)
        tflite.OperatorAddOutputs(builder, outputs)
        tflite.OperatorAddBuiltinOptionsType(builder, getattr(tflite.BuiltinOptions, table))
        tflite.OperatorAddBuiltinOptions(builder, parameters)
        self.operators.append(tflite.OperatorEnd(builder))
        return output

    def model(self, source, result):
        """Return the model of one input and one output."""
        builder = self.builder
        tensors = self._offsets(tflite.SubGraphStartTensorsVector, self.tensors)
        ops = self._offsets(tflite.SubGraphStartOperatorsVector, self.operators)
        inputs = self._vector(tflite.SubGraphStartInputsVector, [source], builder.PrependInt32)
        outputs = self._vector(tflite.SubGraphStartOutputsVector, [result], builder.PrependInt32)
        tflite.SubGraphStart(builder)
        tflite.SubGraphAddTensors(builder, tensors)
        tflite.SubGraphAddOperators(builder, ops)
        tflite.SubGraphAddInputs(builder, inputs)
        tflite.SubGraphAddOutputs(builder, outputs)
        graph = tflite.SubGraphEnd(builder)
        codes = []
        for code in self.codes:
            tflite.OperatorCodeStart(builder)
            tflite.OperatorCodeAddBuiltinCode(builder, code)
            tflite.OperatorCodeAddDeprecatedBuiltinCode(builder, code)
            tflite.OperatorCodeAddVersion(builder, 1)
            codes.append(tflite.OperatorCodeEnd(builder))
        codes = self._offsets(tflite.ModelStartOperatorCodesVector, codes)
        graphs = self._offsets(tflite.ModelStartSubgraphsVector, [graph])
        buffers = self._offsets(tflite.ModelStartBuffersVector, self.buffers)
        tflite.ModelStart(builder)
        tflite.ModelAddVersion(builder, 3)
        tflite.ModelAddOperatorCodes(builder, codes)
        tflite.ModelAddSubgraphs(builder, graphs)
        tflite.ModelAddBuffers(builder, buffers)
        builder.Finish(tflite.ModelEnd(builder), b"TFL3")
        return tflite.Model.GetRootAs(bytes(builder.Output()), 0)


_CODES = {
    "Conv2D": "CONV_2D",
    "DepthwiseConv2D": "DEPTHWISE_CONV_2D",
    "Add": "ADD",
    "Pool2D": "AVERAGE_POOL_2D",
    "Reshape": "RESHAPE",
    "FullyConnected": "FULLY_CONNECTED",
}


class Tensor(NamedTuple):
    """A tensor of a model: its number, its quantization, and its values for one input."""

    number: int
    quantization: Quantization
    values: np.ndarray

    @property
    def real(self):
        """The floating-point values that the values stand for."""
        return self.quantization.real(self.values)


class Network:
    """The ops that a quantized MobileNet has, and what they make of `image` without rounding
    between an op and its result.
    """

    def __init__(self, dtype, weights, per_channel, image):
        self.writer, self.dtype, self.weights = Writer(), dtype, weights
        first, second = self._activations(0.02, 128), self._activations(6 / 255, 0)
        third, fourth = self._activations(0.05, 100), self._activations(0.07, 90)
        source = Tensor(self.writer.tensor(image.shape, first), first, image)
        relu6 = {"FusedActivationFunction": tflite.ActivationFunctionType.RELU6}
        x = self._conv(source, [16, 3, 3, 3], per_channel, second, **relu6)
        y = self._conv(x, [1, 3, 3, 16], per_channel, second, DepthMultiplier=1, **relu6)
        y = self._conv(y, [16, 1, 1, 16], per_channel, third)
        x = self._op("Add", [x, y], fourth, x.real + y.real)
        size = dict(FilterWidth=8, FilterHeight=8, StrideW=1, StrideH=1)
        mean = x.real.mean((1, 2), keepdims=True)
        x = self._op("Pool2D", [x], fourth, mean, Padding=tflite.Padding.VALID, **size)
        shape = self._constant(Quantization(1.0, 0, "int32"), np.array([1, 16]))
        x = self._op("Reshape", [x, shape], fourth, x.real.reshape(1, 16))
        # Scales of a fully connected layer's channels are newer than this importer.
        w = self._weight([10, 16], 0, False)
        b = self._bias(x, w, 10)
        result = self._activations(0.2, 128)
        self.result = self._op("FullyConnected", [x, w, b], result, x.real @ w.real.T + b.real)
        self.model = self.writer.model(source.number, self.result.number)

    def _activations(self, scale, zero_point):
        zero_point -= 0 if self.dtype == "uint8" else 128
        return Quantization(scale, zero_point, self.dtype)

    def _constant(self, quantization, values):
        number = self.writer.tensor(values.shape, quantization, values)
        return Tensor(number, quantization, values)

    def _weight(self, shape, axis, per_channel):
        scale = 0.01 * (1 + np.arange(shape[axis]) % 3) if per_channel else 0.01
        is_signed = self.weights == "int8"
        quantization = Quantization(scale, 0 if is_signed else 120, self.weights, axis)
        # -128 does not occur in TFLite.
        values = quantization.values(*shape, low=-127 if is_signed else 1)
        return self._constant(quantization, values)

    def _bias(self, source, weight, size):
        scale = source.quantization.scale * np.asarray(weight.quantization.scale)
        values = np.random.default_rng(size).integers(-500, 500, size)
        return self._constant(Quantization(scale, 0, "int32", 0), values)

    def _op(self, name, inputs, quantization, real, **options):
        output = self.writer.tensor(real.shape, quantization)
        self.writer.op(name, [each.number for each in inputs], output, **options)
        return Tensor(output, quantization, quantization.nearest(real))

    def _conv(self, x, shape, per_channel, quantization, **options):
        is_depthwise = "DepthMultiplier" in options
        w = self._weight(shape, 3 if is_depthwise else 0, per_channel)
        b = self._bias(x, w, 16)
        attrs = {"data_layout": "NHWC", "kernel_layout": "IHWO" if is_depthwise else "OHWI"}
        attrs.update(padding=shape[1] // 2, groups=16 if is_depthwise else 1)
        real = conv(x.real, w.real, attrs) + b.real
        if "FusedActivationFunction" in options:
            real = np.clip(real, 0, 6)
        options.update(Padding=tflite.Padding.SAME, StrideW=1, StrideH=1)
        name = "DepthwiseConv2D" if is_depthwise else "Conv2D"
        return self._op(name, [x, w, b], quantization, real, **options)


_BEHIND = {"dnnl.qnn.avg_pool2d_quantize": 1, "dnnl.qnn.dense_bias_quantize": 1}
COMPOSITES = {
    "int8": {
        "dnnl.qnn.conv2d_bias_clip_quantize": 2,
        "dnnl.qnn.conv2d_bias_quantize_sum_quantize": 1,
        **_BEHIND,
    },
    "uint8": {
        "dnnl.qnn.conv2d": 1,
        "dnnl.qnn.conv2d_bias": 1,
        "dnnl.add_clip_quantize": 1,
        "dnnl.conv2d_bias_clip": 1,
        "dnnl.qnn.dense_bias_quantize_sum_quantize": 1,
        **_BEHIND,
    },
}
# Weights are up to 135 above their zero point, which a matmul has in 8 bits, and a convolution with
# a sum of the data; the depthwise one stays in float32.
IN_FLOAT32 = {
    "int8": {},
    "uint8": {"nn.conv2d: the weight minus its zero point does not fit into int8": 1},
}


@pytest.mark.parametrize(
    "dtype, weights, per_channel",
    [("uint8", "uint8", False), ("int8", "int8", False), ("int8", "int8", True)],
)
def test_a_network_is_one_partition(dtype, weights, per_channel):
    """uint8 with zero points of weights is how TFLite once quantized, int8 how it does today."""
    info = np.iinfo(dtype)
    image = np.random.default_rng(9).integers(info.min, info.max, (1, 8, 8, 3), endpoint=True)
    network = Network(dtype, weights, per_channel, image)
    mod, params = relay.frontend.from_tflite(network.model)
    ops = testing.offload(mod).host_ops
    assert ops["qnn.conv2d"] == 3 and ops["qnn.add"] == 1 and ops["qnn.dense"] == 1
    partitioned = dnnl.partition_for_dnnl(mod, params, prune=False)
    offload = testing.offload(partitioned)
    assert offload.partitions == 1 and not offload.host_ops, f"{offload}\n{partitioned}"
    report = dnnl.offload_report(partitioned)
    assert report.composites == COMPOSITES[weights]
    assert report.in_float32 == IN_FLOAT32[weights]
    for text, count in report.in_float32.items():
        assert f"in float32 between 8-bit tensors: {count} x {text}" in str(report)
    (name,) = (param.name_hint for param in mod["main"].params if param.name_hint not in params)
    (got,) = testing.run(partitioned, {name: image.astype(dtype)}, params)
    exact = network.result.values
    assert len(np.unique(exact)) > 5, "the result is saturated"
    assert_within_one_step(got, exact)
