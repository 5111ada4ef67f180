# SPDX-License-Identifier: Apache-2.0
"""Decoders as exporters write them: one library for prompts and tokens, and one partition."""

import dataclasses
import json

import numpy as np
import pytest
import tvm_dnnl
from dnnl_tests.models import gpt2, llama
from dnnl_tests.onnx_models import onnx_session
from tvm.contrib.onednn import cpu
from tvm_dnnl._dnnl import codegen

from dnnl_relax.modules import composites, imported

PROMPT = [3, 5, 9, 11, 100]
CONFIGS = {
    "halves": llama.TINY,
    "interleaved": dataclasses.replace(llama.TINY, is_interleaved=True),
    "all-heads": dataclasses.replace(llama.TINY, kv_heads=4),
}


def reference(model):
    """Return a function that runs a model on onnxruntime without optimizations."""
    session = onnx_session(model)
    return lambda inputs: session.run(None, inputs)


def generated(run, config, count, inputs=llama.inputs):
    """Return the most probable tokens after a prompt, the logits of each, and the last cache."""
    tokens, logits, cache, new = [], [], None, PROMPT
    for _ in range(count):
        first, *cache = run(inputs(config, new, cache))
        logits.append(first)
        new = [int(first[0, -1].argmax())]
        tokens += new
    return tokens, logits, cache


@pytest.mark.parametrize("last_only", [True, False], ids=["last", "all"])
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_open_lengths(config, last_only):
    """The prompt has an empty past; each token makes it longer."""
    model = llama.model(config, llama.random_weights(config), last_only)
    compiled = tvm_dnnl.compile(model)
    report = compiled.report
    assert report.partitions == 1
    # Only integers, and the mask's length, which is one, stay on TVM.
    kept = {name for name, reasons in report.reasons.items() if reasons}
    assert not kept & {"matmul", "concat", "take", "mean", "nn.softmax", "broadcast_to"}
    assert "strided_slice" not in kept
    got = generated(lambda inputs: compiled(*inputs.values()), config, 8)
    expected = generated(reference(model), config, 8)
    assert got[0] == expected[0]
    # float32 sums in another order, over two layers.
    for one, other in zip((*got[1], *got[2]), (*expected[1], *expected[2])):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5 * np.abs(other).max())


def test_bfloat16():
    """Weights are in bfloat16; attention reads the cache, which is in float32, as it is."""
    config = CONFIGS["halves"]
    model = llama.model(config, llama.random_weights(config), last_only=True)
    mod = tvm_dnnl.from_onnx(model)
    if not cpu.computes("bfloat16"):
        pytest.skip("oneDNN does not support bfloat16 on this CPU")
    mod = tvm_dnnl.partition_for_dnnl(mod, precision="bfloat16")
    counts = composites(mod)
    assert counts["dnnl.attention"] == config.layers
    assert not counts["dnnl.softmax"] and not counts["dnnl.batch_matmul"]
    compiled = tvm_dnnl.compile(mod)
    assert compiled.report.partitions == 1
    got = generated(lambda inputs: compiled(*inputs.values()), config, 8)
    expected = generated(reference(model), config, 8)
    # Eight bits of mantissa, over two layers.
    np.testing.assert_allclose(
        got[1][0], expected[1][0], rtol=0, atol=3e-2 * np.abs(expected[1][0]).max()
    )
    (partition,) = imported(compiled.library.mod, "dnnl_json")
    plan = json.loads(partition["get_plan"]())["plans"][0]
    attention = [step for step in plan["primitives"] if step["op"] == "dnnl.attention"]
    assert len(attention) == config.layers and plan["stages"] > 1


def test_a_tied_embedding_is_stored_once():
    config = CONFIGS["halves"]
    model = llama.model(config, llama.random_weights(config), last_only=True)
    generated = codegen.generate(tvm_dnnl.partition_for_dnnl(tvm_dnnl.from_onnx(model)))
    constants = generated.attrs["const_name_to_constant"].values()
    tables = [each for each in constants if config.vocabulary in map(int, each.shape)]
    assert [tuple(map(int, each.shape)) for each in tables] == [(config.vocabulary, config.width)]


def test_a_traced_cache():
    """The angles are one partition, as TVM computes their cosines; the layers are the other."""
    config = dataclasses.replace(llama.TINY, layers=3)
    model = llama.model(config, llama.random_weights(config), is_traced=True)
    compiled = tvm_dnnl.compile(model)
    assert compiled.report.partitions <= 2
    assert compiled.report.folded["concat"] == 2 * config.layers
    got = generated(lambda inputs: compiled(*inputs.values()), config, 4)
    expected = generated(reference(model), config, 4)
    assert got[0] == expected[0]
    np.testing.assert_allclose(got[1][-1], expected[1][-1], rtol=0, atol=1e-4)


@pytest.mark.parametrize("past, sequence", [(6, 1), (6, 3)], ids=["token", "several"])
def test_fixed_lengths(past, sequence):
    config = llama.TINY
    model = llama.model(config, llama.random_weights(config), last_only=True)
    sizes = {"batch": 1, "past": past, "sequence": sequence, "past + sequence": past + sequence}
    compiled = tvm_dnnl.compile(model, shape=sizes)
    assert compiled.report.partitions == 1
    random = np.random.default_rng(0)
    shape = (1, config.kv_heads, past, config.size)
    cache = [random.normal(size=shape).astype("float32") for _ in range(2 * config.layers)]
    inputs = llama.inputs(config, PROMPT[:sequence], cache)
    for one, other in zip(compiled(*inputs.values()), reference(model)(inputs)):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5 * np.abs(other).max())


def test_the_first_positions_of_an_open_length_stay_on_tvm():
    """They may be none, which oneDNN has no tensors for; the last ones of some are some."""
    config = llama.TINY
    model = llama.model(config, llama.random_weights(config), last_only=True)
    # `[2:]` where `[-1:]` was.
    *_, slice_ = [node for node in model.graph.node if node.op_type == "Slice"]
    (begin,) = [each for each in model.graph.initializer if each.name == slice_.input[1]]
    begin.CopyFrom(llama.numpy_helper.from_array(np.array([2], "int64"), begin.name))
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_param = "rest"
    partitioned = tvm_dnnl.partition_for_dnnl(tvm_dnnl.from_onnx(model))
    reasons = tvm_dnnl.offload_report(partitioned).reasons["strided_slice"]
    assert any("may be empty" in reason for reason in reasons)


GPT2 = {
    "optimum": (gpt2.model, llama.inputs),
    "onnxruntime": (gpt2.fused_model, gpt2.fused_inputs),
}


@pytest.mark.parametrize("build, inputs", GPT2.values(), ids=GPT2)
def test_gpt2(build, inputs):
    """As Optimum exports it, and as onnxruntime optimizes it: imported unaided."""
    config = CONFIGS["all-heads"]
    model = build(config, gpt2.random_weights(config))
    counts = composites(tvm_dnnl.partition_for_dnnl(tvm_dnnl.from_onnx(model)))
    assert counts["dnnl.attention"] == config.layers and not counts["dnnl.softmax"]
    compiled = tvm_dnnl.compile(model)
    assert compiled.report.partitions == 1
    got = generated(lambda values: compiled(*values.values()), config, 4, inputs)
    expected = generated(reference(model), config, 4, inputs)
    for one, other in zip((*got[1], *got[2]), (*expected[1], *expected[2])):
        # float32 sums in another order, over two layers.
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5 * np.abs(other).max())
