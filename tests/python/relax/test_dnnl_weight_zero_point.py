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
"""Convolutions whose weight needs a zero point run as others or as matmuls, in 8 bits."""

import numpy as np
import pytest
import tvm_dnnl
from dnnl_modules import compiled, composites, module, run, var
from tvm import relax
from tvm.relax import op


def dequantize(builder, x, scale, zero_point, axis=-1):
    zero = relax.const(zero_point, str(x.ty.dtype))
    return builder.emit(op.dequantize(x, relax.const(np.float32(scale)), zero, axis=axis))


def convolution(
    layout="OIHW", data_layout="NCHW", zero_point=100, dtype="uint8", kernel=3, **attrs
):
    """A convolution of 8 channels with relu and quantize, or with a bias before, and its input."""
    bias, scale = attrs.pop("bias", None), attrs.pop("scale", 0.01)
    spatial = len(layout) - 2
    limits = np.iinfo(dtype)
    dims = dict(dict.fromkeys("DHW", kernel), O=12, I=8 // attrs.get("groups", 1))
    shape = [dims[letter] for letter in layout]
    weight = np.random.default_rng(0).integers(limits.min, limits.max + 1, shape).astype(dtype)

    def build(builder, x):
        x = dequantize(builder, x, 0.02, 131)
        w = dequantize(builder, relax.const(weight), scale, zero_point, layout.index("O"))
        layouts = dict(data_layout=data_layout, kernel_layout=layout)
        call = getattr(op.nn, f"conv{spatial}d")
        y = builder.emit(call(x, w, padding=kernel // 2, **layouts, **attrs))
        if bias is not None:
            y = builder.emit(op.add(y, bias))
        y = builder.emit(op.nn.relu(y))
        zero = relax.const(np.uint8(120))
        return op.quantize(y, relax.const(0.11, "float32"), zero, axis=-1, out_dtype="uint8")

    sizes = dict(N=2, C=8, D=4, H=5, W=7)
    return build, var("x", *(sizes[letter] for letter in data_layout), dtype="uint8")


def check(build, param, wanted):
    mod = module(build, param)
    partitioned = tvm_dnnl.partition_for_dnnl(mod, prune=False)
    assert composites(partitioned) == wanted
    x = np.random.default_rng(1).integers(0, 256, param[1]).astype("uint8")
    (got,), (want,) = run(compiled(partitioned), x), run(mod, x)
    # TVM adds up real numbers: what is next to the middle between two steps may be rounded to
    # either.
    differences = np.abs(got.astype("int32") - want)
    assert differences.max() <= 1 and (differences != 0).mean() < 0.01
    assert want.max() > 130, "all is zero"
    return tvm_dnnl.offload_report(partitioned)


@pytest.mark.parametrize("batch", [2, "n"])
@pytest.mark.parametrize("layout", ["HWIO", "OHWI", "OIHW"])
def test_matmul(layout, batch):
    build, (name, shape, dtype) = convolution(layout, "NHWC", kernel=1)
    if batch == 2:
        check(build, (name, shape, dtype), {"dnnl.qnn.dense_relu_quantize": 1})
    mod = module(build, (name, ("n", *shape[1:]), dtype))
    partitioned = tvm_dnnl.partition_for_dnnl(mod, prune=False)
    assert composites(partitioned) == {"dnnl.qnn.dense_relu_quantize": 1}


@pytest.mark.parametrize(
    "attrs",
    [
        {},
        dict(layout="HWIO", data_layout="NHWC"),
        dict(kernel=1),
        dict(strides=2, dilation=(1, 2)),
        dict(dtype="int8", zero_point=-100),
        dict(zero_point=0),
        dict(zero_point=255),
        dict(layout="OIW", data_layout="NCW"),
        dict(layout="OIDHW", data_layout="NCDHW"),
    ],
    ids=["3x3", "nhwc", "1x1", "strided", "int8", "from-0", "to-255", "1d", "3d"],
)
def test_sum_of_two(attrs):
    """Zero points are of both signs of what is missing, and the largest that there are."""
    name = f"dnnl.qnn.conv{len(attrs.get('layout', 'OIHW')) - 2}d"
    report = check(*convolution(**attrs), {name: 2, "dnnl.add_relu_quantize": 1})
    assert not report.in_float32
