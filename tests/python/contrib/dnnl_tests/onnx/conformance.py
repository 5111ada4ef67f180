# SPDX-License-Identifier: Apache-2.0
"""The conformance cases of the `onnx` package, each run through Relay and oneDNN.

A case is a small model with inputs and the outputs that the standard demands. ``python -m
dnnl_tests.onnx.conformance`` runs all of them and prints what became of them.
"""

import argparse
import collections
import pathlib
import re
import sys
import textwrap
import time
import warnings
from typing import NamedTuple

import ml_dtypes
import numpy as np
import onnx
import tvm
from tvm.relay.op.contrib import dnnl
from tvm.testing import dnnl as testing

from dnnl_tests.isolated import Crashed, Raised, isolated_each
from dnnl_tests.onnx_models import conformance_case, onnx_session
from dnnl_tests.onnx_models import conformance_cases as cases

# The tolerance of the conformance suite itself.
RTOL, ATOL = 1e-3, 1e-6
CHUNK = 60
COLUMNS = 100
# Long, so that a busy machine does not look like a case that hangs.
SECONDS = 300.0

PASSES = "passes"
NOT_OFFLOADED = "nothing offloaded"
NOT_IMPORTED = "not imported"
TVM_FAILS = "fails without DNNL too"
DNNL_FAILS = "fails with DNNL only"
CRASHES = "crashes"
DISPUTED = "as onnxruntime"  # which does not return what the case wants either
KNOWN = (NOT_IMPORTED, TVM_FAILS, DISPUTED, CRASHES)


class Outcome(NamedTuple):
    """What became of a case.

    Attributes
    ----------
    kind : str
        One of the constants of this module.
    reason : str
        Why it does not pass.
    offloaded : tuple of str
        The Relay ops that oneDNN ran.
    """

    kind: str
    reason: str = ""
    offloaded: tuple = ()


def one_per_op(known):
    """Return the names of a case of each op and rank, and of one for each way in which it fails.

    Parameters
    ----------
    known : dict of str to str
        What `read_known` returns.
    """
    chosen = {}
    for name, folder in cases().items():
        graph = onnx.load(str(folder / "model.onnx")).graph
        rank = len(graph.input[0].type.tensor_type.shape.dim) if graph.input else 0
        chosen.setdefault((graph.node[0].op_type, known.get(name, rank)), name)
    return list(chosen.values())


def load(folder):
    """Import a case.

    Returns
    -------
    module, params, inputs, outputs
        The outputs are those that are expected.
    """
    model, inputs, outputs = conformance_case(folder)
    shapes = {name: value.shape for name, value in inputs.items()}
    mod, params = dnnl.from_onnx(model, shapes)
    names = {var.name_hint for var in mod["main"].params}
    inputs = {name: value for name, value in inputs.items() if name in names}
    return mod, params, inputs, outputs, model


def _has_dynamic_shape(mod):
    return "?" in mod["main"].astext(show_meta_data=False)


def _tolerance(mod, want):
    """Return how far an output may be from the expected one.

    ONNX's quotient of a quantization, in float32, may be half a step where the exact one is just
    below; oneDNN multiplies by the inverse. Such a number is rounded to either side. Sums and
    functions of several roundings to 16 bits are in another order.
    """
    if want.dtype in ("uint8", "int8") and "qnn." in mod.astext(show_meta_data=False):
        return 0.0, 1.0
    is_reduced = want.dtype in ("float16", "bfloat16")
    return (4 * float(ml_dtypes.finfo(want.dtype).eps) if is_reduced else RTOL), ATOL


def _run(mod, params, inputs, wanted, model=None):
    """Run a module and return what is wrong with its outputs; an empty text if nothing is.

    It is `DISPUTED` if they are as onnxruntime computes a given model.
    """
    needs_machine = _has_dynamic_shape(mod) or "if (" in mod.astext(show_meta_data=False)
    executor = "vm" if needs_machine else "graph"
    results = testing.run(mod, inputs, params, executor=executor, opt_level=1)
    if len(results) != len(wanted):
        return f"{len(results)} outputs instead of {len(wanted)}"
    wrong = _difference(mod, results, wanted)
    if wrong and model is not None:
        others = _attempt(lambda: onnx_session(model).run(None, inputs))
        if isinstance(others, list) and not _difference(mod, results, others):
            return DISPUTED
    return wrong


def _difference(mod, results, wanted):
    for got, want in zip(results, wanted):
        if want.dtype == "bfloat16" and got.dtype == "uint16":
            got = got.view(want.dtype)  # numpy's arrays of TVM have the bits
        if got.shape != want.shape:
            return f"shape {got.shape} instead of {want.shape}"
        if got.dtype != want.dtype:
            return f"{got.dtype} instead of {want.dtype}"
        numbers = (np.asarray(each).astype("float64") for each in (got, want))
        if not np.allclose(*numbers, *_tolerance(mod, want), equal_nan=True):
            return "wrong numbers"
    return ""


def _attempt(function, *args):
    """Call a function that returns what is wrong; an exception is wrong too."""
    try:
        return function(*args)
    # TVM raises whatever it likes.
    except Exception as error:  # pylint: disable=broad-except
        return _reason(error)


def _reason(error):
    """Return a line that tells an error, without what differs from run to run."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[-1] if lines else ""
    for noise in (
        r"^.*\.(cc|h|py):\d+: ",  # Where in the source.
        r"^.*Check failed: (.* is false: )?",
        r"^(\w*Error: )+",
        r": \[Var\(.*$",
        r" for frontend ONNX: .*$",  # The name of the case tells the op.
        r", node [^:]+(?=:)",
    ):
        text = re.sub(noise, "", text)
    return textwrap.shorten(f"{type(error).__name__}: {text}", 75, placeholder=" ...")


def run_case(folder):
    """Run one case; return its Outcome."""
    try:
        mod, params, inputs, outputs, model = load(pathlib.Path(folder))
    # The importer raises whatever it likes.
    except Exception as error:  # pylint: disable=broad-except
        return Outcome(NOT_IMPORTED, _reason(error))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", dnnl_warning())
            partitioned = dnnl.partition_for_dnnl(mod, params, prune=False)
            report = dnnl.offload_report(partitioned)
    except Exception as error:  # pylint: disable=broad-except
        wrong = _attempt(_run, mod, params, inputs, outputs)
        return Outcome(TVM_FAILS, wrong) if wrong else Outcome(DNNL_FAILS, _reason(error))
    offloaded = tuple(sorted(report.offloaded_ops))
    wrong = _attempt(_run, partitioned, params, inputs, outputs, model)
    if wrong == DISPUTED:
        return Outcome(DISPUTED, "", offloaded)
    if not report.partitions:
        return Outcome(TVM_FAILS, wrong) if wrong else Outcome(NOT_OFFLOADED)
    if not wrong:
        return Outcome(PASSES, "", offloaded)
    alone = _attempt(_run, mod, params, inputs, outputs)
    return Outcome(TVM_FAILS, alone, offloaded) if alone else Outcome(DNNL_FAILS, wrong, offloaded)


def dnnl_warning():
    """Return the class of the warnings about functions that were left alone."""
    from tvm.contrib.onednn import failures  # pylint: disable=import-outside-toplevel

    return failures.PartitionWarning


def run_all(names=(), progress=None):
    """Run cases.

    Parameters
    ----------
    names : sequence of str, optional
        Some of `cases`. Default: all.
    progress : callable, optional
        Called with the number of cases done and of all.

    Returns
    -------
    dict of str to Outcome
    """
    paths = cases()
    chosen = [name for name in paths if not names or name in names]
    outcomes = {}
    results = isolated_each(run_case, [(str(paths[name]),) for name in chosen], SECONDS, CHUNK)
    for name, result in zip(chosen, results):
        # A call that raises is one whose process could not answer.
        failed = isinstance(result, (Crashed, Raised))
        outcomes[name] = Outcome(CRASHES, str(result).splitlines()[-1]) if failed else result
        if progress:
            progress(len(outcomes), len(chosen))
    return outcomes


def summary(outcomes):
    """Return a text that tells how many cases import, have ops offloaded, and pass."""
    kinds = collections.Counter(outcome.kind for outcome in outcomes.values())
    ops = sorted({op for outcome in outcomes.values() for op in outcome.offloaded})
    imported = len(outcomes) - kinds[NOT_IMPORTED]
    offloaded = sum(bool(outcome.offloaded) for outcome in outcomes.values())
    lines = [
        f"{len(outcomes)} cases: {imported} import, {offloaded} of them have ops offloaded, "
        f"{kinds[PASSES]} of these pass",
        *(f"{count:5} {kind}" for kind, count in kinds.most_common()),
        _wrap(f"ops offloaded: {', '.join(ops)}").strip(),
    ]
    failed = [name for name, outcome in outcomes.items() if outcome.kind == DNNL_FAILS]
    return "\n".join(lines + [f"FAILED {name}: {outcomes[name].reason}" for name in failed])


def read_known(path):
    """Read the list of cases that are known not to pass: kind by name."""
    known, kind = {}, ""
    for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            kind = line[1 : line.index("]")]
        elif line.startswith("  "):
            known.update((name, kind) for name in line.split())
    return known


def _wrap(text):
    style = dict(initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
    return textwrap.fill(text, COLUMNS, break_long_words=False, **style)


def write_known(path, outcomes, head):
    """Write the list of cases that do not pass, under their reasons."""
    groups = collections.defaultdict(list)
    for name, outcome in outcomes.items():
        if outcome.kind in KNOWN:
            groups[KNOWN.index(outcome.kind), outcome.reason].append(name)
    lines = [head.rstrip("\n")]
    for (kind, reason), names in sorted(groups.items()):
        lines += ["", f"[{KNOWN[kind]}] {reason}".rstrip(), _wrap(" ".join(names))]
    pathlib.Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")


def main(argv):
    """Run the cases and print what became of them."""
    parser = argparse.ArgumentParser(prog="python -m dnnl_tests.onnx.conformance")
    parser.add_argument("--write", metavar="FILE", help="renew the list of known failures")
    parser.add_argument("names", nargs="*", help="the cases (default: all)")
    args = parser.parse_args(argv)
    start = time.monotonic()

    def progress(done, total):
        if done % CHUNK == 0 or done == total:
            print(f"{done} of {total}", file=sys.stderr, flush=True)

    outcomes = run_all(args.names, progress)
    print(f"TVM {tvm.__version__}, onnx {onnx.__version__}, {time.monotonic() - start:.0f} s")
    print(summary(outcomes))
    if args.names:
        for name, outcome in outcomes.items():
            print(f"{name}: {outcome.kind} {outcome.reason} {' '.join(outcome.offloaded)}")
    if args.write:
        old = pathlib.Path(args.write).read_text(encoding="utf-8").split("\n\n[")[0]
        write_known(args.write, outcomes, old)
    return 1 if any(outcome.kind == DNNL_FAILS for outcome in outcomes.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
