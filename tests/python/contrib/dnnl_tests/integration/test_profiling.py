# SPDX-License-Identifier: Apache-2.0
"""TVM's profiler with a look into the partitions."""

import json
import re
import threading

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.contrib.debugger.debug_executor import GraphModuleDebug
from tvm.relay.op.contrib import dnnl
from tvm.runtime.profiler_vm import VirtualMachineProfiler
from tvm.runtime.profiling import Report, profile_function
from tvm.testing import dnnl as testing
from tvm.testing.dnnl import compiled

from dnnl_tests.marks import json_only
from dnnl_tests.reference import RTOL, conv2d, rand

ATTRS = dict(kernel_size=(3, 3), channels=16, padding=(1, 1))
X, W = rand(1, 16, 28, 28), rand(16, 16, 3, 3, seed=1)
SYMBOL = "tvmgen_default_dnnl_main_"
OURS = (
    "oneDNN Primitives",
    "oneDNN Duration (us)",
    "oneDNN GFLOP/s",
    "oneDNN Reference",
    "oneDNN Slowest",
)


def conv(x):
    return relay.nn.conv2d(x, relay.const(W), **ATTRS)


def partitioned():
    """Return two partitions with an op of TVM's between them."""
    y = relay.nn.relu(conv(relay.var("x", shape=X.shape)))
    mod = tvm.IRModule.from_expr(relay.nn.max_pool2d(conv(relay.atan(y)), (2, 2), (2, 2)))
    mod = dnnl.partition_for_dnnl(mod)
    assert testing.offload(mod).partitions == 2
    return mod


def profile(executor, collectors, codegen="JSON"):
    """Profile one run; return TVM's report."""
    lib = testing.build(partitioned(), executor=executor, codegen=codegen)
    device, graph = tvm.cpu(), getattr(lib, "graph_json", None)
    lib, _ = compiled(lib)
    if executor == "vm":
        if isinstance(lib, tvm.runtime.Module):
            lib = tvm.runtime.vm.Executable(lib)
        return VirtualMachineProfiler(lib, device).profile(X, collectors=collectors)
    debug = GraphModuleDebug(lib["debug_create"]("default", device), [device], graph, None)
    report = debug.profile(collectors=collectors, x=X)
    debug.exit()
    return report


def microseconds(row):
    return row["Duration (us)"].microseconds


def rows_of_partitions(report):
    return [row for row in report.calls if str(row["Name"]).startswith(SYMBOL)]


@pytest.mark.parametrize("executor", ["graph", "vm"])
@pytest.mark.parametrize("codegen", ["JSON", "C_SRC"])
def test_rows_of_partitions_have_their_primitives(executor, codegen):
    collector = dnnl.DNNLMetricCollector()
    report = profile(executor, [collector], codegen)
    rows = rows_of_partitions(report)
    assert [str(row["Name"]) for row in rows] == [SYMBOL + "0", SYMBOL + "1"]
    primitives = list(collector.report().calls)
    for row in rows:
        mine = [each for each in primitives if str(each["Name"]).startswith(str(row["Name"]))]
        times = [microseconds(each) for each in mine]
        assert row["oneDNN Primitives"].value == len(mine) > 0
        assert min(times) > 0
        assert row["oneDNN Duration (us)"].microseconds == pytest.approx(sum(times))
        # TVM's clock is that of the day, which may be set while the primitives run.
        assert sum(times) <= 1.01 * microseconds(row)
        assert row["oneDNN Reference"].value == 0
        # On a busy machine it may be 0.0.
        assert re.fullmatch(r"\d+\.\d", str(row["oneDNN GFLOP/s"]))
        slowest = max(mine, key=microseconds)
        shown = f"{slowest['Name']}, {slowest['Implementation']}"
        assert str(row["oneDNN Slowest"]) == shown
    assert len(primitives) == sum(row["oneDNN Primitives"].value for row in rows)
    others = [row for row in report.calls if not str(row["Name"]).startswith(SYMBOL)]
    assert others and not any(key in row for row in others for key in OURS)


def test_rows_of_primitives_are_those_of_the_plans():
    collector = dnnl.DNNLMetricCollector()
    profile("graph", [collector])
    runner = testing.Runner(testing.build(partitioned(), codegen="JSON"))
    runner({"x": X})
    plans = sorted(testing.plans(runner), key=lambda plan: plan["symbol"])
    steps = [step for plan in plans for step in plan["primitives"]]
    rows = list(collector.report().calls)
    assert len(rows) == len(steps)
    for row, step in zip(rows, steps):
        assert str(row["Name"]).startswith(step["node"])
        assert str(row["Primitive"]) == step["kind"]
        assert str(row["Implementation"]) == step["impl"]
        assert str(row["Layouts"]) == f"{step['src']} > {step['dst']}"
        assert str(row["Post-ops"]) == ", ".join(step["post_ops"])
        assert str(row["Threads"]) == str(step["threads"])
        assert 0 < row["Percent"].percent < 100
        assert bool(str(row["GFLOP/s"])) == (step["kind"] == "convolution")
    assert sum(row["Percent"].percent for row in rows) <= 100
    conv_row = next(row for row in rows if str(row["Primitive"]) == "convolution")
    assert "f32[1, 16, 28, 28]" in str(conv_row["Argument Shapes"])


def test_formats_of_the_report():
    collector = dnnl.DNNLMetricCollector()
    profile("graph", [collector])
    report = collector.report()
    header = report.table().splitlines()[0].split()
    for column in ("Name", "Implementation", "Layouts", "GFLOP/s", "Percent"):
        assert column in header
    assert "Total" in report.table() and f"oneDNN: {dnnl.dnnl_version()}" in report.table()
    lines = report.csv().splitlines()
    assert len(lines) == 1 + len(report.calls) and "Duration (us)" in lines[0]
    calls = json.loads(report.json())["calls"]
    again = Report.from_json(report.json())
    assert len(calls) == len(again.calls) == len(report.calls)
    assert calls[0]["Name"]["string"] == str(again.calls[0]["Name"])


def test_collector_begins_anew():
    collector = dnnl.DNNLMetricCollector()
    assert len(collector.report().calls) == 0
    profile("graph", [collector])
    count = len(collector.report().calls)
    profile("graph", [collector])
    assert len(collector.report().calls) == count > 0


def test_primitives_are_not_timed_without_it():
    collector = dnnl.DNNLMetricCollector()
    report = profile("graph", [collector])
    before = collector.report().json()
    runner = testing.Runner(testing.build(partitioned()))
    runner({"x": X})
    without = profile("graph", [])
    assert collector.report().json() == before
    assert not any(key in row for row in without.calls for key in OURS)
    assert len(without.calls) == len(report.calls)


def call_of_partition():
    """Return the module of a single partition, its symbol, and arguments for it."""
    mod = dnnl.partition_for_dnnl(
        tvm.IRModule.from_expr(relay.nn.relu(conv(relay.var("x", shape=X.shape))))
    )
    lib = testing.build(mod, codegen="JSON")
    runner = testing.Runner(lib)
    runner({"x": X})
    (module,) = testing.dnnl_modules(runner)
    return module, SYMBOL + "0", (tvm.nd.array(X), tvm.nd.empty(X.shape))


@json_only
def test_profile_function():
    module, symbol, arguments = call_of_partition()
    collector = dnnl.DNNLMetricCollector()
    metrics = profile_function(module, tvm.cpu(), [collector], symbol)(*arguments)
    assert metrics["oneDNN Primitives"].value == len(collector.report().calls) > 0
    expected = [np.maximum(conv2d(X, W, ATTRS), 0)]
    testing.assert_close([arguments[1].numpy()], expected, RTOL)


@json_only
def test_run_that_fails_ends_the_watch():
    module, symbol, arguments = call_of_partition()
    collector = dnnl.DNNLMetricCollector()
    run = profile_function(module, tvm.cpu(), [collector], symbol, warmup_iters=0)
    with pytest.raises(tvm.TVMError, match="_i0 must be float32"):
        run(tvm.nd.empty((1, 16, 28, 27)), arguments[1])
    module.get_function(symbol)(*arguments)
    assert len(collector.report().calls) == 0
    run(*arguments)
    assert len(collector.report().calls) > 0


@json_only
def test_other_threads_are_not_watched():
    """Runs on other threads agree and leave no trace, while one is profiled again and again."""
    module, symbol, arguments = call_of_partition()
    expected = [np.maximum(conv2d(X, W, ATTRS), 0)]
    stop, outputs = threading.Event(), []
    running = threading.Barrier(4)

    def serve():
        result = tvm.nd.empty(X.shape)
        module.get_function(symbol)(arguments[0], result)
        running.wait()
        while not stop.is_set():
            module.get_function(symbol)(arguments[0], result)
        outputs.append(result.numpy())

    threads = [threading.Thread(target=serve) for _ in range(3)]
    for thread in threads:
        thread.start()
    running.wait()
    collector = dnnl.DNNLMetricCollector()
    run = profile_function(module, tvm.cpu(), [collector], symbol, warmup_iters=0)
    counts = set()
    for _ in range(50):
        counts.add(run(*arguments)["oneDNN Primitives"].value)
    stop.set()
    for thread in threads:
        thread.join()
    (plan,) = [json.loads(module.get_function("get_plan")())]
    assert counts == {len(plan["primitives"])}
    assert len(outputs) == len(threads)
    for output in outputs:
        testing.assert_close([output], expected, RTOL)


def test_names_of_ops_of_c_source_are_their_own():
    """Ops without constants that have one description share what was prepared for one of them."""
    x = relay.var("x", shape=(1, 16, 32, 32))
    pool = relay.nn.max_pool2d(x, (3, 3), padding=(1, 1))
    mod = tvm.IRModule.from_expr(relay.nn.max_pool2d(pool, (3, 3), padding=(1, 1)))
    mod = dnnl.partition_for_dnnl(mod, prune=False)
    lib = testing.build(mod, codegen="C_SRC")
    graph, device = lib.graph_json, tvm.cpu()
    lib, _ = compiled(lib)
    debug = GraphModuleDebug(lib["debug_create"]("default", device), [device], graph, None)
    collector = dnnl.DNNLMetricCollector()
    debug.profile(collectors=[collector], x=rand(1, 16, 32, 32))
    debug.exit()
    names = [str(row["Name"]) for row in collector.report().calls]
    numbers = [re.search(r"node (\d+) nn.max_pool2d", name)[1] for name in names]
    # With reorders around each pool where the CPU has no code for its layout.
    assert set(numbers) == {"0", "1"} and numbers.count("0") == numbers.count("1")


def test_reorder_of_an_output_names_its_partition():
    x = relay.var("x", shape=X.shape)
    first, second = conv(x), relay.nn.relu(conv(x))
    both = relay.Tuple([first, relay.nn.max_pool2d(first, (2, 2)), second])
    mod = dnnl.partition_for_dnnl(tvm.IRModule.from_expr(both))
    runner = testing.Runner(testing.build(mod, codegen="JSON"))
    runner({"x": X})
    outputs = set()
    for plan in testing.plans(runner):
        nodes = {step["node"] for step in plan["primitives"]}
        assert all(node.startswith(plan["symbol"] + ", ") for node in nodes)
        outputs.update(node.partition(", ")[2] for node in nodes if ", output " in node)
    assert outputs and outputs <= {"output 0", "output 1", "output 2"}
