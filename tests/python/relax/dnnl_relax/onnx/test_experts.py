# SPDX-License-Identifier: Apache-2.0
"""Mixtures of experts and linear attention of com.microsoft, compared with onnxruntime."""

import numpy as np
import onnxruntime
import pytest
import tvm_dnnl

from dnnl_relax.onnx.nodes import assert_close, node_model, normal, onnxruntime_results, results

TOKENS, HIDDEN, INNER, EXPERTS = 5, 32, 64, 4

pytestmark = pytest.mark.skipif(
    tuple(map(int, onnxruntime.__version__.split(".")[:2])) < (1, 32),
    reason="ops that onnxruntime 1.32 has for CPUs",
)


def weights(is_gated=False):
    """Return the weights and biases of experts."""
    rows = INNER * (2 if is_gated else 1)
    shapes = dict(w1=(rows, HIDDEN), b1=(rows,), w2=(HIDDEN, INNER), b2=(HIDDEN,))
    return {
        name: normal(EXPERTS, *shape, seed=k) / 4 for k, (name, shape) in enumerate(shapes.items())
    }


def tokens(*shape):
    x = normal(*(shape or (TOKENS,)), HIDDEN, seed=8)
    return {"x": x, "router": 2 * normal(x.size // HIDDEN, EXPERTS, seed=9)}


def check(op, operands, outputs=1, **attrs):
    consts = [name for name in operands if name[0] in "wbsz" and name != "beta"]
    model = node_model(op, operands, outputs, consts=consts, opset=21, **attrs)
    got, mod = results(model, operands)
    # The softmax of the router, and all after the selection.
    assert tvm_dnnl.offload_report(mod).partitions == 2
    assert_close(got, onnxruntime_results(model, operands))


GATED = dict(activation_type="swiglu", swiglu_fusion=1)
CASES = {
    **{kind: dict(activation_type=kind) for kind in ("relu", "silu", "gelu", "identity")},
    "normalized": dict(activation_type="silu", normalize_routing_weights=1),
    "gated": GATED,
    "limited": dict(GATED, activation_alpha=1.702, activation_beta=1.0, swiglu_limit=0.7),
}


@pytest.mark.parametrize("case", CASES)
def test_mixture(case):
    is_gated = case in ("gated", "limited")
    check("MoE", {**tokens(), **weights(is_gated)}, k=2, **CASES[case])


def test_mixture_of_sequences_without_biases():
    given = weights()
    check("MoE", {**tokens(2, 3), **given, "b1": None, "b2": None}, k=1)


def test_halves():
    """With onnxruntime, they are interleaved only."""
    given, parts = weights(True), {}
    for name in ("w1", "b1"):
        parts[name] = np.concatenate([given[name][:, ::2], given[name][:, 1::2]], 1)
    operands, attrs = {**tokens(), **given}, dict(k=2, activation_type="swiglu", opset=21)
    expected = onnxruntime_results(node_model("MoE", operands, swiglu_fusion=1, **attrs), operands)
    operands = {**operands, **parts}
    got, _ = results(node_model("MoE", operands, swiglu_fusion=2, **attrs), operands)
    assert_close(got, expected)


def packed(values, bits):
    """Return values of a few bits in bytes, the first one in the lowest bits."""
    values = values.astype("uint8").reshape(*values.shape[:-1], -1, 8 // bits)
    return sum(values[..., k] << np.uint8(bits * k) for k in range(8 // bits)).astype("uint8")


@pytest.mark.parametrize("has_zeros", [False, True], ids=["middle", "zeros"])
@pytest.mark.parametrize("block", [0, 32], ids=["rows", "blocks"])
@pytest.mark.parametrize("bits", [2, 4])
@pytest.mark.parametrize("weighted", [None, 0, 1], ids=["router", "weights", "normalized"])
def test_quantized_mixture(bits, block, has_zeros, weighted):
    random, operands = np.random.default_rng(0), tokens()
    zeros = {}
    for k, (rows, columns) in ((1, (INNER, HIDDEN)), (2, (HIDDEN, INNER))):
        blocks = [columns // block] if block else []
        operands[f"w{k}"] = packed(random.integers(0, 2**bits, (EXPERTS, rows, columns)), bits)
        scales = random.uniform(0.01, 0.1, (EXPERTS, rows, *blocks))
        operands[f"s{k}"] = scales.astype("float32")
        operands[f"b{k}"] = normal(EXPERTS, rows, seed=k)
        zero = random.integers(0, 2**bits, scales.shape)
        padding = [(0, 0)] * (zero.ndim - 1) + [(0, -zero.shape[-1] % (8 // bits))]
        zeros[f"z{k}"] = packed(np.pad(zero, padding), bits)
    third = dict.fromkeys(("w3", "s3", "b3"))
    operands = {**operands, **third, **(zeros if has_zeros else {})}
    attrs = dict(activation_type="silu", expert_weight_bits=bits, k=2)
    if weighted is not None:
        absent = dict.fromkeys(zeros) if not has_zeros else {}
        shares = random.uniform(0.1, 1, (TOKENS, EXPERTS)).astype("float32")
        operands = {**operands, **absent, "z3": None, "router_weights": shares}
        attrs["normalize_routing_weights"] = weighted
    check("QMoE", operands, **attrs, **(dict(block_size=block) if block else {}))


REFUSED = {
    "third": (dict(w3=normal(EXPERTS, INNER, HIDDEN)), {}, "fc3, the weights of a third matmul,"),
    "mixer": ({}, dict(use_sparse_mixer=1), "use_sparse_mixer=1"),
    "relu2": ({}, dict(activation_type="relu2"), "activation_type=relu2"),
    "unknown": ({}, dict(temperature=2), "temperature=2"),
}


@pytest.mark.parametrize("others, attrs, reason", REFUSED.values(), ids=REFUSED)
def test_refused(others, attrs, reason):
    model = node_model("MoE", {**tokens(), **weights(), **others}, opset=21, **attrs)
    with pytest.raises(ValueError, match=f"ONNX MoE, node node: {reason} cannot be imported"):
        tvm_dnnl.from_onnx(model)


BATCH, STEPS, HEADS, SIZE = 2, 4, 2, 8
RULES = {"linear": "", "gated": "g", "delta": "d", "gated_delta": "gd"}


@pytest.mark.parametrize("rule", RULES)
def test_linear_attention(rule):
    query, key, value = (normal(BATCH, STEPS, HEADS * SIZE, seed=k) for k in range(3))
    has_gate, has_rate = (letter in RULES[rule] for letter in "gd")
    operands = {"q": query, "k": key / 3, "v": value, "past": normal(BATCH, HEADS, SIZE, SIZE)}
    operands["decay"] = -np.abs(normal(BATCH, STEPS, HEADS, seed=3)) if has_gate else None
    operands["beta"] = 1 / (1 + np.exp(normal(BATCH, STEPS, HEADS))) if has_rate else None
    attrs = dict(q_num_heads=HEADS, kv_num_heads=HEADS, update_rule=rule)
    model = node_model("LinearAttention", operands, 2, opset=21, **attrs)
    got, _ = results(model, operands)
    assert_close(got, onnxruntime_results(model, operands))


@pytest.mark.parametrize("activation", ["none", "silu"])
def test_causal_convolution(activation):
    operands = {"x": normal(2, 6, 5), "w": normal(6, 1, 4), "b": normal(6), "past": normal(2, 6, 3)}
    model = node_model("CausalConvWithState", operands, 2, opset=21, activation=activation)
    got, _ = results(model, operands)
    assert_close(got, onnxruntime_results(model, operands))
    model = node_model("CausalConvWithState", operands, 2, opset=21, dilation=2)
    with pytest.raises(ValueError, match="node node: dilation=2 cannot be imported"):
        tvm_dnnl.from_onnx(model)
