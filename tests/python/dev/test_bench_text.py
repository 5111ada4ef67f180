# SPDX-License-Identifier: Apache-2.0
"""The benchmark of a language model: its tables, without the processes that run it."""

import json

import pytest

from scripts import cli, options
from scripts.bench import text
from scripts.errors import SetupError


class Process:
    """Answers as the process of a runtime does: 10 ms per token of a prompt, 100 ms per new one."""

    asked: list = []

    def __init__(self, name):
        self.name = name

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def ask(self, what, *words):
        return getattr(self, what)(*words)

    def files(self, count, precision, runtimes):
        assert runtimes[0] == text.OURS
        versions = {"tvm": "0.27.0", "onednn": "3.2.0"}
        paths = {"so": f"{precision}.so", "reference": "float32.onnx"}
        return paths, "sizes", list(range(count)), versions

    def prepare(self, name, paths, threads, config, precision, context):
        assert (name, config) == (self.name, "sizes") and context > text.PROMPTS[0]
        if name == "openvino" and precision == "bfloat16":
            # As `Worker` tells of an exception.
            details = "scripts.errors.SetupError: error: no kernels for this CPU"
            raise SetupError("the worker process failed: prepare", "", details)
        return 1.0

    def measure(self, ids, count, follow=None):
        self.asked.append((self.name, len(ids), count, follow))
        factor = 2 if self.name == "onnxruntime" else 1
        tokens = None if self.name in ("llama.cpp", "openvino-genai") else list(range(count))
        if self.name == "openvino":
            tokens[5:] = [-1] * len(tokens[5:])
        return tokens, [0.01 * len(ids) * factor, *[0.1 * factor] * (count - 1)]

    def save_reference(self, ids, count, path):
        assert self.name == text.REFERENCE and len(ids) == text.START and path
        return list(range(count))

    def largest_error(self, path):
        return 0.25, 40.0

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
    argv = ["bench", "--text", "--repeat", "9", "--tokens", "7", "--json", str(path)]
    assert cli.run(argv) == 0
    out = capsys.readouterr().out
    for words in ("prompt of 512", "each of 7 new tokens", "new token, past of 2048"):
        assert out.count(words) == len(options.TEXT_PRECISIONS)
    assert out.count("OpenVINO, not measured: no kernels for this CPU") == 1
    content = json.loads(path.read_text(encoding="utf-8"))
    assert content["format"] == text.FORMAT and content["plan"]["rounds"] == text.MOST_ROUNDS
    rows = {
        (row["metric"], row["runtime"]): row
        for row in content["rows"]
        if row["precision"] == "int8"
    }
    prompt = rows["prompt of 512", "relax"]
    assert prompt["median"] == pytest.approx(5120) and prompt["count"] == text.MOST_ROUNDS
    assert prompt["tokens_per_second"] == pytest.approx(100)
    others = rows["each of 7 new tokens", "onnxruntime"]
    assert others["ratio"] == pytest.approx(0.5) and others["count"] == 7 * text.MOST_LONG_ROUNDS
    assert rows["each of 7 new tokens", "llama.cpp"]["tokens_per_second"] == pytest.approx(10)
    facts = content["processes"]["int8"]
    equal = {name: row["equal_to_float32"] for name, row in facts.items()}
    assert equal.pop("openvino-genai") == ""
    # None are told of llama.cpp, and those of OpenVINO differ from the sixth on.
    assert equal == {"relax": "8/8", "onnxruntime": "8/8", "openvino": "5/8", "llama.cpp": ""}
    assert facts["relax"]["equal_to_onnxruntime"] == "8/8"
    assert facts["onnxruntime"]["equal_to_onnxruntime"] == ""
    assert facts["relax"]["largest_error"] == 0.25 and "largest_error" not in facts["llama.cpp"]
    assert list(content["not_measured"]["bfloat16"]) == ["openvino"]
    assert "openvino" not in content["processes"]["bfloat16"]


def test_no_length_of_a_new_token_is_repeated(processes):
    argv = ["--tokens", "9", "--backends", "onnxruntime", "--precision", "int4-weights"]
    cli.run(["bench", "--text", "--repeat", "2", *argv])
    asked = [each for each in Process.asked if each[2] == 10]
    # They take turns, in another order each round; only the first round follows the reference.
    assert [who for who, *_ in asked] == ["relax", "onnxruntime", "onnxruntime", "relax"]
    assert [follow is not None for *_, follow in asked] == [True, True, False, False]
    for name in ("relax", "onnxruntime"):
        lengths = [n for who, begin, *_ in asked if who == name for n in range(begin, begin + 10)]
        assert len(lengths) == len(set(lengths)) == 20
    assert {name for name, *_ in Process.asked} == {"relax", "onnxruntime"}
