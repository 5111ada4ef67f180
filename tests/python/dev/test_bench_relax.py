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
"""The benchmark of the plug-in: its tables, without the process that has it."""

import argparse
import json
import types

import numpy as np
import onnx
import pytest
from dnnl_tests.models import accuracy
from tvm.contrib.onednn.policy import cpu

from scripts.bench import bench, common, own, peers, profile, relax, relax_open
from scripts.console import Console
from scripts.errors import SetupError

FACTS = {"total": 3, "offloaded": 2, "partitions": 1}
PRIMITIVE = {"node": "dnnl_0, node 3 nn.conv2d", "op": "nn.conv2d", "kind": "convolution"}
PRIMITIVE |= {"impl": "jit:avx2", "reference": False, "variant": "", "post_ops": ["bias"]}
PRIMITIVE |= {"src": "abcd", "dst": "abcd", "flops": 1e6}
ARGS = argparse.Namespace(threads=1, repeat=2)


class Process:
    """Answers as the plug-in's process does, with onnxruntime in its place."""

    def __init__(self, layout):
        self.sessions, self.asked = {}, []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sessions = None

    def ask(self, what, *words):
        self.asked.append((what, *words))
        return getattr(self, what)(*words)

    def versions(self):
        return {"tvm": "0.27.0", "onednn": "3.2.0"}

    def load(self, key, path, shapes, host, precision):
        import onnxruntime

        assert host == relax.host_cpu()
        self.sessions[key] = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        return FACTS if precision else {}

    def run(self, key, inputs):
        return self.sessions[key].run(None, inputs)

    def sample(self, key, inputs, repeat, warmup):
        self.run(key, inputs)
        return [0.5] * repeat

    def first(self, key, inputs):
        self.run(key, inputs[0])
        return [{relax.OURS: 0.25}.get(key, 0.125)] * len(inputs)

    def primitives(self, key, function, repeat):
        assert key in self.sessions and repeat == 4
        return [{**PRIMITIVE, "microseconds": 5.0 if function == "measure_primitives" else 10.0}]


@pytest.fixture(autouse=True)
def process(monkeypatch):
    for module in (relax, relax_open):
        monkeypatch.setattr(module, "Worker", Process)


def results():
    """Return what was measured of a model in one precision."""
    case = types.SimpleNamespace(original=types.SimpleNamespace(name="m"), precision="int8")

    def result(name, **more):
        return {"case": case, "backend": types.SimpleNamespace(name=name), **more}

    return [
        result("relax", rounds=[[0.002], [0.002]], accuracy=accuracy.Accuracy(0.9987, 0.012, 1.0)),
        result("dnnl", rounds=[[0.001], [0.001]]),
        result("openvino", reason="it has no kernels"),
    ]


def test_a_row():
    row = relax.json_row(results(), FACTS)
    assert (row["relax_ms"], row["dnnl_ms"], row["dnnl_ratio"]) == (2.0, 1.0, 2.0)
    assert row["total"] == 3 and row["relax_samples"] == 2 and "relax_ratio" not in row
    names = list(relax.PEERS)[:2]
    cells = relax.table_row(row, "a model", names)
    assert cells == [
        *["a model", "int8", "2/3", "1", "0.99870", "1.2e-02", "2.00"],
        *["1.00", "2.00", "-", ""],
    ]
    assert len(cells) == len(relax.TITLES + relax.titles_beside(names))
    assert common.reasons([row]) == ["openvino, int8: it has no kernels (m)"]


def test_a_row_without_ours():
    ours, *others = results()
    missing = {"case": ours["case"], "backend": ours["backend"], "reason": "no kernels"}
    row = relax.json_row([missing, *others], {})
    assert "dnnl_ratio" not in row and row["reasons"]["relax"] == "no kernels"
    cells = relax.table_row(row, "a model", ["dnnl"])
    assert cells == ["a model", "int8", "", "", "", "", "-", "1.00", ""]


def test_models(network, tmp_path, monkeypatch):
    monkeypatch.setattr(cpu, "computes", lambda dtype: dtype == "float32")
    path = str(tmp_path / "m.onnx")
    onnx.save(network.model(), path)
    workload = own.workload(path, [("x", (2, 3, 8, 8))])
    names = ["dnnl", "onnxruntime", relax.ALONE]
    titles, cells, rows = relax.compare([workload], ["float32", "bfloat16"], names, ARGS, Console())
    assert all(len(row) == len(titles) for row in cells)
    assert cells[0][:5] == ["m.onnx", "float32", "2/3", "1", "1.00000"]
    assert rows[0]["relax_ms"] == rows[0]["relax-tvm_ms"] == 500.0
    assert rows[0]["dnnl_ratio"] > 0
    assert set(rows[1]["reasons"]) == {"relax", *names}
    assert cells[1][:3] == ["", "bfloat16", ""] and cells[1][6] == "-"


def test_open_dimensions(network, monkeypatch):
    monkeypatch.setattr(cpu, "computes", lambda dtype: dtype == "float32")
    titles, cells, rows = relax_open.compare(
        [network], ["float32", "bfloat16"], ["onnxruntime"], ARGS, Console()
    )
    assert [(row["precision"], row.get("shape")) for row in rows] == [
        ("float32", [1, 3, 8, 8]),
        ("float32", [2, 3, 8, 8]),
        ("bfloat16", None),
    ]
    assert all(len(row) == len(titles) for row in cells)
    assert rows[1]["difference"] < 1e-5 and rows[1]["relax_ms"] == 500.0
    assert rows[1]["dnnl_ratio"] > 0 and rows[1]["onnxruntime_ms"] > 0
    assert (rows[1]["first_ms"], rows[1]["static_first_ms"]) == (250.0, 125.0)
    assert cells[0][0] == "Small 1x3x8x8" and "" not in cells[0] and cells[2][2] == "-"
    (reason,) = common.reasons(rows)
    assert reason.startswith("relax, bfloat16: oneDNN has no bfloat16 kernels for this CPU")


def test_options():
    parser = argparse.ArgumentParser()
    bench.add_arguments(parser)

    def names(*words):
        return relax.check(parser.parse_args(["--relax", *words]))

    assert names() == list(relax.PEERS)
    assert names("--backends", "openvino", "--tvm-alone") == ["openvino", relax.ALONE]
    with pytest.raises(SetupError, match="--relax does not measure limit"):
        names("--backends", "limit")
    for words in (
        ["--codegen"],
        ["--callers"],
        ["--plot", "x.png"],
        ["--open-dims", "--tvm-alone"],
    ):
        with pytest.raises(SetupError, match="goes with neither|does not go with"):
            names(*words)


def test_profile(network, tmp_path, monkeypatch, capsys):
    onnx.save(network.model(), tmp_path / "m.onnx")
    monkeypatch.setattr(common, "limit_threads", lambda threads: None)
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


def test_versions():
    assert relax.versions()["tvm"] == "0.27.0"


def test_tvm_alone_runs_once_in_a_turn(network, tmp_path):
    path = str(tmp_path / "m.onnx")
    onnx.save(network.model(), path)
    case = peers.Case(own.workload(path, [("x", (1, 3, 8, 8))]), 1)
    process = Process(None)
    assert relax.Relax(process).prepare_alone(case).sample(25) == [0.5]
    (_, _, _, shapes, _, precision), (_, _, inputs, *times) = process.asked
    assert (shapes, precision, times) == ({"x": (1, 3, 8, 8)}, None, [1, 0])
    assert np.array_equal(inputs["x"], case.inputs["x"])
