# SPDX-License-Identifier: Apache-2.0
"""Quantized TFLite models: QNN ops with a requantize after each sum, from TVM's importer."""

from typing import NamedTuple

import numpy as np
import pytest
import tflite
from tvm import relay
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from dnnl_tests.quantized import Quantization, assert_within_one_step
from dnnl_tests.reference import conv
from dnnl_tests.tflite_writer import Steps, Writer

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
        source = Tensor(self._tensor(image.shape, first), first, image)
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
        data = self.writer.model(source.number, self.result.number)
        self.model = tflite.Model.GetRootAs(data, 0)

    def _tensor(self, shape, quantization, values=None):
        scale, zero_point, dtype, axis = quantization
        return self.writer.tensor(shape, dtype, Steps(scale, zero_point, axis), values)

    def _activations(self, scale, zero_point):
        zero_point -= 0 if self.dtype == "uint8" else 128
        return Quantization(scale, zero_point, self.dtype)

    def _constant(self, quantization, values):
        number = self._tensor(values.shape, quantization, values)
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
        output = self._tensor(real.shape, quantization)
        self.writer.op(_CODES[name], [each.number for each in inputs], output, name, **options)
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
    "uint8": {
        "nn.conv2d between 8-bit tensors: the weight minus its zero point does not fit into int8": 1
    },
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
        assert f"in float32: {count} x {text}" in str(report)
    (name,) = (param.name_hint for param in mod["main"].params if param.name_hint not in params)
    (got,) = testing.run(partitioned, {name: image.astype(dtype)}, params)
    exact = network.result.values
    assert len(np.unique(exact)) > 5, "the result is saturated"
    assert_within_one_step(got, exact)
