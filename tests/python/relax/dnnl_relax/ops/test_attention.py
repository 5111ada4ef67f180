# SPDX-License-Identifier: Apache-2.0
"""Attention as one kernel: blocks of decoders and encoders, as exporters of ONNX write them."""

import numpy as np
import pytest
import tvm
import tvm_dnnl
from dnnl_tests.models.attention import HEADS, decoder, decoder_inputs, encoder, encoder_inputs

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
