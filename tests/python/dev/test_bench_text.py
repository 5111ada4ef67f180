# SPDX-License-Identifier: Apache-2.0
"""The benchmark of a language model: its tables, without the processes that run it."""

import json

import pytest

from scripts import cli, options
from scripts.bench import text
from scripts.errors import SetupError


class Process:
    """Answers as the process of a runtime does; the library's first token takes longest."""

    asked: list = []

    def __init__(self, name):
        self.name = name

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def ask(self, what, *words):
        return getattr(self, what)(*words)

    def files(self, count):
        versions = {"tvm": "0.27.0", "onednn": "3.2.0"}
        return {"so": "a.so"}, "sizes", list(range(count)), versions

    def prepare(self, name, paths, threads, config):
        assert (name, paths, config) == (self.name, {"so": "a.so"}, "sizes")
        return 1.0

    def measure(self, ids, count):
        self.asked.append((self.name, len(ids), count))
        factor = 2 if self.name == "onnxruntime" else 1
        tokens = None if self.name == "llama.cpp" else list(range(count))
        if self.name == "openvino":
            tokens[5:] = [-1] * len(tokens[5:])
        return tokens, [0.01 * len(ids) * factor, *[0.1 * factor] * (count - 1)]

    def peak_megabytes(self):
        return 500.0


@pytest.fixture
def processes(monkeypatch):
    # Other tests of this process may have imported TVM.
    monkeypatch.setattr(options, "limit_threads", lambda threads: None)
    monkeypatch.setattr(text, "_start", Process)
    monkeypatch.setattr(Process, "asked", [])


def test_table(processes, tmp_path, capsys):
    path = tmp_path / "figures.json"
    argv = ["bench", "--text", "--repeat", "3", "--tokens", "7", "--json", str(path)]
    assert cli.run(argv) == 0
    out = capsys.readouterr().out
    assert "prompt of 512" in out and "each of 7 more tokens" in out and "Q4_1" in out
    content = json.loads(path.read_text(encoding="utf-8"))
    assert content["format"] == text.FORMAT and content["rounds"] == 3
    rows = {(row["metric"], row["runtime"]): row for row in content["rows"]}
    prompt = rows["prompt of 512", "relax"]
    assert prompt["median"] == pytest.approx(5120) and prompt["count"] == 3
    assert prompt["tokens_per_second"] == pytest.approx(100)
    others = rows["each of 7 more tokens", "onnxruntime"]
    assert others["ratio"] == pytest.approx(0.5) and others["count"] == 21
    assert rows["each of 7 more tokens", "llama.cpp"]["tokens_per_second"] == pytest.approx(10)
    equal = {name: facts["equal"] for name, facts in content["processes"].items()}
    # None are told of llama.cpp, and those of OpenVINO differ from the sixth on.
    assert equal == {"relax": "24/24", "onnxruntime": "24/24", "openvino": "15/24", "llama.cpp": ""}


def test_no_length_of_a_token_is_repeated(processes):
    cli.run(["bench", "--text", "--repeat", "4", "--tokens", "9", "--backends", "onnxruntime"])
    for name in ("relax", "onnxruntime"):
        lengths = [
            length
            for who, begin, count in Process.asked
            if who == name and count > 1
            for length in range(begin, begin + count)
        ]
        assert len(lengths) == 40 and len(set(lengths)) == 40
    assert {name for name, *_ in Process.asked} == {"relax", "onnxruntime"}


@pytest.mark.parametrize(
    "argv, words",
    [
        (["--backends", "torch"], "there is no 'torch'"),
        (["--precision", "int8"], "--text does not go with --precision"),
        (["model.onnx"], "--text does not go with model.onnx"),
    ],
    ids=["backend", "precision", "model"],
)
def test_options(processes, argv, words):
    with pytest.raises(SetupError, match=words):
        cli.run(["bench", "--text", *argv])
