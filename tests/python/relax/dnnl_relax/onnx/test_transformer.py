# SPDX-License-Identifier: Apache-2.0
"""ONNX ops that onnxruntime's optimizer fuses in transformers: norms, activations, matmuls."""

import math

import numpy as np
import onnx
import pytest
import tvm
import tvm_dnnl
from tvm.relax.frontend.onnx import from_onnx

from dnnl_relax.onnx.nodes import check_node, node_model, normal

X, SKIP = normal(2, 5, 8), normal(2, 5, 8, seed=1)
GAMMA, BETA, BIAS = (normal(8, seed=seed) for seed in (2, 3, 4))


def skipped(x=X, skip=SKIP, beta=BETA, bias=BIAS):
    return {"x": x, "skip": skip, "gamma": GAMMA, "beta": beta, "bias": bias}


SKIPS = {
    "all": skipped(),
    "no-beta": skipped(beta=None),
    "no-bias": skipped(bias=None),
    "neither": skipped(beta=None, bias=None),
    "rank-2": skipped(X[0], SKIP[0]),
    "one-skip": skipped(skip=SKIP[:1]),
    "skip-of-rank-2": skipped(skip=SKIP[0]),
}
VECTORS = ("gamma", "beta", "bias")


@pytest.mark.parametrize("outputs", ["1", "1001"], ids=["plain", "sum"])
@pytest.mark.parametrize("op", ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"])
@pytest.mark.parametrize("case", SKIPS)
def test_skip_norms(case, op, outputs):
    operands = dict(SKIPS[case])
    kind = "layer_norm"
    if "Simplified" in op:
        del operands["beta"]
        kind = "rms_norm"
    attrs = dict(outputs=outputs, consts=VECTORS, epsilon=1e-3)
    counts = check_node(op, operands, parts=1, **attrs)
    assert counts[f"dnnl.{kind}"] == 1


@pytest.mark.parametrize("op", ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"])
def test_statistics_of_skip_norms(op):
    """Compared with numpy: onnxruntime computes them only for training."""
    operands = skipped()
    total = (X + SKIP + BIAS).astype("float64")
    mean = total.mean(-1, keepdims=True)
    centred = total - mean
    if "Simplified" in op:
        del operands["beta"]
        centred = total
    inverse = 1 / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-3)
    beta = 0 if "Simplified" in op else BETA
    expected = [centred * inverse * GAMMA + beta, mean, inverse, total]
    expected = [each.astype("float32") for each in expected]
    check_node(op, operands, expected, outputs=4, consts=VECTORS, epsilon=1e-3)


NORMS = {
    "last": (GAMMA, {}),
    "two": (normal(5, 8), dict(axis=1)),
    "two-from-the-end": (normal(5, 8), dict(axis=-2)),
    "all": (normal(2, 5, 8), dict(axis=0)),
}


@pytest.mark.parametrize("bias", [False, True], ids=["no-bias", "bias"])
@pytest.mark.parametrize("outputs", [1, 2, 3])
@pytest.mark.parametrize("case", NORMS)
def test_layer_norm(case, outputs, bias):
    gamma, attrs = NORMS[case]
    operands = {"x": X, "gamma": gamma, "beta": gamma[::-1].copy() if bias else None}
    attrs = dict(attrs, outputs=outputs, domain="", consts=VECTORS, epsilon=1e-3)
    check_node("LayerNormalization", operands, **attrs)


@pytest.mark.parametrize("axis", [1, -2])
@pytest.mark.parametrize("shape", [(4,), (1, 4), (4, 1)], ids=str)
def test_layer_norm_with_a_factor_that_broadcasts(shape, axis):
    """TVM's converter normalizes as many axes as the factor has."""
    x, gamma = normal(2, 4, 4), normal(*shape)
    mean, deviation = x.mean((1, 2), keepdims=True), np.sqrt(x.var((1, 2), keepdims=True) + 1e-5)
    operands = {"x": x, "gamma": gamma, "beta": None}
    expected = [(x - mean) / deviation * gamma]
    check_node("LayerNormalization", operands, expected, domain="", consts=VECTORS, axis=axis)


def test_open_dimensions_of_norms():
    dims = {"x": ["b", "s", 8], "skip": ["b", "s", 8]}
    for outputs in ("1", "1001"):
        attrs = dict(dims=dims, consts=VECTORS, outputs=outputs, parts=1)
        check_node("SkipLayerNormalization", skipped(), **attrs)
    operands = {"x": X, "gamma": GAMMA, "beta": BETA}
    check_node("LayerNormalization", operands, outputs=3, domain="", dims=dims, consts=VECTORS)


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("case", NORMS)
def test_simplified_layer_norm(case, outputs):
    gamma, attrs = NORMS[case]
    attrs = dict(attrs, outputs=outputs, domain="", consts=VECTORS, epsilon=1e-3)
    check_node("SimplifiedLayerNormalization", {"x": X, "gamma": gamma}, **attrs)


def integers(*shape, high=6, seed=0, dtype="int32"):
    return np.random.default_rng(seed).integers(0, high, shape).astype(dtype)


def embedded(**others):
    tables = {name: normal(7, 8, seed=k) for k, name in enumerate(("words", "places", "kinds"))}
    parts = {"ids": integers(2, 5), "segments": integers(2, 5, high=7, seed=1), **tables}
    return {**parts, "gamma": GAMMA, "beta": BETA, "mask": None, "positions": None, **others}


MASK = np.array([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]], "int32")
EMBEDDINGS = {
    "plain": embedded(),
    "no-segments": embedded(segments=None, kinds=None),
    "mask": embedded(mask=MASK),
    "positions": embedded(positions=integers(2, 5, seed=2)),
    "same-positions": embedded(positions=integers(1, 5, seed=2)),
}


@pytest.mark.parametrize("is_open", [False, True], ids=["static", "open"])
@pytest.mark.parametrize("outputs", ["11", "111"], ids=["plain", "sum"])
@pytest.mark.parametrize("case", EMBEDDINGS)
def test_embed_layer_norm(case, outputs, is_open):
    operands = EMBEDDINGS[case]
    names = ("ids", "segments", "mask", "positions")
    dims = {name: ["b", "s"] for name in names} if is_open else {}
    if is_open and "same" in case:
        dims["positions"] = [1, "s"]
    attrs = dict(dims=dims, outputs=outputs, consts=VECTORS)
    check_node("EmbedLayerNormalization", operands, epsilon=1e-3, **attrs)


def product(left, right):
    return {"a": normal(*left), "b": normal(*right, seed=1)}


MATMULS = {
    "plain": (product((2, 3, 4), (2, 4, 5)), {}),
    "alpha": (product((3, 4), (4, 5)), dict(alpha=0.3)),
    "a": (product((2, 4, 3), (2, 4, 5)), dict(transA=1)),
    "b": (product((2, 3, 4), (5, 4)), dict(transB=1, alpha=2.0)),
    "both": (product((2, 4, 3), (2, 5, 4)), dict(transA=1, transB=1)),
    "batch-a": (product((3, 2, 4), (2, 4, 5)), dict(transBatchA=1)),
    "batch-b": (product((2, 3, 4), (4, 2, 5)), dict(transBatchB=1)),
    "batches": (product((3, 2, 6, 4), (4, 2, 6, 5)), dict(transBatchA=1, transBatchB=1)),
    "all": (
        product((4, 2, 6, 3), (5, 2, 6, 4)),
        dict(transBatchA=1, transBatchB=1, transA=1, transB=1, alpha=0.3),
    ),
    "vector": (product((4,), (4, 5)), dict(transA=1)),
}


@pytest.mark.parametrize("case", MATMULS)
def test_fused_matmul(case):
    operands, attrs = MATMULS[case]
    check_node("FusedMatMul", operands, parts=1, **attrs)


GELUS = {
    "QuickGelu": ("QuickGelu", {"x": X}, {}, "dnnl.swish"),
    "QuickGelu-alpha": ("QuickGelu", {"x": X}, dict(alpha=0.7), "dnnl.swish"),
    "Gelu": ("Gelu", {"x": X}, {}, "dnnl.gelu_erf"),
    "Gelu-opset-20": ("Gelu", {"x": X}, dict(opset=20), "dnnl.gelu_erf"),
    "BiasGelu": ("BiasGelu", {"x": X, "bias": BIAS}, {}, None),
    "FastGelu": ("FastGelu", {"x": X}, {}, "dnnl.gelu_tanh"),
    "FastGelu-bias": ("FastGelu", {"x": X, "bias": BIAS}, {}, None),
}


@pytest.mark.parametrize("case", GELUS)
def test_gelus(case):
    op, operands, attrs, composite = GELUS[case]
    counts = check_node(op, operands, parts=1, **attrs)
    assert composite is None or counts == {composite: 1}


def erf(x):
    return np.vectorize(math.erf)(x)


def test_ops_without_a_kernel_for_cpus():
    """Compared with numpy: onnxruntime has them for GPUs only."""
    x, gate = np.split(X + BIAS, 2, -1)
    expected = x * 0.5 * gate * (1 + erf(gate / math.sqrt(2)))
    operands = {"x": X, "bias": BIAS}
    check_node("BiasSplitGelu", operands, [expected.astype("float32")], parts=1)
    weight = normal(8, 6, seed=5)
    for bias in (None, normal(6, seed=6)):
        y = X @ weight + (0 if bias is None else bias)
        y = 0.5 * y * (1 + np.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * y**3)))
        operands = {"x": X, "weight": weight, "bias": bias}
        check_node("GemmFastGelu", operands, [y], consts=("weight", "bias"), parts=1)


ACTIVATIONS = {
    "Relu": [],
    "Tanh": [],
    "Sigmoid": [],
    "LeakyRelu": [0.3],
    "Clip": [-0.5, 0.7],
    "HardSigmoid": [0.3, 0.6],
}


@pytest.mark.parametrize("residual", [False, True], ids=["plain", "residual"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_fused_conv(activation, residual):
    operands = {
        "x": normal(1, 4, 6, 6),
        "weight": normal(8, 2, 3, 3, seed=1),
        "bias": normal(8, seed=2),
        "residual": normal(1, 8, 6, 6, seed=3) if residual else None,
    }
    attrs = dict(activation=activation, group=2, pads=[1] * 4, consts=("weight", "bias"))
    if ACTIVATIONS[activation]:
        attrs["activation_params"] = ACTIVATIONS[activation]
    check_node("FusedConv", operands, parts=1, **attrs)


@pytest.mark.parametrize("activation", [name for name in ACTIVATIONS if name != "Clip"])
def test_fused_gemm(activation):
    operands = {"a": normal(4, 3), "b": normal(5, 4, seed=1), "c": normal(5, seed=2)}
    attrs = dict(activation=activation, transA=1, transB=1, alpha=0.5, beta=0.3, consts=("b", "c"))
    names = ("activation_alpha", "activation_beta")
    attrs.update(zip(names, ACTIVATIONS[activation]))
    check_node("FusedGemm", operands, parts=1, **attrs)


def test_refused():
    operands = {"x": normal(1, 4, 6, 6), "weight": normal(8, 4, 3, 3)}
    model = node_model("FusedConv", operands, activation="Selu")
    with pytest.raises(tvm.error.OpAttributeUnImplemented, match="node node: activation=Selu"):
        tvm_dnnl.from_onnx(model)


@pytest.mark.parametrize("op", ["NhwcConv", "SkipGroupNorm", "LongformerAttention"])
def test_other_ops_are_named(op):
    with pytest.raises(Exception, match=f"not supported for frontend ONNX: {op}"):
        tvm_dnnl.from_onnx(node_model(op, {"x": X}))


def test_models_without_the_plug_in_are_the_same():
    """The registration replaces converters; TVM's importer has them, too."""
    tvm_dnnl.from_onnx(node_model("QuickGelu", {"x": X}))
    model = node_model("SkipLayerNormalization", skipped(beta=None), consts=VECTORS)
    assert isinstance(model, onnx.ModelProto)
    assert from_onnx(model, keep_params_in_input=False)
