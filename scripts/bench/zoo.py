# SPDX-License-Identifier: Apache-2.0
"""Architectures of PyTorch with random weights: the plug-in beside inductor and other runtimes.

Each model is exported to an ONNX file once. Inductor compiles the model of PyTorch; it and the
plug-in are in processes of their own, the others in this one. All take turns.
"""

import contextlib
import dataclasses
import datetime

from scripts import options, table
from scripts.bench import measure, peers, relax, rows
from scripts.bench.worker import Worker
from scripts.console import Console
from scripts.errors import SetupError
from scripts.files import write_between
from scripts.layout import ROOT, PluginLayout

FOLDER = ROOT / "build" / "zoo"
FORMAT = "dnnl-bench-zoo-1"
PRECISIONS = ("float32", "bfloat16")
INDUCTOR = "inductor"
PEERS = ("openvino", "onnxruntime", INDUCTOR)
PATH = ROOT / "docs" / "measurements.md"
MARKS = ("<!-- ./dev.py bench --zoo --write -->\n", "<!-- until here -->\n")


class Inductor:
    """PyTorch's compiler, in the process of the models."""

    def __init__(self, worker):
        self.worker = worker

    def prepare(self, case):
        """Compile a model of the zoo."""
        key = f"{case.original.name} {case.precision}"
        words = key, case.original.name, case.precision, case.threads, case.inputs
        self.worker.ask("load", *words)
        return peers.Prepared(
            lambda repeat: self.worker.ask("sample", key, case.inputs, repeat),
            lambda inputs: self.worker.ask("run", key, inputs),
            close=lambda: self.worker.ask("drop", key),
        )


def workload(name, title, worker):
    """Return a model of the zoo, exported by the worker if it has not been."""
    path = FOLDER / f"{name}.onnx"
    if not path.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        worker.ask("export", name, str(part))
        part.rename(path)
    return dataclasses.replace(peers.own_workload(str(path), ()), name=name, title=title)


def lines_of(measured, titles):
    """Return a line for each model and precision: our time, and its ratio to each peer's."""
    cases, lines = {}, []
    for row in measured:
        cases.setdefault((row["model"], row["precision"]), {})[row["backend"]] = row
    for (model, precision), by_backend in cases.items():
        ours = by_backend[relax.OURS]
        ratios = [by_backend.get(name, {}).get("ratio", -1.0) for name in PEERS]
        cells = [f"{each:.2f}" if each >= 0 else "-" for each in (*ratios, max(ratios))]
        ops = f"{ours['offloaded']}/{ours['total']} in {ours['partitions']}"
        lines.append([titles[model], precision, ops, rows.digits(ours["median_ms"]), *cells])
    return lines


HEADER = [
    *("model", "precision", "ops on oneDNN, partitions", "ms"),
    *(f"ours / {name}" for name in ("OpenVINO", "onnxruntime", "inductor", "the fastest")),
]


def main(args):
    """Measure the zoo; return the exit code."""
    if args.write and (args.models or args.backends or args.precision):
        raise SetupError("the table of the docs has all rows", "name no models or precisions.")
    console, note, measured, labels = Console(), measure.busy_note(), [], []
    with contextlib.ExitStack() as stack:
        torch = stack.enter_context(Worker(PluginLayout(), "scripts.bench.zoo_models"))
        plugin = stack.enter_context(relax.worker())
        titles = torch.ask("titles")
        known = relax.Relax(plugin).backends() | peers.BACKENDS
        known[INDUCTOR] = peers.Backend(INDUCTOR, "inductor", Inductor(torch).prepare)
        names = options.names(args.backends) or PEERS
        options.choose("backends", ",".join(names), known)
        backends = [known[name] for name in dict.fromkeys([relax.OURS, *names])]
        versions = plugin.ask("versions") | torch.ask("versions")
        for name in options.choose("models", args.models, {each: each for each in titles}):
            with console.step(f"{titles[name]}: export"):
                model = workload(name, titles[name], torch)
            for precision in args.precision or PRECISIONS:
                case = peers.RestedCase(model, args.threads, precision)
                results = peers.measure_cases([case], backends, args.repeat, console)
                labels += rows.labels_of(results)
                measured += rows.rows_of(results, relax.OURS)
    cpu = measure.host()["cpu"]
    print(f"\n{cpu}, {args.threads} threads; {versions}\n{note}")
    print(rows.render("model", labels, measured))
    print("\n".join(rows.reasons(measured)))
    lines = lines_of(measured, titles)
    print(table.render(HEADER, lines, left=3))
    if args.write:
        text = ", ".join(f"{name} {version}" for name, version in versions.items())
        head = f"{datetime.date.today()}, {cpu}, {args.threads} threads; {text}:\n\n"
        write_between(PATH, MARKS, head + table.markdown(HEADER, lines))
    measure.save(args, FORMAT, versions=versions, rows=measured, note=note)
    return 0
