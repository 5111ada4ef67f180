# SPDX-License-Identifier: Apache-2.0
"""The benchmark of single ops: its models on onnxruntime, and its table, without the plug-in."""

import argparse
import json

import numpy as np
import pytest
import test_bench_relax

from scripts.bench import bench, op_models, ops, relax


class Process(test_bench_relax.Process):
    """Half a second on oneDNN and a quarter on TVM alone, which cannot compile 8 bits."""

    def load(self, key, path, *words):
        if key == "int8 alone":
            raise ops.SetupError("the worker process failed: load", "", "ValueError: no int8")
        return super().load(key, path, *words)

    def sample(self, runs, repeat, warmup):
        (key, _), *_ = runs
        return [(0.09 if key.endswith("alone") else 0.18,)] * repeat


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(relax, "Worker", Process)
    monkeypatch.setattr(op_models, "IMAGES", [(2, 32, 8)])
    monkeypatch.setattr(op_models, "TEXTS", [(2, 8, 64)])


@pytest.mark.parametrize("op", op_models.DRAWS)
def test_models_run(op, tmp_path):
    (model,) = op_models.models(op, 1)
    assert model.title == op_models.models(op, 1)[0].title
    for precision in ["float32", "int8"][: 1 + model.has_int8]:
        case = ops.OpCase(op, model, tmp_path, 1, precision)
        accuracy = case.compared(ops._onnxruntime(case))
        # 8 bits of the data and of the result, and for some the sum of many errors.
        assert accuracy.error < (1e-6 if precision == "float32" else 0.2), precision
        assert np.isfinite(case.expected).all()


def run(path):
    """Measure two ops in two precisions; return the exit code."""
    parser = argparse.ArgumentParser()
    bench.add_arguments(parser)
    words = ["--ops", "less,nn.relu", "--threads", "1", "--repeat", "2", "--draws", "1"]
    words += ["--precision", "float32,int8", "--json", str(path)]
    return ops.main(parser.parse_args(words))


def test_the_table(tmp_path, capsys):
    assert run(tmp_path / "figures.json") == 0
    lines = capsys.readouterr().out.splitlines()
    (relu,) = (line.split() for line in lines if line.startswith("nn.relu  float32"))
    assert relu[:6] == ["nn.relu", "float32", "2x8x64", "2/3", "0.0e+00", "180"]
    assert "4 of 4 take more than 1.2 of the better of the others" in lines
    rows = json.loads((tmp_path / "figures.json").read_text())["rows"]
    by_case = {(row["op"], row["precision"]): row for row in rows}
    assert len(rows) == len(by_case) == 4
    row = by_case["less", "float32"]
    assert row["relax"]["ms"] == 180 and row["relax-tvm"]["ms"] == 90
    assert row["better"] == "onnxruntime" and row["ratio"] > 2
    assert by_case["less", "int8"]["reasons"] == {"relax-tvm": "ValueError: no int8"}


def test_an_interrupted_run_keeps_what_it_measured(tmp_path, capsys, monkeypatch):
    def load(self, key, *words):
        if key == "int8":
            raise KeyboardInterrupt
        return test_bench_relax.Process.load(self, key, *words)

    monkeypatch.setattr(Process, "load", load)
    assert run(tmp_path / "figures.json") == ops.INTERRUPTED
    assert "1 of 1 take more than 1.2 of the better" in capsys.readouterr().out
    (row,) = json.loads((tmp_path / "figures.json").read_text())["rows"]
    assert (row["op"], row["precision"]) == ("nn.relu", "float32") and row["ratio"] > 2
