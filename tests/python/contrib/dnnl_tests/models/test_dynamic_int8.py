# SPDX-License-Identifier: Apache-2.0
"""Models of onnxruntime's `quantize_dynamic`: activations get their scales as the model runs."""

import logging

import onnx
import onnxruntime
import pytest
from tvm import relay
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from dnnl_tests.onnx_models import onnx_model
from dnnl_tests.onnx_reference import is_quantized, reference_results
from dnnl_tests.reference import rand

SHAPE = (2, 4, 8, 8)


def network():
    """Return a convolution and two matmuls in float32."""
    shapes = dict(w=(8, 4, 3, 3), b=(8,), w2=(512, 32), b2=(32,), w3=(32, 10))
    weights = {name: rand(*shape, seed=seed) for seed, (name, shape) in enumerate(shapes.items())}
    nodes = ["conv = Conv <pads = [1, 1, 1, 1]> (x, w, b)", "relu = Relu(conv)"]
    nodes += ["flat = Flatten(relu)", "matmul = MatMul(flat, w2)", "sum = Add(matmul, b2)"]
    nodes += ["relu2 = Relu(sum)", "y = MatMul(relu2, w3)"]
    return onnx_model(nodes, {"x": SHAPE}, weights, opset=13)


MATMULS = {"dnnl.dynamic_quantized_dense": 1, "dnnl.dynamic_quantized_dense_bias_relu": 1}
# What is quantized, how, the composites, how often the model computes a scale, the partitions.
CASES = {
    "matmul-per-channel": (
        ["MatMul"],
        dict(weight_type="QInt8", per_channel=True),
        {"dnnl.conv2d_bias_relu": 1, **MATMULS},
        2,
        1,
    ),
    # onnxruntime has no convolution of weights in int8.
    "all-uint8": (
        ["Conv", "MatMul"],
        dict(weight_type="QUInt8"),
        {"dnnl.dynamic_fake_quantize": 1, "dnnl.conv2d_bias_relu": 1, **MATMULS},
        3,
        1,
    ),
}


@pytest.mark.parametrize("freeze", [True, False], ids=["frozen", "params"])
@pytest.mark.parametrize("case", CASES)
def test_dynamic_quantization(case, freeze, tmp_path):
    """A matmul quantizes its data itself; a convolution computes in float32, of rounded data."""
    # Not where this file is collected: it imports SymPy, for seconds.
    from onnxruntime import quantization

    ops, choice, composites, scales, partitions = CASES[case]
    choice = {**choice, "weight_type": quantization.QuantType[choice["weight_type"]]}
    plain, target = str(tmp_path / "plain.onnx"), str(tmp_path / "dynamic.onnx")
    onnx.save(network(), plain)
    logging.disable(logging.WARNING)
    try:
        quantization.quantize_dynamic(plain, target, op_types_to_quantize=ops, **choice)
    finally:
        logging.disable(logging.NOTSET)
    model, x = onnx.load(target), rand(*SHAPE)
    assert [node.op_type for node in model.graph.node].count("DynamicQuantizeLinear") == scales
    if is_quantized(model):
        (want,) = reference_results(model, {"x": x})
    else:
        (want,) = onnxruntime.InferenceSession(target).run(None, {"x": x})
    mod, params = relay.frontend.from_onnx(model, shape={"x": SHAPE}, freeze_params=freeze)
    partitioned = dnnl.partition_for_dnnl(mod, params)
    offload = testing.offload(partitioned)
    assert offload.composites == composites
    assert offload.partitions == partitions
    (got,) = testing.run(partitioned, {"x": x}, {} if freeze else params)
    # The same integers; a scale and a zero point are rounded in the same way.
    testing.assert_close(got, want)
