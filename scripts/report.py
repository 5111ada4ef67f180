# SPDX-License-Identifier: Apache-2.0
"""Reports which ops of a model run on oneDNN, how they are fused, and why the others do not.

The report is a table; --html adds a page with the graph drawn, --json a file for programs. --run
also runs the model and reports the times. --before compares with an earlier report.
"""

import json
import subprocess
import tempfile
from pathlib import Path

from scripts import options, table
from scripts.console import Console, passes_noted
from scripts.errors import SetupError
from scripts.files import write_atomically
from scripts.onnx_model import OnnxModel, relax_module

MOST_TIMES = 10  # in the table


def add_arguments(parser):
    """Add the command's options."""
    parser.add_argument(
        "model", metavar="MODEL", help="an ONNX file; or a .tflite or .pt2 file, by Relax"
    )
    parser.add_argument("--html", metavar="FILE", help="write a page with the graph drawn")
    parser.add_argument("--json", metavar="FILE", help="write all numbers and ops")
    parser.add_argument(
        "--run", action="store_true", help="also run the model, and report where its time goes"
    )
    parser.add_argument(
        "--before", metavar="FILE", help="show what changed since an earlier report's --json FILE"
    )
    options.add_shape(parser)
    parser.add_argument(
        "--exclude",
        metavar="A,B",
        default="",
        help="Relay ops and composites that stay on TVM",
    )
    options.add_precision(parser)
    parser.add_argument(
        "--no-prune", action="store_true", help="keep partitions that are too small to be faster"
    )
    options.add_relax(parser, "of TVM's Relax, by the plug-in for Relax")


def load(args, console):
    """Import the model; return module and parameters. Say which inputs need a shape."""
    if args.relax:
        # Relax keeps what is open under a name of its own.
        return relax_module(args.model, args.shape), None
    model = OnnxModel(args.model, args.shape)
    for name, advice in model.open_inputs():
        console.say(f"input {name} has no fixed shape, so little can run on oneDNN: give {advice}")
    import tvm

    # So that the importer notes the names of the file's nodes.
    with tvm.transform.PassContext(config={"relay.frontend.fill_span": True}):
        return model.to_relay()


def write(path, text):
    """Write a file that the user named."""
    try:
        write_atomically(path, text)
    except OSError as error:
        raise SetupError(f"cannot write {path}: {error.strerror}", "name another file.") from error


def read_report(path):
    """Return what --json wrote."""
    try:
        report = json.loads(Path(path).read_text(encoding="utf-8"))
        required = {key: report[key] for key in ("ops", "total", "offloaded", "partitions")}
        return {**required, "median_ms": report.get("median_ms")}
    except OSError as error:
        raise SetupError(f"cannot read {path}: {error.strerror}", "name another file.") from error
    except (ValueError, KeyError, TypeError) as error:
        remedy = "write one with ./dev.py report MODEL.onnx --json FILE."
        raise SetupError(f"{path} is not a report", remedy) from error


def changes(before, now):
    """Return what two reports count differently: what is counted, before and now.

    The reports are as `OffloadReport.to_dict` returns them, with `median_ms` if the model was run.
    """
    rows = [
        (text, before[key], now[key])
        for key, text in (
            ("total", "ops"),
            ("offloaded", "ops on oneDNN"),
            ("partitions", "partitions"),
        )
    ]
    for name in sorted({*before["ops"], *now["ops"]}):
        counts = (each["ops"].get(name, {}).get("offloaded", 0) for each in (before, now))
        rows.append((f"{name} on oneDNN", *counts))
    times = [each.get("median_ms") for each in (before, now)]
    if None not in times:
        rows.append(("milliseconds of a run", *(f"{each:.2f}" for each in times)))
    return [row for row in rows if row[1] != row[2]]


def profile(args):
    """Run the model, and return what `./dev.py profile` measures of it."""
    from scripts.layout import ROOT

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "profile.json"
        words = [args.model, "--json", str(path), "--precision", args.precision]
        words += ["--relax"] if args.relax else []
        for name, sizes in dict(args.shape).items():
            words += ["--shape", f"{name}={','.join(map(str, sizes))}"]
        command = [ROOT / "dev.py", "profile", *words]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
        if done.returncode:
            raise SetupError("the model cannot be run", "leave out --run for the report alone.")
        return json.loads(path.read_text(encoding="utf-8"))


def times(measured):
    """Return the times of a profile as a table, the slowest primitive first."""
    rows = sorted(measured["primitives"], key=lambda row: -row["microseconds"])
    total = sum(row["microseconds"] for row in rows)
    cells = [
        (
            row["node"].rpartition(", ")[2],
            " ".join(row["post_ops"]),
            f"{row['microseconds'] / 1e3:.3f}",
            f"{row['microseconds'] / total:.1%}",
        )
        for row in rows[:MOST_TIMES]
    ]
    text = table.render(("primitive", "fused", "ms", "share"), cells, left=2)
    left = len(rows) - len(cells)
    more = f"\n{left} more; ./dev.py profile shows all" if left else ""
    return (
        f"{text}{more}\nwhole run {measured['median_ms']:.3f} ms, of which primitives of oneDNN "
        f"{total / 1e3:.3f} ms"
    )


def facts(dnnl, measured, precision):
    """Return what the page's header tells."""
    import tvm

    from scripts.bench import measure

    host = measure.host()
    lines = [host["cpu"], f"{host['cpus']} CPUs", f"TVM {tvm.__version__}"]
    lines += [f"oneDNN {dnnl.dnnl_version()}", precision]
    return lines + ([f"{measured['median_ms']:.2f} ms a run"] if measured else [])


def main(args):
    """Print and write the report; return the exit code."""
    # After the arguments are parsed: this imports tvm.
    if args.relax:
        import tvm_dnnl as dnnl
    else:
        from tvm.relay.op.contrib import dnnl
    if args.run and (args.exclude or args.no_prune):
        raise SetupError(
            "--run measures the default options", "leave out --exclude and --no-prune."
        )
    before = read_report(args.before) if args.before else None
    exclude = [name for name in args.exclude.split(",") if name]
    console = Console()
    # The name alone: there is to be room for what it does now.
    with console.step(f"{Path(args.model).name}: partition for oneDNN"), passes_noted():
        console.note("import")
        mod, params = load(args, console)
        try:
            given = dict(prune=not args.no_prune, exclude=exclude, precision=args.precision)
            mod = dnnl.partition_for_dnnl(mod, params, **given)
        except ValueError as error:
            raise SetupError(str(error)) from error
        report = dnnl.offload_report(mod)
        report.next_step = ""
    print(report)
    measured = profile(args) if args.run else None
    if measured:
        print(f"\n{times(measured)}")
    run = {"median_ms": measured["median_ms"]} if measured else {}
    changed = changes(before, {**report.to_dict(), **run}) if before else []
    if before:
        print(f"\nsince {args.before}:")
        print(table.render(("", "before", "now"), changed) if changed else "nothing changed")
    if args.json:
        write(args.json, json.dumps({**json.loads(report.to_json()), **run}, indent=1) + "\n")
    if args.html:
        title = f"{Path(args.model).name} on oneDNN"
        precision = args.precision + (" and int8" if report.in_8_bits else "")
        shown = facts(dnnl, measured, precision)
        write(args.html, report.to_html(title, shown, measured, changed))
    return 0
