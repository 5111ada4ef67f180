# SPDX-License-Identifier: Apache-2.0
"""The benchmark: what it measures, what it prints, and what it says when something is wrong."""

import argparse
import math
import re
import types

import numpy as np
import pytest
import tvm
from dnnl_tests.models import accuracy, workloads
from tvm import relay
from tvm.contrib.onednn import cpu
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from scripts import options
from scripts.bench import accuracy_table, bench, codegens, peers, rows, throughput, zoo
from scripts.console import Console
from scripts.errors import SetupError
from scripts.onnx_model import OnnxModel

NO_RECIPE = "there is no recipe for a QDQ model of it"


def said(error):
    """Return what a person is told."""
    return str(error.value)


def test_bench_says_that_a_process_failed():
    with codegens.process() as child, pytest.raises(SetupError, match="failed: build") as error:
        child.ask("build", "no-such-model", "JSON", "x.so")
    assert "no-such-model" in said(error)
    with codegens.process() as child, pytest.raises(SetupError, match="ended with code -9"):
        child._process.kill()
        child.ask("sample", 1)


def test_each_number_of_threads_has_a_library():
    """Callers share one, which keeps the number that there is at its first run."""
    x = relay.var("x", shape=(1, 64, 32, 32))
    conv = relay.nn.conv2d(x, relay.const(np.ones((64, 64, 3, 3), "float32")))
    mod = dnnl.partition_for_dnnl(tvm.IRModule.from_expr(conv))
    inputs = {"x": np.ones((1, 64, 32, 32), "float32")}
    case = types.SimpleNamespace(compiled=lambda: testing.build(mod), inputs=inputs)
    for threads in (2, 1):
        for call in throughput.runners(case, 3 - threads, threads):
            (plan,) = testing.plans(call.__self__)
            assert {step["threads"] for step in plan["primitives"]} == {threads}


def bench_results():
    """Return results of a model: ours in two precisions, another runtime's in one."""
    workload = types.SimpleNamespace(name="m", title="a model")
    exact = accuracy.Accuracy(1.0, 0.0, 1.0)

    def result(backend, precision, *seconds, **more):
        case = types.SimpleNamespace(original=workload, precision=precision)
        backend = types.SimpleNamespace(name=backend, title=backend.upper())
        row = {"case": case, "backend": backend, "accuracy": exact, "is_default": False}
        return {**row, **({"rounds": [list(seconds)]} if seconds else {}), **more}

    return [
        result("dnnl", "float32", 0.004, 0.004),
        result("limit", "float32", 0.003, 0.003, accuracy=None),
        result("other", "float32", 0.008, 0.008, is_default=True),
        result("dnnl", "int8", 0.001, 0.001, accuracy=accuracy.Accuracy(0.998, 0.0123, 0.75)),
        result("other", "int8", reason="it has no kernels"),
    ]


def cells_of(lines):
    """Return the cells of the lines of a table, whose columns are apart by two blanks or more."""
    return [re.split(r"\s{2,}", line.strip()) for line in lines]


def test_bench_has_a_row_for_each_precision_and_runtime():
    results = bench_results()
    measured = rows.rows_of(results, "dnnl")
    lines = rows.render("batch 1", rows.labels_of(results), measured).splitlines()
    *_, ours, limit, other, int8, missing = cells_of(lines)
    accurate = ["1.00000", "0.0e+00", "100.0%"]
    assert ours == ["a model", "float32", "DNNL", "4.00", "4.00..4.00", *accurate]
    assert limit == ["float32", "LIMIT", "3.00", "3.00..3.00", "1.33"], "no outputs"
    assert other == ["float32", "OTHER *", "8.00", "8.00..8.00", "0.50", *accurate]
    # A quarter of its float32.
    assert int8[4:] == ["0.25", "0.99800", "1.2e-02", "75.0%"]
    assert missing == ["int8", "OTHER", "-"]
    assert rows.reasons(measured) == ["other, int8: it has no kernels (m)"]
    assert measured[2]["is_default"] and measured[3]["float32_ratio"] == 0.25


def test_bench_measures_what_a_runtime_can_run(monkeypatch):
    def prepare(case):
        if case.precision == "int8":
            raise peers.NotMeasured("no kernels")
        outputs = [np.array([[1.0, 2.0, 4.0]]) + (case.precision == "float16")]
        return peers.Prepared(lambda repeat: [0.5] * repeat, lambda inputs: outputs)

    peers._expected.cache_clear()
    monkeypatch.setattr(peers, "prepare_onnxruntime", prepare)
    workload = workloads.WORKLOADS["cls"]
    cases = [peers.Case(workload, 1, name) for name in ("float32", "float16", "int8")]
    backend = peers.Backend("fake", "Fake", prepare)
    results = peers.measure_cases(cases, [backend], 4, Console())
    assert [result.get("reason") for result in results] == [None, None, NO_RECIPE]
    assert [len(sum(result.get("rounds", []), [])) for result in results] == [4, 4, 0]
    assert results[0]["accuracy"] == accuracy.Accuracy(pytest.approx(1.0), 0.0, 1.0)
    assert results[1]["accuracy"].error == 0.25 and results[1]["accuracy"].top1 == 1.0
    peers._expected.cache_clear()


def test_bench_measures_a_file_of_the_user(own_model, capsys):
    workload = peers.own_workload(own_model, [("x", (3, 8))])
    assert workload.title == "rec-own.onnx"
    inputs = accuracy.examples(workload)[0]
    assert inputs["x"].shape == (3, 8) and set(inputs["index"]) <= {0, 1}
    backends = [peers.BACKENDS[name] for name in ("dnnl", "onnxruntime")]
    cases = [peers.Case(workload, 1, name) for name in ("float32", "int8")]
    results = peers.measure_cases(cases, backends, 2, Console())
    assert [result.get("reason") for result in results] == [None, None, NO_RECIPE, NO_RECIPE]
    assert results[0]["accuracy"].error < 1e-6


def test_bench_takes_a_compiled_model_from_the_cache(own_model, tmp_path, monkeypatch):
    workload = peers.own_workload(own_model, [("x", (3, 8))])
    inputs = accuracy.examples(workload)[0]
    cases = [peers.Case(workload, 1, cache=tmp_path / folder) for folder in ("a", "a", "b")]
    expected = cases[0].runner(inputs)
    library = list((tmp_path / "a").glob("*.so"))
    monkeypatch.setattr(relay, "build", None)
    assert np.array_equal(cases[1].runner(inputs)[0], expected[0])
    assert list((tmp_path / "a").glob("*.so")) == library and len(library) == 1
    with pytest.raises(TypeError):
        cases[2].runner(inputs)


def test_bench_says_what_a_file_needs(own_model):
    with pytest.raises(SetupError, match="no fixed shape") as error:
        peers.own_workload(own_model, [])
    assert "--shape x=?,8" in said(error)


def parsed(*words):
    parser = argparse.ArgumentParser()
    bench.add_arguments(parser)
    return parser.parse_args(words)


ALL_ROWS = "the table of the docs has all rows"
REFUSED = {
    "m.onnx --models rec": "m.onnx does not go with --models",
    "m.onnx --open-dims": "m.onnx does not go with --open-dims",
    "--relax --codegen": "--relax does not go with --codegen",
    "--relax --callers": "--relax does not go with --callers",
    "--cache x --relax": "--cache does not go with --relax",
    "--relax --open-dims --tvm-alone": "--tvm-alone does not go with --open-dims",
    "--tvm-alone": "--tvm-alone goes with --relax",
    "--codegen --precision int8": "--codegen does not go with --precision",
    "--write": "--write goes with --recurrent, --first, --accuracy or --zoo",
    "--precision int4-weights": "--precision int4-weights without --text",
    "--accuracy --write --models cls": ALL_ROWS,
    "--first --write --models cls": ALL_ROWS,
    "--zoo --write --models bert": ALL_ROWS,
    "--first --precision int8": "--first does not go with --precision",
    "--first --relax": "--first does not go with --relax",
    "--first --models no-such": "there is no model 'no-such'",
    "--first --backends no-such": "there is no 'no-such'",
    "--text --backends torch": "there is no 'torch'",
    "--text --precision float16": "--precision float16 with --text",
    "--text model.onnx": "--text does not go with model.onnx",
}


@pytest.mark.parametrize("words", REFUSED)
def test_bench_refuses_options_that_do_not_go_together(words, monkeypatch):
    # Other tests of this process may have imported TVM.
    monkeypatch.setattr(options, "limit_threads", lambda threads: None)
    with pytest.raises(SetupError) as error:
        bench.main(parsed(*words.split()))
    assert REFUSED[words] in said(error)


def test_a_model_that_the_importer_cannot_read(tmp_path):
    import onnx
    from onnx import TensorProto, helper

    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    node = helper.make_node("NoSuchOp", ["x"], ["y"])
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    onnx.save(helper.make_model(helper.make_graph([node], "g", [info], [out])), tmp_path / "m.onnx")
    with pytest.raises(SetupError, match="TVM's ONNX importer cannot read") as error:
        OnnxModel(str(tmp_path / "m.onnx")).to_relay()
    assert "NoSuchOp" in said(error) and "docs/trouble_shooting.md" in said(error)


def test_bench_of_open_dims_has_rows_for_precisions(network, monkeypatch):
    monkeypatch.setattr(cpu, "computes", lambda dtype: dtype == "float32")
    args = parsed("--open-dims", "--backends", "onnxruntime", "--threads", "1", "--repeat", "1")
    backends = bench.chosen_backends(args, {})
    labels, measured = bench.compare([network], ["float32", "bfloat16"], backends, args, Console())
    assert labels[:2] == [
        ("Small 1x3x8x8", "float32", "DNNL"),
        ("Small 1x3x8x8", "float32", "DNNL, one shape"),
    ]
    known = {(row["precision"], row["backend"], *row.get("shape", ())): row for row in measured}
    assert len(known) == 6 + 3
    ours, static, theirs = (
        known["float32", name, 2, 3, 8, 8] for name in ("dnnl", "static", "onnxruntime")
    )
    assert ours["median_ms"] > 0 and ours["error"] < 1e-5 and ours["first_ms"] > 0
    assert static["ratio"] > 0 and theirs["ratio"] > 0 and "first_ms" not in theirs
    first, *_ = rows.reasons(measured)
    assert first == "dnnl, bfloat16: oneDNN has no bfloat16 kernels for this CPU (mobilenet_v2)"


def test_zoo_tells_the_ratio_to_the_fastest_peer():
    """Of those that run a precision."""
    ours = {"model": "vit", "backend": "relax", "offloaded": 9, "total": 10, "partitions": 1}
    measured = []
    for precision, ratios in {"float32": (0.9, 1.1, 0.5), "bfloat16": (0.8, None, None)}.items():
        measured.append({**ours, "precision": precision, "median_ms": 2.5})
        for name, ratio in zip(zoo.PEERS, ratios):
            row = {"model": "vit", "backend": name, "precision": precision}
            measured.append({**row, "ratio": ratio} if ratio else {**row, "reason": "none"})
    assert zoo.lines_of(measured, {"vit": "ViT"}) == [
        ["ViT", "float32", "9/10 in 1", "2.50", "0.90", "1.10", "0.50", "1.10"],
        ["ViT", "bfloat16", "9/10 in 1", "2.50", "0.80", "-", "-", "0.80"],
    ]


def test_errors_of_precisions_are_relative():
    """`bench --accuracy` tells them, and their ratios to those of other runtimes."""
    want = [np.array([3.0, -4.0], "float32"), np.array([1.0, 1.0], "float32")]
    got = [want[0] + np.array([0.0, 0.4], "float32"), want[1]]
    (square, largest), exact = accuracy_table.errors_of(got, want)
    assert (square, largest) == (pytest.approx(0.4 / 5), pytest.approx(0.1)) and exact == (0, 0)
    assert accuracy_table.ratio_of([1.0, 4.0], [1.0, 1.0]) == pytest.approx((2, math.log(2)))
