# SPDX-License-Identifier: Apache-2.0
"""Random graphs on oneDNN and on TVM without it, and the generator that draws them."""

import pytest
from tvm import relay
from tvm.contrib.onednn import cpu
from tvm.contrib.onednn.ir.op import infer
from tvm.contrib.onednn.ops.table import TABLE
from tvm.relay.op.contrib import dnnl
from tvm.relay.op.contrib._dnnl.ir.dataflow_graph import op_calls
from tvm.relay.op.contrib._dnnl.ir.relay_view import view_of
from tvm.relay.op.contrib._dnnl.partition.pattern_table import composites
from tvm.testing import dnnl as testing

from dnnl_tests import graphs as random_graphs
from dnnl_tests.graphs import draw, judging, shrinking
from dnnl_tests.isolated import Crashed, Raised, isolated
from dnnl_tests.marks import nightly_after

ROWS = random_graphs.ROWS


def singles(row):
    """Yield graphs of one step of a row."""
    for seed in range(12):
        try:
            yield random_graphs.single(seed, row, ROWS)
        except draw.Unfit:
            continue


def offloaded(graph, name):
    """Return whether oneDNN runs the op, virtual op or composite in a graph."""
    # A view alone is no partition: something computes with each result.
    steps, outputs = dict(graph.steps), []
    for ref in graph.outputs:
        number = max(steps) + 1
        steps[number] = random_graphs.Step("nn.relu", (ref,), {"seed": 0})
        outputs.append((number, 0))
    graph = random_graphs.Graph(steps, outputs)
    mod = dnnl.partition_for_dnnl(graph.module(ROWS), prune=False)
    report = dnnl.offload_report(mod)
    # The name of a composite tells its virtual ops by the last part.
    short = name.split(".")[-1]
    inside = any(short in composite for composite in report.composites)
    return bool(report.offloaded_ops.get(name) or inside)


# Graphs of 8-bit tensors are drawn in a way of their own: `graphs/quantized.py`.
# Relay's `round` rounds halves away from zero, and so is not the row of Relax's.
# Nor does Relay write weights in blocks or of experts, or sizes of another tensor; for data that
# are quantized as the model runs there are models (`models/test_dynamic_int8.py`).
_NOT_DRAWN = (
    "dnnl.round",
    "dnnl.block_quantized_dense",
    "dnnl.dynamic_fake_quantize",
    "dnnl.dynamic_quantize_scale",
    "dnnl.dynamic_quantized_dense",
    "dnnl.expert_dense",
    "dnnl.open_reshape",
)
NAMES = [name for name in TABLE if not name.startswith("qnn.") and name not in _NOT_DRAWN]


@pytest.mark.parametrize("name", [*NAMES, *composites(TABLE)])
def test_every_row_of_the_policy_is_drawn_and_offloaded(name):
    assert name in ROWS, f"add a row for {name} to one of the files in `rows`"
    if name == "cast" and not any(map(cpu.computes, cpu.REAL[1:])):
        pytest.skip("oneDNN has no type but float32 on this CPU")
    assert any(offloaded(graph, name) for graph in singles(ROWS[name]))


def residual():
    """Return a graph of five steps with a diamond and two outputs."""
    step = random_graphs.Step
    steps = {
        0: step("input", (), {"shape": (1, 4, 6, 6), "dtype": "float32"}),
        1: step("nn.relu", ((0, 0),), {"seed": 0}),
        2: step("tanh", ((1, 0),), {"seed": 0}),
        3: step("add", ((2, 0), (1, 0)), {"swapped": False}),
        4: step("nn.softmax", ((3, 0),), {"seed": 0}),
        5: step("sigmoid", ((4, 0),), {"seed": 0}),
    }
    return random_graphs.Graph(steps, [(4, 0), (5, 0)])


def test_a_failure_is_made_small():
    """A graph that "fails" as long as it has a softmax ends as nothing but that."""

    def fails(graph):
        return any(step.op == "nn.softmax" for step in graph.steps.values())

    smallest = shrinking.shrink(residual(), fails)
    assert [step.op for step in smallest.steps.values()] == ["input", "nn.softmax"]
    assert smallest.outputs == [(4, 0)]
    assert smallest.steps[3].attrs["shape"] == (1, 1, 1, 1)


def test_a_wrong_number_is_seen(monkeypatch):
    run = testing.run

    def wrong(mod, inputs, params=None, **options):
        outputs = run(mod, inputs, params, **options)
        is_partitioned = len(mod.get_global_vars()) > 1
        return [x * 1.001 for x in outputs] if is_partitioned else outputs

    assert random_graphs.judge(residual()).kind == judging.SAME
    monkeypatch.setattr(testing, "run", wrong)
    verdict = random_graphs.judge(residual())
    assert verdict.kind == judging.DIFFERENT and "output 0 differs" in verdict.text


def test_a_partitioner_that_fails_is_seen(monkeypatch):
    def broken(mod, **options):
        raise ValueError("no good")

    monkeypatch.setattr(dnnl, "partition_for_dnnl", broken)
    assert random_graphs.judge(residual()) == judging.Verdict(judging.RAISED, "ValueError: no good")


def test_relay_text_runs_again():
    text = residual().module(ROWS).astext()
    verdict = random_graphs.replay(text)
    assert verdict.kind == judging.SAME and verdict.report["offloaded"] == 5


# Fixed, so that the test does the same at each run; `dev.py fuzz` looks further.
COUNT, MAX_OPS = 20, 10


@pytest.mark.slow
@pytest.mark.parametrize("seed", nightly_after(1, [1000, 1000 + COUNT]))
def test_random_graphs_agree_with_tvm(seed):
    summary = random_graphs.fuzz(seed, COUNT, max_ops=MAX_OPS, shrink_seconds=60)
    failures = [f"seed {f.seed}: {f.smallest}\n{f.text}" for f in summary.failures]
    assert not failures, "\n\n".join(failures)
    assert summary.graphs == COUNT
    # Most graphs of a type that this CPU computes must be worth the run.
    reals = (judging.options(each)["real"] for each in range(seed, seed + COUNT))
    assert summary.verdicts[judging.SAME] > 0.8 * sum(map(cpu.computes, reals)), str(summary)
    assert sum(summary.offloaded.values()) > 0.4 * sum(summary.calls.values()), str(summary)


def test_a_process_of_its_own():
    assert isolated(divmod, 7, 2) == (3, 1)
    with pytest.raises(Raised, match="ZeroDivisionError"):
        isolated(divmod, 1, 0)
    with pytest.raises(Crashed, match="code 3"):
        isolated(exec, "import os; os._exit(3)")
    with pytest.raises(Crashed, match="no result after 5 s"):
        isolated(exec, "import time; time.sleep(600)", timeout=5)


@pytest.mark.parametrize("real", ["float32", "float16", "bfloat16"])
def test_the_maximum_of_nothing_goes_no_further(real):
    """TVM's lowest number is not in the output, and the pool is not on oneDNN."""
    if not cpu.computes(real):
        pytest.skip(f"oneDNN has no {real} on this CPU")
    graphs = (random_graphs.single(seed, ROWS["nn.max_pool1d"], ROWS) for seed in range(40))
    graph = next(graph for graph in graphs if "clip" in str(graph.module(ROWS, real)))
    verdict = random_graphs.judge(graph, real=real)
    assert verdict.kind == judging.SAME and verdict.report["ops"]["clip"]["offloaded"] == 1
    assert verdict.report["ops"]["nn.max_pool1d"]["offloaded"] == 0


@pytest.mark.parametrize("name", ["nn.avg_pool2d", "nn.max_pool2d"])
def test_windows_fit_into_the_data(name):
    """TVM counts windows that do not fit, and reads beyond the data."""
    count = 0
    for seed in range(200):
        try:
            mod = random_graphs.single(seed, ROWS[name], ROWS).module(ROWS)
        except draw.Unfit:
            continue
        mod = relay.transform.InferType()(mod)
        for call in map(view_of, op_calls(mod["main"])):
            if call.name == name:
                count += 1
                assert min(infer(name, call.args, call.attrs).shape) > 0
    assert count > 20
