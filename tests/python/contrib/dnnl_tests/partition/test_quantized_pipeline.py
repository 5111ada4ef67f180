# SPDX-License-Identifier: Apache-2.0
"""Quantized models through TVM's own BYOC passes, against TVM's lowering of the same QNN ops."""

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.relay.op.contrib import dnnl
from tvm.relay.qnn import op as qnn
from tvm.testing import dnnl as testing

from dnnl_tests import direct
from dnnl_tests.quantized import Quantization

DATA = Quantization(0.02, 131, "uint8")
OUT = Quantization(0.11, 120, "uint8")
RESIDUAL = Quantization(0.07, 100, "uint8")
SUM = Quantization(0.15, 90, "uint8")


def byoc_pipeline(mod):
    """Legalize, annotate, merge and partition, as a pipeline is written by hand."""
    passes = [
        relay.transform.InferType(),
        relay.transform.MergeComposite(dnnl.pattern_table()),
        relay.transform.AnnotateTarget(["dnnl"]),
        relay.transform.MergeCompilerRegions(),
        relay.transform.PartitionGraph(),
        relay.transform.InferType(),
    ]
    with tvm.transform.PassContext(opt_level=3):
        return tvm.transform.Sequential(passes)(dnnl.legalize_qnn_for_dnnl(mod))


def shape_of(expr):
    """Return the shape of an expression."""
    return tuple(map(int, relay.transform.InferTypeLocal(expr).shape))


def parameters(*quantizations):
    """Return scale and zero point of each, in the order of QNN's binary ops."""
    return [expr for each in quantizations for expr in (each.scale_expr, each.zero_expr)]


def accumulated(op, per_channel, bias):
    """Return a QNN op with constants, its inputs, the scale of the sum and the channels' axis."""
    is_conv = op == "conv2d"
    scale = np.linspace(0.004, 0.02, 8).astype("float32") if per_channel else np.float32(0.01)
    weight = Quantization(scale, 0, "int8", 0)
    x = DATA.values(1, 4, 6, 6) if is_conv else DATA.values(5, 16)
    w = weight.values(*((8, 4, 3, 3) if is_conv else (8, 16)), low=-64, high=64)
    attrs = dict(kernel_size=(3, 3), channels=8, padding=(1, 1)) if is_conv else dict(units=8)
    zeros = DATA.zero_expr, relay.const(np.int32(0))
    expr = getattr(qnn, op)(
        DATA.var("x", *x.shape),
        relay.const(w),
        *zeros,
        DATA.scale_expr,
        weight.scale_expr,
        **attrs,
    )
    if bias:
        values = np.random.default_rng(0).integers(-2000, 2000, 8).astype("int32")
        expr = relay.nn.bias_add(expr, relay.const(values), axis=1)
    return expr, {"x": x}, np.float32(0.02) * scale


def requantized(expr, scale, out=OUT):
    zero = relay.const(np.int32(0))
    return qnn.requantize(
        expr, relay.const(scale), zero, out.scale_expr, out.zero_expr, axis=1, out_dtype=out.dtype
    )


def plain(expr, scale, inputs):
    return requantized(expr, scale), "quantize"


def clip(expr, scale, inputs):
    return relay.clip(requantized(expr, scale), 120, 200), "clip_quantize"


def signed(expr, scale, inputs):
    return requantized(expr, scale, Quantization(0.2, -3, "int8")), "quantize"


def real(expr, scale, inputs):
    """A result in float32."""
    return qnn.dequantize(expr, relay.const(scale), relay.const(np.int32(0)), axis=1), ""


def real_relu(expr, scale, inputs):
    """QDQ: the relu is of floating-point values."""
    out, _ = real(expr, scale, inputs)
    return OUT.quantize(relay.nn.relu(out)), "relu_quantize"


def rounded_relu(expr, scale, inputs):
    """QDQ: the relu is of what was rounded."""
    out = OUT.dequantize(requantized(expr, scale))
    return RESIDUAL.quantize(relay.nn.relu(out)), "quantize_relu_quantize"


def residual(expr, scale, inputs, swapped=False):
    shape = shape_of(expr)
    inputs["r"] = RESIDUAL.values(*shape, seed=1)
    operands = [(requantized(expr, scale), OUT), (RESIDUAL.var("r", *shape), RESIDUAL)]
    (lhs, lhs_q), (rhs, rhs_q) = reversed(operands) if swapped else operands
    total = qnn.add(lhs, rhs, *parameters(lhs_q, rhs_q, SUM))
    return total, "quantize_sum_quantize"


def residual_first(expr, scale, inputs):
    return residual(expr, scale, inputs, swapped=True)


def residual_clip(expr, scale, inputs):
    total, _ = residual(expr, scale, inputs)
    return relay.clip(total, 90, 255), "quantize_sum_clip_quantize"


def real_sum(expr, scale, inputs):
    """A sum of floating-point values, rounded once."""
    out, _ = real(expr, scale, inputs)
    shape = shape_of(expr)
    inputs["r"] = RESIDUAL.values(*shape, seed=1)
    total = out + RESIDUAL.dequantize(RESIDUAL.var("r", *shape))
    return SUM.quantize(relay.nn.relu(total)), "sum_relu_quantize"


ENDS = [plain, clip, signed, real, real_relu, rounded_relu]
ENDS += [residual, residual_first, residual_clip, real_sum]


@pytest.mark.parametrize(
    "bias,per_channel", [(True, True), (False, False)], ids=["bias-per-channel", "per-tensor"]
)
@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
@pytest.mark.parametrize("op", ["conv2d", "dense"])
def test_composite(op, end, bias, per_channel):
    """One composite in one partition, with zero points at both ends."""
    expr, inputs, scale = accumulated(op, per_channel, bias)
    expr, parts = end(expr, scale, inputs)
    mod = tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(expr), expr))
    partitioned = byoc_pipeline(mod)
    offload = testing.offload(partitioned)
    name = "_".join(filter(None, (f"dnnl.qnn.{op}", "bias" if bias else "", parts)))
    assert offload.composites == {name: 1}, partitioned
    assert offload.partitions == 1 and not offload.host_ops, partitioned
    assert (
        offload.composites == testing.offload(dnnl.partition_for_dnnl(mod, prune=False)).composites
    )
    (got,) = direct.run(partitioned, inputs)
    (want,) = direct.run(mod, inputs)
    assert got.dtype == want.dtype
    if got.dtype == np.float32:
        # TVM's sum is exact, and so is oneDNN's; the rest is one rounding of each product.
        testing.assert_close([got], [want], 1e-6)
    else:
        # TVM rounds at each step, and halves away from zero.
        assert np.abs(got.astype("int32") - want.astype("int32")).max() <= 1


def branches(second):
    """Return a convolution whose result in 8 bits is read twice, and a sum of it and another's."""
    attrs = dict(kernel_size=(3, 3), channels=4, padding=(1, 1))
    weight = Quantization(0.01, 0, "int8", 0)

    def layer(data, quantization, seed):
        w = relay.const(weight.values(4, 4, 3, 3, low=-64, high=64, seed=seed))
        zeros = quantization.zero_expr, relay.const(np.int32(0))
        scales = quantization.scale_expr, weight.scale_expr
        conv = qnn.conv2d(data, w, *zeros, *scales, **attrs)
        return requantized(conv, np.float32(quantization.scale * 0.01))

    x = DATA.values(1, 4, 6, 6)
    shortcut = layer(DATA.var("x", *x.shape), DATA, 1)
    other = layer(shortcut, OUT, 2)
    operands = (shortcut, other) if second else (other, shortcut)
    return qnn.add(*operands, *parameters(OUT, OUT, SUM)), {"x": x}


@pytest.mark.parametrize("second", [True, False], ids=["second", "first"])
def test_a_residual_that_is_read_twice(second):
    """Of two convolutions, the one that nothing else reads has the sum, on whichever side it is."""
    expr, inputs = branches(second)
    mod = tvm.IRModule.from_expr(expr)
    partitioned = byoc_pipeline(mod)
    offload = testing.offload(partitioned)
    names = {"dnnl.qnn.conv2d_quantize": 1, "dnnl.qnn.conv2d_quantize_sum_quantize": 1}
    assert offload.composites == names and offload.partitions == 1, partitioned
    (got,), (want,) = direct.run(partitioned, inputs), direct.run(mod, inputs)
    # A step of the shortcut is 1.1 of its products' in the convolution after it.
    assert np.abs(got.astype("int32") - want.astype("int32")).max() <= 2


def test_without_legalize_qnn_stays_on_tvm():
    """A QNN op has no row; what quantizes alone has."""
    expr, inputs = branches(True)
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(expr))
    merged = relay.transform.MergeComposite(dnnl.pattern_table())(mod)
    assert testing.offload(relay.transform.AnnotateTarget(["dnnl"])(merged)).partitions == 0


def test_a_dequantize_that_no_op_reads_stays_out():
    """Scales of channels along the data: the op reads floating-point values."""
    scales = Quantization(np.linspace(0.1, 0.2, 16).astype("float32"), 0, "int8", 1)
    weight = Quantization(0.01, 0, "int8", 0)
    x, w = scales.values(5, 16), weight.values(8, 16)
    expr = relay.nn.dense(scales.dequantize(scales.var("x", 5, 16)), weight.dequantize(w))
    partitioned = byoc_pipeline(tvm.IRModule.from_expr(OUT.quantize(expr)))
    assert not testing.offload(partitioned).composites
    (got,) = direct.run(partitioned, {"x": x})
    want = OUT.nearest(scales.real(x) @ weight.real(w).T)
    assert np.abs(got.astype("int32") - want.astype("int32")).max() <= 1
