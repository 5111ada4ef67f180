# SPDX-License-Identifier: Apache-2.0
"""Attention as one kernel: blocks of decoders and encoders, as exporters of ONNX write them."""

import numpy as np
import pytest
import tvm
import tvm_dnnl
from dnnl_tests.models.attention import HEADS, decoder, decoder_inputs, encoder, encoder_inputs
from onnx import TensorProto, helper
from tvm.contrib.onednn import cpu

from dnnl_relax.modules import compiled, composites, partitions, virtual_machine
from dnnl_relax.onnx.nodes import onnxruntime_results


def _assert_runs(model, cases, counts):
    """Partition a model into one part, and compare it for several lengths with onnxruntime."""
    partitioned = tvm_dnnl.partition_for_dnnl(tvm_dnnl.from_onnx(model))
    assert partitions(partitioned) == 1
    offloaded = composites(partitioned)
    assert {name: offloaded[name] for name in counts} == counts
    main = virtual_machine(compiled(partitioned))["main"]
    for inputs in cases:
        result = main(*map(tvm.runtime.tensor, inputs))
        results = [result] if isinstance(result, tvm.runtime.Tensor) else result
        for one, other in zip(results, onnxruntime_results(model, inputs)):
            # float32: sums in another order.
            np.testing.assert_allclose(one.numpy(), other, rtol=1e-5, atol=1e-5)


FUSED = {"dnnl.attention": 1, "dnnl.softmax": 0, "dnnl.broadcast_to": 0, "dnnl.batch_matmul": 0}


@pytest.mark.parametrize("groups", [1, 2, HEADS])
@pytest.mark.parametrize("scale", ["scores", "operands"])
def test_decoder_of_open_lengths(groups, scale):
    lengths = [(5, 1), (1, 6), (1, 7), (3, 70), (80, 2)]
    cases = [decoder_inputs(groups, *each) for each in lengths]
    _assert_runs(decoder(groups, scale=scale), cases, FUSED)


@pytest.mark.parametrize("groups", [2, HEADS])
def test_decoder_step_of_a_known_past(groups):
    _assert_runs(decoder(groups, 1, 40), [decoder_inputs(groups, 1, 40)], FUSED)


def test_decoder_step_of_an_open_past():
    cases = [decoder_inputs(2, 1, past) for past in (1, 2, 64, 200)]
    _assert_runs(decoder(2, 1), cases, FUSED)


def test_encoder_of_a_known_length_keeps_post_ops():
    counts = {"dnnl.attention": 0, "dnnl.softmax": 1}
    _assert_runs(encoder(32), [encoder_inputs(32)], counts)


def test_encoder_of_an_open_length():
    _assert_runs(encoder("s"), [encoder_inputs(n) for n in (3, 20, 130)], FUSED)


def test_excluded():
    mod = tvm_dnnl.from_onnx(decoder(2, 1, 40))
    counts = composites(tvm_dnnl.partition_for_dnnl(mod, exclude=["dnnl.attention"]))
    assert "dnnl.attention" not in counts and counts["dnnl.softmax"] == 1


def _heads_of_width(width):
    """Return attention of 2 heads that lie side by side, with a mask and an open length."""
    nodes = [
        helper.make_node("Transpose", [name], [f"{name}_heads"], perm=perm)
        for name, perm in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3]))
    ]
    nodes += [
        helper.make_node("MatMul", ["q_heads", "k_heads"], ["scores"]),
        helper.make_node("Add", ["scores", "mask"], ["masked"]),
        helper.make_node("Softmax", ["masked"], ["weights"], axis=-1),
        helper.make_node("MatMul", ["weights", "v_heads"], ["sums"]),
        helper.make_node("Transpose", ["sums"], ["y"], perm=[0, 2, 1, 3]),
    ]
    dims = {name: [1, "s", 2, width] for name in "qkv"} | {"mask": [1, 1, 1, "s"]}
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, d) for n, d in dims.items()]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, "s", 2, width])
    graph = helper.make_graph(nodes, "attention", inputs, [output])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.skipif(not cpu.computes("bfloat16"), reason="the CPU has no bfloat16")
@pytest.mark.parametrize("width", [1, 7, 8, 24, 40, 72, 80, 160])
def test_heads_of_any_width_in_bfloat16(width):
    mod = tvm_dnnl.from_onnx(_heads_of_width(width))
    partitioned = tvm_dnnl.partition_for_dnnl(mod, precision="bfloat16")
    assert composites(partitioned)["dnnl.attention"] == 1
    main = virtual_machine(compiled(partitioned))["main"]
    random = np.random.default_rng(width)
    for length in (5, 70, 200):
        q, k, v = random.standard_normal((3, 1, length, 2, width)).astype("float32")
        q /= np.float32(width**0.5)
        mask = np.where(random.random((1, 1, 1, length)) < 0.2, -np.inf, 0).astype("float32")
        mask[..., 0] = 0
        result = main(*map(tvm.runtime.tensor, (q, k, v, mask))).numpy()
        scores = np.einsum("nqhe,nkhe->nhqk", q.astype("float64"), k) + mask
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        expected = np.einsum("nhqk,nkhe->nqhe", weights, v)
        # Operands, weights and results have 8 bits.
        np.testing.assert_allclose(result, expected, rtol=2**-6, atol=2**-6)
