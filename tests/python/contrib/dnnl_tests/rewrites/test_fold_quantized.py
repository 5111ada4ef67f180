# SPDX-License-Identifier: Apache-2.0
"""Constants: those that a model quantizes itself, and ops that have no numpy definition."""

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.contrib.onednn.ops.quantize import quantized
from tvm.relay.op.contrib import dnnl
from tvm.relay.qnn import op as qnn
from tvm.testing import dnnl as testing

from dnnl_tests import direct
from dnnl_tests.quantized import Quantization
from dnnl_tests.relay import composites, const, module, partition, var

DATA = Quantization(0.02, 131, "uint8")
OUT = Quantization(0.11, 120, "uint8")
ATTRS = dict(kernel_size=(3, 3), channels=8, padding=(1, 1))
CHANNELS = np.linspace(0.004, 0.02, 8).astype("float32")


def reals(quantization, *shape):
    """Return floats; of the first eighth the quotient is half a step, of others up to 280."""
    steps = np.random.default_rng(shape).uniform(-280, 280, shape)
    steps.reshape(-1)[: steps.size // 8] = np.arange(steps.size // 8) - steps.size // 16 + 0.5
    return quantization.real(steps + quantization.zero_point).astype("float32")


def written(quantization, values, is_folded):
    """Return integers of floats: as a quantize of these, or as the constant that it is."""
    if not is_folded:
        return quantization.quantize(relay.const(values))
    scale = np.float32(quantization.scale)
    if scale.ndim:
        scale = scale.reshape([-1 if k == quantization.axis else 1 for k in range(values.ndim)])
    limits = np.iinfo(quantization.dtype)
    steps = np.rint(values / scale).astype("float64") + quantization.zero_point
    return relay.const(np.clip(steps, limits.min, limits.max).astype(quantization.dtype))


def qdq(is_folded, scale, dtype="int8", zero_point=0):
    """A convolution of floating-point values, as onnxruntime and PyTorch's exporter write one."""
    weight = Quantization(scale, zero_point, dtype, 0 if np.ndim(scale) else -1)
    bits = written(weight, reals(weight, 8, 4, 3, 3), is_folded)
    bias = Quantization(np.float32(0.02) * scale, 0, "int32", 0)
    data = DATA.dequantize(DATA.var("x", 1, 4, 6, 6))
    real = relay.nn.conv2d(data, weight.dequantize(bits), **ATTRS)
    real = relay.nn.bias_add(real, bias.dequantize(written(bias, reals(bias, 8), is_folded)))
    return OUT.quantize(real)


def integers(is_folded, scale):
    """A QNN op and its bias in int32, as TVM's importer writes PyTorch's quantized models."""
    weight = Quantization(scale, 0, "int8", 0)
    bias = Quantization(np.float32(0.02) * scale, 0, "int32", 0)
    bits = written(weight, reals(weight, 8, 4, 3, 3), is_folded)
    zero = relay.const(0)
    total = qnn.conv2d(
        DATA.var("x", 1, 4, 6, 6),
        bits,
        DATA.zero_expr,
        zero,
        DATA.scale_expr,
        weight.scale_expr,
        **ATTRS,
    )
    total = relay.nn.bias_add(total, written(bias, reals(bias, 8), is_folded))
    return qnn.requantize(
        total, bias.scale_expr, zero, OUT.scale_expr, OUT.zero_expr, axis=1, out_dtype="uint8"
    )


def transposed(is_folded, scale):
    """The integers of a weight on their way to a matmul."""
    weight = Quantization(scale, 0, "int8", 1 if np.ndim(scale) else -1)
    bits = relay.transpose(written(weight, reals(weight, 24, 8), is_folded))
    if np.ndim(scale):
        weight = weight._replace(axis=0)
    flat = relay.reshape(DATA.dequantize(DATA.var("x", 1, 4, 6, 6)), (6, 24))
    return OUT.quantize(relay.nn.dense(flat, weight.dequantize(bits)))


FORMS = {
    "qdq": (qdq, "conv2d_bias"),
    "integers": (integers, "conv2d_bias"),
    "transposed": (transposed, "dense"),
}


@pytest.mark.parametrize("scale", [np.float32(0.01), CHANNELS], ids=["tensor", "channels"])
@pytest.mark.parametrize("form", FORMS)
def test_as_with_constants(form, scale):
    """The same composite and the same integers as where the model has them already."""
    build, name = FORMS[form]
    mods = [partition(module(build(is_folded, scale)), prune=False) for is_folded in (False, True)]
    for mod in mods:
        offload = testing.offload(mod)
        assert offload.composites == {f"dnnl.qnn.{name}_quantize": 1} and not offload.host_ops, mod
    x = {"x": DATA.values(1, 4, 6, 6)}
    (got,), (want,) = (direct.run(mod, x) for mod in mods)
    np.testing.assert_array_equal(got, want)
    folded = dnnl.offload_report(mods[0]).folded
    assert folded == {"qnn.quantize": 1 if form == "transposed" else 2}


def test_unsigned_with_a_zero_point():
    mods = [partition(module(qdq(each, 0.01, "uint8", 128)), prune=False) for each in (False, True)]
    x = {"x": DATA.values(1, 4, 6, 6)}
    (got,), (want,) = (direct.run(mod, x) for mod in mods)
    np.testing.assert_array_equal(got, want)
    assert testing.offload(mods[0]).composites == {"dnnl.qnn.conv2d_bias_quantize": 1}


def test_through_the_patterns():
    """`legalize_qnn_for_dnnl` folds them, too."""
    legal = dnnl.legalize_qnn_for_dnnl(module(integers(False, CHANNELS)))
    merged = relay.transform.MergeComposite(dnnl.pattern_table())(legal)
    names = []
    relay.analysis.post_order_visit(
        merged["main"],
        lambda expr: (
            isinstance(expr, relay.Function)
            and expr.attrs
            and names.append(str(expr.attrs["Composite"]))
        ),
    )
    assert names == ["dnnl.qnn.conv2d_bias_quantize"]


def test_what_stays():
    """A quantize that is excluded, and one of a scale that is computed."""
    expr = qdq(False, 0.01)
    counts = composites(module(expr), exclude=["qnn.quantize"])
    assert not any("qnn" in name for name in counts)
    scale = relay.var("scale", shape=())
    bits = qnn.quantize(relay.const(reals(DATA, 4, 4)), scale, relay.const(0), out_dtype="int8")
    mod = partition(tvm.IRModule.from_expr(bits), prune=False)
    assert not dnnl.offload_report(mod).folded


@pytest.mark.parametrize(
    "dtype, zero_point, values, want",
    [
        ("int8", 0, [0.5, 1.5, -0.5, -2.5, 127.5, -1e9], [0, 2, 0, -2, 127, -128]),
        ("uint8", 3, [0.5, 1.5, -2.5, -9, 251.5, 253], [3, 5, 1, 0, 255, 255]),
        (
            "int32",
            0,
            [0.5, 3e9, -3e9, np.inf, 16777217],
            [0, 2**31 - 1, -(2**31), 2**31 - 1, 2**24],
        ),
        ("int32", -5, [-(2.0**31), 2.0**31], [-(2**31), 2**31 - 5]),
    ],
)
def test_rounding(dtype, zero_point, values, want):
    """Halves go to even, and what does not fit saturates."""
    args = np.float32(values), np.float32(1), np.int32(zero_point)
    got = quantized(*args, -1, dtype)
    assert got.dtype == dtype and got.tolist() == want


def test_quotients_of_float32():
    """0.35 / 0.1 is 3.5 in float32, and 3.4999999 in double precision."""
    args = np.float32([0.35]), np.float32(0.1), np.int32(0)
    assert np.rint(0.35 / float(np.float32(0.1))) == 3
    assert quantized(*args, -1, "int8").tolist() == [4]


@pytest.mark.parametrize("scale, dtype", [(0.0, "int8"), (1.0, "float8_e4m3fn")])
def test_no_integers(scale, dtype):
    assert quantized(np.float32([0, 1]), np.float32(scale), np.int32(0), -1, dtype) is None


@pytest.fixture
def folded(monkeypatch):
    """Return the ops that TVM compiles a function for, as they are folded."""
    ops, fold = [], relay.transform.FoldConstantExpr

    def counted(expr, *args):
        ops.append(expr.op.name)
        return fold(expr, *args)

    monkeypatch.setattr(relay.transform, "FoldConstantExpr", counted)
    return ops


def _weight():
    """Return a weight as TFLite models in float16 have it, and its value."""
    half = np.linspace(-1, 1, 24, dtype="float16").reshape(4, 6)
    return relay.cast(relay.const(half), "float32"), half.astype("float32")


def _dense(columns):
    """Return what oneDNN computes, of a number of columns."""
    return relay.nn.dense(var("x", 2, 6), const(columns, 6))


def test_only_what_numpy_does_not_know_is_compiled(folded):
    x = var("x", 2, 6)
    weight, _ = _weight()
    bias = relay.cast(relay.cumsum(relay.cast(relay.const([1, 2, 3, 4]), "int32"), 0), "float32")
    mod = module(relay.nn.bias_add(relay.nn.dense(x, weight), bias))
    partitioned = partition(mod)
    assert folded == ["cumsum"]
    report = dnnl.offload_report(partitioned)
    assert (report.offloaded, report.partitions) == (report.total, 1), report
    x = np.linspace(-2, 2, 12, dtype="float32").reshape(2, 6)
    expected = x @ _weight()[1].T + np.float32([1, 3, 6, 10])
    testing.assert_close(testing.run(partitioned, {"x": x}), [expected], 1e-5)


def test_the_fields_of_a_tuple_are_folded(folded):
    parts = relay.split(const(4, 6), 2, axis=1)
    largest = relay.topk(relay.reshape(parts[1], (12,)), k=3, ret_type="values")
    partitioned = partition(module(relay.add(_dense(3), largest)))
    assert folded == ["topk"]
    report = dnnl.offload_report(partitioned)
    assert (report.offloaded, report.partitions) == (report.total, 1), report


def test_nothing_is_compiled_for_what_numpy_knows(folded):
    slopes = relay.reshape(relay.broadcast_to(const(1, 8), (5, 8)), (-1,))
    partitioned = partition(module(relay.nn.prelu(_dense(40), slopes, axis=1)))
    assert not folded
    assert not testing.offload(partitioned).host_ops


def test_what_tvm_cannot_compute_stays(monkeypatch):
    def fail(*args):
        raise tvm.TVMError("no code for this")

    monkeypatch.setattr(relay.transform, "FoldConstantExpr", fail)
    sums = relay.cumsum(const(8), 0)
    partitioned = partition(module(relay.add(_dense(8), sums)))
    assert testing.offload(partitioned).host_ops == {"cumsum": 1}
