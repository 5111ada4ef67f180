# SPDX-License-Identifier: Apache-2.0
"""QLinear ops of ONNX and com.microsoft, and MatMulNBits, against onnxruntime."""

import numpy as np
import pytest
import tvm
import tvm_dnnl
from onnx import TensorProto

from dnnl_relax.modules import compiled, run
from dnnl_relax.onnx.quantized_nodes import (
    CONTRIB,
    check_steps,
    f32,
    ints,
    node_model,
    onnxruntime_results,
    partitioned_model,
    real,
    results,
)


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
    data, weight = (
        ints(2, 4, *size, dtype=x),
        ints(8, 4 // attrs.get("group", 1), *kernel, dtype=w, seed=1),
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


def open_sizes(model):
    """Let the sizes of the input of a model be open."""
    for name, dim in zip("nchw", model.graph.input[0].type.tensor_type.shape.dim):
        if name != "c":
            dim.dim_param = name
    return model


@pytest.mark.parametrize("mode", ["NOTSET", "SAME_UPPER", "SAME_LOWER"])
def test_qlinear_conv_of_open_sizes(mode):
    operands, attrs = conv_operands(scales=8, bias=True, auto_pad=mode, kernel=(3, 2))
    model, values = node_model("QLinearConv", operands, **attrs)
    (want,) = onnxruntime_results(model, values)
    (got,) = results(open_sizes(model), values, {"dnnl.qnn.conv2d_bias_quantize": 1})
    check_steps(got, want)


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
    """The kernel of onnxruntime has one scale of a, and none in float16."""
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
    "QLinearSoftmax": ("QLinearSoftmax", unary(1 / 256, np.uint8(0)), dict(others=dict(opset=13))),
    "QLinearSoftmax-axis": (
        "QLinearSoftmax",
        unary(1 / 256, np.uint8(0)),
        dict(others=dict(opset=13), axis=1),
    ),
    "QLinearSoftmax-12": (
        "QLinearSoftmax",
        unary(1 / 2000, np.uint8(0)),
        dict(others=dict(opset=12), axis=2),
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


# Weights in blocks.


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
    # Weights of 4 and 8 bits in large blocks stay packed.
    is_packed = bits > 2 and block == 64 and zero != "float"
    kinds = {"dnnl.block_quantized_dense": 1, "dnnl.add": 1}
    (got,) = results(model, values, kinds if is_packed else {"dnnl.dense_bias": 1})
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


def test_auto_pad_of_open_sizes_is_refused():
    operands, attrs = conv_operands(auto_pad="SAME_UPPER", strides=[2, 2])
    model, _ = node_model("QLinearConv", operands, **attrs)
    text = refused(open_sizes(model))
    assert "QLinearConv node: auto_pad=SAME_UPPER with an open size" in text


def test_float8_is_refused():
    """Neither onnxruntime's CPU provider nor int8 kernels compute it."""
    operands, _ = matmul_operands()
    model, _ = node_model("QLinearMatMul", operands)
    kind = TensorProto.FLOAT8E4M3FN
    model.graph.input[0].type.tensor_type.elem_type = kind
    text = refused(model)
    assert "node node: i0 is a tensor of the type FLOAT8E4M3FN, which TVM does not support" in text
