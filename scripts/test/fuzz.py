# SPDX-License-Identifier: Apache-2.0
"""Draws random Relay graphs, runs each on oneDNN and on TVM without it, and compares.

A graph that fails is made smaller and printed as Relay text. --artifacts is about what is loaded
instead: it damages saved graphs and constants, and looks for what is more than an error. --kernels
draws single convolutions, matmuls and pools at the sizes where oneDNN's kernels differ. --ops draws
single calls of all ops, with fixed and open sizes, in Relay or Relax.
"""

import os
import time
from pathlib import Path

from scripts import options, table
from scripts.console import Console
from scripts.errors import SetupError
from scripts.test import artifacts, kernel_scan, single_ops


def add_arguments(parser):
    """Add the command's options."""
    parser.add_argument(
        "--seconds",
        type=options.count,
        metavar="N",
        help="stop after N seconds (default: 60, if there is no --count)",
    )
    parser.add_argument("--count", type=options.count, metavar="N", help="stop after N graphs")
    parser.add_argument(
        "--seed", type=int, metavar="S", help="of the first graph (default: of the clock)"
    )
    parser.add_argument("--quantized", action="store_true", help="draw graphs of tensors in 8 bits")
    parser.add_argument(
        "--artifacts",
        action="store_true",
        help="load and run damaged artifacts of the tests' graphs, with sanitizers",
    )
    parser.add_argument(
        "--gate",
        action="store_true",
        help="damage the artifacts that continuous integration does: graphs and seeds that are the "
        "same on every machine, and all that failed once",
    )
    parser.add_argument(
        "--kernels",
        action="store_true",
        help="draw single ops for oneDNN's kernels, with exact results",
    )
    parser.add_argument(
        "--ops",
        metavar="NAMES",
        nargs="?",
        const="",
        help="draw single calls of these ops, or of all, with fixed and open sizes",
    )
    options.add_relax(parser, "with --ops: of Relax, on the plug-in")
    parser.add_argument(
        "--class",
        dest="classes",
        metavar="NAMES",
        help="with --kernels: conv,deconv,matmul,pool (default: all)",
    )
    parser.add_argument(
        "--kinds", metavar="NAMES", help="with --kernels: f32,bf16,f16,u8,s8 (default: all)"
    )
    parser.add_argument(
        "--record", action="store_true", help="with --kernels: note in docs/ what ran on this CPU"
    )
    parser.add_argument(
        "--replay", metavar="FILE", help="run the damaged artifact or the kernels of FILE again"
    )
    parser.add_argument("--relay", metavar="FILE", help="run the Relay text of FILE instead")


def replay(path):
    """Run the Relay text of a file; return the exit code."""
    from dnnl_tests import graphs as random_graphs

    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise SetupError(f"--relay: cannot read {path}", "name another file.") from error
    verdict = random_graphs.replay(text)
    print(f"{verdict.kind}\n{verdict.text}".rstrip())
    return 1 if random_graphs.is_failure(verdict) else 0


def print_failure(failure):
    """Print a graph that fails, and how to run it again."""
    print(f"\nFAILED with seed {failure.seed}: {failure.verdict.kind}\n{failure.verdict.text}")
    print(f"made smaller: {failure.smallest.kind}\n{failure.smallest.text}\n{failure.text}")
    print(f"run it again with the same options and --count 1 --seed {failure.seed}, or write")
    print("the text to a file and run: ./dev.py fuzz --relay FILE", flush=True)


def print_statistics(statistics):
    """Print what was offloaded, op by op."""
    rows = [
        [name, count, statistics.offloaded[name], f"{statistics.offloaded[name] / count:.0%}"]
        for name, count in sorted(statistics.calls.items())
    ]
    print(table.render(["op", "count", "on oneDNN", ""], rows))
    for note, count in statistics.notes.most_common():
        print(f"TVM cannot run it, {count} x {note}")
    for seed, verdict in statistics.explained.items():
        print(f"seed {seed}: {verdict.kind}\n  " + verdict.text.replace("\n", "\n  "))
    print(statistics)


def main(args):
    """Run the fuzzer; return 1 if a graph failed or nothing was offloaded."""
    if args.seed is None:
        args.seed = int(time.time()) % 10**6
    if args.seconds is None and args.count is None:
        args.seconds = 60
    draws_ops = args.kernels or args.ops is not None
    if not draws_ops and (args.artifacts or args.replay or args.gate):
        return artifacts.main(args)
    # Before TVM is loaded. Two threads are enough to divide work, and run on teams as by default;
    # chunks of sums and blocks depend on their number.
    for variable in ("OMP_NUM_THREADS", "TVM_NUM_THREADS"):
        os.environ.setdefault(variable, "2")
    if draws_ops:
        return (kernel_scan if args.kernels else single_ops).main(args)
    if args.relay:
        return replay(args.relay)
    from dnnl_tests import graphs as random_graphs

    console, last, told = Console(), [time.monotonic()], []

    def progress(seed, statistics):
        console.note(f"seed {seed}, {statistics.graphs} graphs, {len(statistics.failures)} failed")
        for failure in statistics.failures[len(told) :]:
            told.append(failure)
            print_failure(failure)
        if not console.live and time.monotonic() - last[0] > 30:
            last[0] = time.monotonic()
            console.say(f"seed {seed}: {statistics}")

    with console.step(f"graphs from seed {args.seed}"):
        statistics = random_graphs.fuzz(
            args.seed,
            args.count,
            args.seconds,
            progress=progress,
            kind="quantized" if args.quantized else "real",
        )
    print_statistics(statistics)
    if not sum(statistics.offloaded.values()):
        print("FAILED: nothing was offloaded")
        return 1
    return 1 if statistics.failures else 0
