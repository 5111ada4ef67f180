# SPDX-License-Identifier: Apache-2.0
"""Single ops of the table on Relax's plug-in, beside onnxruntime and TVM without oneDNN.

An op is offloaded even where a model with it alone would stay on TVM: in other models it is a part
of a partition. In bfloat16 and float16, onnxruntime runs the op in float32.
"""

import contextlib
import functools
import tempfile
from pathlib import Path

import numpy as np
import onnx
from dnnl_tests.models import accuracy, workloads

from scripts import options, table
from scripts.bench import measure, op_models, peers, relax, rows
from scripts.console import Console
from scripts.errors import INTERRUPTED, SetupError

PRECISIONS = ("float32", "bfloat16", "float16", "int8")
PEERS = ("onnxruntime", relax.ALONE)
FORMAT = "dnnl-bench-ops-1"
# A ratio to the better of the others above this one is worth a look.
SLOW = 1.2
# Whatever takes so many seconds on TVM alone is not measured further.
LONGEST = 0.1
_HEADER = [
    "op", "precision", "operands and attributes", "on\noneDNN", "largest\nerror", "ms",
    "onnxruntime\nms", "TVM alone\nms", "ours /\nthe better",
]  # fmt: skip


class OpCase(peers.RestedCase):
    """A model of one node in a precision."""

    prune = False

    def __init__(self, op, model, folder, threads, precision):
        path = str(folder / f"{'int8' if precision in options.INT8 else 'float32'}.onnx")
        self.reference = self
        if precision != "float32":
            self.reference = OpCase(op, model, folder, threads, "float32")
        self.model, is_int8 = model, precision in options.INT8
        largest = np.abs(self.expected).max() if is_int8 else None
        onnx.save(model.proto(largest), path)
        workload = workloads.Workload(
            name=op,
            title=f"{op} {model.title}",
            load=None,
            input_name="",
            shape=(),
            onnx_path=lambda: path,
            has_classes=False,
        )
        super().__init__(workload, threads, precision)
        self.workload, self.inputs = workload, model.values(is_int8)
        self.unit = largest / 127 if is_int8 else 1

    @functools.cached_property
    def expected(self):
        """The output of onnxruntime in float32."""
        if self.reference is not self:
            return self.reference.expected
        return peers.prepare_onnxruntime(self).run(self.inputs)[0]

    def compared(self, prepared):
        """Return the accuracy of what is ready to run."""
        if not prepared.run:
            return None
        output = prepared.run(self.inputs)[0]
        if output.dtype == "uint8" and self.is_int8:
            output = (output.astype("float32") - 128) * self.unit
        return accuracy.Accuracy.of([output], [self.expected], False)


def _onnxruntime(case):
    """Run a case on onnxruntime, which has no reduced precision but int8."""
    if case.is_int8:
        return peers.prepare_onnxruntime(case)
    prepared = peers.prepare_onnxruntime(case.reference)
    return peers.Prepared(call=lambda _: prepared.run(case.inputs), run=prepared.run)


def _alone(plugin, case):
    """Run a case on TVM without oneDNN, unless it takes long."""
    prepared = plugin.prepare_alone(case)
    seconds = min(sum((prepared.sample(1) for _ in range(2)), []))
    if seconds > LONGEST:
        raise peers.NotMeasured(f"takes more than {1e3 * LONGEST:.0f} ms")
    return prepared


def _tried(prepare):
    """Let a model that a runtime cannot compile be one that is not measured."""

    def tried(case):
        try:
            return prepare(case)
        except SetupError as error:
            # What another process raised ends with a remedy if it is a SetupError, too.
            message = (error.details or str(error)).partition("\nwhat to do:")[0]
            message = message.strip().splitlines()[-1].strip()
            raise peers.NotMeasured(message) from error

    return tried


def row_of(results):
    """Return the figures of a case by runtime, and the ratio to the faster of the others."""
    measured = {each["backend"].name: each for each in results if "rounds" in each}
    case = results[0]["case"]
    row = {"op": case.original.name, "model": case.model.title, "precision": case.precision}
    row["reasons"] = {each["backend"].name: each["reason"] for each in results if "reason" in each}
    for name, result in measured.items():
        row[name] = {"ms": measure.Timing.of(sum(result["rounds"], [])).median, **result["facts"]}
        if result["accuracy"]:
            row[name]["error"] = result["accuracy"].error
    others = [row[name]["ms"] for name in PEERS if name in row]
    if relax.OURS in row and others:
        better = min((name for name in PEERS if name in row), key=lambda name: row[name]["ms"])
        rounds = measured[relax.OURS]["rounds"], measured[better]["rounds"]
        row.update(better=better, ratio=measure.ratio(*rounds))
    return row


def _cells(row):
    """Return a row of the table."""
    own, times = row[relax.OURS], [row.get(name) for name in PEERS]
    cells = [row["op"], row["precision"], row["model"], f"{own['offloaded']}/{own['total']}"]
    cells += [f"{own['error']:.1e}", rows.digits(own["ms"])]
    cells += [rows.digits(each["ms"]) if each else "-" for each in times]
    return [*cells, f"{row['ratio']:.2f}" if "ratio" in row else "-"]


def report(figures):
    """Return the table of what was measured, slowest first, and why the rest was not."""
    known = [row for row in figures if relax.OURS in row]
    known.sort(key=lambda row: -row.get("ratio", 0))
    slow = [row for row in known if row.get("ratio", 0) > SLOW]
    lines = [table.render(_HEADER, map(_cells, known), left=3), ""]
    lines.append(f"{len(slow)} of {len(known)} take more than {SLOW} of the better of the others")
    missing = {}
    for row in figures:
        if reason := row["reasons"].get(relax.OURS):
            missing.setdefault((row["precision"], reason), []).append(row["op"])
    lines += [
        f"{precision}: {reason} ({', '.join(dict.fromkeys(names))})"
        for (precision, reason), names in missing.items()
    ]
    return "\n".join(lines)


def _cases(args, folder):
    """Yield the models of the chosen ops in the chosen precisions."""
    chosen = "" if args.ops == "all" else args.ops
    for op in options.choose("ops", chosen, {op: op for op in op_models.DRAWS}):
        for model in op_models.models(op, args.draws):
            for precision in args.precision or PRECISIONS:
                if precision not in options.INT8 or model.has_int8:
                    yield OpCase(op, model, folder, args.threads, precision)


def main(args):
    """Run the benchmark; return the exit code. Ctrl-C keeps what has been measured."""
    console, note, figures, exit_code = Console(), measure.busy_note(), [], 0
    with contextlib.ExitStack() as stack:
        plugin = relax.Relax(stack.enter_context(relax.worker()))
        prepare = {relax.OURS: plugin.prepare, "onnxruntime": _onnxruntime}
        prepare[relax.ALONE] = functools.partial(_alone, plugin)
        names = options.names(args.backends) or PEERS
        options.choose("backends", ",".join(names), prepare)
        backends = [
            peers.Backend(name, name, _tried(prepare[name]))
            for name in dict.fromkeys([relax.OURS, *names])
        ]
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ops-")))
        try:
            for case in _cases(args, folder):
                figures.append(row_of(peers.measure_cases([case], backends, args.repeat, console)))
        except KeyboardInterrupt:
            exit_code = INTERRUPTED
    print(f"\n{measure.host()['cpu']}, {args.threads} threads")
    print(f"{note}\n" if note else "")
    print(report(figures))
    measure.save(args, FORMAT, note=note, repeat=args.repeat, rows=figures)
    return exit_code
