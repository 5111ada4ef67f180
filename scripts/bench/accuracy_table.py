# SPDX-License-Identifier: Apache-2.0
"""The error of models in reduced precision, beside OpenVINO's, for many inputs. Measures no times.

The error is relative to the outputs in float32: the root of the mean square divided by that of the
outputs, and the largest difference divided by the largest value. Both are means over the inputs.
"""

import datetime
import math
import statistics

import numpy as np
from dnnl_tests.models import accuracy, workloads

from scripts import options, table
from scripts.bench import measure, peers
from scripts.console import Console, passes_noted
from scripts.errors import SetupError
from scripts.files import write_between
from scripts.layout import ROOT

PRECISION = "bfloat16"
PEERS = ("openvino",)
FORMAT = "dnnl-bench-accuracy-1"
# Sizes of published models; their time says nothing that the smaller ones do not.
_LARGER = (
    workloads.onnx_network(
        "bert",
        "BERT encoder, 6 layers of 768",
        (1, 32, 768),
        layers=6,
        length=32,
        size=768,
        heads=12,
    ),
    workloads.onnx_network(
        "vit", "ViT, 6 layers of 768", (1, 3, 224, 224), layers=6, patch=32, size=768, heads=12
    ),
)
MODELS = {**workloads.WORKLOADS, **{f"{row.name}-768": row for row in _LARGER}}
# The table of the docs is between these two lines of it.
PATH = ROOT / "docs" / "numerics.md"
MARKS = ("<!-- ./dev.py bench --accuracy --write -->\n", "<!-- until here -->\n")
_HEADER = ["model", "precision", "runtime", "root mean\nsquare", "largest", "ours /\ntheirs"]


def errors_of(outputs, expected):
    """Return (root mean square, largest) of the first output, relative, for each input."""
    errors = []
    for got, want in zip(outputs, expected):
        difference, want = got.astype("float64") - want, want.astype("float64")
        square = np.square(difference).mean() / np.square(want).mean()
        errors.append((math.sqrt(square), np.abs(difference).max() / np.abs(want).max()))
    return errors


def ratio_of(ours, theirs):
    """Return the geometric mean of the ratios of errors, and its relative standard error."""
    logarithms = [math.log(mine / other) for mine, other in zip(ours, theirs)]
    spread = statistics.stdev(logarithms) if len(logarithms) > 1 else math.nan
    return math.exp(statistics.mean(logarithms)), spread / math.sqrt(len(logarithms))


def rows_of(model, precision, backends, args, console):
    """Return the figures of a model for each backend that runs it, ours first."""
    rows, examples = [], accuracy.examples(model, args.accuracy)
    reference = peers.prepare_onnxruntime(peers.Case(model, args.threads))
    expected = [reference.run(each)[0] for each in examples]
    for backend in backends:
        with console.step(f"{model.title}, {precision}: {backend.name}"), passes_noted():
            row = {"model": model.title, "precision": precision, "runtime": backend.title}
            rows.append(row)
            try:
                case = peers.Case(model, args.threads, precision)
                case.check()
                prepared = backend.prepare(case)
            except peers.NotMeasured as error:
                row["reason"] = str(error)
                continue
            errors = errors_of((prepared.run(each)[0].copy() for each in examples), expected)
            prepared.close()
        row["errors"] = errors
        row["rms"], row["largest"] = map(statistics.mean, zip(*errors))
        if backend.name != peers.OURS and "errors" in rows[0]:
            squares = ([rms for rms, _ in each["errors"]] for each in (rows[0], row))
            row["ratio"], row["ratio_error"] = ratio_of(*squares)
    return rows


def _cells(row):
    """Return a row of the table; a reason is in the place of the ratio."""
    ratio = f"{row['ratio']:.2f} ± {row['ratio_error']:.2f}" if "ratio" in row else ""
    errors = [f"{row[name]:.1e}" if name in row else "-" for name in ("rms", "largest")]
    return [row["model"], row["precision"], row["runtime"], *errors, row.get("reason", ratio)]


def markdown(rows, cpu, count):
    """Return the table for the docs, a line for each model."""
    head = f"{datetime.date.today()}, {cpu}, {count} inputs of each model:\n\n"
    lines = []
    for ours, theirs in zip(rows[::2], rows[1::2]):
        errors = (", ".join(_cells(row)[3:5]) for row in (ours, theirs))
        lines.append([ours["model"], *errors, _cells(theirs)[-1]])
    titles = ["model", "this backend: root mean square, largest", "OpenVINO"]
    return head + table.markdown([*titles, "root mean square, ours / theirs"], lines)


def main(args):
    """Run the models; return the exit code."""
    if args.write and (args.models or args.backends or args.precision):
        raise SetupError("the table of the docs has all rows", "name no models or precisions.")
    models = options.choose("models", args.models, MODELS)
    names = options.names(args.backends) or PEERS
    options.choose("backends", ",".join(names), peers.BACKENDS)
    backends = [peers.BACKENDS[name] for name in dict.fromkeys([peers.OURS, *names])]
    cases = [(model, each) for model in models for each in args.precision or [PRECISION]]
    console, rows = Console(), []
    for model, precision in cases:
        rows += rows_of(model, precision, backends, args, console)
    cpu = measure.host()["cpu"]
    print(f"\n{cpu}, {args.threads} threads, {args.accuracy} inputs")
    print(table.render(_HEADER, map(_cells, rows), left=3))
    if args.write:
        write_between(PATH, MARKS, markdown(rows, cpu, args.accuracy))
    measure.save(args, FORMAT, rows=rows)
    return 0
