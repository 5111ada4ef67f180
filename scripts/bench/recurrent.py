# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers in float32, bfloat16 and int8 on both TVMs, beside onnxruntime and OpenVINO.

The threads of the runtime that ran before sleep when another one takes its turn.
"""

import contextlib
import dataclasses
import datetime
import functools
import logging
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
from dnnl_tests.models import workloads
from onnx import helper, numpy_helper
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from scripts import options, table
from scripts.bench import measure, peers, relax, rows
from scripts.console import Console
from scripts.errors import SetupError
from scripts.files import write_between
from scripts.layout import ROOT

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
PRECISIONS = ("float32", "bfloat16", "int8")
OURS, PEERS = (relax.OURS, "relay"), ("onnxruntime", "openvino")
FORMAT = "dnnl-bench-recurrent-3"
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
# The table of the docs is between these two lines of it.
PATH = ROOT / "docs" / "onnx_importers.md"
MARKS = ("<!-- ./dev.py bench --recurrent --write -->\n", "<!-- until here -->\n")
_HEADER = [
    "layer", "precision", "TVM", "ops on\noneDNN", "import\ns", "partition\ns", "build\ns",
    "largest\nerror", "ms", "onnxruntime\nms", "ours /\ntheirs", "OpenVINO\nms",
    "ours /\ntheirs",
]  # fmt: skip


def save(path, op, direction, inputs, hidden, layers=1):
    """Write a model of layers, time first with open steps, for one sequence.

    Each of several layers, which have one direction, reads the results of the one before.
    """
    count, units, random = 1 + (direction == "bidirectional"), _GATES[op] * hidden, np.random
    random, nodes, data = random.default_rng(0), [], "X"
    weights = [numpy_helper.from_array(np.array([1]), "axes")] if layers > 1 else []
    for k in range(layers):
        columns = {"W": hidden if k else inputs, "R": hidden, "B": None}
        for name, size in columns.items():
            shape = (count, 2 * units) if size is None else (count, units, size)
            values = random.uniform(-1, 1, shape) / (size or 2 * units) ** 0.5
            weights.append(numpy_helper.from_array(values.astype("float32"), f"{name}{k}"))
        if k:
            nodes.append(helper.make_node("Squeeze", [data, "axes"], [f"X{k}"]))
            data = f"X{k}"
        operands, data = [data, f"W{k}", f"R{k}", f"B{k}"], "Y" if k == layers - 1 else f"Y{k}"
        attrs = {"linear_before_reset": 1} if op == "GRU" else {}
        attrs.update(hidden_size=hidden, direction=direction)
        nodes.append(helper.make_node(op, operands, [data], **attrs))
    x = helper.make_tensor_value_info("X", 1, ("steps", 1, inputs))
    y = helper.make_tensor_value_info("Y", 1, ("steps", count, 1, hidden))
    graph = helper.make_graph(nodes, "layer", [x], [y], weights)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)


def quantize(path, target):
    """Write the model as onnxruntime's `quantize_dynamic` does."""
    from onnxruntime import quantization

    # Advice to run its pre-processing, of which one layer has no need.
    logging.getLogger().setLevel(logging.ERROR)
    quantization.quantize_dynamic(path, target)


class LayerCase(peers.RestedCase):
    """Layers in a precision. The int8 model has DynamicQuantizeLSTM."""

    def __init__(self, name, folder, threads, precision):
        op, direction, steps, inputs, *sizes = LAYERS[name]
        paths = [f"{folder}/model.onnx", f"{folder}/int8.onnx"]
        save(paths[0], op, direction, inputs, *sizes)
        original, quantized = (
            workloads.Workload(
                name=name,
                title=name,
                load=None,
                input_name="X",
                shape=(steps, 1, inputs),
                onnx_path=functools.partial(str, path),
                has_classes=False,
            )
            for path in paths
        )
        super().__init__(original, threads, precision)
        if self.is_int8:
            quantize(*paths)
            self.workload = quantized

    def compiled(self):
        """Return the library for Relay; note the seconds of its stages."""
        seconds = [time.perf_counter()]
        mod, params = dnnl.from_onnx(
            self.workload.onnx_path(), shape={"X": list(self.workload.shape)}
        )
        seconds.append(time.perf_counter())
        mod = dnnl.partition_for_dnnl(mod, params, precision=self.own_precision)
        seconds.append(time.perf_counter())
        report = dnnl.offload_report(mod)
        library = testing.build(mod)
        seconds.append(time.perf_counter())
        self.facts = {"total": report.total, "offloaded": report.offloaded}
        self.facts["stages"] = measure.stages(seconds)
        return library


def _relay(case):
    """Run a case on Relay."""
    prepared = peers.prepare_dnnl(case)
    return dataclasses.replace(prepared, facts=case.facts)


def _openvino(case):
    """Run a case on OpenVINO."""
    if case.is_int8:
        raise peers.NotMeasured("OpenVINO has no DynamicQuantizeLSTM")
    return peers.prepare_openvino(case)


def row_of(results):
    """Return the figures of a case by runtime."""
    measured = {each["backend"].name: each for each in results if "rounds" in each}
    row = {"layer": results[0]["case"].original.name, "precision": results[0]["case"].precision}
    for name, result in measured.items():
        timing = measure.Timing.of(sum(result["rounds"], []))
        row[name] = {"ms": timing.median, "error": result["accuracy"].error, **result["facts"]}
        for ours in measured.keys() & set(OURS):
            ratio = measure.ratio(measured[ours]["rounds"], result["rounds"])
            row[name][f"{ours}_ratio"] = ratio
    return row


def _lines(figures):
    """Return the cells of the table, a line for each TVM of a row."""
    cells, last = [], None
    for row in figures:
        for ours in (each for each in OURS if each in row):
            case, own = (row["layer"], row["precision"]), row[ours]
            line = [*(("", "") if case == last else case), ours.title()]
            line.append(f"{own['offloaded']}/{own['total']}")
            line += map(rows.digits, own["stages"].values())
            line += [f"{own['error']:.1e}", rows.digits(own["ms"])]
            for runtime in PEERS:
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
    titles += [f"{name}, ms (ours / theirs)" for name in ("onnxruntime", "OpenVINO")]
    lines = []
    for line in _lines(figures):
        pairs = zip(line[9::2], line[10::2])
        theirs = ["-" if ms == "-" else f"{ms} ({ratio})" for ms, ratio in pairs]
        lines.append([*line[:3], *line[4:9], *theirs])
    return head + table.markdown(titles, lines)


def main(args):
    """Run the benchmark; return the exit code."""
    if args.write and (args.backends or args.precision):
        raise SetupError("the table of the docs has all rows", "omit --backends and --precision.")
    console, note, figures = Console(), measure.busy_note(), []
    with contextlib.ExitStack() as stack:
        worker = stack.enter_context(relax.worker())
        known = {
            **relax.Relax(worker).backends(),
            "relay": peers.Backend("relay", "Relay", _relay),
            "onnxruntime": peers.BACKENDS["onnxruntime"],
            "openvino": peers.Backend("openvino", "OpenVINO", _openvino),
        }
        names = dict.fromkeys((*OURS, *PEERS))
        chosen = options.choose("backends", args.backends, {name: name for name in names})
        ours = [name for name in OURS if name in chosen] or OURS[:1]
        backends = [known[name] for name in dict.fromkeys([*ours, *chosen])]
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="recurrent-")))
        for name, (op, *_) in LAYERS.items():
            for precision in args.precision or PRECISIONS:
                # quantize_dynamic quantizes no other layer.
                if precision not in PRECISIONS or (precision == "int8" and op != "LSTM"):
                    continue
                case = LayerCase(name, folder, args.threads, precision)
                figures.append(row_of(peers.measure_cases([case], backends, args.repeat, console)))
    if not figures:
        raise SetupError("--recurrent: no layer has such a precision", "omit --precision.")
    cpu = measure.host()["cpu"]
    print(f"\n{cpu}, {args.threads} threads")
    print(f"{note}\n" if note else "")
    print(table.render(_HEADER, _lines(figures), left=3))
    if args.write:
        write_between(PATH, MARKS, markdown(figures, cpu, args.threads))
    measure.save(args, FORMAT, note=note, repeat=args.repeat, rows=figures)
    return 0
