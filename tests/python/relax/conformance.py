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
"""The conformance cases of the `onnx` package with Relax: TVM's importer, ours, and oneDNN.

A case is a small model with inputs and the outputs that the standard demands. Run this file to
print what became of all of them.
"""

from __future__ import annotations

import collections
import sys
from pathlib import Path

import numpy as np
import tvm
import tvm_dnnl
from dnnl_tests.isolated import Crashed, Raised, isolated_each
from dnnl_tests.onnx_models import conformance_case, conformance_cases
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx

# The tolerance of the conformance suite itself.
RTOL, ATOL = 1e-3, 1e-6
SECONDS = 120.0

RIGHT, WRONG, FAILS, NOT_IMPORTED, CRASHES = "right", "wrong", "fails", "not imported", "crashes"
#: The columns: TVM's importer and TVM; our importer and TVM; our importer and oneDNN.
COLUMNS = ("TVM", "from_onnx, TVM", "from_onnx, oneDNN")


def _judge(mod, inputs, wanted, partitions: bool) -> tuple[str, int]:
    """Compile and run a module; return what became of it, and how many ops ran on oneDNN."""
    offloaded = 0
    if partitions:
        mod = tvm_dnnl.partition_for_dnnl(mod, prune=False)
        offloaded = tvm_dnnl.offload_report(mod).offloaded
        mod = relax.transform.RunCodegen()(mod)
    machine = relax.VirtualMachine(tvm.compile(mod, target="llvm"), tvm.cpu())
    names = [param.name for param in mod["main"].params]
    results = machine["main"](*[tvm.runtime.tensor(inputs[name]) for name in names])
    results = [results] if isinstance(results, tvm.runtime.Tensor) else list(results)
    for got, want in zip(results, wanted, strict=True):
        got = got.numpy()
        if got.shape != want.shape:
            return WRONG, offloaded
        if want.dtype.kind not in "fiub":
            continue
        # A quotient that is half a step may be rounded to either side.
        step = (0, 1) if want.dtype in ("uint8", "int8") else (RTOL, ATOL)
        if not np.allclose(got.astype("float64"), want.astype("float64"), *step, equal_nan=True):
            return WRONG, offloaded
    return RIGHT, offloaded


def run_case(folder: Path, column: str) -> tuple[str, int]:
    """Run a case; return what became of it, and how many ops ran on oneDNN."""
    model, inputs, wanted = conformance_case(folder)
    try:
        if column == COLUMNS[0]:
            mod = from_onnx(model, keep_params_in_input=False)
        else:
            mod = tvm_dnnl.from_onnx(model)
    except Exception:  # TVM raises errors of all types
        return NOT_IMPORTED, 0
    try:
        return _judge(mod, inputs, wanted, column == COLUMNS[2])
    except Exception:
        return FAILS, 0


def run_all(names=None, columns=COLUMNS, progress=lambda done: None) -> dict[str, dict[str, tuple]]:
    """Run cases, outside of this process; return by column and case what `run_case` returns."""
    folders = conformance_cases()
    chosen = list(folders if names is None else names)
    results = {}
    for column in columns:
        calls = [(folders[name], column) for name in chosen]
        results[column] = {}
        for name, answer in zip(chosen, isolated_each(run_case, calls, SECONDS)):
            if isinstance(answer, Crashed):
                answer = CRASHES, 0
            elif isinstance(answer, Raised):
                answer = "not run", 0  # inputs that are not tensors
            results[column][name] = answer
            progress(len(results[column]))
    return results


def table(results) -> str:
    """Return the results as a table in Markdown."""
    kinds = (RIGHT, WRONG, FAILS, CRASHES, NOT_IMPORTED)
    lines = [f"| | {' | '.join(kinds)} | with ops on oneDNN |", "|---" * (len(kinds) + 2) + "|"]
    for column, outcomes in results.items():
        counts = collections.Counter(kind for kind, _ in outcomes.values())
        offloaded = sum(count > 0 and kind == RIGHT for kind, count in outcomes.values())
        cells = [str(counts[kind]) for kind in kinds]
        lines.append(f"| {column} | {' | '.join(cells)} | {offloaded or ''} |")
    return "\n".join(lines)


def lost(results, left: str, right: str) -> dict[str, str]:
    """Return what became of the cases that are right in one column, and not in another."""
    return {
        name: kind
        for name, (kind, _) in results[right].items()
        if kind != RIGHT and results[left][name][0] == RIGHT
    }


if __name__ == "__main__":
    all_results = run_all(
        progress=lambda done: print(f"\r{done}", end="", file=sys.stderr, flush=True)
    )
    print(file=sys.stderr)
    print(table(all_results))
    for left, right in (COLUMNS[:2], COLUMNS[1:]):
        cases_lost = lost(all_results, left, right)
        print(f"\nright with {left!r}, not with {right!r}: {cases_lost}")
