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
"""Measures models on TVM with DNNL, beside the limit and beside other runtimes.

The limit is the sum of the same oneDNN primitives run alone in the same process. Backends take
turns within one run.

With --codegen the two code generators are compared instead, JSON beside C_SRC: the time to
compile, export, load and run, and the memory. With --callers it is the throughput: one caller with
all threads beside as many callers as threads.
"""

import json
import os
import statistics
import sys
from pathlib import Path

from scripts import options, table
from scripts.bench import measure, plot
from scripts.console import Console
from scripts.errors import SetupError

# So many times each backend takes its turn: a slow spell of the machine then hits them all.
ROUNDS = 10
FORMAT = "dnnl-bench-1"


def add_arguments(parser):
    """Add the command's options. Names are checked later: the tables need TVM, threads go first."""
    parser.add_argument("--models", default="", metavar="A,B", help="only these (default: all)")
    parser.add_argument(
        "--backends", default="", metavar="A,B", help="only these (default: all but tvm)"
    )
    options.add_measurement(parser, repeat=100)
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument(
        "--codegen", action="store_true", help="compare JSON and C_SRC, on mobilenet by default"
    )
    mode.add_argument(
        "--callers", action="store_true", help="compare one caller with one for each thread"
    )


def choose(option, text, rows):
    """Return the rows that a comma-separated option names; all of them if it is empty."""
    names = options.names(text)
    for name in names:
        if name not in rows:
            raise SetupError(f"--{option}: there is no {name!r}", f"there are {', '.join(rows)}.")
    return [row for name, row in rows.items() if not names or name in names]


def limit_threads(threads):
    """Set the number of threads. Thread pools read this when their libraries are loaded."""
    if "tvm" in sys.modules:
        raise RuntimeError("threads must be set before tvm is imported")
    for variable in ("OMP_NUM_THREADS", "TVM_NUM_THREADS"):
        os.environ[variable] = str(threads)


def take_turns(samplers, repeat, rounds=ROUNDS):
    """Sample each function in turn, round by round.

    Parameters
    ----------
    samplers : dict of str to callable
        By backend: takes a number of runs, returns samples in seconds.
    repeat : int
        Runs of each in all rounds together.
    rounds : int
        How often each takes its turn.

    Returns
    -------
    dict of str to list of list of float
        By backend: the samples of each round.
    """
    rounds = min(rounds, repeat)
    samples = {name: [] for name in samplers}
    for turn in range(rounds):
        share = repeat * (turn + 1) // rounds - repeat * turn // rounds
        for name, sampler in samplers.items():
            samples[name].append(sampler(share))
    return samples


def ratio(ours, theirs):
    """Return how many times as long ours takes: the median of the rounds' ratios of medians."""
    pairs = zip(ours, theirs)
    return statistics.median(statistics.median(a) / statistics.median(b) for a, b in pairs)


def measure_case(case, backends, repeat, console):
    """Measure one workload; return by backend its rounds of samples."""
    name = case.workload.name
    samplers = {}
    for backend in backends:
        with console.step(f"{name}: prepare {backend.name}"):
            sampler = backend.prepare(case)
        if sampler is not None:
            samplers[backend.name] = sampler
    with console.step(f"{name}: measure"):
        return take_turns(samplers, repeat)


def digits(milliseconds):
    """Format a time with three digits that count."""
    return f"{milliseconds:.0f}" if milliseconds >= 100 else f"{milliseconds:#.3g}"


def table_row(workload, samples, backends, ours):
    """Return the cells of a workload: medians and spreads, and ours as a ratio of each other."""
    cells = [workload.title]
    for backend in backends:
        rounds = samples.get(backend.name)
        timing = rounds and measure.Timing.of(sum(rounds, []))
        cells.append(digits(timing.median) if timing else "-")
        cells.append(f"{digits(timing.low)}..{digits(timing.high)}" if timing else "")
        if backend.name != ours and ours in samples:
            cells.append(f"{ratio(samples[ours], rounds):.2f}" if rounds else "")
    return cells


def header(backends, ours):
    """Return the titles of the columns."""
    titles = ["batch 1, float32"]
    for backend in backends:
        titles += [f"{backend.title}\nmedian ms", "\n10%..90%"]
        if backend.name != ours and any(other.name == ours for other in backends):
            titles.append("\nratio")
    return titles


def json_rows(workload, samples, ours):
    """Return a dict for each backend of a workload, ready for JSON."""
    rows = []
    for name, rounds in samples.items():
        timing = measure.Timing.of(sum(rounds, []))
        row = {
            "model": workload.name,
            "backend": name,
            "median_ms": timing.median,
            "low_ms": timing.low,
            "high_ms": timing.high,
            "samples": timing.count,
        }
        if name != ours and ours in samples:
            row["dnnl_ratio"] = ratio(samples[ours], rounds)
        rows.append(row)
    return rows


def check_writable(path):
    """Find out before the measurements that a file cannot be written."""
    try:
        with open(path, "a", encoding="utf-8"):
            pass
    except OSError as error:
        raise SetupError(
            f"--json: cannot write {path}: {error.strerror}", "name another file."
        ) from error


def compare(workloads, backends, args, console):
    """Measure workloads on backends; return the titles and rows of a table, and rows for JSON."""
    from scripts.bench import peers

    ours = peers.OURS
    cells, rows, models = [], [], []
    for workload in workloads:
        case = peers.Case(workload, args.threads)
        samples = measure_case(case, backends, args.repeat, console)
        cells.append(table_row(workload, samples, backends, ours))
        rows += json_rows(workload, samples, ours)
        pooled = {name: sum(rounds, []) for name, rounds in samples.items()}
        models.append((workload.title, pooled))
    if args.plot:
        titles = {backend.name: backend.title for backend in backends}
        plot.backends(models, titles, args.plot, f"batch 1, float32, {args.threads} threads")
    return header(backends, ours), cells, rows


def main(args):
    """Run the benchmark; return the exit code."""
    limit_threads(args.threads)
    # After the threads are set: these import tvm.
    import tvm
    from dnnl_tests.models import workloads
    from tvm.relay.op.contrib import dnnl

    from scripts.bench import (
        codegens,
        peers,
        throughput,
    )

    if args.codegen and not args.models:
        args.models = codegens.MODEL
    chosen = choose("models", args.models, workloads.WORKLOADS)
    backends = choose("backends", args.backends, peers.BACKENDS)
    if not args.backends:
        backends = [backend for backend in backends if backend.by_default]
    if args.json:
        check_writable(args.json)
    if args.plot:
        plot.check_path("--plot", args.plot)
    console = Console()
    note = measure.busy_note()
    if args.codegen:
        titles, cells, rows = codegens.compare(chosen, args.repeat, console)
    elif args.callers:
        cases = [peers.Case(workload, args.threads) for workload in chosen]
        titles, cells, rows = throughput.compare(cases, args.repeat, console)
    else:
        titles, cells, rows = compare(chosen, backends, args, console)
    host = measure.host()
    print(
        f"\noneDNN {dnnl.dnnl_version()}, TVM {tvm.__version__}, {host['cpu']}, "
        f"{args.threads} threads"
    )
    print(f"{note}\n" if note else "")
    print(table.render(titles, cells))
    if not (args.codegen or args.callers) and any(row.name == peers.OURS for row in backends):
        print("ratio: DNNL's time over theirs")
    if args.json:
        figures = {
            "format": FORMAT,
            "host": host,
            "versions": {"tvm": tvm.__version__, "onednn": dnnl.dnnl_version()},
            "threads": args.threads,
            "repeat": args.repeat,
            "note": note,
            "rows": rows,
        }
        Path(args.json).write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return 0
