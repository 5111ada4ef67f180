# SPDX-License-Identifier: Apache-2.0
"""Prints the table of the ops that oneDNN runs, and what is refused.

The table tells types, layouts and fusion. --write also updates the table of oneDNN's faults.
"""

import sys

from scripts.console import Console
from scripts.files import write_atomically, write_between
from scripts.layout import ROOT

PATH = ROOT / "docs" / "supported_ops.md"
FAULTS = ROOT / "docs" / "numerics.md"


def add_arguments(parser):
    """Add the command's options."""
    parser.add_argument("--write", action="store_true", help="write it to docs")
    parser.add_argument("--run", action="store_true", help="run samples of each op, and compare")


def main(args):
    """Print or write the table; return the exit code."""
    # After the arguments are parsed: this imports tvm.
    from dnnl_tests.report import faults, support

    console = Console()
    with console.step("ask the rules"):
        text = support.text()
    wrong = {}
    if args.run:
        with console.step("run samples of each op"):
            wrong = support.run(console.note)
    if args.write:
        PATH.parent.mkdir(exist_ok=True)
        write_atomically(PATH, text)
        write_between(FAULTS, faults.MARKS, faults.text())
    else:
        print(text, end="")
    for name, what in wrong.items():
        print(f"FAILED: {name}: {what}", file=sys.stderr)
    return 1 if wrong else 0
