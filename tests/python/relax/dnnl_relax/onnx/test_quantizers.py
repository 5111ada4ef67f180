# SPDX-License-Identifier: Apache-2.0
"""Models as onnxruntime's quantizers write them, through `tvm_dnnl.from_onnx`."""

import numpy as np
import onnx
import pytest
import tvm_dnnl
from dnnl_tests.onnx_models import Graph
from onnxruntime import quantization

from dnnl_relax.modules import compiled, composites, run
from dnnl_relax.onnx.quantized_nodes import onnxruntime_results, real


def network():
    """A network with convolutions, pools, a residual, a concat and a classifier."""
    net = Graph("model", [2, 3, 16, 16], opset=17)

    x = net.op("Relu", net.conv("x", 3, 8, 3, 2))
    y = net.op("LeakyRelu", net.conv(x, 8, 8, 3), alpha=0.1)
    x = net.op("Add", x, net.conv(y, 8, 8, 3))
    x = net.op("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2])
    gate = net.op("Sigmoid", net.conv(x, 8, 8, 1))
    x = net.op("Concat", net.op("Mul", x, gate), x, axis=1)
    x = net.op("Flatten", net.op("GlobalAveragePool", net.conv(x, 16, 24, 3)))
    return net.model(net.op("Gemm", x, real(24, 10, seed=6), real(10, seed=7)), [2, 10])


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
    # Weights of 7 bits: where a CPU has no VNNI, products of onnxruntime saturate in 16 bits.
    options.update(weight_type=quantization.QuantType.QInt8, reduce_range=True)
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
    """Scales are computed at run time, of convolutions in float32 and of the matmul in 8 bits."""
    # onnxruntime has no ConvInteger of int8.
    options = dict(weight_type=quantization.QuantType.QUInt8)
    model = quantized(tmp_path, quantization.quantize_dynamic, **options)
    partitioned = check(model, steps=3)
    kinds = composites(partitioned)
    report = tvm_dnnl.offload_report(partitioned)
    assert (report.partitions, report.reasons) == (1, {})
    assert kinds["dnnl.dynamic_fake_quantize"] == sum(
        count for name, count in kinds.items() if name.startswith("dnnl.conv2d")
    )
    assert sum(count for name, count in kinds.items() if "dynamic_quantized_dense" in name) == 1
