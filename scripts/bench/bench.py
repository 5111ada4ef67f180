# SPDX-License-Identifier: Apache-2.0
"""Measures models on TVM with DNNL, beside the limit and beside other runtimes.

The limit is the sum of the same oneDNN primitives run alone in the same process. All that is
measured of a model, backend by backend and precision by precision, takes turns within one run.
Beside each time is how the outputs differ from those of onnxruntime in float32.

With --codegen the two code generators are compared instead, JSON beside C_SRC: the time to
compile, export, load and run, and the memory. With --callers it is the throughput: one caller with
all threads, as many callers as threads, and what other runtimes offer for many callers. With
--open-dims it is libraries whose batch, image size or length is open. With --relax it is the
plug-in for Relax, beside Relay. With --busy it is beside processes that keep the CPUs busy. With
--text it is a language model on the plug-in: prompts, first tokens, further ones, and memory. With
--first it is the time from the start of a process to its first answer. With --recurrent it is LSTM,
GRU and RNN layers on both TVMs. With --ops it is single ops on the plug-in.
With --accuracy it is the error in reduced precision for many inputs, and no time. With --zoo it is
architectures of PyTorch with random weights on the plug-in, beside PyTorch's compiler, too.
MODEL is a file of your own, in the place of the models that are here: an ONNX file, or a .tflite or
.pt2 file, which runs on the plug-in, beside the runtime that it was written for.
"""

import contextlib
import functools
from pathlib import Path

from scripts import options
from scripts.bench import measure, plot
from scripts.console import Console
from scripts.errors import SetupError

# The precisions that are measured when none is named.
PRECISIONS = ("float32", "bfloat16", "int8")
_ALL_PRECISIONS = tuple(dict.fromkeys([*options.PRECISIONS, *options.TEXT_PRECISIONS]))
FORMAT = "dnnl-bench-3"
# Options that do not go together.
CONFLICTS = (
    ("model", "models"),
    ("model", "codegen"),
    ("model", "open_dims"),
    ("relax", "codegen"),
    ("relax", "callers"),
    ("codegen", "precision"),
    ("cache", "relax"),
    ("cache", "open_dims"),
    ("cache", "codegen"),
    ("tvm_alone", "open_dims"),
    ("plot", "callers"),
    *(("text", name) for name in ("model", "models", "cache", "relax", "plot")),
    *(("first", name) for name in ("precision", "cache", "relax", "plot")),
    *(("recurrent", name) for name in ("model", "models", "cache", "relax", "plot")),
    *(("ops", name) for name in ("model", "models", "cache", "relax", "plot")),
    *(("zoo", name) for name in ("model", "cache", "relax", "plot")),
    *(("accuracy", name) for name in ("model", "cache", "relax", "plot")),
)


def add_arguments(parser):
    """Add the command's options. Names are checked later: the tables need TVM, threads go first."""
    parser.add_argument(
        "model", nargs="?", metavar="MODEL", help="measure this file (in float32 by default)"
    )
    options.add_shape(parser)
    parser.add_argument("--models", default="", metavar="A,B", help="only these (default: all)")
    parser.add_argument(
        "--backends", default="", metavar="A,B", help="only these beside ours (default: most)"
    )
    parser.add_argument(
        "--precision",
        type=options.some_of(_ALL_PRECISIONS, "precision"),
        metavar="A,B",
        help=f"only these of {', '.join(options.PRECISIONS)} (default: {', '.join(PRECISIONS)}); "
        f"with --text of {', '.join(options.TEXT_PRECISIONS)} (default: all)",
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
        help="measure beside N processes that compute all the time",
    )
    mode.add_argument(
        "--text",
        action="store_true",
        help="measure SmolLM2-135M, at most 3 runs of each (a download of 130 MB)",
    )
    mode.add_argument(
        "--first",
        action="store_true",
        help="measure the first answer of fresh processes, at most 7 of each, stage by stage",
    )
    mode.add_argument(
        "--recurrent", action="store_true", help="measure recurrent layers on both TVMs"
    )
    mode.add_argument(
        "--ops",
        nargs="?",
        const="all",
        metavar="A,B",
        help="measure single ops of the table at sizes of models (default: all ops)",
    )
    mode.add_argument(
        "--accuracy",
        type=options.count,
        nargs="?",
        const=16,
        metavar="N",
        help="measure the error of models in bfloat16 for N inputs, and OpenVINO's (default: 16)",
    )
    mode.add_argument(
        "--zoo",
        action="store_true",
        help="measure architectures of PyTorch with random weights, beside inductor, too",
    )
    parser.add_argument(
        "--draws",
        type=options.count,
        default=3,
        metavar="N",
        help="with --ops: models of each op (default: 3)",
    )
    parser.add_argument(
        "--write",
        action="store_true",
        help="with --recurrent: write docs/onnx_importers.md; with --first: docs/recipes.md; "
        "with --accuracy: docs/numerics.md; with --zoo: docs/measurements.md",
    )
    parser.add_argument(
        "--tokens",
        type=options.count,
        default=256,
        metavar="N",
        help="with --text: new tokens of each prompt (default: 256)",
    )
    parser.add_argument(
        "--pasts",
        type=lambda text: [options.count(past) for past in options.names(text)],
        metavar="N,N",
        help="with --text: new tokens after pasts of these lengths (default: 64,512,2048); "
        "prompts of 512 tokens are measured if one is as long",
    )
    options.add_relax(parser, "measure the plug-in for Relax beside Relay")
    parser.add_argument(
        "--tvm-alone", action="store_true", help="with --relax: TVM's Relax without oneDNN, too"
    )


def check(args):
    """Raise a SetupError for options that do not go together."""
    for pair in CONFLICTS:
        if all(getattr(args, name) for name in pair):
            first, second = (
                args.model if name == "model" else f"--{name.replace('_', '-')}" for name in pair
            )
            raise SetupError(f"{first} does not go with {second}", "leave one of them away.")
    known = options.TEXT_PRECISIONS if args.text else options.PRECISIONS
    for precision in args.precision or ():
        if precision not in known:
            mode = "with --text" if args.text else "without --text"
            raise SetupError(f"--precision {precision} {mode}", f"choose of {', '.join(known)}.")
    if args.tvm_alone and not args.relax:
        raise SetupError("--tvm-alone goes with --relax", "add that.")
    if args.first and not options.is_onnx(args.model or ""):
        raise SetupError("--first measures ONNX files", "leave it away, or export the model.")
    if args.write and not (args.recurrent or args.first or args.accuracy or args.zoo):
        modes = "--recurrent, --first, --accuracy or --zoo"
        raise SetupError(f"--write goes with {modes}", "add one of them.")


def chosen_models(args):
    """Return the models that the user named, or those of the mode."""
    from dnnl_tests.models import open_dims, workloads

    from scripts.bench import codegens, peers, relax

    if args.model:
        return [peers.own_workload(args.model, args.shape)]
    names = args.models
    if args.codegen:
        names = names or codegens.MODEL
    if args.relax and not args.open_dims:
        names = names or ",".join(relax.MODELS)
    known = open_dims.NETWORKS if args.open_dims else workloads.WORKLOADS
    return options.choose("models", names, known)


def chosen_backends(args, relax_rows):
    """Return what is measured, ours first. `relax_rows` are those of the plug-in, by name."""
    from scripts.bench import codegens, files, open_dims, peers, relax, throughput

    known, always = peers.BACKENDS, [peers.OURS]
    names = [name for name, backend in known.items() if backend.by_default]
    if args.callers:
        known, always = throughput.backends(args.threads), [throughput.OURS]
        names = list(known)
    elif args.open_dims:
        known, always = open_dims.BACKENDS, [peers.OURS, open_dims.STATIC]
        names = list(known)
    elif args.codegen:
        known, always = codegens.BACKENDS, [codegens.OURS]
        names = list(known)
    elif args.busy:
        names = ["onnxruntime", "openvino"]
    if args.relax:
        known = relax_rows | known
        always = [relax.OURS] + [relax.STATIC] * args.open_dims + [relax.ALONE] * args.tvm_alone
        is_onnx = options.is_onnx(args.model or "")
        names = relax.PEERS if is_onnx else files.PEERS[Path(args.model).suffix]
    names = options.names(args.backends) or names
    options.choose("backends", ",".join(names), known)
    return [known[name] for name in dict.fromkeys([*always, *names])]


def compare(models, precisions, backends, args, console):
    """Measure models on backends; return the labels of the rows of a table, and the rows."""
    from scripts.bench import open_dims, peers, rows, throughput

    beside = functools.partial(measure.busy, args.busy) if args.busy else contextlib.nullcontext
    labels, measured = [], []
    for model in models:
        if args.open_dims:
            # One precision after the other: each shape has libraries of its own.
            groups = [[open_dims.OpenCase(model, args.threads, each)] for each in precisions]
        else:
            groups = [[peers.Case(model, args.threads, each, args.cache) for each in precisions]]
        for cases in groups:
            results = peers.measure_cases(cases, backends, args.repeat, console, beside)
            # All of a shape below each other.
            results.sort(key=lambda result: result.get("number", 0))
            labels += rows.labels_of(results)
            measured += rows.rows_of(results, backends[0].name, with_high=bool(args.busy))
    if args.callers:
        throughput.as_rates(measured)
    return labels, measured


def main(args):
    """Run the benchmark; return the exit code."""
    check(args)
    options.limit_threads(args.threads)
    if args.text:
        # Each runtime is in a process of its own.
        from scripts.bench import text

        return text.main(args)
    if args.first:
        from scripts.bench import first

        return first.main(args)
    if args.recurrent:
        from scripts.bench import recurrent

        return recurrent.main(args)
    if args.ops:
        from scripts.bench import ops

        return ops.main(args)
    if args.accuracy:
        from scripts.bench import accuracy_table

        return accuracy_table.main(args)
    if args.zoo:
        from scripts.bench import zoo

        return zoo.main(args)
    # After the threads are set: these import tvm.
    import tvm
    from tvm.relay.op.contrib import dnnl

    from scripts.bench import files, relax, rows

    is_other = not options.is_onnx(args.model or "")
    models = [] if is_other else chosen_models(args)
    is_one = args.model or args.codegen
    precisions = args.precision or (PRECISIONS[:1] if is_one else PRECISIONS)
    console, note = Console(), measure.busy_note()
    versions = {"tvm": tvm.__version__, "onednn": dnnl.dnnl_version()}
    heading = f"oneDNN {versions['onednn']}, TVM {tvm.__version__}"
    with contextlib.ExitStack() as stack:
        relax_rows = {}
        if args.relax:
            worker = stack.enter_context(relax.worker())
            relax_rows = relax.Relax(worker).backends()
            versions["relax"] = worker.ask("versions")
            heading += f" and {versions['relax']['tvm']}"
        if is_other:
            runtime = files.Runtime(stack.enter_context(files.worker()))
            models = [files.workload(args.model, args.shape, runtime)]
            relax_rows |= runtime.backends()
        backends = chosen_backends(args, relax_rows)
        labels, measured = compare(models, precisions, backends, args, console)
    print(f"\n{heading}, {measure.host()['cpu']}, {args.threads} threads")
    print(f"{note}\n" if note else "")
    first = (
        f"busy processes: {args.busy}" if args.busy else "model" if args.open_dims else "batch 1"
    )
    print(rows.render(first, labels, measured))
    print("\n".join(rows.reasons(measured)))
    if any(row.get("is_default") for row in measured):
        print("* the precision that this runtime chooses by itself on this CPU")
    if args.plot:
        plot.backends(labels, measured, args.plot, f"{first}, {args.threads} threads")
    measure.save(args, FORMAT, versions=versions, repeat=args.repeat, note=note, rows=measured)
    return 0
