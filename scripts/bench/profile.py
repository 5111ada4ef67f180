# SPDX-License-Identifier: Apache-2.0
"""Runs a model on oneDNN and prints where the time goes, primitive by primitive.

For each primitive it tells the time in its turn and alone, what it is fused with, its code, which
variant of the op was chosen where there are several, layouts, GFLOP/s and the share of the peak.

The peak is what a large matmul reaches on the same oneDNN. A primitive that is fast alone and slow
in its turn waits for its weights or inputs, which are not in the caches then.
"""

import contextlib
import functools
import json

from scripts import options, table
from scripts.bench import measure, plot
from scripts.console import Console, passes_noted
from scripts.errors import SetupError
from scripts.files import write_atomically

HEADER = [
    "primitive",
    "fused",
    "code",
    "variant",
    "layouts",
    "µs in\nturn",
    "µs\nalone",
    "share\nof run",
    "GFLOP/s\nin turn",
    "share\nof peak",
]
# The peak is measured with square matrices of so many rows.
ROWS = 2048


def add_arguments(parser):
    """Add the command's options."""
    parser.add_argument("model", metavar="MODEL", help="the model: a name, or a file")
    options.add_shape(parser)
    parser.add_argument(
        "--top", type=options.count, metavar="N", help="only the N that take longest"
    )
    parser.add_argument(
        "--precision",
        choices=options.PRECISIONS,
        default=options.PRECISIONS[0],
        help="what it computes in; int8 is the model quantized by onnxruntime",
    )
    options.add_cache(parser)
    options.add_measurement(parser, repeat=50)
    options.add_relax(parser, "of TVM's Relax, by the plug-in for Relax")


def peak_gflops(repeat, precision):
    """Return the GFLOP/s of a large matmul in a precision."""
    import numpy as np
    import tvm
    from tvm import relay
    from tvm.relay.op.contrib import dnnl
    from tvm.testing import dnnl as testing

    shape = (ROWS, ROWS)
    if precision in options.INT8:
        dtype = "uint8" if precision == options.INT8[0] else "int8"
        weight = relay.const(np.ones(shape, "int8"))
        scale, zero_point = relay.const(0.5), relay.const(0)
        operands = [
            relay.qnn.op.dequantize(operand, scale, zero_point)
            for operand in (relay.var("data", shape=shape, dtype=dtype), weight)
        ]
        precision = "float32"
    else:
        dtype, weight = "float32", relay.const(np.full(shape, 0.5, "float32"))
        operands = [relay.var("data", shape=shape), weight]
    mod = tvm.IRModule.from_expr(relay.nn.dense(*operands))
    runner = testing.Runner(testing.build(dnnl.partition_for_dnnl(mod, precision=precision)))
    runner({"data": np.ones(shape, dtype)})
    # The others bring data into the layout or type.
    rows = testing.primitives(runner, "measure_primitives", repeat)
    return gflops(max(rows, key=lambda row: row["flops"]))


def gflops(row):
    """Return the GFLOP/s of a primitive."""
    return row["flops"] / row["microseconds"] / 1e3


def cells(row, alone, total, peak):
    """Return the cells of a primitive."""
    rate = gflops(row) if row["flops"] else None
    # oneDNN's plain loops are slow: it has nothing better for this.
    flag = " (slow)" if row["reference"] else ""
    name = row["node"].rpartition(", ")[2]
    return [
        name if row["op"] in name else f"{name}: {row['op']}",
        " ".join(row["post_ops"]),
        row["impl"] + flag,
        row["variant"],
        f"{row['src']} > {row['dst']}",
        f"{row['microseconds']:.0f}",
        f"{alone['microseconds']:.0f}",
        f"{row['microseconds'] / total:.1%}",
        f"{rate:.0f}" if rate else "",
        f"{rate / peak:.0%}" if rate else "",
    ]


def totals(rows):
    """Return rows that sum up by kind of primitive."""
    kinds = {}
    for row in rows:
        kinds.setdefault((row["kind"], row["impl"]), []).append(row["microseconds"])
    total = sum(map(sum, kinds.values()))
    ordered = sorted(kinds.items(), key=lambda item: -sum(item[1]))
    return [
        [f"{kind}, {impl}", str(len(times)), f"{sum(times):.0f}", f"{sum(times) / total:.1%}"]
        for (kind, impl), times in ordered
    ]


def choose(model, shapes):
    """Return the workload of a name, or of a file."""
    from dnnl_tests.models import workloads

    from scripts.bench import files, peers

    if not options.is_onnx(model):
        return files.workload(model, shapes)
    if model.endswith(".onnx"):
        return peers.own_workload(model, shapes)
    chosen = options.choose("model", model, workloads.WORKLOADS)
    if "," in model or len(chosen) != 1:
        raise SetupError(f"MODEL: {model!r} is not one model", "name one.")
    return chosen[0]


def prepare(case, stack, with_relax):
    """Compile a case; return what samples runs, and what times the primitives.

    With Relax it is in a process that ends with `stack`.
    """
    from tvm.testing import dnnl as testing

    from scripts.bench import peers, relax

    if not with_relax:
        sample = peers.prepare_dnnl(case).sample
        return sample, functools.partial(testing.primitives, case.runner)
    worker = stack.enter_context(relax.worker())
    sample = relax.Relax(worker).prepare(case).sample
    return sample, functools.partial(worker.ask, "primitives", case.precision)


def main(args):
    """Print the profile; return the exit code."""
    options.limit_threads(args.threads)
    # After the threads are set: these import tvm.
    from scripts.bench import peers

    if args.cache and args.relax:
        raise SetupError("--cache is for Relay", "leave it or --relax away.")
    workload = choose(args.model, args.shape)
    console = Console()
    case = peers.Case(workload, args.threads, args.precision, args.cache)
    with contextlib.ExitStack() as stack:
        with console.step(f"{workload.title}, {args.precision}: compile"), passes_noted():
            try:
                case.check()
                sample, primitives = prepare(case, stack, args.relax)
            except peers.NotMeasured as error:
                raise SetupError(
                    f"--precision {args.precision}: {error}", "choose another."
                ) from error
        with console.step(f"{workload.title}: measure"):
            run = measure.Timing.of(sample(args.repeat))
            in_turn = primitives("profile_primitives", args.repeat)
            alone = primitives("measure_primitives", args.repeat)
            peak = peak_gflops(10, args.precision)
    total = sum(row["microseconds"] for row in in_turn)
    pairs = list(zip(in_turn, alone))
    if args.top:
        pairs = sorted(pairs, key=lambda pair: -pair[0]["microseconds"])[: args.top]
    print(table.render(HEADER, [cells(*pair, total, peak) for pair in pairs], left=5))
    print()
    print(table.render(["by code", "count", "µs", "share"], totals(in_turn)))
    alone_total = sum(row["microseconds"] for row in alone)
    flops = sum(row["flops"] for row in in_turn)
    print(
        f"\n{workload.title}, {args.precision}: whole run {run.median:.2f} ms; primitives "
        f"in their turn {total / 1e3:.2f} ms, alone {alone_total / 1e3:.2f} ms\n"
        f"{flops / 1e9:.2f} GFLOP in {run.median:.2f} ms: {flops / run.median / 1e6:.0f} "
        f"GFLOP/s, {flops / run.median / 1e6 / peak:.0%} of the peak of {peak:.0f} GFLOP/s"
    )
    if args.json:
        figures = {
            "model": workload.name,
            "precision": args.precision,
            "peak_gflops": peak,
            "median_ms": run.median,
        }
        figures["primitives"] = [
            {**row, "microseconds_alone": other["microseconds"]}
            for row, other in zip(in_turn, alone)
        ]
        write_atomically(args.json, json.dumps(figures, indent=1))
    if args.plot:
        plot.primitives(in_turn, args.plot, f"{workload.title}, {args.threads} threads")
    return 0
