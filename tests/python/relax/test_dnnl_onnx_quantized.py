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
"""ONNX's and com.microsoft's quantized ops through `tvm_dnnl.from_onnx`, against onnxruntime."""

import glob
import os

import numpy as np
import onnx
import onnxruntime
import pytest
import tvm
import tvm_dnnl
from dnnl_modules import compiled, composites, run
from onnx import TensorProto, helper, numpy_helper

CONTRIB = "com.microsoft"


def ints(*shape, dtype="uint8", seed=0, low=None, high=None):
    limits = np.iinfo(dtype)
    low, high = limits.min if low is None else low, limits.max if high is None else high
    return np.random.default_rng(seed).integers(low, high + 1, shape).astype(dtype)


def real(*shape, seed=0, low=-1.0, high=1.0):
    return np.random.default_rng(seed).uniform(low, high, shape).astype("float32")


def f32(value):
    return np.float32(value)


def node_model(op, operands, inputs=(0,), domain="", outputs=1, **attrs):
    """Return the model of one node, and the values of its inputs.

    Parameters
    ----------
    op : str
        The op.
    operands : list
        Arrays, None for an operand that is left out.
    inputs : Sequence[int]
        The operands that are inputs of the model; the others are constants.
    """
    names = ["" if value is None else f"i{k}" for k, value in enumerate(operands)]
    weights, given = [], []
    for k, value in enumerate(operands):
        if value is None:
            continue
        tensor = numpy_helper.from_array(np.asarray(value), names[k])
        if k in inputs:
            shape = np.asarray(value).shape
            given.append(helper.make_tensor_value_info(names[k], tensor.data_type, shape))
        else:
            weights.append(tensor)
    outputs = [f"y{k}" for k in range(outputs)]
    node = helper.make_node(op, names, outputs, name="node", domain=domain, **attrs)
    infos = [helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = helper.make_graph([node], "model", given, infos, weights)
    opset = [helper.make_opsetid("", 17), helper.make_opsetid(CONTRIB, 1)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=8)
    return model, [np.asarray(operands[k]) for k in sorted(inputs)]


def onnxruntime_results(model, values):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, dict(zip((each.name for each in model.graph.input), values)))


def partitioned_model(model, wanted=None):
    """Return the partitioned module of a model, of which the composites may be asserted."""
    partitioned = tvm_dnnl.partition_for_dnnl(tvm_dnnl.from_onnx(model), prune=False)
    if wanted is not None:
        assert composites(partitioned) == wanted
    return partitioned


def results(model, values, wanted=None):
    return run(compiled(partitioned_model(model, wanted)), *values)


def check_steps(got, want, most=0.02):
    """Compare tensors of 8 bits: what is next to the middle of two steps may go to either.

    Sums are exact in int32 and rounded once in float32, but in another order of operations.
    """
    assert got.dtype == want.dtype and got.shape == want.shape
    differences = np.abs(got.astype("int32") - want)
    assert differences.max() <= 1 and (differences != 0).mean() <= most


def check_quantized(op, operands, wanted=None, most=0.02, **options):
    model, values = node_model(op, operands, **options)
    (want,) = onnxruntime_results(model, values)
    assert len(np.unique(want)) > 4, "the case is saturated"
    partitioned = partitioned_model(model, wanted)
    check_steps(run(compiled(partitioned), *values)[0], want, most)
    return tvm_dnnl.offload_report(partitioned)


# Ops that have a kernel in 8 bits.

CONVS = {
    "u8s8": {},
    "s8s8": dict(x="int8"),
    "u8u8": dict(w="uint8", w_zero=128),
    "per-channel": dict(scales=8),
    "bias": dict(scales=8, bias=True),
    "bias-one-scale": dict(bias=True),
    "pads": dict(scales=8, pads=[1, 0, 2, 1], strides=[2, 1], dilations=[1, 2]),
    "groups": dict(group=2, scales=8),
    "depthwise": dict(group=4, scales=8),
    "same-upper": dict(auto_pad="SAME_UPPER", strides=[2, 2]),
    "same-lower": dict(auto_pad="SAME_LOWER", strides=[2, 2]),
    "valid": dict(auto_pad="VALID"),
    "1d": dict(size=(9,), kernel=(3,), pads=[1, 2], scales=8),
    "3d": dict(size=(5, 6, 7), kernel=(3, 3, 3), pads=[1] * 6, scales=8),
}


def conv_operands(
    size=(9, 10), kernel=(3, 3), x="uint8", w="int8", w_zero=0, scales=1, bias=False, **attrs
):
    """The operands of a QLinearConv with 4 channels in and 8 out, and its attributes."""
    x_zero = 131 if x == "uint8" else -7
    data, weight = ints(2, 4, *size, dtype=x), ints(
        8, 4 // attrs.get("group", 1), *kernel, dtype=w, seed=1
    )
    scale = real(scales, low=0.005, high=0.02, seed=2) if scales > 1 else f32(0.01)
    zero = np.full(np.shape(scale), w_zero, w)
    summand = ints(8, dtype="int32", low=-4000, high=4000, seed=3) if bias else None
    result = [f32(0.2), np.array(x_zero, x), summand]
    return [data, f32(0.02), np.array(x_zero, x), weight, scale, zero, *result], attrs


@pytest.mark.parametrize("name", CONVS)
def test_qlinear_conv(name):
    case = CONVS[name]
    operands, attrs = conv_operands(**case)
    kind = f"dnnl.qnn.conv{len(case.get('size', (9, 10)))}d"
    end = "_bias_quantize" if case.get("bias") else "_quantize"
    report = check_quantized("QLinearConv", operands, {kind + end: 1}, **attrs)
    assert not report.in_float32


def test_qlinear_conv_with_weight_zero_points_per_channel():
    """A convolution of oneDNN has no weight zero points, so this is float32.

    onnxruntime has one zero point of the weight.
    """
    operands, _ = conv_operands(w="uint8", scales=8, kernel=(1, 1))
    x, _, x_zero, w, w_scale, _, y_scale, y_zero, _ = operands
    operands[5] = w_zero = ints(8, seed=5, low=100, high=135)
    model, values = node_model("QLinearConv", operands)
    weight = (w[:, :, 0, 0].astype("float64") - w_zero[:, None]) * w_scale[:, None]
    product = np.einsum("oc,nchw->nohw", weight, (x.astype("float64") - x_zero) * 0.02)
    want = np.clip(np.round(product / y_scale) + y_zero, 0, 255).astype("uint8")
    check_steps(results(model, values)[0], want)


MATMULS = {
    "u8s8": {},
    "s8s8": dict(a="int8"),
    "u8u8": dict(b="uint8", b_zero=120),
    "per-column": dict(scales=24),
    "batch": dict(batch=(3,)),
    "batches": dict(batch=(2, 3), b_batch=(2, 3), inputs=(0, 3)),
    "inputs": dict(inputs=(0, 3)),
}


def matmul_operands(a="uint8", b="int8", b_zero=0, scales=1, batch=(), b_batch=(), **attrs):
    data, weight = ints(*batch, 7, 32, dtype=a), ints(*b_batch, 32, 24, dtype=b, seed=1)
    scale = real(scales, low=0.005, high=0.02, seed=2) if scales > 1 else f32(0.01)
    zero, a_zero = np.full(np.shape(scale), b_zero, b), np.array(9, a)
    return [data, f32(0.02), a_zero, weight, scale, zero, f32(0.4), np.array(3, a)], attrs


@pytest.mark.parametrize("name", MATMULS)
def test_qlinear_matmul(name):
    operands, attrs = matmul_operands(**MATMULS[name])
    is_batch = name == "batches"
    kind = "dnnl.qnn.batch_matmul_quantize" if is_batch else "dnnl.qnn.matmul_quantize"
    check_quantized("QLinearMatMul", operands, {kind: 1}, **attrs)


@pytest.mark.parametrize("scale", ["float16", "float32"])
@pytest.mark.parametrize("rows", [(7,), (7, 1), (2, 7, 1)], ids=["1d", "2d", "3d"])
def test_qlinear_matmul_with_a_scale_per_row(rows, scale):
    """The kernel of onnxruntime has no kernel with several scales of a, nor with scales in float16."""
    batch = (2,) if len(rows) == 3 else ()
    a, b = ints(*batch, 7, 32), ints(32, 24, dtype="int8", seed=1)
    a_scale = real(*rows, low=0.01, high=0.02).astype(scale)
    y_scale = real(*rows, low=0.3, high=0.5, seed=1).astype(scale)
    a_zero, y_zero = ints(*rows, low=120, high=130), ints(*rows, low=120, high=130, seed=1)
    b_scale, b_zero = real(24, low=0.01, high=0.02).astype(scale), np.zeros(24, "int8")
    operands = [a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero]
    model, values = node_model("QLinearMatMul", operands)

    def columns(value):
        return (
            value.reshape(-1, 1).astype("float64") if value.ndim == 1 else value.astype("float64")
        )

    product = (a - columns(a_zero)) * columns(a_scale) @ (b * b_scale.astype("float64"))
    want = np.clip(np.round(product / columns(y_scale)) + columns(y_zero), 0, 255)
    check_steps(results(model, values)[0], want.astype("uint8"))


@pytest.mark.parametrize("shapes", [((32,), (32, 24)), ((7, 32), (32,))], ids=["a", "b"])
def test_qlinear_matmul_of_a_vector(shapes):
    a, b = ints(*shapes[0]), ints(*shapes[1], dtype="int8", seed=1)
    zero = np.uint8(128)
    operands = [a, f32(0.02), zero, b, f32(0.01), np.int8(0), f32(0.5), zero]
    model, values = node_model("QLinearMatMul", operands)
    product = (a.astype("float64") - 128) * 0.02 @ (b * 0.01)
    want = np.clip(np.round(product / 0.5) + 128, 0, 255).astype("uint8")
    check_steps(results(model, values)[0], want, most=0.1)


GEMMS = {
    "plain": {},
    "float-result": dict(is_float=True),
    "bias": dict(bias=(24,)),
    "bias-matrix": dict(bias=(7, 24), scales=24),
    "transposed": dict(bias=(24,), scales=24, transA=1, transB=1, alpha=0.5),
}


@pytest.mark.parametrize("name", GEMMS)
def test_qgemm(name):
    case = dict(GEMMS[name])
    shape, scales, is_float = case.pop("bias", None), case.pop("scales", 1), case.pop("is_float", 0)
    operands, _ = matmul_operands(scales=scales)
    operands[0] = operands[0].T.copy() if case.get("transA") else operands[0]
    operands[3] = operands[3].T.copy() if case.get("transB") else operands[3]
    bias = None if shape is None else ints(*shape, dtype="int32", low=-4000, high=4000, seed=3)
    operands.insert(6, bias)
    if not is_float:
        report = check_quantized("QGemm", operands, domain=CONTRIB, **case)
        assert not report.in_float32
        return
    model, values = node_model("QGemm", operands[:7], domain=CONTRIB)
    (want,) = onnxruntime_results(model, values)
    (got,) = results(model, values, {"dnnl.qnn.matmul": 1})
    # Sums of 32 products with a magnitude of up to 80.
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-4)


# Other ops with scales of their results.

# Ratios of these scales let no result lie in the middle of two steps.
ONE, X_ZERO, Y_ZERO = f32(0.03127), np.uint8(120), np.uint8(7)


def unary(scale, zero=Y_ZERO, x=None, x_zero=X_ZERO):
    return [ints(2, 3, 8, 10) if x is None else x, ONE, x_zero, f32(scale), zero]


S8 = dict(x=ints(2, 3, 8, 10, dtype="int8"), x_zero=np.int8(-9), zero=np.int8(5))
POOL = dict(kernel_shape=[3, 3])

UNARY = {
    "QLinearSigmoid": ("QLinearSigmoid", unary(1 / 256), {}),
    "QLinearSigmoid-s8": ("QLinearSigmoid", unary(1 / 200, **S8), {}),
    "QLinearSigmoid-no-zero-point": ("QLinearSigmoid", unary(1 / 256, None, x_zero=None), {}),
    "QLinearLeakyRelu": ("QLinearLeakyRelu", unary(0.025, np.uint8(20)), dict(alpha=0.1)),
    "QLinearLeakyRelu-s8": ("QLinearLeakyRelu", unary(0.025, **S8), {}),
    "QLinearAveragePool": ("QLinearAveragePool", unary(0.01973, np.uint8(125)), POOL),
    "QLinearAveragePool-padded": (
        "QLinearAveragePool",
        unary(0.01973, **S8),
        dict(POOL, pads=[1, 1, 0, 1], strides=[2, 1]),
    ),
    "QLinearAveragePool-counted": (
        "QLinearAveragePool",
        unary(0.01973, np.uint8(125)),
        dict(POOL, pads=[1, 1, 1, 1], count_include_pad=1),
    ),
    "QLinearAveragePool-same": (
        "QLinearAveragePool",
        unary(0.01973, np.uint8(125)),
        dict(POOL, auto_pad="SAME_UPPER", strides=[2, 2]),
    ),
    "QLinearAveragePool-ceil": (
        "QLinearAveragePool",
        unary(0.01973, np.uint8(125)),
        dict(POOL, ceil_mode=1, strides=[2, 2]),
    ),
    "QLinearGlobalAveragePool": ("QLinearGlobalAveragePool", unary(0.01173, np.uint8(125)), {}),
    "QLinearGlobalAveragePool-channels-last": (
        "QLinearGlobalAveragePool",
        unary(0.01173, np.uint8(125)),
        dict(channels_last=1),
    ),
    "QLinearSoftmax": ("QLinearSoftmax", unary(1 / 256, np.uint8(0)), dict(opset=13)),
    "QLinearSoftmax-axis": (
        "QLinearSoftmax",
        unary(1 / 256, np.uint8(0)),
        dict(opset=13, axis=1),
    ),
    "QLinearSoftmax-12": (
        "QLinearSoftmax",
        unary(1 / 2000, np.uint8(0)),
        dict(opset=12, axis=2),
    ),
}


@pytest.mark.parametrize("name", UNARY)
def test_unary(name):
    op, operands, attrs = UNARY[name]
    # onnxruntime adds up the exponentials of a softmax as integers.
    most = 0.05 if op == "QLinearSoftmax" else 0.02
    check_quantized(op, operands, most=most, domain=CONTRIB, **attrs)


@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize("other", [(2, 3, 8, 10), (3, 1, 1), ()], ids=["same", "channels", "one"])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_binary(op, other, dtype):
    a_zero, b_zero, c_zero = (np.array(value, dtype) for value in (120, 7, 100))
    a, b = ints(2, 3, 8, 10, dtype=dtype), ints(*other, dtype=dtype, seed=1)
    operands = [a, ONE, a_zero, b, f32(0.01973), b_zero, f32(0.06113), c_zero]
    check_quantized(op, operands, inputs=(0, 3) if other else (0,), domain=CONTRIB)


def test_concat():
    parts = [ints(2, n, 5, seed=n) for n in (2, 3, 4)]
    scales, zeros = (0.01973, 0.02511, 0.03127), (120, 7, 125)
    operands = [ONE, np.uint8(125)]
    for part, scale, zero in zip(parts, scales, zeros):
        operands += [part, f32(scale), np.uint8(zero)]
    check_quantized("QLinearConcat", operands, inputs=(2, 5, 8), domain=CONTRIB, axis=1)


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
        operands = [ints(2, 7, 32), b, ONE, b_scale, X_ZERO, b_zero, bias]
    for absent in ((), (len(operands) - 1,), (len(operands) - 1, len(operands) - 2)):
        case = [None if k in absent else value for k, value in enumerate(operands)]
        model, values = node_model(op, case, domain=CONTRIB)
        (want,) = onnxruntime_results(model, values)
        partitioned = partitioned_model(model)
        is_int8 = any("qnn.matmul" in name for name in composites(partitioned))
        assert is_int8 or (scales > 1 and b_dtype == "uint8" and len(absent) == 2)
        (got,) = run(compiled(partitioned), *values)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5 * np.abs(want).max())


def packed(values, bits):
    """Pack values of one row each, the first in the lowest bits."""
    per_byte = 8 // bits
    missing = -values.shape[-1] % per_byte
    values = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, missing)])
    values = values.reshape(*values.shape[:-1], -1, per_byte)
    shifts = np.arange(0, 8, bits, dtype="uint8")
    return np.bitwise_or.reduce(values << shifts, axis=-1).astype("uint8")


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zero", ["default", "packed", "float"])
@pytest.mark.parametrize("columns, block", [(80, 16), (50, 64)])
def test_matmul_n_bits(bits, zero, columns, block):
    """The result of a matmul by the dequantized weight, and of onnxruntime where it has the op."""
    rows, blocks = 24, -(-columns // block)
    weight = ints(rows, blocks, block, high=2**bits - 1)
    scales = real(rows, blocks, low=0.01, high=0.02, seed=1)
    zeros = ints(rows, blocks, high=2**bits - 1, seed=2)
    points = {
        "default": None,
        "packed": packed(zeros, bits),
        "float": zeros.astype("float32") + np.float32(0.25),
    }[zero]
    used = {"default": np.float32(2 ** (bits - 1)), "packed": zeros, "float": points}[zero]
    used = used if zero == "default" else used[:, :, None]
    dense = (weight - used.astype("float32")) * scales[:, :, None]
    dense = dense.reshape(rows, -1)[:, :columns]
    x, bias = real(2, 5, columns, seed=3), real(rows, seed=4)
    operands = [x, packed(weight, bits), scales, points, None, bias]
    attrs = dict(K=columns, N=rows, bits=bits, block_size=block)
    model, values = node_model("MatMulNBits", operands, domain=CONTRIB, **attrs)
    wants = [x @ dense.T + bias]
    if bits == 4 or (bits == 8 and zero != "float"):
        wants += onnxruntime_results(model, values)
    (got,) = results(model, values, {"dnnl.dense_bias": 1})
    for want in wants:
        # Sums of up to 80 products of float32 in another order.
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5 * np.abs(want).max())


# What is refused, by name.


def refused(model):
    with pytest.raises(tvm.error.OpNotImplemented) as error:
        tvm_dnnl.from_onnx(model)
    return str(error.value)


def test_refused():
    operands, _ = conv_operands()
    model, _ = node_model("QLinearConv", operands, domain=CONTRIB, channels_last=1)
    assert "QLinearConv node: channels_last=1 is not supported" in refused(model)
    operands, _ = matmul_operands()
    operands[1] = real(7)
    operands[0] = ints(32)
    model, _ = node_model("QLinearMatMul", operands)
    assert "QLinearMatMul node: a has more than one scale" in refused(model)
    model, _ = node_model("QLinearAdd", [ints(3, dtype="uint16"), ONE, None] * 2 + [ONE])
    assert "QLinearAdd node: A of type uint16; int8 and uint8 are supported" in refused(model)
    weight = [ints(4, 1, 8), real(4, 1), None]
    attrs = dict(domain=CONTRIB, K=16, N=4, block_size=16)
    model, _ = node_model("MatMulNBits", [real(2, 16), *weight, ints(16)], **attrs)
    assert "MatMulNBits node: g_idx is not supported" in refused(model)
    model, _ = node_model("MatMulNBits", [real(2, 16), *weight], bits=3, **attrs)
    assert "MatMulNBits node: bits=3; 2, 4 and 8 are supported" in refused(model)
    model, _ = node_model("MatMulNBits", [real(2, 16), *weight], inputs=(0, 1), bits=4, **attrs)
    assert "MatMulNBits node: B is not constant" in refused(model)


def test_float8_is_refused():
    """Neither onnxruntime's CPU provider nor int8 kernels compute it."""
    operands, _ = matmul_operands()
    model, _ = node_model("QLinearMatMul", operands)
    kind = TensorProto.FLOAT8E4M3FN
    model.graph.input[0].type.tensor_type.elem_type = kind
    text = refused(model)
    assert "QLinearMatMul node: a of type float8_e4m3fn; int8 and uint8 are supported" in text


# ONNX's own tests of these ops.

NODE_TESTS = os.path.join(os.path.dirname(onnx.__file__), "backend", "test", "data", "node")
OPS = ("qlinear", "convinteger", "matmulinteger", "dynamicquantize")
NAMES = sorted(
    os.path.basename(path)[len("test_") :]
    for op in OPS
    for path in glob.glob(os.path.join(NODE_TESTS, f"test_{op}*"))
)


def saturated(values):
    """Return what a QLinearMatMul of one scale and zero point each computes."""
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = values
    a, b = (x.astype("float64") - zero for x, zero in ((a, a_zero), (b, b_zero)))
    product = (a @ b) * a_scale * b_scale / y_scale
    limits = np.iinfo(y_zero.dtype)
    return np.clip(np.round(product) + y_zero, limits.min, limits.max).astype(y_zero.dtype)


@pytest.mark.parametrize("name", NAMES)
def test_node(name):
    folder = os.path.join(NODE_TESTS, f"test_{name}")
    model = onnx.load(os.path.join(folder, "model.onnx"))

    def tensors(kind, infos):
        for k in range(len(infos)):
            with open(os.path.join(folder, "test_data_set_0", f"{kind}_{k}.pb"), "rb") as file:
                yield numpy_helper.to_array(TensorProto.FromString(file.read()))

    values = list(tensors("input", model.graph.input))
    wanted = list(tensors("output", model.graph.output))
    if name.startswith("qlinearmatmul") and "int8" in name and "uint8" not in name:
        # Here these tests expect results that wrap around. Those of onnxruntime and of ONNX's
        # specification saturate.
        wanted = [saturated(values)]
    mod = tvm_dnnl.from_onnx(model)
    for each in (mod, compiled(tvm_dnnl.partition_for_dnnl(mod, prune=False))):
        for got, want in zip(run(each, *values), wanted):
            assert got.shape == want.shape and got.dtype == want.dtype
            # An element of test_dynamicquantizelinear lies in the middle of two steps.
            steps = want.dtype in ("int8", "uint8") and name == "dynamicquantizelinear"
            np.testing.assert_allclose(got.astype("float64"), want, rtol=1e-6, atol=steps)
