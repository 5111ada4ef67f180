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
"""1x1 convolutions whose weight needs a zero point run as matmuls, in 8 bits."""

import numpy as np
import pytest
from tvm import relay
from tvm.relay.op.contrib import dnnl

from dnnl_tests.quantized import Quantization, run_quantized
from dnnl_tests.reference import conv
from dnnl_tests.relay import composites, module, partition

DATA = Quantization(0.02, 131, "uint8")
OUT = Quantization(0.11, 120, "uint8")
WEIGHT = Quantization(0.01, 120, "uint8")
TEXT = "nn.conv2d: the weight less its zero point does not fit into int8"


def pointwise(layout="HWIO", data_layout="NHWC", weight=WEIGHT, **attrs):
    """Return a convolution with relu and quantize, its input, and the exact result."""
    kernel = attrs.pop("kernel", 1)
    sizes = dict(N=2, C=8, H=5, W=7)
    dims = dict(O=12, I=8, H=kernel, W=kernel)
    attrs = dict(
        kernel_size=(kernel, kernel),
        channels=12,
        padding=(kernel // 2,) * 2,
        data_layout=data_layout,
        kernel_layout=layout,
        **attrs,
    )
    x = DATA.values(*(sizes[c] for c in data_layout))
    w = weight.values(*(dims[c] for c in layout), low=1, high=255)
    w.flat[:2] = 1, 255
    real = relay.nn.conv2d(DATA.dequantize(DATA.var("x", *x.shape)), weight.dequantize(w), **attrs)
    want = conv(DATA.real(x), weight.real(w), attrs)
    return OUT.quantize(relay.nn.relu(real)), x, OUT.nearest(np.maximum(want, 0))


@pytest.mark.parametrize("layout", ["HWIO", "OHWI", "OIHW"])
def test_pointwise(layout):
    expr, x, want = pointwise(layout)
    run_quantized(expr, {"x": x}, want, composites={"dnnl.qnn.dense_relu_quantize": 1})
    assert not dnnl.offload_report(partition(module(expr), prune=False)).in_float32


def test_open_batch():
    expr, x, want = pointwise()
    param = relay.var("x", shape=(relay.Any(), *x.shape[1:]), dtype="uint8")
    (old,) = relay.analysis.free_vars(expr)
    mod = module(relay.bind(expr, {old: param}))
    assert composites(mod) == {"dnnl.qnn.dense_relu_quantize": 1}


@pytest.mark.parametrize(
    "change",
    [
        dict(data_layout="NCHW", layout="OIHW"),
        dict(kernel=3),
        dict(strides=(2, 2)),
        dict(weight=Quantization(np.linspace(0.01, 0.02, 12), 120, "uint8", 3)),
    ],
    ids=["channels-first", "3x3", "strides", "per-channel"],
)
def test_stays_a_convolution(change):
    expr, x, want = pointwise(**change)
    run_quantized(expr, {"x": x}, want, composites={"dnnl.conv2d_relu": 1})
    assert dnnl.offload_report(partition(module(expr), prune=False)).in_float32 == {TEXT: 1}


def test_weight_that_fits():
    """Less its zero point it is one of int8, which a convolution reads."""
    expr, x, want = pointwise(weight=Quantization(0.01, 128, "uint8"))
    run_quantized(expr, {"x": x}, want, composites={"dnnl.qnn.conv2d_relu_quantize": 1})


@pytest.mark.parametrize("name", ["nn.conv2d", "nn.dense"])
def test_excluded(name):
    expr, _, _ = pointwise()
    want = {} if name == "nn.conv2d" else {"dnnl.conv2d_relu": 1}
    assert composites(module(expr), exclude=[name]) == want
