# SPDX-License-Identifier: Apache-2.0
"""The benchmark of recurrent layers: a small one on Relay and onnxruntime, and its table."""

import pytest

from scripts.bench import peers, recurrent
from scripts.console import Console

BACKENDS = [
    peers.Backend("relay", "Relay", recurrent._relay),
    peers.BACKENDS["onnxruntime"],
    peers.Backend("openvino", "OpenVINO", recurrent._openvino),
]


@pytest.mark.parametrize(
    "op, precision", [("LSTM", "float32"), ("GRU", "float32"), ("LSTM", "int8")]
)
def test_recurrent_layers(op, precision, tmp_path, monkeypatch):
    monkeypatch.setitem(recurrent.LAYERS, "small", (op, "bidirectional", 3, 8, 16))
    case = recurrent.LayerCase("small", tmp_path, 1, precision)
    is_float = precision == "float32"
    # OpenVINO is a package of the benchmark's alone.
    backends = BACKENDS[:2] if is_float else BACKENDS
    row = recurrent.row_of(peers.measure_cases([case], backends, 2, Console()))
    assert row.keys() == {"layer", "precision", "relay", "onnxruntime"}
    own = row["relay"]
    assert own["offloaded"] == own["total"] > 0
    assert list(own["stages"]) == ["import", "partition", "build"]
    assert own["error"] < (1e-5 if is_float else 0.1)
    ratio = own["ms"] / row["onnxruntime"]["ms"]
    assert row["onnxruntime"]["relay_ratio"] == pytest.approx(ratio, rel=0.5)
    (line,) = recurrent._lines([row])
    assert line[:4] == ["small", precision, "Relay", f"{own['total']}/{own['total']}"]
    assert line[-2:] == ["-", "-"]
    *_, line = recurrent.markdown([row], "a CPU", 1).splitlines()
    assert line.startswith(f"| small | {precision} | Relay |")
