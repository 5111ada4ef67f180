# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers in float32, bfloat16 and int8, beside onnxruntime and OpenVINO."""

import contextlib
import datetime
import json

import numpy as np

from scripts import options, table
from scripts.bench import measure, rows
from scripts.bench.worker import Worker
from scripts.console import Console
from scripts.errors import SetupError
from scripts.files import write_atomically, write_between
from scripts.layout import ROOT, Layout, PluginLayout

# By name: op, direction, steps, inputs, hidden units and number of layers, of one sequence.
LAYERS = {
    "LSTM 40 > 64, 50 steps": ("LSTM", "forward", 50, 40, 64),
    "2 x LSTM 40 > 64, 50 steps": ("LSTM", "forward", 50, 40, 64, 2),
    "BiLSTM 40 > 128, 50 steps": ("LSTM", "bidirectional", 50, 40, 64),
    "LSTM 256 > 256, 20 steps": ("LSTM", "forward", 20, 256, 256),
    "LSTM 512 > 512, 20 steps": ("LSTM", "forward", 20, 512, 512),
    "LSTM 1024 > 1024, 1 step": ("LSTM", "forward", 1, 1024, 1024),
    "BiLSTM 256 > 512, 20 steps": ("LSTM", "bidirectional", 20, 256, 256),
    "GRU 40 > 64, 50 steps": ("GRU", "forward", 50, 40, 64),
    "BiGRU 40 > 128, 50 steps": ("GRU", "bidirectional", 50, 40, 64),
    "GRU 512 > 512, 20 steps": ("GRU", "forward", 20, 512, 512),
    "RNN 512 > 512, 20 steps": ("RNN", "forward", 20, 512, 512),
}
OURS = ("relax", "relay")
RUNTIMES = {
    "relax": "Relax",
    "relay": "Relay",
    "onnxruntime": "onnxruntime",
    "openvino": "OpenVINO",
}
FORMAT = "dnnl-bench-recurrent-2"
# The table of the docs is between these two lines of it.
PATH = ROOT / "docs" / "onnx_importers.md"
MARKS = ("<!-- ./dev.py bench --recurrent --write -->\n", "<!-- until here -->\n")
_HEADER = [
    "layer", "precision", "TVM", "ops on\noneDNN", "import\ns", "partition\ns", "build\ns",
    "largest\nerror", "ms", "onnxruntime\nms", "ours /\ntheirs", "OpenVINO\nms",
    "ours /\ntheirs",
]  # fmt: skip


def _cases(args):
    """Yield the cases: the name of a layer and a precision."""
    for name, (op, *_) in LAYERS.items():
        for precision in args.precision or ("float32", "bfloat16", "int8"):
            # quantize_dynamic quantizes no other layer.
            if precision in ("float32", "bfloat16") or (precision == "int8" and op == "LSTM"):
                yield name, precision


def _has(runtime, precision):
    """Whether a runtime has a precision: OpenVINO has no DynamicQuantizeLSTM."""
    missing = {"onnxruntime": "bfloat16", "openvino": "int8"}
    return missing.get(runtime) != precision


def _measure(workers, folder, name, precision, args):
    """Return the row of a case."""
    op, direction, steps, inputs, *sizes = LAYERS[name]
    path = f"{folder}/{op}-{direction}-{inputs}-{'-'.join(map(str, sizes))}"
    first = next(iter(workers.values()))
    first.ask("save", f"{path}.onnx", op, direction, inputs, *sizes)
    first.ask("quantize", f"{path}.onnx", f"{path}-int8.onnx")
    shape, row = (steps, 1, inputs), {"layer": name, "precision": precision}
    load = (shape, precision if precision != "int8" else "float32", args.threads)
    reference = ("reference", "onnxruntime", f"{path}.onnx", shape, "float32", args.threads)
    wanted, _ = first.ask("load", *reference)
    samplers = {}
    for runtime, worker in workers.items():
        if not _has(runtime, precision):
            continue
        file = f"{path}-int8.onnx" if precision == "int8" else f"{path}.onnx"
        got, facts = worker.ask("load", runtime, runtime, file, *load)
        row[runtime] = {"error": float(np.abs(got - wanted).max()), **facts}
        samplers[runtime] = lambda count, worker=worker, key=runtime: worker.ask(
            "sample", key, count
        )
    rounds = measure.take_turns(samplers, args.repeat)
    for runtime in samplers:
        row[runtime]["ms"] = measure.Timing.of(sum(rounds[runtime], [])).median
        for ours in OURS:
            if ours in samplers:
                row[runtime][f"{ours}_ratio"] = measure.ratio(rounds[ours], rounds[runtime])
    return row


def _lines(figures):
    """Return the cells of the table, a line for each TVM of a row."""
    cells, last = [], None
    for row in figures:
        for ours in (each for each in OURS if each in row):
            case, own = (row["layer"], row["precision"]), row[ours]
            line = [*(("", "") if case == last else case), RUNTIMES[ours]]
            line.append(f"{own['offloaded']}/{own['ops']}")
            line += [rows.digits(own[key]) for key in ("import_s", "partition_s", "build_s")]
            line += [f"{own['error']:.1e}", rows.digits(own["ms"])]
            for runtime in ("onnxruntime", "openvino"):
                theirs = row.get(runtime)
                line.append(rows.digits(theirs["ms"]) if theirs else "-")
                line.append(f"{theirs[f'{ours}_ratio']:.2f}" if theirs else "-")
            cells.append(line)
            last = case
    return cells


def markdown(figures, cpu, threads):
    """Return the table for the docs, without the numbers of ops."""
    head = f"{datetime.date.today()}, {cpu}, {threads} threads:\n\n"
    titles = [title.replace("\n", ", ") for title in _HEADER[:3] + _HEADER[4:9]]
    titles += [f"{RUNTIMES[name]}, ms (ours / theirs)" for name in ("onnxruntime", "openvino")]
    lines = [titles, ["---"] * len(titles)]
    for line in _lines(figures):
        pairs = zip(line[9::2], line[10::2])
        theirs = ["-" if ms == "-" else f"{ms} ({ratio})" for ms, ratio in pairs]
        lines.append([*line[:3], *line[4:9], *theirs])
    return head + "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main(args):
    """Run the benchmark; return the exit code."""
    console, note = Console(), measure.busy_note()
    chosen = options.choose("backends", args.backends, {name: name for name in RUNTIMES})
    if args.write and (args.backends or args.precision):
        raise SetupError("the table of the docs has all rows", "omit --backends and --precision.")
    figures = []
    with contextlib.ExitStack() as stack:
        workers = {}
        ours = [name for name in OURS if name in chosen] or OURS[:1]
        for name in dict.fromkeys([*ours, *chosen]):
            layout = PluginLayout() if name == "relax" else Layout()
            worker = Worker(layout, "scripts.bench.recurrent_worker")
            workers[name] = stack.enter_context(worker)
        folder = next(iter(workers.values())).ask("folder")
        cases = list(_cases(args))
        if not cases:
            raise SetupError("--recurrent: no layer has such a precision", "omit --precision.")
        for name, precision in cases:
            with console.step(f"{name}, {precision}"):
                figures.append(_measure(workers, folder, name, precision, args))
    host = measure.host()
    print(f"\n{host['cpu']}, {args.threads} threads")
    print(f"{note}\n" if note else "")
    print(table.render(_HEADER, _lines(figures), left=3))
    if args.write:
        write_between(PATH, MARKS, markdown(figures, host["cpu"], args.threads))
    if args.json:
        content = {"format": FORMAT, "host": host, "threads": args.threads, "note": note}
        content.update(repeat=args.repeat, rows=figures)
        write_atomically(args.json, json.dumps(content, indent=1) + "\n")
    return 0
