# SPDX-License-Identifier: Apache-2.0
"""A dequantize goes before a reshape where what follows can be fused to a matmul."""

import numpy as np
import pytest
from tvm import relay

from dnnl_tests.quantized import Quantization, run_quantized
from dnnl_tests.reference import rand
from dnnl_tests.relay import composites, module, var

DATA = Quantization(0.02, 131, "uint8")
INNER = Quantization(0.11, 120, "uint8")
OUT = Quantization(0.09, 7, "int8")
WEIGHT = Quantization(np.linspace(0.004, 0.02, 24), 0, "int8", 0)
# Of the layer's result, which importers give the dimensions of the model again.
ROWS, SHAPE = 12, (3, 4, 24)
LAYER = "dnnl.qnn.dense_bias_quantize"


def layer(name, seed=0):
    """Return a dense with bias whose result is rounded, its input, and the numbers."""
    x, w, b = DATA.values(ROWS, 40, seed=seed), WEIGHT.values(24, 40, low=-64, high=64), rand(24)
    real = relay.nn.dense(DATA.dequantize(DATA.var(name, *x.shape)), WEIGHT.dequantize(w))
    expr = INNER.dequantize(INNER.quantize(real + relay.const(b)))
    return expr, x, INNER.real(INNER.nearest(DATA.real(x) @ WEIGHT.real(w).T + b))


def test_unary():
    """As importers write a layer of three dimensions with a gelu: two reshapes around it."""
    real, x, want = layer("x")
    real = relay.reshape(relay.tanh(relay.reshape(real, SHAPE)), (ROWS, 24))
    out = Quantization(0.008, 1, "int8")
    name = f"{LAYER}_tanh_quantize"
    run_quantized(out.quantize(real), {"x": x}, out.nearest(np.tanh(want)), composites={name: 1})


@pytest.mark.parametrize("reshape", ["reshape", "expand_dims"])
@pytest.mark.parametrize("first", [True, False], ids=["first", "second"])
def test_residual(first, reshape):
    shape = SHAPE if reshape == "reshape" else (1, ROWS, 24)
    real, x, want = layer("x")
    real = relay.reshape(real, shape) if reshape == "reshape" else relay.expand_dims(real, 0)
    y, other = rand(*shape, seed=3), var("y", *shape)
    real = real + other if first else other + real
    run_quantized(
        relay.nn.relu(real),
        {"x": x, "y": y},
        np.maximum(want.reshape(shape) + y, 0),
        composites={f"{LAYER}_sum_relu": 1},
    )


@pytest.mark.parametrize("quantized", ["result", "other"])
def test_operand_in_8_bits(quantized):
    """The other operand is read as it is: a tensor of 8 bits, or the result of another layer."""
    real, x, want = layer("x")
    inputs = {"x": x}
    if quantized == "result":
        other, inputs["y"], second = layer("y", seed=1)
        other, counts = relay.reshape(other, SHAPE), {LAYER: 1}
        second = second.reshape(SHAPE)
    else:
        inputs["y"], counts = INNER.values(*SHAPE, seed=1), {}
        other, second = INNER.dequantize(INNER.var("y", *SHAPE)), INNER.real(inputs["y"])
    sum_ = relay.reshape(real, SHAPE) + other
    want = OUT.nearest(want.reshape(SHAPE) + second)
    counts[f"{LAYER}_sum_quantize"] = 1
    run_quantized(OUT.quantize(sum_), inputs, want, composites=counts)


def test_columns():
    """A reshape of the columns is none of the rows: nothing after it can be fused."""
    real, x, want = layer("x")
    real = relay.tanh(relay.reshape(real, (ROWS, 4, 6)))
    want = np.tanh(want.reshape(ROWS, 4, 6))
    run_quantized(real, {"x": x}, want, composites={LAYER: 1})


def test_what_is_no_layer():
    """An op that reads 8 bits does so still where a quantize is fused to nothing."""
    real = relay.nn.softmax(var("x", ROWS, 24))
    real = relay.reshape(INNER.dequantize(INNER.quantize(real)), SHAPE)
    sum_ = real + INNER.dequantize(INNER.var("y", *SHAPE))
    assert composites(module(OUT.quantize(sum_))) == {"dnnl.qnn.add_quantize": 1}
