# SPDX-License-Identifier: Apache-2.0
"""Prints how much of real models oneDNN runs, without compiling them.

It is told in ops, partitions and the share of the floating-point work. With --packages the models
are those that packages of the Python package index carry. They are compiled and run, too, and their
outputs compared with those of onnxruntime. With --architectures they are those of transformers, in
small, which the plug-in for Relax runs.
"""

from scripts import options, table
from scripts.console import Console, passes_noted
from scripts.errors import SetupError
from scripts.layout import Layout

HEADER = ["model", "ops", "folded", "on\noneDNN", "parti-\ntions", "floating-\npoint work"]


def add_arguments(parser):
    """Add the command's options."""
    parser.add_argument("--models", default="", metavar="A,B", help="only these (default: all)")
    parser.add_argument(
        "--report", action="store_true", help="tell op by op what runs on oneDNN, and why not"
    )
    parser.add_argument(
        "--packages",
        action="store_true",
        help="models of packages, a download of 380 MB; --models names parts of their names",
    )
    parser.add_argument(
        "--architectures",
        action="store_true",
        help="architectures of transformers with random weights, by torch.export; --models names "
        "some, --write writes docs/architectures.md, with --models only their rows",
    )
    parser.add_argument(
        "--time",
        action="store_true",
        help="with --packages: measure them, and onnxruntime and OpenVINO, too",
    )
    parser.add_argument(
        "--first",
        action="store_true",
        help="with --packages --relax: the first answer of fresh processes, too",
    )
    parser.add_argument(
        "--by-task",
        action="store_true",
        help="write docs/models.md from the tables of docs/coverage.md; measure nothing",
    )
    parser.add_argument(
        "--write",
        action="store_true",
        help="with --packages --time: write docs/coverage.md; with --models only their rows",
    )
    options.add_relax(parser, "with --packages: TVM's Relax, by the plug-in for Relax")
    options.add_runs(parser, repeat=30)


def main(args):
    """Print the table; return the exit code."""
    if args.architectures:
        options.limit_threads(args.threads)
        from scripts.bench import architectures

        return architectures.main(args)
    if (args.time or args.write or args.relax) and not args.packages:
        raise SetupError(
            "--time, --write and --relax are about models of packages", "add --packages."
        )
    if args.first and not args.relax:
        raise SetupError("--first is about the plug-in for Relax", "add --relax.")
    if args.packages or args.by_task:
        options.limit_threads(args.threads)
        from scripts.bench import packages, tasks

        code = 0
        if args.packages:
            code = packages.main(args, Layout().build / "models", Console())
        if args.write or args.by_task:
            tasks.write()
        return code
    # After the arguments are parsed: these import tvm.
    from dnnl_tests.models import work, workloads
    from tvm.relay.op.contrib import dnnl

    console, rows, reports = Console(), [], []
    # The quantized ones take minutes to import: only when they are named.
    known = {**workloads.WORKLOADS, **(workloads.INT8 if args.models else {})}
    for workload in options.choose("models", args.models, known):
        with console.step(f"{workload.name}: partition for oneDNN"), passes_noted():
            partitioned = dnnl.partition_for_dnnl(*workload.load())
            report, share = dnnl.offload_report(partitioned), work.work(partitioned).share
        folded = sum(report.folded.values())
        cells = [workload.title, report.total, folded, report.offloaded, report.partitions]
        rows.append([*cells, f"{share:.2%}"])
        reports.append(f"\n{workload.title}\n{report}")
    print(table.render(HEADER, rows))
    print("\n".join(reports if args.report else []), end="")
    return 0
