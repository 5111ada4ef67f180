# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.  See the NOTICE file
# distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file
# to you under the Apache License, Version 2.0 (the
# "License"); you may not use this file except in compliance
# with the License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing,
# software distributed under the License is distributed on an
# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
# KIND, either express or implied.  See the License for the
# specific language governing permissions and limitations
# under the License.
"""How a difference between oneDNN and a reference is judged; random quantized graphs."""

import collections
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.contrib.onednn import cpu
from tvm.contrib.onednn.ops import others
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from dnnl_tests import graphs as random_graphs
from dnnl_tests.graphs import comparing, judging, partitions
from dnnl_tests.graphs import graph as graphs
from dnnl_tests.graphs.evaluate import evaluate, nearest
from dnnl_tests.graphs.quantized import draw
from dnnl_tests.marks import nightly_after


def typed(body):
    """Return a module of a function main."""
    func = relay.Function(relay.analysis.free_vars(body), body)
    return relay.transform.InferType()(tvm.IRModule.from_expr(func))


def test_rounding_that_a_graph_magnifies_is_no_difference():
    """Three values that are nearly equal: their last bits are most of what layer_norm is given."""
    x = relay.var("x", shape=(1, 3), dtype="bfloat16")
    one, vector = relay.const(1.0, "bfloat16"), relay.var("v", shape=(3,), dtype="bfloat16")
    close = one / relay.sqrt(relay.abs(x) + relay.const(4.0, "bfloat16"))
    mod = typed(relay.nn.layer_norm(close, vector, vector, center=False, scale=False))
    inputs = {
        "x": np.array([[0.1, 0.2, 0.35]]).astype(ml_dtypes.bfloat16),
        "v": np.ones(3).astype(ml_dtypes.bfloat16),
    }
    exact, rounded = (evaluate(mod, inputs, rounding=way) for way in (None, nearest))
    assert testing.difference(rounded, exact).relative > 0.1
    kind = judging.judge_module(mod, inputs).kind
    assert kind in (judging.SAME, judging.ILL, judging.NOTHING)


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


def test_a_partitioned_graph_that_is_another_is_a_difference(monkeypatch):
    right = dnnl.partition_for_dnnl
    half = relay.atan(relay.tanh(relay.var("x", shape=(4, 16)))) * relay.const(0.5)
    monkeypatch.setattr(
        dnnl, "partition_for_dnnl", lambda mod, **options: right(typed(relay.tanh(half)), **options)
    )
    verdict = judging.judge_module(*wave())
    assert verdict.kind == judging.DIFFERENT and "computes something else" in verdict.text


def test_outputs_that_another_run_does_not_have_are_a_difference(monkeypatch):
    right, runs = testing.run, []

    def wrong(mod, inputs, params=None, **options):
        runs.append(mod)
        outputs = right(mod, inputs, params, **options)
        return [x * 1.01 for x in outputs] if len(runs) == 1 else outputs

    monkeypatch.setattr(testing, "run", wrong)
    verdict = judging.judge_module(*wave())
    assert verdict.kind == judging.DIFFERENT and "watched" in verdict.text


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_short_sums_of_tvm(dtype):
    """A sum to rank 0 stays on TVM, which sums in reduced precision: of these, only some."""
    if not cpu.computes(dtype):
        pytest.skip(f"this CPU has no {dtype}")
    mod = typed(relay.sum(relay.nn.relu(relay.var("pos", shape=(4400,), dtype=dtype))))
    inputs = {"pos": np.ones(4400, graphs.numpy_type(dtype))}
    verdict = judging.judge_module(mod, inputs)
    assert verdict.kind == judging.APART and verdict.report["offloaded"] == 1


def test_partitions_are_watched():
    """With tuples between partitions, fused ops and virtual ops inside of them."""
    x = relay.var("x", shape=(1, 4, 8, 8))
    weight = relay.const(graphs.values("w", (4, 4, 3, 3), "float32"))
    conv = relay.nn.conv2d(x, weight, channels=4, kernel_size=(3, 3), padding=(1, 1))
    parts = relay.split(conv * relay.sigmoid(conv), 2, axis=1)
    mod = typed(relay.tanh(relay.concatenate([relay.atan(parts[0]), parts[1]], 1)))
    inputs = graphs.inputs_of(mod)
    partitioned = dnnl.partition_for_dnnl(mod, prune=False)
    seams = partitions.Seams(mod, partitioned, inputs)
    assert seams.why_unlike(comparing.run(partitioned, inputs), 1e-5) is None
    first, second = seams.partitions
    assert (len(first.inputs), len(first.outputs)) == (1, 2) and len(second.inputs) == 2
    for part in seams.partitions:
        reference = evaluate(part.mod, part.inputs)
        assert not comparing.wrong_outputs(part.outputs, reference, 1e-5)
    assert (first.depth, second.depth) == (4, 2)


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


def test_one_lucky_rounding_is_no_measure():
    """1 + exp(-10) may be near a number of float32 or between two: that says nothing of oneDNN."""
    x = relay.var("x", shape=(1,))
    mod = typed(relay.log(relay.const(1.0) + relay.exp(x)))
    for value in np.linspace(-10.5, -9.5, 20):
        inputs = {"x": np.array([value], "float32")}
        (truth,) = evaluate(mod, inputs, rounding=None)
        assert comparing.is_arithmetic(mod, inputs, [truth + 9e-7], [0], 1e-4)
        assert not comparing.is_arithmetic(mod, inputs, [truth + 3e-6], [0], 1e-4)


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
