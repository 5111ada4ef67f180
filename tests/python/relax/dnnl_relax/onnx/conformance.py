# SPDX-License-Identifier: Apache-2.0
"""The conformance cases of the `onnx` package with Relax: TVM's importer, ours, and oneDNN.

A case is a small model with inputs and the outputs that the standard demands. `python -m
dnnl_relax.onnx.conformance` prints what became of all of them, or of those whose names contain one
of its arguments.
"""

from __future__ import annotations

import argparse
import collections
import sys
from pathlib import Path
from typing import NamedTuple

import ml_dtypes
import numpy as np
import tvm
import tvm_dnnl
from dnnl_tests.isolated import Crashed, Raised, isolated_each
from dnnl_tests.onnx_models import conformance_case, conformance_cases, onnx_session
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx

from dnnl_relax.modules import virtual_machine

# The tolerance of the conformance suite itself.
RTOL, ATOL = 1e-3, 1e-6
SECONDS, BATCH = 120.0, 60

RIGHT, WRONG, FAILS, NOT_IMPORTED, CRASHES = "right", "wrong", "fails", "not imported", "crashes"
DISPUTED = "as onnxruntime"  # which does not return what the case wants either
NOT_RUN = "not run"  # inputs that are not tensors
#: The columns: TVM's importer and TVM; our importer and TVM; our importer and oneDNN.
COLUMNS = ("TVM", "from_onnx, TVM", "from_onnx, oneDNN")


class Outcome(NamedTuple):
    """What became of a case.

    Attributes
    ----------
    kind : str
        One of the constants of this module.
    offloaded : int
        How many ops ran on oneDNN.
    reason : str
        Why it is not right.
    """

    kind: str
    offloaded: int = 0
    reason: str = ""


def _difference(results, wanted) -> str:
    """Return how results differ from the standard's; an empty string if they do not."""
    for got, want in zip(results, wanted, strict=True):
        got = got.numpy()
        if got.shape != want.shape:
            return f"shape {got.shape} instead of {want.shape}"
        if got.dtype != want.dtype:
            return f"{got.dtype} instead of {want.dtype}"
        tolerance = _tolerance(want.dtype)
        if not np.allclose(
            got.astype("float64"), want.astype("float64"), *tolerance, equal_nan=True
        ):
            return "numbers"
    return ""


def _tolerance(dtype) -> tuple[float, float]:
    """Return the relative and the absolute tolerance of a type."""
    if dtype in ("uint8", "int8"):
        return 0, 1  # a quotient that is half a step may be rounded to either side
    if dtype in ("float16", "bfloat16"):
        # Sums and functions of several roundings to the type, in another order.
        return 4 * float(ml_dtypes.finfo(dtype).eps), ATOL
    return RTOL, ATOL


def _judge(mod, model, inputs, wanted, partitions: bool) -> Outcome:
    """Compile and run a module; return what became of it."""
    offloaded = 0
    if partitions:
        mod = tvm_dnnl.partition_for_dnnl(mod, prune=False)
        offloaded = tvm_dnnl.offload_report(mod).offloaded
        mod = relax.transform.RunCodegen()(mod)
    results = virtual_machine(mod)["main"](*map(tvm.runtime.tensor, inputs.values()))
    results = [results] if isinstance(results, tvm.runtime.Tensor) else list(results)
    difference = _difference(results, wanted)
    kind = WRONG if difference else RIGHT
    if difference and _is_as_onnxruntime(model, inputs, results):
        kind = DISPUTED
    return Outcome(kind, offloaded, difference)


def _is_as_onnxruntime(model, inputs, results) -> bool:
    """Whether results are those of onnxruntime."""
    try:
        others = onnx_session(model).run(None, inputs)
    except Exception:  # it does not have all ops and versions
        return False
    return not _difference(results, others)


def run_case(folder: Path, column: str) -> Outcome:
    """Run a case."""
    model, inputs, wanted = conformance_case(folder)
    try:
        if column == COLUMNS[0]:
            mod = from_onnx(model, keep_params_in_input=False)
        else:
            mod = tvm_dnnl.from_onnx(model)
    except Exception as error:  # TVM raises errors of all types
        return Outcome(NOT_IMPORTED, 0, _text(error))
    try:
        return _judge(mod, model, inputs, wanted, column == COLUMNS[2])
    except Exception as error:
        return Outcome(FAILS, 0, _text(error))


def _text(error: Exception) -> str:
    """Return the type of an error, and the beginning of its message."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def run_all(
    names=None, columns=COLUMNS, progress=lambda done: None
) -> dict[str, dict[str, Outcome]]:
    """Run cases, outside of this process; return by column and case what became of each."""
    folders = conformance_cases()
    chosen = list(folders if names is None else names)
    results = {}
    for column in columns:
        calls = [(folders[name], column) for name in chosen]
        results[column] = {}
        for name, answer in zip(chosen, isolated_each(run_case, calls, SECONDS, BATCH)):
            if isinstance(answer, Crashed):
                answer = Outcome(CRASHES, 0, str(answer))
            elif isinstance(answer, Raised):
                answer = Outcome(NOT_RUN)
            results[column][name] = answer
            progress(len(results[column]))
    return results


def table(results) -> str:
    """Return the results as a table in Markdown."""
    kinds = (RIGHT, DISPUTED, WRONG, FAILS, CRASHES, NOT_IMPORTED)
    lines = [f"| | {' | '.join(kinds)} | with ops on oneDNN |", "|---" * (len(kinds) + 2) + "|"]
    for column, outcomes in results.items():
        counts = collections.Counter(outcome.kind for outcome in outcomes.values())
        offloaded = sum(each.offloaded > 0 and each.kind == RIGHT for each in outcomes.values())
        cells = [str(counts[kind]) for kind in kinds]
        lines.append(f"| {column} | {' | '.join(cells)} | {offloaded or ''} |")
    return "\n".join(lines)


def reasons(outcomes, kinds=(WRONG, FAILS, CRASHES, DISPUTED, NOT_IMPORTED)) -> str:
    """Return the cases that are not right, by kind and reason."""
    groups = collections.defaultdict(list)
    for name, outcome in outcomes.items():
        groups[outcome.kind, outcome.reason].append(name)
    ordered = sorted(groups.items(), key=lambda each: (kinds.index(each[0][0]), each[0][1]))
    return "\n".join(f"[{kind}] {reason}\n  {' '.join(names)}" for (kind, reason), names in ordered)


def lost(results, left: str, right: str) -> dict[str, str]:
    """Return what became of the cases that are right in one column, and not in another."""
    return {
        name: outcome.kind
        for name, outcome in results[right].items()
        if outcome.kind != RIGHT and results[left][name].kind == RIGHT
    }


def main(argv) -> None:
    """Run cases, and print what became of them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--column", choices=COLUMNS, action="append", help="default: all")
    parser.add_argument("--reasons", action="store_true", help="print why cases are not right")
    parser.add_argument("parts", nargs="*", help="parts of the names of cases (default: all)")
    args = parser.parse_args(argv)
    names = [
        name
        for name in conformance_cases()
        if not args.parts or any(part in name for part in args.parts)
    ]
    columns = args.column or COLUMNS
    results = run_all(
        names, columns, lambda done: print(f"\r{done}", end="", file=sys.stderr, flush=True)
    )
    print(file=sys.stderr)
    print(table(results))
    for left, right in zip(columns, columns[1:]):
        print(f"\nright with {left!r}, not with {right!r}: {lost(results, left, right)}")
    for column in columns if args.reasons else ():
        failed = {
            name: outcome
            for name, outcome in results[column].items()
            if outcome.kind not in (RIGHT, NOT_RUN)
        }
        print(f"\n{column}\n{reasons(failed)}")


if __name__ == "__main__":
    main(sys.argv[1:])
