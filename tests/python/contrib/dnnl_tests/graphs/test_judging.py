# SPDX-License-Identifier: Apache-2.0
"""How a difference between oneDNN and a reference is judged; random quantized graphs."""

import collections
from dataclasses import replace

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.contrib.onednn.ops import others
from tvm.testing import dnnl as testing

from dnnl_tests import graphs as random_graphs
from dnnl_tests.graphs import comparing, judging
from dnnl_tests.graphs import graph as graphs
from dnnl_tests.graphs.evaluate import evaluate
from dnnl_tests.graphs.quantized import draw
from dnnl_tests.marks import nightly_after


def typed(body):
    """Return a module of a function main."""
    func = relay.Function(relay.analysis.free_vars(body), body)
    return relay.transform.InferType()(tvm.IRModule.from_expr(func))


def wave():
    """Return tanh(atan(tanh(x))), of which TVM runs the arctangent, and its inputs."""
    inner = relay.atan(relay.tanh(relay.var("x", shape=(4, 16))))
    mod = typed(relay.tanh(inner))
    return mod, graphs.inputs_of(mod)


def test_what_tvm_makes_is_not_held_against_onednn(monkeypatch):
    """As if TVM's arctangent was wrong."""
    assert judging.judge_module(*wave()).kind == judging.SAME
    wrong = replace(others.OTHERS["atan"], numpy=lambda attrs, type_, x: 1.01 * np.arctan(x))
    monkeypatch.setitem(others.OTHERS, "atan", wrong)
    verdict = judging.judge_module(*wave())
    assert verdict.kind == judging.APART and "output 0 differs" in verdict.text


def test_what_onednn_makes_is_held_against_it(monkeypatch):
    right = testing.run

    def wrong(mod, inputs, params=None, **options):
        outputs = right(mod, inputs, params, **options)
        is_partitioned = len(mod.get_global_vars()) > 1
        return [x * 1.01 for x in outputs] if is_partitioned else outputs

    monkeypatch.setattr(testing, "run", wrong)
    verdict = judging.judge_module(*wave())
    assert verdict.kind == judging.DIFFERENT and "dnnl_main_0: output 0" in verdict.text


def test_an_error_beyond_rounding_is_seen():
    """Rounding may change what is left of a difference, but no more than it does here."""
    x = relay.var("x", shape=(64,), dtype="bfloat16")
    mod = typed(relay.tanh(x) - relay.tanh(x + relay.const(0.03125, "bfloat16")))
    inputs = graphs.inputs_of(mod)
    rtol = comparing.allowed(mod, 3)
    truth = evaluate(mod, inputs, rounding=None)
    rounded = evaluate(mod, inputs)
    assert testing.difference(rounded, truth).relative > rtol
    assert comparing.is_arithmetic(mod, inputs, rounded, [0], rtol)
    wrong = [truth[0] + 4 * (rounded[0] - truth[0])]
    assert not comparing.is_arithmetic(mod, inputs, wrong, [0], rtol)


# The shortest range that draws each op; those around it are nightly.
SEEDS = range(77016, 77058)
OTHERS = [range(77000, SEEDS.start), range(SEEDS.stop, 77064)]


@pytest.mark.parametrize("seeds", nightly_after(1, [SEEDS, *OTHERS]), ids=str)
def test_random_quantized_graphs(seeds):
    statistics = random_graphs.fuzz(seeds.start, len(seeds), kind="quantized")
    assert not statistics.failures, "\n".join(
        f"seed {failure.seed}: {failure.verdict.text}\n{failure.text}"
        for failure in statistics.failures
    )
    assert statistics.verdicts["same"] >= len(seeds) - 2
    left = statistics.calls - statistics.offloaded
    # Averages whose padding does not stand for zero.
    assert set(left) <= {"qnn.avg_pool2d", "nn.avg_pool2d"} and left.total() < 4, left


OPS = "conv1d conv2d conv3d conv1d_transpose conv2d_transpose conv3d_transpose dense batch_matmul"
OPS += " avg_pool2d max_pool1d max_pool2d max_pool3d concatenate lone_tanh sum rounded"
OPS += (
    " qnn.conv2d qnn.conv2d_transpose qnn.conv2d_multiplier qnn.dense qnn.batch_matmul bias_along"
)
OPS += " qnn.avg_pool2d int32_avg_pool2d qnn.add qnn.subtract qnn.mul qnn.requantize cast clip"


@pytest.mark.parametrize("op", OPS.split())
def test_ops_are_drawn(op):
    """Among the graphs that run; a relu alone is in `fusion/test_quantized.py`."""
    assert any(op in name for seed in SEEDS for name in draw(seed).ops)


def test_what_stays_is_drawn():
    """Averages whose padding does not stand for zero, in both dialects."""
    ops = collections.Counter()
    for seed in range(120):
        ops += draw(seed).on_tvm
    assert {"qnn.avg_pool2d", "nn.avg_pool2d"} <= set(ops)
