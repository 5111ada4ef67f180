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
"""The benchmark beside processes that keep the CPUs busy."""

import types

import pytest

from scripts.bench import busy, peers
from scripts.console import Console
from scripts.errors import SetupError


def test_bench_keeps_the_machine_busy_only_while_it_measures():
    with busy.busy(2) as processes:
        assert [process.poll() for process in processes] == [None, None]
    assert all(process.poll() is not None for process in processes)
    with pytest.raises(KeyError), busy.busy(1) as processes:
        raise KeyError
    assert processes[0].poll() is not None


def test_bench_beside_other_work_compares_with_the_better_of_both(monkeypatch):
    seconds = {
        "dnnl": [2.0, 2.0, 8.0],
        "onnxruntime": [1.0, 4.0, 4.0],
        "openvino": [1.0, 1.0, 16.0],
    }
    case = types.SimpleNamespace(original=types.SimpleNamespace(name="m"), precision="float32")
    inside = []

    def measured(cases, backends, repeat, console, beside):
        with beside() as processes:
            inside.append(len(processes))
        return [
            {"case": case, "backend": backend, "rounds": [seconds[backend.name]]}
            for backend in backends
        ]

    monkeypatch.setattr(peers, "measure_workload", measured)
    args = types.SimpleNamespace(threads=2, cache=None, repeat=3, busy=1)
    workload = types.SimpleNamespace(name="m", title="M", inputs=dict)
    titles, cells, rows = busy.compare([workload], ["float32"], args, Console())
    assert inside == [1] and titles[0] == "busy processes: 1"
    assert [row[2] for row in cells] == ["DNNL", "onnxruntime", "OpenVINO"]
    assert all(len(row) == len(titles) for row in cells)
    assert rows[0]["median_ratio"] == 2.0
    assert rows[0]["high_ratio"] == pytest.approx(6.8 / 4.0)
    assert "median_ratio" not in rows[1]


def test_bench_beside_other_work_refuses_what_it_does_not_measure():
    args = types.SimpleNamespace(relax=True, backends="", plot=None)
    with pytest.raises(SetupError, match="--busy measures Relay"):
        busy.check(args)
