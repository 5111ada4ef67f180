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
"""The benchmark beside other work: processes that compute without pause share the CPUs.

On a machine with other work a thread of a run may lose its CPU for milliseconds, and the run waits
for it. The median says what a run usually takes, the 90th percentile what it takes then.
"""

import contextlib
import functools
import subprocess
import sys
import time

from scripts.bench import common, measure
from scripts.errors import SetupError

TITLES = [
    "busy processes: {busy}",
    "precision",
    "runtime",
    "median\nms",
    "90%\nms",
    "median, ours /\nbest of theirs",
    "90%, ours /\nbest of theirs",
]
PEERS = ("onnxruntime", "openvino")
# Until the scheduler has put them on the CPUs.
_SETTLE = 0.2


@contextlib.contextmanager
def busy(count):
    """Keep so many processes computing as long as the body runs."""
    processes = []
    try:
        for _ in range(count):
            processes.append(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
        time.sleep(_SETTLE if count else 0)
        yield processes
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


def check(args):
    """Raise a SetupError for options that do not go with --busy."""
    if args.relax or args.backends or args.plot:
        raise SetupError(
            "--busy measures Relay beside onnxruntime and OpenVINO, and draws nothing",
            "leave --relax, --backends or --plot away.",
        )


def percentiles(rounds):
    """Return the median and the 90th percentile of the samples of all rounds, in milliseconds."""
    timing = measure.Timing.of(sum(rounds, []))
    return {"median_ms": timing.median, "high_ms": timing.high}


def rows_of(results, ours):
    """Return a dict for each result of a workload, ready for JSON, with the ratios of ours."""
    rows = []
    for result in results:
        row = {
            "model": result["case"].original.name,
            "precision": result["case"].precision,
            "backend": result["backend"].name,
        }
        if "reason" in result:
            row["reason"] = result["reason"]
        else:
            row.update(percentiles(result["rounds"]), samples=len(sum(result["rounds"], [])))
        rows.append(row)
    for row in rows:
        theirs = [
            other
            for other in rows
            if other["precision"] == row["precision"]
            and other["backend"] in PEERS
            and "median_ms" in other
        ]
        if row["backend"] == ours and "median_ms" in row and theirs:
            for key in ("median", "high"):
                best = min(other[f"{key}_ms"] for other in theirs)
                row[f"{key}_ratio"] = row[f"{key}_ms"] / best
    return rows


def compare(workloads, precisions, args, console):
    """Measure ours and two other runtimes in turns; return titles and rows, and rows for JSON."""
    from scripts.bench import peers

    backends = [peers.BACKENDS[name] for name in (peers.OURS, *PEERS)]
    cells, rows = [], []
    for workload in workloads:
        cases = [peers.Case(workload, args.threads, each, args.cache) for each in precisions]
        beside = functools.partial(busy, args.busy)
        results = peers.measure_workload(cases, backends, args.repeat, console, beside)
        of_workload = rows_of(results, peers.OURS)
        rows += of_workload
        for number, (row, result) in enumerate(zip(of_workload, results)):
            first = [workload.title if number == 0 else "", row["precision"]]
            first.append(result["backend"].title)
            times = [
                common.digits(row[key]) if key in row else "-" for key in ("median_ms", "high_ms")
            ]
            ratios = [f"{row[k]:.2f}" if k in row else "" for k in ("median_ratio", "high_ratio")]
            cells.append([*first, *times, *ratios])
    return [title.format(busy=args.busy) for title in TITLES], cells, rows
