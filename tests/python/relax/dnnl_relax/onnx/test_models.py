# SPDX-License-Identifier: Apache-2.0
"""ONNX models through Relax's importer: one partition each, and what onnxruntime computes."""

import numpy as np
import onnx
import onnxruntime
import pytest
import tvm
import tvm_dnnl
from dnnl_tests.onnx_models import Graph
from onnxruntime import quantization
from tvm.contrib.onednn import cpu
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn import op
from tvm.relax.frontend.onnx import from_onnx

from dnnl_relax.modules import compiled, composites, partitions, rand, virtual_machine


def empty_model():
    """Return an empty model."""
    return Graph("model", None, opset=17)


def conv_block(model, x, channels, **attrs):
    """A convolution, a batch_norm and a clip, as MobileNet has them."""
    depth = channels // attrs.get("group", 1)
    x = model.op("Conv", x, rand(channels, depth, 3, 3, seed=1), pads=[1] * 4, **attrs)
    statistics = [rand(channels, seed=seed) for seed in (2, 3, 4)]
    x = model.op("BatchNormalization", x, *statistics, rand(channels, seed=5) ** 2 + 0.5)
    return model.op("Clip", x, np.float32(0), np.float32(6))


def mobile(batch):
    """Two convolutions with a residual, a pool and a product with a matrix."""
    model = empty_model()
    first = conv_block(model, "x", 8)
    second = conv_block(model, first, 8, group=8)
    x = model.op("Add", first, second)
    x = model.op("Flatten", model.op("GlobalAveragePool", x))
    x = model.op("Gemm", x, rand(10, 8), rand(10, seed=1), transB=1)
    return model.done([batch, 8, 12, 12], x), [
        "dnnl.conv2d_bias_clip",
        "dnnl.conv2d_bias_clip_sum",
        "dnnl.dense_bias",
    ]


def residual(batch):
    """Two blocks of a pre-activated ResNet; the second skips spatial positions."""
    model, channels = empty_model(), 8

    def conv(x, kernel, stride=1, seed=0):
        weight = rand(channels, channels, kernel, kernel, seed=seed)
        attrs = {"pads": [kernel // 2] * 4, "strides": [stride] * 2}
        return model.op("Conv", x, weight, **attrs)

    def activated(x):
        values = [rand(channels, seed=seed) for seed in (2, 3, 4)]
        variance = rand(channels, seed=5) ** 2 + 0.5
        return model.op("Relu", model.op("BatchNormalization", x, *values, variance))

    def block(x, shortcut, y, stride):
        y = activated(conv(activated(conv(y, 1)), 3, stride))
        return model.op("Add", conv(y, 1, seed=1), shortcut)

    x = conv("x", 3)
    x = block(x, x, activated(x), 1)
    y = activated(x)
    x = activated(block(x, conv(y, 1, 2, seed=6), y, 2))
    return model.done([batch, channels, 12, 12], model.op("GlobalAveragePool", x)), [
        "dnnl.conv2d_bias_relu",
        "dnnl.conv2d_sum_multiply_add_relu",
        "dnnl.multiply_add_relu",
    ]


def attention(length):
    """A layer of a BERT: attention of two heads, its residual, and a gelu written out."""
    model, size = empty_model(), 16

    def linear(x, out, seed):
        return model.op("Add", model.op("MatMul", x, rand(size, out, seed=seed)), rand(out))

    def heads(x):
        x = model.op("Reshape", x, np.array([0, 0, 2, size // 2], "int64"))
        return model.op("Transpose", x, perm=[0, 2, 1, 3])

    query, key, value = (heads(linear("x", size, seed)) for seed in range(3))
    scores = model.op("MatMul", query, model.op("Transpose", key, perm=[0, 1, 3, 2]))
    scores = model.op("Softmax", model.op("Div", scores, np.float32(8**0.5)), axis=-1)
    x = model.op("Transpose", model.op("MatMul", scores, value), perm=[0, 2, 1, 3])
    x = model.op("Reshape", x, np.array([0, 0, size], "int64"))
    x = model.op("Add", linear(x, size, 4), "x")
    x = model.op("LayerNormalization", x, rand(size), rand(size, seed=1), axis=-1)
    x = linear(x, 24, 5)
    gate = model.op("Add", model.op("Erf", model.op("Div", x, np.float32(2**0.5))), np.float32(1))
    x = model.op("Mul", model.op("Mul", x, gate), np.float32(0.5))
    return model.done([1, length, size], x), [
        "dnnl.attention",
        "dnnl.layer_norm",
        "dnnl.dense_bias_gelu_erf",
        "dnnl.dense_bias_sum",
    ]


def machine_of(model, wanted, precision="float32"):
    mod = from_onnx(model, keep_params_in_input=False)
    partitioned = tvm_dnnl.partition_for_dnnl(mod, prune=False, precision=precision)
    assert partitions(partitioned) == 1
    assert set(wanted) <= set(composites(partitioned)), composites(partitioned)
    return virtual_machine(compiled(partitioned))


def outputs(machine, model, x):
    """Return what the plug-in and what onnxruntime compute."""
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    result = machine["main"](tvm.runtime.tensor(x))
    result = result if isinstance(result, tvm.runtime.Tensor) else result[0]
    return result.numpy(), session.run(None, {"x": x})[0]


@pytest.mark.parametrize("build, open_axis", [(mobile, 0), (residual, 0), (attention, 1)])
@pytest.mark.parametrize("is_open", [False, True], ids=["static", "open"])
def test_float32(build, open_axis, is_open):
    model, wanted = build("n" if is_open else 3)
    machine = machine_of(model, wanted)
    dims = model.graph.input[0].type.tensor_type.shape.dim
    for size in (1, 2, 5) if is_open else (3,):
        shape = [dim.dim_value for dim in dims]
        shape[open_axis] = size
        ours, theirs = outputs(machine, model, rand(*shape))
        # Sums of at most 72 products in another order.
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(not cpu.computes("bfloat16"), reason="this CPU has no bfloat16")
@pytest.mark.parametrize("build, open_axis", [(mobile, 0), (residual, 0), (attention, 1)])
def test_bfloat16_with_open_sizes(build, open_axis):
    """As with known sizes, bit by bit."""
    model, wanted = build("n")
    machine = machine_of(model, wanted, "bfloat16")
    dims = model.graph.input[0].type.tensor_type.shape.dim
    for size in (1, 2, 5, 1):
        shape = [dim.dim_value for dim in dims]
        shape[open_axis] = size
        ours, theirs = outputs(machine, model, rand(*shape))
        # Of 8 bits, through a dozen layers.
        assert np.linalg.norm(ours - theirs) < 3e-2 * np.linalg.norm(theirs)
        known = machine_of(*build(size), "bfloat16")
        static = outputs(known, model, rand(*shape))[0]
        np.testing.assert_array_equal(ours, static)


def test_batch_norms_that_are_left():
    """Those after a convolution are in its weight, that after a residual is fused to the sum."""
    model, _ = residual(3)
    mod = from_onnx(model, keep_params_in_input=False)
    assert composites(tvm_dnnl.partition_for_dnnl(mod)) == {
        "dnnl.conv2d": 2,
        "dnnl.multiply_add_relu": 1,
        "dnnl.conv2d_bias_relu": 4,
        "dnnl.conv2d_sum_multiply_add_relu": 2,
        "dnnl.global_avg_pool2d": 1,
    }


@pytest.mark.parametrize("batch, size", [(1, 7), ("n", "h")], ids=["static", "open"])
def test_int8(batch, size):
    """A QDQ model: convolutions in 8 bits, of weights with a scale for each channel."""
    model, bits = empty_model(), np.random.default_rng(0)

    def quantized(x, scale, zero_point=128):
        scale, zero = np.float32(scale), np.uint8(zero_point)
        x = model.op("QuantizeLinear", x, scale, zero)
        return model.op("DequantizeLinear", x, scale, zero)

    def conv(x, scale):
        weight = bits.integers(-60, 60, (16, 16, 1, 1)).astype("int8")
        scales = (rand(16) ** 2 + 0.1).astype("float32") / 60
        weight = model.op("DequantizeLinear", weight, scales, np.zeros(16, "int8"), axis=0)
        bias = bits.integers(-900, 900, 16).astype("int32")
        bias = model.op(
            "DequantizeLinear", bias, scales * np.float32(scale), np.zeros(16, "int32"), axis=0
        )
        return model.op("Conv", x, weight, bias)

    x = quantized("x", 0.01)
    y = quantized(model.op("Relu", conv(x, 0.01)), 0.02, 0)
    # 49 positions: where a reorder of oneDNN 3.2 would leave the zero point out.
    width = size if size == 7 else "w"
    model = model.done([batch, 16, size, width], quantized(conv(y, 0.02), 0.03, 120))
    machine = machine_of(
        model, ["dnnl.qnn.conv2d_bias_relu_quantize", "dnnl.qnn.conv2d_bias_quantize"]
    )
    for shape in [(1, 16, 7, 7)] if batch == 1 else [(1, 16, 7, 7), (3, 16, 5, 8), (1, 16, 1, 1)]:
        ours, theirs = outputs(machine, model, rand(*shape))
        # Sums next to the middle between two steps may be rounded to either.
        assert np.abs(ours - theirs).max() <= 0.03 * 1.001
        assert np.mean(ours != theirs) < 0.01


class Samples(quantization.CalibrationDataReader):
    """Inputs that tell the ranges of activations."""

    def __init__(self, *shape):
        self._left = iter([{"x": rand(*shape, seed=seed)} for seed in range(4)])

    def get_next(self):
        return next(self._left, None)


@pytest.mark.parametrize("per_channel", [False, True], ids=["tensor", "channels"])
def test_weights_that_the_model_quantizes(tmp_path, per_channel):
    """With floating-point values before QuantizeLinear they become the same integers, once."""
    model, shape = empty_model(), (2, 8, 7, 7)
    x = model.op("Relu", model.op("Conv", "x", rand(16, 8, 3, 3), rand(16), pads=[1] * 4))
    x = model.op("Reshape", model.op("Conv", x, rand(8, 16, 1, 1)), np.array([16, 49]))
    source = str(tmp_path / "float.onnx")
    onnx.save(model.done(shape, model.op("MatMul", x, rand(49, 24))), source)
    results, counts = [], []
    for is_real in (False, True):
        target = str(tmp_path / "int8.onnx")
        quantization.quantize_static(
            source,
            target,
            Samples(*shape),
            op_types_to_quantize=["Conv", "MatMul"],
            per_channel=per_channel,
            extra_options={"AddQDQPairToWeight": is_real},
        )
        mod = from_onnx(onnx.load(target), keep_params_in_input=False)
        partitioned = tvm_dnnl.partition_for_dnnl(mod, prune=False)
        report = tvm_dnnl.offload_report(partitioned)
        counts.append((report.composites, report.in_8_bits, report.ops))
        assert report.in_8_bits.total() == 3 and report.partitions == 1
        machine = virtual_machine(compiled(partitioned))
        results.append(outputs(machine, onnx.load(target), rand(*shape, seed=9))[0])
    assert counts[0] == counts[1]
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize(
    "op_type, wanted",
    [
        ("GlobalAveragePool", "dnnl.qnn.global_avg_pool2d_quantize"),
        ("GlobalMaxPool", "dnnl.global_max_pool2d"),
    ],
)
def test_global_pool_in_8_bits(op_type, wanted):
    """ONNX's reduces both axes in Relax; of 8 bits that would be computed in float32."""
    model, x, scale, zero = empty_model(), "x", np.float32(0.01), np.uint8(128)
    for pool in (False, True):
        x = model.op(op_type, x) if pool else x
        x = model.op("QuantizeLinear", x, scale, zero)
        x = model.op("DequantizeLinear", x, scale, zero)
    model = model.done([2, 16, 7, 7], x)
    machine = machine_of(model, [wanted])
    ours, theirs = outputs(machine, model, rand(2, 16, 7, 7))
    # A mean next to the middle between two steps may be rounded to either.
    assert np.abs(ours - theirs).max() <= 0.01 * 1.001 * (op_type == "GlobalAveragePool")


class Layer(nn.Module):
    """A layer of a transformer, with an rms_norm before the attention."""

    def __init__(self, size, heads):
        self.heads, self.depth = heads, size // heads
        self.norms = nn.ModuleList([nn.RMSNorm(size, -1, bias=False), nn.LayerNorm(size)])
        self.qkv, self.out = nn.Linear(size, 3 * size, bias=False), nn.Linear(size, size)
        self.up, self.down = nn.Linear(size, 4 * size), nn.Linear(4 * size, size)

    def forward(self, x: nn.Tensor):
        batch, length, size = x.shape
        parts = op.split(self.qkv(self.norms[0](x)), 3, axis=-1)
        heads = [op.reshape(part, (batch, length, self.heads, self.depth)) for part in parts]
        y = op.reshape(op.scaled_dot_product_attention(*heads), (batch, length, size))
        x = x + self.out(y)
        return x + self.down(op.gelu(self.up(self.norms[1](x))))


class Transformer(nn.Module):
    """An embedding, two layers and a head."""

    def __init__(self):
        self.embedding, self.head = nn.Embedding(50, 32), nn.Linear(32, 50)
        self.layers = nn.ModuleList([Layer(32, 4) for _ in range(2)])

    def forward(self, ids: nn.Tensor):
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


@pytest.mark.parametrize("length", [16, "n"], ids=["static", "open"])
@pytest.mark.parametrize("are_constants", [True, False], ids=["constants", "arguments"])
def test_a_module_that_is_exported(length, are_constants):
    """Of `relax.frontend.nn`; TVM reshapes the indices of the embedding."""
    mod, named = Transformer().export_tvm(
        {"forward": {"ids": nn.spec.Tensor([1, length], "int32")}}
    )
    values = {name: 0.2 * rand(*each.shape, seed=seed) for seed, (name, each) in enumerate(named)}
    params = {name: tvm.runtime.tensor(value) for name, value in values.items()}
    partitioned = tvm_dnnl.partition_for_dnnl(mod, params if are_constants else None)
    report = tvm_dnnl.offload_report(partitioned)
    # Weights that are no constants are transposed when the model runs.
    assert (report.offloaded, report.total) == ((48, 49) if are_constants else (57, 58))
    counts = composites(partitioned)
    assert counts["dnnl.attention"] == counts["dnnl.rms_norm"] == counts["dnnl.layer_norm"] == 2
    assert counts["dnnl.dense_bias_gelu_erf"] == 2 and counts["dnnl.dense_bias_sum"] == 4
    assert partitions(partitioned) == 1
    machines = [virtual_machine(each) for each in (compiled(partitioned), mod)]
    for size in (16,) if length == 16 else (1, 5, 16, 5):
        ids = np.random.default_rng(size).integers(0, 50, (1, size)).astype("int32")
        ids = tvm.runtime.tensor(ids)
        ours = machines[0]["forward"](ids, *([] if are_constants else params.values())).numpy()
        alone = machines[1]["forward"](ids, *params.values()).numpy()
        assert ours.shape == (1, size, 50)
        # Sums of at most 128 products in another order, through two layers.
        np.testing.assert_allclose(ours, alone, rtol=1e-4, atol=1e-4)
