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
"""What offload_report tells of the ops of a quantized model that do not run in 8 bits."""

import numpy as np
import pytest
from tvm import relay
from tvm.relay.op.contrib import dnnl
from tvm.relay.qnn import op as qnn

from dnnl_tests.quantized import Quantization
from dnnl_tests.relay import module, partition, var

DATA = Quantization(0.02, 131, "uint8")
BITS, SCALES = Quantization(0.01, 0, "int8"), np.linspace(0.01, 0.02, 8).astype("float32")
CHANNELS = Quantization(SCALES, 0, "int8", 0)


def conv(weight):
    data = DATA.dequantize(DATA.var("x", 1, 4, 6, 6))
    return relay.nn.conv2d(data, weight, kernel_size=(3, 3), channels=8)


def dense(weight):
    return relay.nn.dense(DATA.dequantize(DATA.var("x", 5, 16)), weight)


def scaled(*shape):
    """A constant weight of a scale that is computed."""
    bits = relay.const(BITS.values(*shape))
    return qnn.dequantize(bits, relay.var("scale", shape=(shape[0],)), relay.const(0), 0)


# By name: an op, and why it does not read its weight in 8 bits.
VARYING = {
    "conv2d": (conv(BITS.dequantize(BITS.var("w", 8, 4, 3, 3))), "the weight is not constant"),
    "conv2d-scale": (conv(scaled(8, 4, 3, 3)), "the scale of the weight is not constant"),
    "dense-channels": (
        dense(CHANNELS.dequantize(CHANNELS.var("w", 8, 16))),
        "the weight is not constant, and there are several scales",
    ),
    # A matmul reads such a weight in 8 bits.
    "dense": (dense(BITS.dequantize(BITS.var("w", 8, 16))), None),
}


@pytest.mark.parametrize("name", VARYING)
def test_weights_that_are_not_constant(name):
    expr, why = VARYING[name]
    report = dnnl.offload_report(partition(module(expr), prune=False))
    assert report.in_float32 == ({f"{expr.op.name}: {why}": 1} if why else {})
    assert sum(report.in_8_bits.values()) == (why is None)


def test_all_quantized_ops_that_stay():
    """Not only those that quantize."""
    x = var("x", 4, 8)
    y = qnn.add(
        DATA.quantize(x),
        DATA.var("y", 4, 8),
        *(DATA.scale_expr, DATA.zero_expr) * 2,
        DATA.scale_expr,
        DATA.zero_expr,
    )
    mod = module(DATA.dequantize(y), relay.nn.softmax(var("z", 64, 256)))
    report = dnnl.offload_report(partition(mod, exclude=["qnn.add", "qnn.quantize"], prune=False))
    assert "quantized ops that stay on TVM: 1 x qnn.add, 1 x qnn.quantize. Others" in str(report)
    assert "quantized ops" not in str(dnnl.offload_report(mod)), "not partitioned"
