# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers in bfloat16 and int8, against onnxruntime."""

import numpy as np
import pytest
import tvm_dnnl
from tvm.contrib.onednn import cpu

from dnnl_relax.modules import compiled, composites, rand, run
from dnnl_relax.onnx.layers import (
    GATES,
    inputs_of,
    model_of,
    onnxruntime_results,
    quantized_operands,
)

STEPS, BATCH = 6, 2
# By op: inputs and hidden units of a layer that is stored in bfloat16.
LARGE = {"LSTM": (150, 336), "GRU": (150, 400), "RNN": (600, 600)}


def weights_of(op, inputs, hidden, direction="forward"):
    """Return the inputs of a node, whose weights are scaled as trained ones are."""
    count, gates = 1 + (direction == "bidirectional"), GATES[op]
    return {
        "X": rand(STEPS, BATCH, inputs, seed=1),
        "W": rand(count, gates * hidden, inputs, seed=2) / np.float32(np.sqrt(inputs)),
        "R": rand(count, gates * hidden, hidden, seed=3) / np.float32(np.sqrt(hidden)),
        "B": rand(count, 2 * gates * hidden, seed=4),
    }


def weight_types(partitioned):
    """Return how often constants of 16 and 8 bits are in the graphs of the partitions."""
    (library,) = compiled(partitioned).attrs["external_mods"]
    text = library.inspect_source()
    return text.count('"dtype": ["bfloat16"]'), text.count('"dtype": ["int8"]')


def imported(model):
    return tvm_dnnl.from_onnx(model)


@pytest.mark.skipif(not cpu.computes("bfloat16"), reason="the CPU has no bfloat16")
@pytest.mark.parametrize("op", GATES)
def test_large_layers_in_bfloat16(op):
    inputs, hidden = LARGE[op]
    values = weights_of(op, inputs, hidden)
    model = model_of(op, values, hidden_size=hidden)
    partitioned = tvm_dnnl.partition_for_dnnl(imported(model), precision="bfloat16")
    assert composites(partitioned)[f"dnnl.{op.lower()}"] == 1
    assert weight_types(partitioned) == (2, 0)
    got = run(compiled(partitioned), *inputs_of(model, values).values())
    # bfloat16 has 8 bits: a gate is a sum of some hundred products, each off by 1 in 2**9.
    for one, other in zip(got, onnxruntime_results(model, values)):
        np.testing.assert_allclose(one, other, atol=0.01)


@pytest.mark.skipif(not cpu.computes("bfloat16"), reason="the CPU has no bfloat16")
def test_layers_that_a_cache_holds_stay_in_float32():
    values = weights_of("LSTM", 150, 48)
    model = model_of("LSTM", values, hidden_size=48)
    partitioned = tvm_dnnl.partition_for_dnnl(imported(model), precision="bfloat16")
    assert weight_types(partitioned) == (0, 0)
    got = run(compiled(partitioned), *inputs_of(model, values).values())
    for one, other in zip(got, onnxruntime_results(model, values)):
        np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.skipif(not cpu.computes("bfloat16"), reason="the CPU has no bfloat16")
def test_large_weights_that_bfloat16_rounds_to_infinity():
    values = weights_of("LSTM", *LARGE["LSTM"])
    values["W"][0, 0, 0] = np.finfo("float32").max
    model = model_of("LSTM", values, hidden_size=336)
    partitioned = tvm_dnnl.partition_for_dnnl(imported(model), precision="bfloat16")
    assert weight_types(partitioned) == (0, 0)


@pytest.mark.parametrize("per_channel", [False, True], ids=["per-tensor", "per-channel"])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_dynamic_quantize_lstm_of_many_weights(direction, dtype, per_channel):
    """With 179,200 weights, which the kernel multiplies in 8 bits on CPUs with VNNI."""
    hidden = 160
    values = weights_of("LSTM", 120, hidden, direction)
    values["sequence_lens"] = np.array([STEPS, 4], "int32")
    own, values = quantized_operands(values, dtype, per_channel)
    attrs = dict(direction=direction, hidden_size=hidden)
    options = dict(domain="com.microsoft", consts=[name for name in own if name != "X"], **attrs)
    model = model_of("DynamicQuantizeLSTM", own, **options)
    partitioned = tvm_dnnl.partition_for_dnnl(imported(model), prune=False)
    assert composites(partitioned)["dnnl.lstm"] == 1
    assert weight_types(partitioned) == (0, 2)
    got = run(compiled(partitioned), own["X"])
    in_float = onnxruntime_results(model_of("LSTM", values, **attrs), values)
    quantized = onnxruntime_results(model, own)
    # A value of the data or the state is off by half of 255 steps; ours has scales for each row.
    for one, exact, other in zip(got, in_float, quantized):
        np.testing.assert_allclose(one, exact, atol=2 / 255)
        np.testing.assert_allclose(one, other, atol=3 / 255)
        assert np.abs(one - exact).mean() <= 1.2 * np.abs(other - exact).mean() + 1e-6
