# SPDX-License-Identifier: Apache-2.0
"""Scans oneDNN's kernels: random convolutions, matmuls and pools with exact results."""

import collections
import json
import os
import time
from pathlib import Path

from scripts import table
from scripts.console import Console
from scripts.errors import SetupError
from scripts.files import write_between
from scripts.layout import ROOT

FAILURES = ROOT / "build" / "kernels.jsonl"
RECORD = ROOT / "docs" / "numerics.md"
MARKS = ("<!-- scans: begin -->\n", "<!-- scans: end -->\n")
# The extensions that decide which kernels oneDNN has.
EXTENSIONS = ("amx_int8", "avx512_fp16", "avx512_bf16", "avx512_vnni", "avx512f", "avx2", "avx")


def _choice(text, known, option):
    words = tuple(text.split(",")) if text else tuple(known)
    for word in words:
        if word not in known:
            raise SetupError(f"{option}: unknown {word!r}", f"choose from {','.join(known)}.")
    return words


def _saved(path):
    """Return the cases of a file that an earlier scan wrote."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
        return [json.loads(line)["case"] for line in lines]
    except (OSError, ValueError, KeyError) as error:
        raise SetupError(f"--replay: cannot read {path}", "name another file.") from error


def _cpu():
    """Return the best extension of this CPU, or the one that oneDNN is limited to."""
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA")
    if limit:
        return limit.lower()
    words = Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
    return next((name for name in EXTENSIONS if name in words), "sse4_1")


def _record(counts, seconds, version):
    """Put what ran into the page's table, which has a row for each kind of CPU and oneDNN."""
    page = RECORD.read_text(encoding="utf-8").partition(MARKS[0])[2].partition(MARKS[1])[0]
    head, rule, *lines = page.splitlines(keepends=True)
    total = sum(counts.values())
    row = [_cpu(), version, time.strftime("%Y-%m-%d"), f"{total:,}", str(total - counts["right"])]
    row.append(f"{seconds / 60:.0f}")
    kept = [line for line in lines if not line.startswith(f"| {row[0]} | {row[1]} |")]
    text = "".join([head, rule, *sorted([*kept, f"| {' | '.join(row)} |\n"])])
    write_between(RECORD, MARKS, text)


def main(args):
    """Run the scan; return 1 if a case is not right."""
    from dnnl_tests import kernel_scan
    from tvm.relay.op.contrib import dnnl

    classes = _choice(args.classes, kernel_scan.CLASSES, "--class")
    kinds = [
        k for k in _choice(args.kinds, kernel_scan.KINDS, "--kinds") if k in kernel_scan.kinds()
    ]
    if not kinds:
        raise SetupError("--kinds: this CPU has no kernels of them", "choose others.")
    replayed = _saved(args.replay) if args.replay else None
    drawn = kernel_scan.cases(args.seed, classes, kinds)
    console, counts, failures = Console(), collections.Counter(), []
    begin = time.monotonic()
    with console.step(f"kernels from seed {args.seed}"):
        for count, case in enumerate(drawn if replayed is None else replayed):
            seconds = time.monotonic() - begin
            is_over = args.seconds is not None and seconds > args.seconds
            if replayed is None and (is_over or count == args.count):
                break
            verdict = kernel_scan.run(case)
            counts[verdict.kind] += 1
            console.note(f"seed {case['seed']}, {count + 1} cases, {len(failures)} failed")
            if verdict.kind == "right":
                continue
            failures.append({"case": case, **verdict._asdict()})
            print(f"{verdict.kind}: {verdict.text}; {', '.join(verdict.kernels)}")
            print(f"  {json.dumps(case)}")
    if failures and replayed is None:
        FAILURES.parent.mkdir(exist_ok=True)
        lines = [json.dumps(each) for each in failures]
        FAILURES.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        print(f"saved; run them again: ./dev.py fuzz --kernels --replay {FAILURES}")
    print(table.render(["verdict", "cases"], [[*each] for each in counts.most_common()]))
    if args.record and replayed is None:
        _record(counts, time.monotonic() - begin, str(dnnl.dnnl_version()))
    return 1 if failures or not counts else 0
