# SPDX-License-Identifier: Apache-2.0
"""Matmuls of float32 by weights of 8 or 4 bits: dynamically quantized data, packed weights."""

import logging
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
import tvm
import tvm_dnnl
from dnnl_tests.onnx_models import onnx_model
from onnx import numpy_helper
from onnxruntime import quantization
from tvm.contrib.onednn.ops.evaluate import define
from tvm_dnnl.frontend._dnnl.onnx.block_quantized import unpack

from dnnl_relax.modules import compiled, composites, partitions, run
from dnnl_relax.onnx.quantized_nodes import (
    CONTRIB,
    f32,
    has_vnni,
    ints,
    node_model,
    onnxruntime_results,
    real,
)

DYNAMIC, BLOCKS = "dnnl.dynamic_quantized_dense", "dnnl.block_quantized_dense"


def layers(columns=96, hidden=64):
    """Return a matmul with a bias and a Relu, and two matmuls that read its result."""
    weights = {
        "w1": real(columns, hidden, seed=1),
        "b1": real(hidden, seed=2),
        "w2": real(hidden, 24, seed=3),
        "w3": real(hidden, 40, seed=4),
    }
    nodes = ["m1 = MatMul(x, w1)", "a1 = Add(m1, b1)", "r1 = Relu(a1)"]
    nodes += ["y2 = MatMul(r1, w2)", "y3 = MatMul(r1, w3)"]
    return onnx_model(nodes, {"x": ["batch", "rows", columns]}, weights, ["y2", "y3"])


def quantized(model, folder, **options):
    paths = [str(folder / name) for name in ("float.onnx", "quantized.onnx")]
    onnx.save(model, paths[0])
    logging.disable(logging.WARNING)
    try:
        quantization.quantize_dynamic(*paths, **options)
    finally:
        logging.disable(logging.NOTSET)
    return onnx.load(paths[1])


def machine_of(model, wanted, **options):
    """Return the compiled module of a model: one partition with these composites."""
    partitioned = tvm_dnnl.partition_for_dnnl(tvm_dnnl.from_onnx(model), **options)
    assert composites(partitioned) == wanted
    assert partitions(partitioned) == 1
    return compiled(partitioned)


WEIGHTS = {
    "int8-per-channel": dict(weight_type=quantization.QuantType.QInt8, per_channel=True),
    "int8": dict(weight_type=quantization.QuantType.QInt8),
    "uint8": dict(weight_type=quantization.QuantType.QUInt8),
}


@pytest.mark.parametrize("case", WEIGHTS)
def test_quantize_dynamic(case, tmp_path):
    """A model of onnxruntime's dynamic quantizer is one partition, for any number of rows."""
    model = quantized(layers(), tmp_path, **WEIGHTS[case])
    ops = [node.op_type for node in model.graph.node]
    assert (ops.count("DynamicQuantizeLinear"), ops.count("MatMulInteger")) == (2, 3)
    machine = machine_of(model, {f"{DYNAMIC}_bias_relu": 1, DYNAMIC: 2})
    for batch, rows in ((1, 1), (2, 3), (1, 70)):
        x = real(batch, rows, 96, seed=rows)
        got = run(machine, x)
        for one, want in zip(got, onnxruntime_results(model, [x]), strict=True):
            # The same integers, but where float32 rounds a value to the next step.
            step = np.abs(want).max() / 127
            assert np.abs(one - want).max() <= step
            assert (np.abs(one - want) <= 1e-5 * np.abs(want).max()).mean() > 0.9


def test_zeros_and_one_sign():
    """A range contains zero; a tensor of zeros has a scale of 1, as in onnxruntime."""
    operands = [real(4, 32), ints(32, 8, dtype="int8"), f32(0.5)]
    model, _ = node_model("DynamicQuantizeMatMul", operands, domain=CONTRIB)
    machine = machine_of(model, {DYNAMIC: 1})
    for low, high in ((0, 0), (1, 2), (-2, -1)):
        x = real(4, 32, low=low, high=high)
        (want,) = onnxruntime_results(model, [x])
        np.testing.assert_allclose(run(machine, x)[0], want, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("zero", [None, 3, "per-channel"])
@pytest.mark.parametrize("has_bias", [False, True])
def test_dynamic_quantize_matmul(zero, has_bias):
    """com.microsoft's op of one node, whose weight has zero points."""
    scale = real(8, low=0.01, high=0.02) if zero == "per-channel" else f32(0.02)
    points = ints(8, dtype="int8", low=-9, high=9) if zero == "per-channel" else zero
    points = np.asarray(points, "int8") if zero is not None else None
    bias = real(8, seed=3) if has_bias else None
    weight = ints(32, 8, dtype="int8", low=-100, high=100)
    operands = [real(5, 32), weight, scale, points, bias]
    model, values = node_model("DynamicQuantizeMatMul", operands, domain=CONTRIB)
    machine = machine_of(model, {f"{DYNAMIC}_bias" if has_bias else DYNAMIC: 1})
    (want,) = onnxruntime_results(model, values)
    np.testing.assert_allclose(run(machine, *values)[0], want, rtol=1e-5, atol=1e-5)


def test_computed_weight_stays_several_ops():
    operands = [real(5, 32), ints(32, 8, dtype="int8"), f32(0.02), None, None]
    model, values = node_model("DynamicQuantizeMatMul", operands, inputs=(0, 1), domain=CONTRIB)
    partitioned = tvm_dnnl.partition_for_dnnl(tvm_dnnl.from_onnx(model))
    assert DYNAMIC not in composites(partitioned)
    (want,) = onnxruntime_results(model, values)
    got = run(compiled(partitioned), *values)[0]
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-4)


def packed_model(bits, block, columns=160, units=48, has_zeros=True, level=0):
    """Return a model of a MatMulNBits with open rows, and its weight in float64.

    `level` is the attribute `accuracy_level`.
    """
    blocks = -(-columns // block)
    values = ints(units, blocks, block, high=2**bits - 1)
    zeros = ints(units, blocks, high=2**bits - 1, seed=2)
    scales = real(units, blocks, low=0.01, high=0.02, seed=1)

    def pack(array):
        per_byte = 8 // bits
        array = np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, -array.shape[-1] % per_byte)])
        pairs = array.reshape(*array.shape[:-1], -1, per_byte)
        shifts = np.arange(0, 8, bits, dtype="uint8")
        return np.bitwise_or.reduce(pairs << shifts, axis=-1).astype("uint8")

    weights = {"w": pack(values), "s": scales.reshape(-1)}
    weights.update({"z": pack(zeros).reshape(-1)} if has_zeros else {})
    attrs = f"K = {columns}, N = {units}, bits = {bits}, block_size = {block}"
    attrs += f", accuracy_level = {level}" if level else ""
    node = f"y = {CONTRIB}.MatMulNBits <{attrs}> ({', '.join(['x', *weights])})"
    used = zeros[..., None] if has_zeros else 2 ** (bits - 1)
    weight = (values - np.float64(1) * used) * scales[..., None]
    model = onnx_model([node], {"x": ["batch", "rows", columns]}, weights)
    return model, weight.reshape(units, -1)[:, :columns]


@pytest.mark.parametrize("has_zeros", [False, True], ids=["middle", "zero-points"])
@pytest.mark.parametrize("bits, block", [(4, 32), (4, 128), (8, 64)])
def test_packed_weights(bits, block, has_zeros):
    """Few rows read the packed weight once; many are multiplied by dequantized panels of it."""
    model, weight = packed_model(bits, block, has_zeros=has_zeros)
    machine = machine_of(model, {BLOCKS: 1})
    for batch, rows in ((1, 1), (3, 1), (1, 4), (5, 7)):
        x = real(batch, rows, 160, seed=rows)
        want = x @ weight.T
        got = run(machine, x)[0]
        # Sums of 160 products in float32, of values that are up to twice those of the result.
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5 * np.abs(want).max())
        if bits == 4:
            (other,) = onnxruntime_results(model, [x])
            np.testing.assert_allclose(got, other, rtol=1e-5, atol=1e-5 * np.abs(want).max())


def defined(model, bits, block, level, x):
    """Return the result of a model of `packed_model` by the numpy definition of the op."""
    values = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    units, blocks = values["w"].shape[:2]
    operands = [values["w"].reshape(units, -1), values["s"].reshape(units, blocks)]
    if "z" in values:
        operands.append(unpack(values["z"].reshape(units, -1), bits)[:, :blocks])
    attrs = SimpleNamespace(bits=bits, block_size=block, accuracy_level=level)
    return define(BLOCKS)(attrs, None, x, *operands)


@pytest.mark.parametrize("has_zeros", [False, True], ids=["middle", "zero-points"])
@pytest.mark.parametrize("bits, block", [(4, 32), (4, 64), (4, 128), (8, 32), (8, 128)])
def test_data_in_int8(bits, block, has_zeros):
    """`accuracy_level` 4 permits to quantize data to int8, with a scale for each block of a row."""
    model, weight = packed_model(bits, block, has_zeros=has_zeros, level=4)
    machine = machine_of(model, {BLOCKS: 1})
    is_int8 = has_vnni()
    for batch, rows in ((1, 1), (1, 3), (5, 7)):
        x = real(batch, rows, 160, seed=rows)
        got = run(machine, x)[0]
        want = defined(model, bits, block, 4 if is_int8 else 0, x)
        # The integers are the same: the sums of their products are in float32.
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5 * np.abs(want).max())
        (other,) = onnxruntime_results(model, [x])
        # An element of the data is off by half a step, in either runtime.
        padded = np.pad(np.abs(x), ((0, 0), (0, 0), (0, -160 % block)))
        steps = padded.reshape(batch, rows, -1, block).max(-1) / 127
        bound = np.repeat(steps, block, axis=-1)[..., :160] @ np.abs(weight).T / 2
        exact = x @ weight.T
        for each in (got, other):
            assert (np.abs(each - exact) <= 1.01 * bound).all()
        if is_int8:
            assert np.abs(got - exact).mean() <= 1.2 * np.abs(other - exact).mean()


def test_rows_that_are_not_finite_in_int8():
    """They do not look healthy, and other rows are as without them."""
    machine = machine_of(packed_model(4, 32, level=4)[0], {BLOCKS: 1})
    for value in (np.nan, np.inf, -np.inf):
        x = real(1, 6, 160)
        want = run(machine, x)[0]
        x[0, 2, 70] = value
        got = run(machine, x)[0]
        assert not np.isfinite(got[0, 2]).any()
        np.testing.assert_array_equal(np.delete(got, 2, 1), np.delete(want, 2, 1))


def test_accuracy_level_is_checked():
    model, _ = packed_model(4, 32, level=5)
    with pytest.raises(tvm.error.OpNotImplemented, match="accuracy_level=5; 0 to 4 are supported"):
        tvm_dnnl.from_onnx(model)


@pytest.mark.parametrize("bits, level", [(4, 0), (8, 0), (4, 4)])
def test_packed_weights_on_tvm(bits, level):
    """What is excluded is computed by TVM in float32, of the same packed weight."""
    model, weight = packed_model(bits, 32, level=level)
    mod = tvm_dnnl.from_onnx(model)
    partitioned = tvm_dnnl.partition_for_dnnl(mod, exclude=[BLOCKS])
    assert partitions(partitioned) == 0
    x = real(2, 3, 160)
    want = x @ weight.T
    (got,) = run(partitioned, x)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5 * np.abs(want).max())


def test_packed_weights_stay_packed(tmp_path):
    """The library has the size of the packed weight."""
    model, weight = packed_model(4, 32, columns=1024, units=512, has_zeros=False)
    machine = machine_of(model, {BLOCKS: 1})
    path = tmp_path / "model.so"
    tvm.compile(machine, target="llvm").export_library(str(path))
    packed = weight.size // 2 + weight.size // 32 * 4
    assert packed < path.stat().st_size < packed + 200_000
