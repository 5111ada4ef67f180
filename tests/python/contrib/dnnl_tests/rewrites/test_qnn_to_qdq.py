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
"""The QNN dialect, and what importers write instead of it, as float ops between QDQ pairs."""

import numpy as np
import pytest
from tvm import relay
from tvm.relay.qnn import op as qnn

from dnnl_tests.quantized import Quantization, run_quantized
from dnnl_tests.reference import conv, conv_transpose, pool
from dnnl_tests.relay import composites, module

DATA = Quantization(0.02, 131, "uint8")
OUT = Quantization(0.11, 120, "uint8")


def const(value, dtype):
    return relay.const(np.array(value, dtype))


def requantize(expr, scale, axis=-1, out=OUT):
    """Requantize a sum in int32."""
    return qnn.requantize(
        expr,
        const(scale, "float32"),
        const(0, "int32"),
        out.scale_expr,
        out.zero_expr,
        axis,
        out_dtype=out.dtype,
    )


def parameters(data, weight):
    """Return what a QNN op gets behind its data and its weight."""
    return data.zero_expr, const(0, "int32"), data.scale_expr, weight.scale_expr


@pytest.mark.parametrize("per_channel", [True, False], ids=["per-channel", "per-tensor"])
@pytest.mark.parametrize("bias", ["none", "bias_add", "add"])
@pytest.mark.parametrize("op", ["conv2d", "conv2d_transpose"])
def test_conv(op, bias, per_channel):
    attrs = dict(kernel_size=(3, 3), channels=8, padding=(1, 1))
    is_transposed = op == "conv2d_transpose"
    axis = 1 if is_transposed else 0
    scale = np.linspace(0.004, 0.02, 8).astype("float32") if per_channel else np.float32(0.01)
    weight = Quantization(scale, 0, "int8", axis)
    x = DATA.values(1, 4, 6, 6)
    w = weight.values(*((4, 8) if is_transposed else (8, 4)), 3, 3, low=-64, high=64)
    b = np.random.default_rng(0).integers(-2000, 2000, 8).astype("int32")
    expr = getattr(qnn, op)(
        DATA.var("x", *x.shape), relay.const(w), *parameters(DATA, weight), **attrs
    )
    sum_scale = np.float32(0.02) * scale
    reference = conv_transpose if is_transposed else conv
    want, name = reference(DATA.real(x), weight.real(w), attrs), f"dnnl.qnn.{op}_quantize"
    if bias == "bias_add":
        expr = relay.nn.bias_add(expr, relay.const(b))
    elif bias == "add":
        expr = expr + relay.const(b.reshape(1, 8, 1, 1))
    if bias != "none":
        want = want + (b * sum_scale.astype("float64")).reshape(8, 1, 1)
        name = f"dnnl.qnn.{op}_bias_quantize"
    expr = requantize(expr, sum_scale, axis=1)
    run_quantized(expr, {"x": x}, OUT.nearest(want), composites={name: 1})


def test_clip_of_the_result():
    """A clip of integers is fused as one of real numbers."""
    weight = Quantization(0.01, 0, "int8", 0)
    x, w = DATA.values(5, 16), weight.values(8, 16, low=-64, high=64)
    expr = qnn.dense(DATA.var("x", 5, 16), relay.const(w), *parameters(DATA, weight), units=8)
    expr = relay.clip(requantize(expr, 0.0002), 120, 200)
    want = np.clip(OUT.nearest(DATA.real(x) @ weight.real(w).T), 120, 200)
    run_quantized(expr, {"x": x}, want, composites={"dnnl.qnn.dense_clip_quantize": 1})


def test_sum_that_becomes_float32():
    weight = Quantization(0.01, 0, "int8", 0)
    x, w = DATA.values(5, 16), weight.values(8, 16, low=-64, high=64)
    total = qnn.dense(DATA.var("x", 5, 16), relay.const(w), *parameters(DATA, weight), units=8)
    want = ((x.astype("int32") - 131) @ w.astype("int32").T).astype("float32")
    run_quantized(relay.cast(total, "float32"), {"x": x}, want, composites={"dnnl.qnn.dense": 1})
    real = qnn.dequantize(total, const(0.0002, "float32"), const(0, "int32"))
    run_quantized(real, {"x": x}, want * np.float32(0.0002), composites={"dnnl.qnn.dense": 1})


@pytest.mark.parametrize("op", ["add", "subtract", "mul"])
def test_binary(op):
    lhs, rhs = DATA, Quantization(0.03, 10, "uint8")
    x, y = lhs.values(2, 8, 5, 5), rhs.values(2, 8, 5, 5, seed=1)
    params = [p for q in (lhs, rhs, OUT) for p in (q.scale_expr, q.zero_expr)]
    expr = getattr(qnn, op)(lhs.var("x", *x.shape), rhs.var("y", *y.shape), *params)
    name = {"mul": "multiply"}.get(op, op)
    want = getattr(np, name)(lhs.real(x), rhs.real(y))
    run_quantized(
        expr, {"x": x, "y": y}, OUT.nearest(want), composites={f"dnnl.qnn.{name}_quantize": 1}
    )


@pytest.mark.parametrize("op", ["tanh", "sigmoid", "exp", "abs"])
def test_unary(op):
    data = Quantization(0.02, 100, "uint8")
    out = Quantization(0.03, 5, "uint8")
    x = data.values(4, 60)
    expr = getattr(qnn, op)(
        data.var("x", 4, 60), data.scale_expr, data.zero_expr, out.scale_expr, out.zero_expr
    )
    function = {"sigmoid": lambda v: 1 / (1 + np.exp(-v))}.get(op) or getattr(np, op)
    run_quantized(expr, {"x": x}, out.nearest(function(data.real(x))), composites={})


def test_concatenate():
    """Each operand is requantized alone, one that has the result's scale not at all."""
    other = Quantization(0.03, 10, "uint8")
    x, y = OUT.values(2, 8, 5), other.values(2, 4, 5, seed=1)
    expr = qnn.concatenate(
        relay.Tuple([OUT.var("x", *x.shape), other.var("y", *y.shape)]),
        relay.Tuple([OUT.scale_expr, other.scale_expr]),
        relay.Tuple([OUT.zero_expr, other.zero_expr]),
        OUT.scale_expr,
        OUT.zero_expr,
        1,
    )
    want = np.concatenate([x, OUT.nearest(other.real(y))], 1)
    run_quantized(expr, {"x": x, "y": y}, want, composites={"dnnl.dequantize_quantize": 1})


def test_average_in_int32():
    """TFLite's importer averages in int32."""
    attrs = dict(pool_size=(2, 2), strides=(2, 2), layout="NHWC")
    x = DATA.values(1, 8, 8, 4)
    expr = relay.nn.avg_pool2d(relay.cast(DATA.var("x", *x.shape), "int32"), **attrs)
    expr = DATA.dequantize(relay.cast(expr, "uint8"))
    want = DATA.real(np.rint(pool(x.astype("float64"), "avg", attrs))).astype("float32")
    run_quantized(expr, {"x": x}, want, composites={"dnnl.qnn.avg_pool2d_quantize": 1})


@pytest.mark.parametrize("zero", ["constant", "computed"])
def test_arithmetic_for_dequantize(zero):
    """ONNX's MatMulInteger is imported as casts to float32, less the zero points."""
    x, w = DATA.values(5, 16), Quantization(1, 0, "int8").values(8, 16, low=-64, high=64)
    if zero == "constant":
        subtracted, inputs = relay.const(np.float32(131)), {"x": x}
    else:
        z = relay.var("z", shape=(), dtype="uint8")
        subtracted, inputs = relay.cast(z, "float32"), {"x": x, "z": np.uint8(131)}
    data = relay.cast(DATA.var("x", 5, 16), "float32") - subtracted
    weight = relay.cast(relay.const(w), "float32") - relay.const(np.float32(0))
    want = ((x.astype("int32") - 131) @ w.astype("int32").T).astype("float32")
    expr = relay.nn.dense(data, weight)
    mod = module(expr)
    if zero == "constant":
        run_quantized(expr, inputs, want, composites={"dnnl.qnn.dense": 1})
    else:
        assert composites(mod) == {"dnnl.qnn.dense": 1}


def test_what_is_used_twice_stays():
    """A sum that something else reads, too, is not computed twice."""
    weight = Quantization(0.01, 0, "int8", 0)
    w = weight.values(8, 16, low=-64, high=64)
    total = qnn.dense(DATA.var("x", 5, 16), relay.const(w), *parameters(DATA, weight), units=8)
    assert composites(module(requantize(total, 0.0002), total)) == {}


def test_excluded():
    weight = Quantization(0.01, 0, "int8", 0)
    w = weight.values(8, 16, low=-64, high=64)
    total = qnn.dense(DATA.var("x", 5, 16), relay.const(w), *parameters(DATA, weight), units=8)
    mod = module(requantize(total, 0.0002))
    assert composites(mod) == {"dnnl.qnn.dense_quantize": 1}
    assert composites(mod, exclude=["nn.dense"]) == {}
