# SPDX-License-Identifier: Apache-2.0
"""The benchmark of first answers: its turns and tables, and one real process."""

import json
import subprocess
import sys
import types

import numpy as np
import pytest

from scripts import cli, options
from scripts.bench import first, first_worker, packages

SECONDS = {"relax-library": 0.1, "onnxruntime": 0.2, "openvino": 0.4}


@pytest.fixture
def asked(monkeypatch):
    """Let processes be answered at once, and return what they were asked."""
    words = []

    def ask(runtime, what, *rest):
        words.append((runtime, what))
        if runtime not in SECONDS:
            raise first.NoAnswer("takes more than 120 s")
        each = SECONDS[runtime] * len(words) / len(first_worker.STAGES)
        stages = dict.fromkeys(first_worker.STAGES, each)
        return {"seconds": stages, "cpu": stages, "peak_mb": 100.0}

    # Other tests of this process may have imported TVM.
    monkeypatch.setattr(options, "limit_threads", lambda threads: None)
    monkeypatch.setattr(first, "_ask", ask)
    return words


def test_table(asked, own_model, tmp_path, capsys):
    path = tmp_path / "figures.json"
    argv = ["bench", "--first", own_model, "--shape", "x=3,8", "--repeat", "3"]
    assert cli.run([*argv, "--json", str(path)]) == 0
    out = capsys.readouterr().out
    assert "first run" in out and "OpenVINO, its cache: takes more than 120 s" in out
    content = json.loads(path.read_text(encoding="utf-8"))
    assert content["format"] == first.FORMAT and content["rounds"] == 3
    rows = {row["runtime"]: row for row in content["rows"]}
    assert list(rows) == list(first.TITLES)
    assert rows["relay-file"]["reason"] == "takes more than 120 s"
    ours = rows["relax-library"]
    stages = sum(ours[stage] for stage in first_worker.STAGES)
    assert ours["samples"] == 3 and ours["total"] == ours["cpu"] == pytest.approx(stages)
    assert 0.3 < ours["of onnxruntime"] < 0.7 and "of openvino" not in rows["openvino"]
    # The library is written, and each runs once before: files are then in the page cache.
    assert asked[:2] == [("relax-library", "export"), ("relax-library", "main")]
    turns = [runtime for runtime, _ in asked[-3 * len(SECONDS) :]]
    there = list(SECONDS)
    assert turns == [*there, *reversed(there), *there]


def test_a_process(own_model, tmp_path):
    inputs = {"x": np.ones((3, 8), "float32"), "index": np.zeros(2, "int64")}
    model = first.Model.write("own", "own", own_model, inputs, tmp_path)
    figures = first.answer("onnxruntime", model, 1)
    assert list(figures["seconds"]) == list(figures["cpu"]) == list(first_worker.STAGES)
    assert min(figures["seconds"].values()) > 0 and figures["peak_mb"] > 20
    figures, reasons = first.sample(["onnxruntime"], model, 1, 2)
    assert len(figures["onnxruntime"]) == 2 and not reasons


def test_constants_are_compiled_and_not_passed(monkeypatch):
    """The shapes of silero-vad's other rate do not fit: its rate is a constant."""
    given = []

    def compile_model(**arguments):
        given.append(arguments)
        return lambda **inputs: given.append(inputs)

    monkeypatch.setitem(sys.modules, "tvm_dnnl", types.SimpleNamespace(compile=compile_model))
    inputs = {"x": np.ones(2), "sr": np.array(16000)}
    constants = packages.constants_of("data/silero_vad.onnx")
    stages = first_worker.RUNTIMES["relax-file"]({"onnx": "m.onnx"}, inputs, 1, constants)
    assert list(stages) == list(first_worker.STAGES[1:])
    shapes = {"x": (2,), "sr": ()}
    assert given == [
        {"model": "m.onnx", "shape": shapes, "constants": {"sr": 16000}},
        {"x": inputs["x"]},
    ]


def test_a_process_that_fails(tmp_path, monkeypatch):
    path = tmp_path / "none.onnx"
    model = first.Model.write("none", "none", path, {"x": np.ones(1)}, tmp_path)
    figures, reasons = first.sample(["onnxruntime"], model, 1, 2)
    assert not figures and "none.onnx" in reasons["onnxruntime"]

    def run(*words, timeout, **_):
        raise subprocess.TimeoutExpired("python", timeout)

    monkeypatch.setattr(first.subprocess, "run", run)
    with pytest.raises(first.NoAnswer, match="takes more than 120 s"):
        first.answer("onnxruntime", model, 1)
