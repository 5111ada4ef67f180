# SPDX-License-Identifier: Apache-2.0
"""Convolutions whose weight needs a zero point run as others or as matmuls, in 8 bits."""

from functools import partial

import numpy as np
import pytest
from tvm import relay
from tvm.relay.op.contrib import dnnl

from dnnl_tests.quantized import Quantization, run_quantized
from dnnl_tests.reference import conv, conv_transpose
from dnnl_tests.relay import composites, module, partition

DATA = Quantization(0.02, 131, "uint8")
OUT = Quantization(0.11, 120, "uint8")
WEIGHT = Quantization(0.01, 120, "uint8")
TEXT = "nn.conv2d between 8-bit tensors: the weight minus its zero point does not fit into int8"


def convolution(
    layout="HWIO", data_layout="NHWC", weight=WEIGHT, name="conv2d", bias=None, **attrs
):
    """Return a convolution with relu and quantize, its input, and the exact result.

    It is a 1x1 one from 8 to 12 channels, unless `attrs` say otherwise.
    """
    kernel, groups = attrs.pop("kernel", 1), attrs.get("groups", 1)
    channels = 8 if groups == 8 else 12
    sizes = dict(N=2, C=8, D=4, H=5, W=7)
    dims = dict(O=channels, I=8 // groups, D=kernel, H=kernel, W=kernel)
    spatial = len(layout) - 2
    attrs = dict(
        kernel_size=(kernel,) * spatial,
        channels=channels,
        padding=(kernel // 2,) * spatial,
        data_layout=data_layout,
        kernel_layout=layout,
        **attrs,
    )
    x = DATA.values(*(sizes[c] for c in data_layout))
    w = weight.values(*(dims[c] for c in layout), low=np.iinfo(weight.dtype).min + 1)
    w.flat[:2] = np.iinfo(weight.dtype).min + 1, np.iinfo(weight.dtype).max
    data = DATA.dequantize(DATA.var("x", *x.shape))
    real = getattr(relay.nn, name)(data, weight.dequantize(w), **attrs)
    reference = conv_transpose if name.endswith("transpose") else conv
    want = reference(DATA.real(x), weight.real(w), attrs)
    if bias:
        values = np.linspace(-1, 1, channels, dtype="float32")
        real, want = bias(real, relay.const(values)), want + values
    return OUT.quantize(relay.nn.relu(real)), x, OUT.nearest(np.maximum(want, 0))


@pytest.mark.parametrize("layout", ["HWIO", "OHWI", "OIHW"])
def test_convolution(layout):
    expr, x, want = convolution(layout)
    run_quantized(expr, {"x": x}, want, composites={"dnnl.qnn.dense_relu_quantize": 1})
    assert not dnnl.offload_report(partition(module(expr), prune=False)).in_float32


def test_open_batch():
    expr, x, want = convolution()
    param = relay.var("x", shape=(relay.Any(), *x.shape[1:]), dtype="uint8")
    (old,) = relay.analysis.free_vars(expr)
    mod = module(relay.bind(expr, {old: param}))
    assert composites(mod) == {"dnnl.qnn.dense_relu_quantize": 1}


@pytest.mark.parametrize(
    "attrs",
    [
        dict(data_layout="NCHW", layout="OIHW"),
        dict(kernel=3),
        dict(kernel=3, data_layout="NCHW", layout="OIHW", dilation=(1, 2)),
        dict(strides=(2, 2)),
        dict(kernel=3, weight=Quantization(0.01, -100, "int8")),
        dict(kernel=3, weight=Quantization(0.01, 0, "uint8")),
        dict(kernel=3, weight=Quantization(0.01, 255, "uint8")),
        dict(kernel=3, name="conv1d", data_layout="NCW", layout="OIW"),
        dict(kernel=2, name="conv3d", data_layout="NCDHW", layout="OIDHW"),
    ],
    ids=["1x1-nchw", "3x3", "dilation", "strides", "int8", "from-0", "to-255", "1d", "3d"],
)
def test_sum_of_two(attrs):
    """Zero points are of both signs of what is missing, and the largest that there are."""
    expr, x, want = convolution(**attrs)
    name = attrs.get("name", "conv2d")
    kinds = {f"dnnl.qnn.{name}": 2, "dnnl.add_relu_quantize": 1}
    run_quantized(expr, {"x": x}, want, composites=kinds)
    assert not dnnl.offload_report(partition(module(expr), prune=False)).in_float32


@pytest.mark.parametrize("bias", [relay.add, partial(relay.nn.bias_add, axis=3)])
def test_sum_of_two_with_bias(bias):
    expr, x, want = convolution(kernel=3, bias=bias)
    kinds = {"dnnl.qnn.conv2d": 1, "dnnl.qnn.conv2d_bias": 1, "dnnl.add_relu_quantize": 1}
    run_quantized(expr, {"x": x}, want, composites=kinds)


def test_sum_of_two_transposed():
    attrs = dict(kernel=3, name="conv2d_transpose", data_layout="NCHW", layout="IOHW")
    expr, x, want = convolution(**attrs, strides=(2, 2), output_padding=(1, 0))
    kinds = {"dnnl.qnn.conv2d_transpose": 2, "dnnl.add_relu_quantize": 1}
    run_quantized(expr, {"x": x}, want, composites=kinds)


@pytest.mark.parametrize(
    "attrs",
    [
        dict(kernel=3, groups=8, layout="HWOI"),
        dict(kernel=3, groups=2),
        dict(weight=Quantization(np.linspace(0.01, 0.02, 12), 120, "uint8", 3)),
    ],
    ids=["depthwise", "groups", "per-channel"],
)
def test_stays_in_float32(attrs):
    """Two depthwise convolutions in 8 bits would take as long as one in float32."""
    expr, x, want = convolution(**attrs)
    run_quantized(expr, {"x": x}, want, composites={"dnnl.conv2d_relu": 1})
    assert dnnl.offload_report(partition(module(expr), prune=False)).in_float32 == {TEXT: 1}


def test_weight_that_fits():
    """Less its zero point it is one of int8, which a convolution reads."""
    expr, x, want = convolution(weight=Quantization(0.01, 128, "uint8"))
    run_quantized(expr, {"x": x}, want, composites={"dnnl.qnn.conv2d_relu_quantize": 1})


@pytest.mark.parametrize("name", ["nn.conv2d", "nn.dense"])
def test_excluded(name):
    expr, _, _ = convolution()
    want = {} if name == "nn.conv2d" else {"dnnl.conv2d_relu": 1}
    assert composites(module(expr), exclude=[name]) == want
