# SPDX-License-Identifier: Apache-2.0
"""Integer and dynamically quantized ops of ONNX and com.microsoft, against onnxruntime."""

import numpy as np
import pytest
import tvm_dnnl
from dnnl_tests.onnx_models import Graph
from onnx import TensorProto

from dnnl_relax.modules import compiled, composites, run
from dnnl_relax.onnx.quantized_nodes import (
    CONTRIB,
    check_steps,
    f32,
    has_vnni,
    ints,
    node_model,
    onnxruntime_results,
    partitioned_model,
    real,
    results,
)

DYNAMIC = "dnnl.dynamic_quantized_dense"

# Exact sums in int32.


def check_exact(op, operands, **options):
    model, values = node_model(op, operands, **options)
    (want,) = onnxruntime_results(model, values)
    (got,) = results(model, values)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


MATMUL_INTEGERS = {
    "u8s8": ((7, 32), (32, 24), "uint8", "int8", np.uint8(9), np.int8(0)),
    "s8s8": ((7, 32), (32, 24), "int8", "int8", np.int8(-9), np.int8(3)),
    "u8u8": ((7, 32), (32, 24), "uint8", "uint8", np.uint8(9), np.uint8(128)),
    "no-zero-points": ((7, 32), (32, 24), "uint8", "int8", None, None),
    "one-zero-point": ((7, 32), (32, 24), "uint8", "int8", None, np.int8(3)),
    "zero-points-of-one-item": ((7, 32), (32, 24), "uint8", "int8", ints(1), ints(1, dtype="int8")),
    "per-column": ((7, 32), (32, 24), "uint8", "int8", np.uint8(9), ints(24, dtype="int8")),
    "batch": ((3, 7, 32), (32, 24), "uint8", "int8", np.uint8(9), np.int8(3)),
    "batches": ((2, 1, 7, 32), (3, 32, 24), "uint8", "int8", np.uint8(9), np.int8(3)),
}


@pytest.mark.parametrize("inputs", [(0,), (0, 1, 2, 3)], ids=["constants", "inputs"])
@pytest.mark.parametrize("name", MATMUL_INTEGERS)
def test_matmul_integer(name, inputs):
    a, b, a_dtype, b_dtype, a_zero, b_zero = MATMUL_INTEGERS[name]
    operands = [ints(*a, dtype=a_dtype), ints(*b, dtype=b_dtype, seed=1), a_zero, b_zero]
    inputs = [k for k in inputs if operands[k] is not None]
    check_exact("MatMulInteger", operands, inputs=inputs)


@pytest.mark.parametrize("zero", [np.uint8(9), ints(1)], ids=["scalar", "1d"])
@pytest.mark.parametrize("shapes", [((32,), (32, 24)), ((7, 32), (32,)), ((32,), (32,))])
def test_matmul_integer_of_a_vector(shapes, zero):
    """TVM's converter makes a matrix of a vector with a zero point of one dimension."""
    a, b = (ints(*shape, seed=k) for k, shape in enumerate(shapes))
    model, values = node_model("MatMulInteger", [a, b, zero, zero])
    want = (a.astype("int32") - zero) @ (b.astype("int32") - zero)
    (got,) = results(model, values)
    assert got.dtype == "int32" and got.shape == np.shape(want)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("rows", [(7,), (7, 1), (2, 7, 1)], ids=["1d", "2d", "3d"])
def test_matmul_integer_with_a_zero_point_per_row(rows):
    """The kernel of onnxruntime has one zero point of A."""
    a, b = ints(*rows[: len(rows) - 2 if len(rows) > 1 else 0], 7, 32), ints(32, 24, seed=1)
    a_zero = ints(*rows, seed=2)
    model, values = node_model("MatMulInteger", [a, b, a_zero, np.uint8(5)])
    zero = a_zero.reshape(-1, 1) if a_zero.ndim == 1 else a_zero
    want = (a.astype("int32") - zero) @ (b.astype("int32") - 5)
    np.testing.assert_array_equal(results(model, values)[0], want)


CONV_INTEGERS = {
    "plain": {},
    "no-zero-points": dict(x_zero=None, w_zero=None),
    "pads": dict(pads=[1, 0, 2, 1], strides=[2, 1], dilations=[1, 2]),
    "groups": dict(group=2),
    "same-lower": dict(auto_pad="SAME_LOWER", strides=[2, 2]),
    "1d": dict(size=(9,), kernel=(3,), pads=[1, 2]),
    "3d": dict(size=(5, 6, 7), kernel=(3, 3, 3), pads=[1] * 6),
}


@pytest.mark.parametrize("name", CONV_INTEGERS)
def test_conv_integer(name):
    case = dict(CONV_INTEGERS[name])
    size, kernel = case.pop("size", (9, 10)), case.pop("kernel", (3, 3))
    x = ints(2, 4, *size)
    w = ints(8, 4 // case.get("group", 1), *kernel, seed=1)
    zeros = [case.pop("x_zero", np.uint8(131)), case.pop("w_zero", np.uint8(120))]
    check_exact("ConvInteger", [x, w, *zeros], **case)


def test_conv_integer_with_zero_points_per_channel():
    """The kernel of onnxruntime has one zero point of the weight."""
    x, w, zeros = ints(1, 4, 6), ints(8, 4, 1, seed=1), ints(8, seed=2)
    model, values = node_model("ConvInteger", [x, w, np.uint8(131), zeros])
    weight = w[:, :, 0].astype("int32") - zeros[:, None]
    want = weight @ (x[0].astype("int32") - 131)
    np.testing.assert_array_equal(results(model, values)[0][0], want)


# Matmuls with results in float32.


@pytest.mark.parametrize("x", ["mixed", "positive", "zero"])
def test_dynamic_quantize_linear(x):
    value = {"mixed": real(5, 60), "positive": real(5, 60) + 2, "zero": np.zeros((5, 60))}[x]
    model, values = node_model("DynamicQuantizeLinear", [value.astype("float32")], outputs=3)
    want, got = onnxruntime_results(model, values), results(model, values)
    check_steps(got[0], want[0])
    np.testing.assert_allclose(got[1], want[1], rtol=1e-6)
    assert got[2] == want[2] and got[2].dtype == want[2].dtype


@pytest.mark.parametrize("b_dtype", ["int8", "uint8"])
@pytest.mark.parametrize("scales", [1, 24], ids=["one-scale", "per-column"])
@pytest.mark.parametrize("op", ["DynamicQuantizeMatMul", "MatMulIntegerToFloat"])
def test_matmul_with_float_results(op, scales, b_dtype):
    b, b_scale = ints(32, 24, dtype=b_dtype, seed=1), real(scales, low=0.005, high=0.02)
    # With several scales, only weights that fit into int8 without their zero points run in 8 bits.
    b_zero = np.full(scales, 3 if scales == 1 else {"int8": 0, "uint8": 128}[b_dtype], b_dtype)
    bias = real(24, seed=4)
    if op == "DynamicQuantizeMatMul":
        operands = [real(2, 7, 32), b, b_scale, b_zero, bias]
    else:
        operands = [ints(2, 7, 32), b, f32(0.03127), b_scale, np.uint8(120), b_zero, bias]
    for absent in ((), (len(operands) - 1,), (len(operands) - 1, len(operands) - 2)):
        case = [None if k in absent else value for k, value in enumerate(operands)]
        model, values = node_model(op, case, domain=CONTRIB)
        (want,) = onnxruntime_results(model, values)
        partitioned = partitioned_model(model)
        kinds = composites(partitioned)
        is_int8 = any("qnn.matmul" in name or DYNAMIC in name for name in kinds)
        assert is_int8 or (scales > 1 and b_dtype == "uint8" and len(absent) == 2)
        (got,) = run(compiled(partitioned), *values)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5 * np.abs(want).max())


# Casts of exact sums to float32, which partitioning computes in 8 bits.


class Model(Graph):
    """A model of integer ops with one input x."""

    def __init__(self):
        super().__init__("model", None, opset=17)

    def product(self, quantized, weight, scale, zero_point, op="MatMulInteger", **attrs):
        """What quantize_dynamic of onnxruntime writes for a matmul or a convolution."""
        x, x_scale, x_zero = quantized
        sums = self.op("Cast", self.op(op, x, weight, x_zero, zero_point, **attrs), to=1)
        return self.op("Mul", sums, self.op("Mul", x_scale, scale))


def check_floats(model, x, wanted):
    """Compare with onnxruntime, which multiplies the same integers, and assert the composites."""
    partitioned = partitioned_model(model)
    kinds = composites(partitioned)
    assert {name: kinds[name] for name in wanted} == wanted, kinds
    for got, want in zip(run(compiled(partitioned), x), onnxruntime_results(model, [x])):
        assert got.dtype == want.dtype
        # Exact sums, and up to three operations in float32.
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5 * np.abs(want).max())


@pytest.mark.parametrize("b_dtype, b_zero", [("int8", 0), ("int8", 3), ("uint8", 120)])
@pytest.mark.parametrize("scales", [1, 24], ids=["one-scale", "per-column"])
@pytest.mark.parametrize("batch", [2, "n"], ids=["static", "open"])
def test_dynamic_matmuls(batch, scales, b_dtype, b_zero):
    """Two matmuls of one quantized tensor, with bias and relu."""
    model = Model()
    quantized = model.op("DynamicQuantizeLinear", "x", outputs=3)
    tensors = []
    for seed in (1, 2):
        b, zero = ints(32, 24, dtype=b_dtype, seed=seed), np.array(b_zero, b_dtype)
        scale = real(scales, low=0.005, high=0.02, seed=seed)
        y = model.product(quantized, b, scale if scales > 1 else scale[0], zero)
        tensors.append(model.op("Relu", model.op("Add", y, real(24, seed=seed))))
    model = model.done([batch, 7, 32], *tensors)
    check_floats(model, real(2, 7, 32), {f"{DYNAMIC}_bias_relu": 2})


def test_dynamic_convolution_with_a_bias_in_int32():
    """The bias is computed from the scale of the data, and added to the sums."""
    model = Model()
    x, scale, zero = model.op("DynamicQuantizeLinear", "x", outputs=3)
    sums = model.op("ConvInteger", x, ints(8, 4, 3, 3), zero, np.uint8(128))
    scale = model.op("Mul", scale, f32(0.01))
    bias = model.op("Floor", model.op("Div", real(1, 8, 1, 1), scale))
    sums = model.op("Add", sums, model.op("Cast", bias, to=TensorProto.INT32))
    y = model.op("Mul", model.op("Cast", sums, to=1), scale)
    check_floats(model.done([1, 4, 9, 10], y), real(1, 4, 9, 10), {**FAKE, **BIAS, CONV: 1})


FAKE, CONV = {"dnnl.dynamic_fake_quantize": 1}, "dnnl.conv2d_bias"
# Of the smallest step, which a float32 bias is rounded to.
BIAS = {"dnnl.dynamic_quantize_scale": 1, "dnnl.divide": 1, "dnnl.floor": 1, "dnnl.multiply": 2}


@pytest.mark.parametrize("zero, width", [(121, 10), (128, 10), (255, 10), (121, "n")])
@pytest.mark.parametrize("attrs", [{}, dict(pads=[1, 0, 2, 1], group=2)], ids=["plain", "pads"])
def test_dynamic_convolution(zero, width, attrs):
    """It computes in float32, also if the weight does not fit into int8 less its zero point."""
    model = Model()
    quantized = model.op("DynamicQuantizeLinear", "x", outputs=3)
    weight = ints(8, 4 // attrs.get("group", 1), 3, 3)
    y = model.product(quantized, weight, f32(0.01), np.uint8(zero), "ConvInteger", **attrs)
    y = model.op("Relu", model.op("Add", y, real(1, 8, 1, 1)))
    wanted = {**FAKE, f"{CONV}_relu": 1}
    check_floats(model.done([1, 4, 9, width], y), real(1, 4, 9, 10), wanted)


def test_dynamic_convolutions_in_one_partition():
    """As older versions of onnxruntime's quantizer write them, one after the other."""
    model, data = Model(), "x"
    for seed, (inputs, outputs, zero) in enumerate([(4, 24, 121), (24, 8, 178)]):
        x, scale, zero_point = model.op("DynamicQuantizeLinear", data, outputs=3)
        weight = ints(outputs, inputs, 3, 3, seed=seed)
        sums = model.op("ConvInteger", x, weight, zero_point, np.uint8(zero), pads=[1] * 4)
        steps = model.op("Div", real(outputs, seed=seed), model.op("Mul", scale, f32(0.001)))
        steps = model.op("Cast", model.op("Floor", steps), to=TensorProto.INT32)
        bias = model.op("Reshape", steps, np.array([1, -1, 1, 1]))
        sums = model.op("Cast", model.op("Add", sums, bias), to=1)
        sums = model.op("Mul", sums, model.op("Mul", scale, f32(0.001)))
        data = model.op("Mul", sums, model.op("Sigmoid", sums))
    model, x = model.done([1, 4, 9, 10], data), real(1, 4, 9, 10)
    partitioned = partitioned_model(model)
    report = tvm_dnnl.offload_report(partitioned)
    assert (report.partitions, report.reasons) == (1, {})
    assert composites(partitioned)[f"{CONV}_swish"] == 2
    for data in (x, np.zeros_like(x), np.abs(x)):
        (want,) = onnxruntime_results(model, [data])
        (got,) = run(compiled(partitioned), data)
        # A number next to the middle of two steps may go to either of them.
        np.testing.assert_allclose(got, want, rtol=0, atol=0.01 * np.abs(want).max())


def test_excluded_fake_quantize_is_written_as_it_was():
    model = Model()
    quantized = model.op("DynamicQuantizeLinear", "x", outputs=3)
    y = model.product(quantized, ints(8, 4, 3, 3), f32(0.01), np.uint8(121), "ConvInteger")
    model, x = model.done([1, 4, 9, 10], y), real(1, 4, 9, 10)
    mod = tvm_dnnl.from_onnx(model)
    excluded = ["quantize", "dequantize"]
    partitioned = tvm_dnnl.partition_for_dnnl(mod, prune=False, exclude=excluded)
    assert not FAKE.keys() & composites(partitioned).keys()
    (want,) = onnxruntime_results(model, [x])
    np.testing.assert_allclose(run(compiled(partitioned), x)[0], want, rtol=1e-5, atol=1e-5)


def test_dynamic_matmul_of_two_activations():
    model = Model()
    x, x_scale, x_zero = model.op("DynamicQuantizeLinear", "x", outputs=3)
    transposed = model.op("Transpose", "x", perm=[0, 2, 1])
    y, y_scale, y_zero = model.op("DynamicQuantizeLinear", transposed, outputs=3)
    sums = model.op("Cast", model.op("MatMulInteger", x, y, x_zero, y_zero), to=1)
    result = model.op("Mul", sums, model.op("Mul", x_scale, y_scale))
    check_floats(
        model.done([3, 8, 16], result), real(3, 8, 16), {"dnnl.qnn.batch_matmul_multiply": 1}
    )


def test_sums_beyond_24_bits():
    """The sums are exact before the cast rounds them, where the CPU multiplies in 8 bits."""
    model = Model()
    b, zeros = ints(1200, 24, dtype="int8", low=90), (np.uint8(1), np.int8(0))
    sums = model.op("Cast", model.op("MatMulInteger", "x", b, *zeros), to=1)
    model, x = model.done([7, 1200], sums, dtype=TensorProto.UINT8), ints(7, 1200, low=200)
    partitioned = partitioned_model(model, {"dnnl.qnn.matmul": 1})
    (want,) = onnxruntime_results(model, [x])
    assert want.min() > 2**24
    # Other kernels subtract zero points in float32.
    rounding = 0 if has_vnni() else 2**-23
    np.testing.assert_allclose(run(compiled(partitioned), x)[0], want, rtol=rounding)


def test_sums_that_are_a_result():
    """They stay on TVM, in int32."""
    model = Model()
    zeros = np.uint8(9), np.int8(3)
    sums = model.op("MatMulInteger", "x", ints(32, 24, dtype="int8"), *zeros)
    model = model.done([7, 32], sums, model.op("Cast", sums, to=1), dtype=TensorProto.UINT8)
    partitioned, x = partitioned_model(model), ints(7, 32)
    assert not any("matmul" in name for name in composites(partitioned))
    for got, want in zip(run(compiled(partitioned), x), onnxruntime_results(model, [x])):
        np.testing.assert_array_equal(got, want)


def test_excluded_matmul_is_written_as_it_was():
    model = Model()
    sums = model.op("MatMulInteger", "x", ints(32, 24, dtype="int8"), np.uint8(9), np.int8(3))
    model = model.done([7, 32], model.op("Cast", sums, to=1), dtype=TensorProto.UINT8)
    mod = tvm_dnnl.from_onnx(model)
    partitioned = tvm_dnnl.partition_for_dnnl(mod, prune=False, exclude=["matmul"])
    assert not composites(partitioned)
    assert 'out_dtype="int32"' in partitioned.script()
