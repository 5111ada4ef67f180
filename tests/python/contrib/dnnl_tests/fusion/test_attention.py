# SPDX-License-Identifier: Apache-2.0
"""Attention as one kernel in Relay, whose matmuls have rank 3."""

import numpy as np
import pytest
from tvm import relay
from tvm.contrib.onednn import cpu
from tvm.contrib.onednn.partition import units
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from dnnl_tests import direct
from dnnl_tests.marks import json_only
from dnnl_tests.models import attention, gpt2, llama
from dnnl_tests.models.attention import HEADS
from dnnl_tests.onnx_models import onnx_session
from dnnl_tests.reference import rand
from dnnl_tests.relay import module, partition
from dnnl_tests.single_op import var

FUSED = {"dnnl.attention": 1}


def _imported(model):
    return relay.frontend.from_onnx(model, freeze_params=True)[0]


def _results(model, inputs):
    return onnx_session(model).run(None, inputs)


def _named(model, values):
    return dict(zip((each.name for each in model.graph.input), values))


def _check(model, inputs, composites=None, **options):
    """Run a model as one partition, and compare it with onnxruntime."""
    return direct.check(
        _imported(model),
        inputs,
        composites=composites,
        partitions=1,
        reference=_results(model, inputs),
        **options,
    )


@pytest.mark.parametrize("groups", [1, 2, HEADS])
@pytest.mark.parametrize("scale", ["scores", "operands"])
@pytest.mark.parametrize("batch", [1, 2])
def test_step_of_a_decoder(groups, scale, batch):
    model = attention.decoder(groups, 1, 40, scale, batch)
    _check(model, _named(model, attention.decoder_inputs(groups, 1, 40, batch)), FUSED)


@pytest.mark.parametrize(
    "length, kernels", [(16, FUSED), (17, {"dnnl.batch_matmul_divide_add": 1})]
)
def test_encoder(length, kernels):
    """With more queries, matmuls and softmax of oneDNN are faster."""
    model = attention.encoder(length)
    _check(model, _named(model, attention.encoder_inputs(length)), kernels)


@pytest.mark.parametrize("network", [gpt2, llama], ids=["gpt2", "llama"])
def test_step_of_two_layers(network):
    """GPT-2 has a causal mask and one of padding; Llama shares heads of keys."""
    config = llama.TINY if network is llama else llama.Config(2, 64, 96, 4, 4, 128)
    model = network.model(config, network.random_weights(config))
    sizes = {"batch": 1, "sequence": 1, "past": 8}
    for value in (*model.graph.input, *model.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_value = sizes.get(dim.dim_param, 9)
    cache = [rand(1, config.kv_heads, 8, config.size, seed=n) for n in range(2 * config.layers)]
    partitioned = _check(model, llama.inputs(config, [7], cache))
    report = dnnl.offload_report(partitioned)
    assert report.composites["dnnl.attention"] == report.offloaded_ops["dnnl.attention"] == 2
    assert "nn.softmax" not in report.ops


def test_rank_3():
    """Without a batch, and with a mask of each head."""
    query, key, value, mask = (rand(HEADS, *dims) for dims in ((3, 8), (5, 8), (5, 6), (1, 5)))
    inputs = {"query": query, "key": key, "value": value, "mask": mask}
    q, k, v, m = (var(name, each.shape) for name, each in inputs.items())
    scores = relay.nn.batch_matmul(q, k) * relay.const(0.3) + m
    expr = relay.nn.batch_matmul(relay.nn.softmax(scores), v, transpose_b=False)
    direct.check(module(expr), inputs, composites=FUSED, partitions=1)


def causal(is_guarded):
    """Attention of 20 queries that do not see later keys; NaN becomes zero if `is_guarded`."""
    dims = (2, HEADS, 20, 8)
    query, key, value = (var(name, dims) for name in ("query", "key", "value"))
    query, key, value = (relay.reshape(each, (-3, -2)) for each in (query, key, value))
    scores = relay.reshape(relay.nn.batch_matmul(query, key), (*dims[:3], 20))
    scores = scores * relay.const(0.3) + relay.const(np.triu(np.full((20, 20), -1e30, "f"), 1))
    weights = relay.nn.softmax(scores)
    if is_guarded:
        weights = relay.where(relay.isnan(weights), relay.const(0.0), weights)
    result = relay.nn.batch_matmul(relay.reshape(weights, (-3, -2)), value, transpose_b=False)
    inputs = {name: rand(*dims, seed=k) for k, name in enumerate(("query", "key", "value"))}
    return module(relay.reshape(result, dims)), inputs


@pytest.mark.parametrize("is_guarded", [False, True])
def test_causal(is_guarded):
    mod, inputs = causal(is_guarded)
    (node,) = _attentions(direct.check(mod, inputs, composites=FUSED, partitions=1))
    kernel = "dnnl.nan_safe_softmax" if is_guarded else "nn.softmax"
    assert (str(node.op.attrs["softmax"]), int(node.op.attrs["causal"])) == (kernel, 1)


def _run_open(model, cases):
    partitioned = partition(_imported(model))
    offload = testing.offload(partitioned)
    assert (offload.partitions, offload.composites) == (1, FUSED), partitioned
    runner = testing.Runner(testing.build(partitioned, executor="vm"))
    for values in cases:
        inputs = _named(model, values)
        testing.assert_close(runner(inputs), _results(model, inputs))


@json_only
def test_encoder_of_an_open_length():
    cases = [attention.encoder_inputs(length) for length in (3, 20, 130, 3)]
    _run_open(attention.encoder("s"), cases)


@json_only
@pytest.mark.parametrize("groups", [2, HEADS])
def test_step_of_an_open_past(groups):
    """The mask has one row, and keys after the past are at least two."""
    cases = [attention.decoder_inputs(groups, 1, past) for past in (1, 2, 64, 200)]
    _run_open(attention.decoder(groups, 1), cases)


def test_mask_of_open_rows_is_kept():
    """It may have more rows than there are queries: nothing says that lengths are equal."""
    mod = _imported(attention.decoder(HEADS))
    assert "dnnl.attention" not in testing.offload(partition(mod)).composites


def test_bfloat16(monkeypatch):
    """Keys and values of a cache remain in float32, those that are computed do not."""
    computes = cpu.computes("bfloat16")
    monkeypatch.setattr(cpu, "computes", lambda dtype: True)
    for model, values, dtype in (
        (attention.encoder(16), attention.encoder_inputs(16), "bfloat16"),
        (attention.decoder(2, 1, 40), attention.decoder_inputs(2, 1, 40), "float32"),
    ):
        partitioned = partition(_imported(model), precision="bfloat16")
        (node,) = _attentions(partitioned)
        assert node.checked_type.dtype == node.args[1].checked_type.dtype == dtype
        if computes:
            inputs = _named(model, values)
            got = direct.run(partitioned, inputs)
            testing.assert_close(got, _results(model, inputs), rtol=2**-6)


def _attentions(mod):
    """Return the calls of attention in a module."""
    calls = []

    def visit(node):
        func = node.op if isinstance(node, relay.Call) else None
        if isinstance(func, relay.Function) and str(func.attrs["Composite"]) == "dnnl.attention":
            calls.append(node)

    for func in relay.transform.InferType()(mod).functions.values():
        relay.analysis.post_order_visit(func, visit)
    return calls


def test_excluded():
    mod = _imported(attention.decoder(2, 1, 40))
    composites = testing.offload(partition(mod, exclude=["dnnl.attention"])).composites
    assert composites == {"dnnl.batch_matmul_divide_add": 1}


def test_exported(tmp_path):
    model = attention.decoder(2, 1, 40)
    inputs = _named(model, attention.decoder_inputs(2, 1, 40))
    path = str(tmp_path / "model.so")
    testing.export(testing.build(partition(_imported(model))), path)
    testing.assert_close(testing.run_in_new_process(path, inputs), _results(model, inputs))


@pytest.mark.parametrize("executor, past", [("graph", 40), ("vm", "p")], ids=["static", "open"])
def test_left_to_tvm(monkeypatch, executor, past):
    """It is written as ops of TVM, with matmuls of rank 3."""
    model = attention.decoder(2, 1, past)
    inputs = _named(model, attention.decoder_inputs(2, 1, 40))
    monkeypatch.setattr(units, "why_prune", lambda calls, rules: "pruned")
    partitioned = partition(_imported(model))
    report = dnnl.offload_report(partitioned)
    assert report.partitions == 0 and report.ops["dnnl.attention"] == 1
    got = testing.run(partitioned, inputs, executor=executor, opt_level=1)
    testing.assert_close(got, _results(model, inputs))


def test_causal_left_to_tvm(monkeypatch):
    mod, inputs = causal(is_guarded=True)
    monkeypatch.setattr(units, "why_prune", lambda calls, rules: "pruned")
    partitioned = partition(mod)
    assert dnnl.offload_report(partitioned).ops["dnnl.attention"] == 1
    testing.assert_close(testing.run(partitioned, inputs, opt_level=1), direct.run(mod, inputs))
