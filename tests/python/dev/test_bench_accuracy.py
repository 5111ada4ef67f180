# SPDX-License-Identifier: Apache-2.0
"""`./dev.py bench --accuracy`: the error of models in reduced precision."""

import math

import numpy as np
import pytest
from dnnl_tests.models import workloads

from scripts import cli, options
from scripts.bench import accuracy_table, peers


def test_errors_are_relative():
    want = [np.array([3.0, -4.0], "float32"), np.array([1.0, 1.0], "float32")]
    got = [want[0] + np.array([0.0, 0.4], "float32"), want[1]]
    (square, largest), exact = accuracy_table.errors_of(got, want)
    assert square == pytest.approx(0.4 / 5) and largest == pytest.approx(0.1)
    assert exact == (0, 0)


def test_ratio_has_a_standard_error():
    assert accuracy_table.ratio_of([1.0, 4.0], [1.0, 1.0]) == pytest.approx((2, math.log(2)))
    ratio, error = accuracy_table.ratio_of([2.0], [1.0])
    assert ratio == pytest.approx(2) and math.isnan(error)


@pytest.fixture(autouse=True)
def fake_runtimes(monkeypatch):
    """Let ours be off by 1 %, OpenVINO by 2 %, and have no int8."""

    def off_by(error):
        def prepare(case):
            if error == 0.02 and case.precision == "float16":
                raise peers.NotMeasured("no kernels")
            return peers.Prepared(run=lambda inputs: [(1 + error) * np.array([1.0, 2.0])])

        return prepare

    monkeypatch.setattr(options, "limit_threads", lambda threads: None)
    rows = [
        peers.Backend(name, name, off_by(e)) for name, e in (("dnnl", 0.01), ("openvino", 0.02))
    ]
    monkeypatch.setattr(peers, "BACKENDS", {row.name: row for row in rows})
    monkeypatch.setattr(peers, "prepare_onnxruntime", off_by(0))


def test_table(capsys, tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    page.write_text("before\n" + "old\n".join(accuracy_table.MARKS) + "after\n", encoding="utf-8")
    monkeypatch.setattr(accuracy_table, "PATH", page)
    monkeypatch.setattr(accuracy_table, "MODELS", {"cls": workloads.WORKLOADS["cls"]})
    assert cli.run(["bench", "--accuracy", "2", "--write"]) == 0
    assert "1.0e-02" in capsys.readouterr().out
    line = "| PP-OCR text angle | 1.0e-02, 1.0e-02 | 2.0e-02, 2.0e-02 | 0.50 ± 0.00 |\n"
    assert page.read_text(encoding="utf-8").endswith(f"{line}{accuracy_table.MARKS[1]}after\n")
    assert cli.run(["bench", "--accuracy", "1", "--precision", "float16"]) == 0
    assert "no kernels" in capsys.readouterr().out
