# SPDX-License-Identifier: Apache-2.0
"""The benchmark of the plug-in: its tables, without the process that has it."""

import argparse
import json

import onnx
import pytest
from tvm.contrib.onednn import cpu

from scripts import cli, options
from scripts.bench import bench, files, peers, profile, relax, rows
from scripts.console import Console
from scripts.errors import SetupError

FACTS = {"total": 3, "offloaded": 2, "partitions": 1}
PRIMITIVE = {"node": "dnnl_0, node 3 nn.conv2d", "op": "nn.conv2d", "kind": "convolution"}
PRIMITIVE |= {"impl": "jit:avx2", "reference": False, "variant": "", "post_ops": ["bias"]}
PRIMITIVE |= {"src": "abcd", "dst": "abcd", "flops": 1e6}


class Process:
    """Answers as the plug-in's process does, with onnxruntime in its place."""

    def __init__(self, layout=None, module=None):
        self.sessions, self.asked = {}, []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sessions = None

    def ask(self, what, *words):
        self.asked.append((what, *words))
        return getattr(self, what)(*words)

    def inputs(self, path, shapes):
        return {"x": (shapes["x"], "float32"), "index": ((2,), "int64")}

    def versions(self):
        return {"tvm": "0.27.0", "onednn": "3.2.0"}

    def load(self, key, path, shapes, host, precision, constants, prune):
        import onnxruntime

        assert host == relax.host_cpu()
        self.sessions[key] = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        return FACTS if precision else {}

    def run(self, key, inputs):
        return self.sessions[key].run(None, inputs)

    def sample(self, runs, repeat, warmup):
        for run in runs:
            self.run(*run)
        return [(0.5,) * len(runs)] * repeat

    def first(self, key, inputs):
        self.run(key, inputs[0])
        return [0.25 if key.endswith("open") else 0.125] * len(inputs)

    def primitives(self, key, function, repeat):
        assert key in self.sessions and repeat == 4
        return [{**PRIMITIVE, "microseconds": 5.0 if function == "measure_primitives" else 10.0}]


@pytest.fixture(autouse=True)
def process(monkeypatch):
    monkeypatch.setattr(relax, "Worker", Process)


def measured(network, *words):
    """Return the labels and rows of a network, or of its file for one shape."""
    parser = argparse.ArgumentParser()
    bench.add_arguments(parser)
    args = parser.parse_args(["--relax", *words, "--threads", "1", "--repeat", "2"])
    backends = bench.chosen_backends(args, relax.Relax(Process()).backends())
    labels, results = bench.compare([network], ["float32", "bfloat16"], backends, args, Console())
    known = {(row["precision"], row["backend"], *row.get("shape", ())): row for row in results}
    return labels, results, known


def test_models(network, tmp_path, monkeypatch):
    monkeypatch.setattr(cpu, "computes", lambda dtype: dtype == "float32")
    path = str(tmp_path / "m.onnx")
    onnx.save(network.model(), path)
    workload = peers.own_workload(path, [("x", (2, 3, 8, 8))])
    words = ["--backends", "dnnl,onnxruntime", "--tvm-alone"]
    labels, results, known = measured(workload, *words)
    lines = rows.render("batch 1", labels, results).splitlines()
    assert lines[-8].split()[:5] == ["m.onnx", "float32", "Relax", "2/3", "1"]
    assert "TVM's Relax alone" in lines[-7]
    assert known["float32", "relax"]["median_ms"] == known["float32", relax.ALONE]["median_ms"]
    assert known["float32", "relax"]["median_ms"] == 500.0
    assert known["float32", "relax"]["error"] < 1e-6
    assert known["float32", "dnnl"]["ratio"] > 0
    assert all("reason" in row for row in results if row["precision"] == "bfloat16")


class Interpreter:
    """Answers as the process of a file's own runtime does."""

    def __init__(self, reason=""):
        self.reason = reason

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def ask(self, what, *words):
        return getattr(self, what)(*words)

    def load(self, path, threads, inputs):
        assert (path, threads) == ("m.tflite", 1) and inputs["index"].dtype == "int64"
        return self.reason

    def run(self, inputs):
        return [2 * inputs["x"]]

    def sample(self, inputs, repeat):
        return [0.25] * repeat


@pytest.mark.parametrize("reason", ["", "no module: pip install ai-edge-litert"])
def test_other_files(reason, monkeypatch, capsys):
    """A model that Relay does not import, beside its own runtime, if that is installed."""
    monkeypatch.setattr(options, "limit_threads", lambda threads: None)
    monkeypatch.setattr(files, "Worker", lambda *_: Interpreter(reason))
    monkeypatch.setattr(Process, "load", lambda self, *words: FACTS)
    monkeypatch.setattr(Process, "run", lambda self, key, inputs: [3 * inputs["x"]])
    prepared = peers.Prepared(run=Interpreter().run)
    monkeypatch.setattr(peers, "prepare_openvino", lambda case: prepared)
    args = cli.parse(["bench", "m.tflite", "--shape", "x=2,4", "--threads", "1"])
    args.backends = "litert,dnnl"
    assert args.relax and bench.main(args) == 0
    printed = capsys.readouterr().out
    (ours,) = [line.split() for line in printed.splitlines() if " Relax " in line]
    assert ours[-1] == "5.0e-01" and ours[3:5] == ["2/3", "1"]
    assert ("LiteRT" in printed) and ("time, ours" in printed) == (not reason)
    assert "dnnl, float32: Relay imports ONNX models only (m.tflite)" in printed
    assert not reason or f"litert, float32: {reason}" in printed


def test_first_answer_of_other_files(monkeypatch):
    with pytest.raises(SetupError, match="--first"):
        bench.main(cli.parse(["bench", "m.pt2", "--first"]))


def test_open_dimensions(network, monkeypatch):
    monkeypatch.setattr(cpu, "computes", lambda dtype: dtype == "float32")
    words = ["--open-dims", "--backends", "dnnl,onnxruntime"]
    _, results, known = measured(network, *words)
    ours, static, relay = (
        known["float32", name, 2, 3, 8, 8] for name in ("relax", "relax-static", "dnnl")
    )
    assert (ours["median_ms"], ours["first_ms"], static["first_ms"]) == (500.0, 250.0, 125.0)
    assert ours["error"] < 1e-5 and ours["total"] == 3 and relay["ratio"] > 0
    first, *_ = rows.reasons(results)
    assert first.startswith("relax, bfloat16: oneDNN has no bfloat16 kernels for this CPU")


def test_profile(network, tmp_path, monkeypatch, capsys):
    onnx.save(network.model(), tmp_path / "m.onnx")
    monkeypatch.setattr(options, "limit_threads", lambda threads: None)
    monkeypatch.setattr(profile, "peak_gflops", lambda repeat, precision: 1000.0)
    parser = argparse.ArgumentParser()
    profile.add_arguments(parser)
    words = [str(tmp_path / "m.onnx"), "--shape", "x=1,3,8,8", "--relax", "--repeat", "4"]
    assert profile.main(parser.parse_args([*words, "--json", str(tmp_path / "p.json")])) == 0
    printed = capsys.readouterr().out
    assert "whole run 500.00 ms; primitives in their turn 0.01 ms, alone 0.01 ms" in printed
    (row,) = json.loads((tmp_path / "p.json").read_text())["primitives"]
    assert (row["microseconds"], row["microseconds_alone"]) == (10.0, 5.0)
    with pytest.raises(SetupError, match="--precision int8: there is no recipe"):
        profile.main(parser.parse_args([*words, "--precision", "int8"]))
