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

The limit is the sum of the same oneDNN primitives run alone in the same process. All that is
measured of a model, backend by backend and precision by precision, takes turns within one run.
Beside each time is how the outputs differ from those of onnxruntime in float32.

With --codegen the two code generators are compared instead, JSON beside C_SRC: the time to
compile, export, load and run, and the memory. With --callers it is the throughput: one caller with
all threads, as many callers as threads, and what other runtimes offer for many callers. With
--open-dims it is libraries whose batch, image size or length is open. With --relax it is the
plug-in for Relax, beside Relay. With --busy it is beside processes that keep the CPUs busy.
MODEL.onnx is a file of your own, in the place of the models that are here.
"""

import dataclasses
import json

from scripts import options, table
from scripts.bench import common, measure, plot
from scripts.console import Console
from scripts.errors import SetupError
from scripts.files import write_atomically

# The precisions that are measured when none is named.
PRECISIONS = ("float32", "bfloat16", "int8")
TITLES = [
    "batch 1",
    "precision",
    "runtime",
    "median\nms",
    "10%..90%",
    "ours /\ntheirs",
    "of its\nfloat32",
    "cosine",
    "largest\nerror",
    "same\ntop-1",
]
DEFAULT_MARK = " *"
FORMAT = "dnnl-bench-2"


def add_arguments(parser):
    """Add the command's options. Names are checked later: the tables need TVM, threads go first."""
    parser.add_argument(
        "model", nargs="?", metavar="MODEL.onnx", help="measure this file (in float32 by default)"
    )
    options.add_shape(parser)
    parser.add_argument("--models", default="", metavar="A,B", help="only these (default: all)")
    parser.add_argument(
        "--backends", default="", metavar="A,B", help="only these (default: all but tvm)"
    )
    parser.add_argument(
        "--precision",
        default="",
        metavar="A,B",
        help=f"only these of {', '.join(options.PRECISIONS)} (default: {', '.join(PRECISIONS)})",
    )
    options.add_cache(parser)
    options.add_measurement(parser, repeat=100)
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument(
        "--codegen", action="store_true", help="compare JSON and C_SRC, on mobilenet by default"
    )
    mode.add_argument(
        "--callers", action="store_true", help="compare one caller with one for each thread"
    )
    mode.add_argument(
        "--open-dims",
        action="store_true",
        help="measure models with open dimensions beside libraries for one shape each",
    )
    mode.add_argument(
        "--busy",
        type=options.count,
        metavar="N",
        help="measure beside N processes that compute all the time: ours, onnxruntime, OpenVINO",
    )
    options.add_relax(parser, "measure the plug-in for Relax beside Relay")
    parser.add_argument(
        "--tvm-alone", action="store_true", help="with --relax: TVM's Relax without oneDNN, too"
    )


def own_file(args):
    """Return the workload of the file that the user named."""
    from scripts.bench import own

    if args.models or args.codegen or args.open_dims:
        raise SetupError(
            f"{args.model} cannot be measured with --models, --codegen or --open-dims",
            "leave that out.",
        )
    args.precision = args.precision or PRECISIONS[0]
    return own.workload(args.model, args.shape)


def _find(results, backend, precision):
    """Return the rounds of a backend in a precision, or None."""
    for result in results:
        if (result["backend"].name, result["case"].precision) == (backend, precision):
            return result.get("rounds")
    return None


def json_rows(results, ours):
    """Return a dict for each result of a workload, ready for JSON."""
    rows = []
    for result in results:
        case, name = result["case"], result["backend"].name
        row = {"model": case.original.name, "precision": case.precision, "backend": name}
        rows.append(row)
        if "reason" in result:
            row["reason"] = result["reason"]
            continue
        timing = measure.Timing.of(sum(result["rounds"], []))
        row.update(median_ms=timing.median, low_ms=timing.low, high_ms=timing.high)
        row.update(samples=timing.count, is_default=result["is_default"])
        mine = _find(results, ours, case.precision)
        if name != ours and mine:
            row["dnnl_ratio"] = measure.ratio(mine, result["rounds"])
        base = _find(results, name, "float32")
        if case.precision != "float32" and base:
            row["float32_ratio"] = measure.ratio(result["rounds"], base)
        if result["accuracy"]:
            row.update(dataclasses.asdict(result["accuracy"]))
    return rows


def table_row(row, model, backend):
    """Return the cells of one of `json_rows`."""
    cells = [model, row["precision"], backend]
    if "reason" in row:
        return [*cells, "-", *[""] * (len(TITLES) - len(cells) - 1)]

    def text(key, style):
        return "" if row.get(key) is None else format(row[key], style)

    cells[2] += DEFAULT_MARK if row["is_default"] else ""
    return [
        *cells,
        common.digits(row["median_ms"]),
        f"{common.digits(row['low_ms'])}..{common.digits(row['high_ms'])}",
        text("dnnl_ratio", ".2f"),
        text("float32_ratio", ".2f"),
        text("cosine", ".5f"),
        text("error", ".1e"),
        text("top1", ".1%"),
    ]


def compare(workloads, precisions, backends, args, console):
    """Measure workloads on backends; return the titles and rows of a table, and rows for JSON."""
    from scripts.bench import peers

    cells, rows, models = [], [], []
    for workload in workloads:
        cases = [peers.Case(workload, args.threads, each, args.cache) for each in precisions]
        results = peers.measure_workload(cases, backends, args.repeat, console)
        ours = json_rows(results, peers.OURS)
        rows += ours
        cells += [
            table_row(row, "" if number else workload.title, result["backend"].title)
            for number, (row, result) in enumerate(zip(ours, results))
        ]
        pooled = {
            (result["backend"].name, result["case"].precision): sum(result["rounds"], [])
            for result in results
            if "rounds" in result
        }
        models.append((workload.title, pooled))
    if args.plot:
        titles = {backend.name: backend.title for backend in backends}
        subtitle = f"batch 1, {args.threads} threads"
        plot.backends(models, titles, precisions, args.plot, subtitle)
    return TITLES, cells, rows


def main(args):
    """Run the benchmark; return the exit code."""
    common.limit_threads(args.threads)
    # After the threads are set: these import tvm.
    import tvm
    from dnnl_tests.models import open_dims as open_networks
    from dnnl_tests.models import workloads
    from tvm.relay.op.contrib import dnnl

    from scripts.bench import busy, codegens, open_dims, peers, relax, relax_open, throughput

    if args.model:
        chosen = [own_file(args)]
    else:
        if args.codegen and not args.models:
            args.models = codegens.MODEL
        if args.relax and not args.open_dims and not args.models:
            args.models = ",".join(relax.MODELS)
        known_models = open_networks.NETWORKS if args.open_dims else workloads.WORKLOADS
        chosen = common.choose("models", args.models, known_models)
    if args.cache and (args.relax or args.open_dims or args.codegen):
        raise SetupError(
            "--cache keeps models that Relay compiled for one shape and codegen",
            "leave it away, or --relax, --open-dims or --codegen.",
        )
    if args.busy:
        busy.check(args)
    if args.tvm_alone and not args.relax:
        raise SetupError("--tvm-alone goes with --relax", "add that.")
    names = []
    if args.relax:
        names = relax.check(args)
    elif args.open_dims:
        names = open_dims.chosen_peers(options.names(args.backends))
    backends = common.choose("backends", args.backends, peers.BACKENDS)
    known = {precision: precision for precision in options.PRECISIONS}
    precisions = common.choose("precision", args.precision or ",".join(PRECISIONS), known)
    if not args.backends:
        backends = [backend for backend in backends if backend.by_default]
    if args.open_dims and args.plot:
        raise SetupError("--open-dims draws nothing", "leave --plot away.")
    if args.json:
        common.check_writable(args.json)
    if args.plot:
        plot.check_path("--plot", args.plot)
    console = Console()
    note = measure.busy_note()
    if args.codegen:
        titles, cells, rows = codegens.compare(chosen, args.repeat, console)
    elif args.relax:
        module = relax_open if args.open_dims else relax
        titles, cells, rows = module.compare(chosen, precisions, names, args, console)
    elif args.open_dims:
        titles, cells, rows = open_dims.compare(chosen, precisions, names, args, console)
    elif args.busy:
        titles, cells, rows = busy.compare(chosen, precisions, args, console)
    elif args.callers:
        cases = [
            peers.Case(workload, args.threads, precision, args.cache)
            for workload in chosen
            for precision in precisions
        ]
        titles, cells, rows = throughput.compare(cases, args.repeat, console)
    else:
        titles, cells, rows = compare(chosen, precisions, backends, args, console)
    host = measure.host()
    versions = {"tvm": tvm.__version__, "onednn": dnnl.dnnl_version()}
    if args.relax:
        versions["relax"] = relax.versions()
    print(
        f"\noneDNN {versions['onednn']}, TVM {tvm.__version__}"
        f"{' and {tvm}'.format(**versions['relax']) if args.relax else ''}, {host['cpu']}, "
        f"{args.threads} threads"
    )
    print(f"{note}\n" if note else "")
    print(
        table.render(
            titles,
            cells,
            left=1 if args.codegen else 2 if args.relax or args.open_dims or args.callers else 3,
        )
    )
    print("\n".join(common.reasons(rows)))
    if any(row.get("is_default") for row in rows):
        print("* the precision that this runtime chooses by itself on this CPU")
    if args.json:
        figures = {
            "format": FORMAT,
            "host": host,
            "versions": versions,
            "threads": args.threads,
            "repeat": args.repeat,
            "note": note,
            "rows": rows,
        }
        write_atomically(args.json, json.dumps(figures, indent=1) + "\n")
    return 0
