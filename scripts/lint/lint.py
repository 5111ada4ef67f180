# SPDX-License-Identifier: Apache-2.0
"""Checks the whole checkout: format, types, licence headers, file sizes, forbidden strings.

The tools are ruff, clang-format, cpplint and mypy. The C++ must compile without a warning
against the headers of the newest oneDNN that is supported.
"""

import os
import re
import subprocess

from scripts.layout import Layout
from scripts.lint import newest_onednn, text_rules
from scripts.setup import steps
from scripts.setup.environment import prepare

CPP = {".cc", ".h", ".c"}


PATIENCE = 5.0  # seconds without a line


def commands(layout, files, fix):
    """Return (name, command) of the tools that check the format, or repair it, and the types."""
    cpp = [str(path) for path in files if path.suffix in CPP]
    ours = [str(path) for path in files if path.suffix in CPP and path.parts[0] == "src"]
    tools = [
        ["ruff", "format", "--quiet", *([] if fix else ["--check"]), "."],
        ["ruff", "check", "--quiet", "--output-format=concise", *(["--fix"] if fix else []), "."],
        ["clang-format", *(["-i"] if fix else ["--dry-run", "--Werror"]), *cpp],
        # As TVM's own lint does.
        ["cpplint", "--quiet", "--filter=-,+build/include_what_you_use", *ours],
        # Which folders, says pyproject.toml.
        ["mypy", "--no-error-summary", "--no-pretty"],
    ]
    return [(name, [str(layout.bin / name), *words]) for name, *words in tools]


def run_tool(name, command, root):
    """Yield what a tool prints if it fails."""
    result = subprocess.run(command, cwd=root, capture_output=True, text=True, errors="replace")
    if result.returncode == 0:
        return
    output = (result.stdout + result.stderr).strip() or f"{name} failed"
    places = re.findall(r"^(\S+?):(\d+):\d+: error: code should be clang-formatted", output, re.M)
    if name != "clang-format" or not places:
        yield output
        return
    # clang-format shows each place in four lines; the names and first lines are enough.
    for path in sorted({path for path, _ in places}):
        lines = [line for place, line in places if place == path]
        yield f"{path}: {len(lines)} places, the first in line {lines[0]}"


def add_arguments(parser):
    """Add the command's options."""
    parser.add_argument("--fix", action="store_true", help="repair what the formatters can repair")


def main(args):
    """Run all checks and return 1 if one fails."""
    layout = Layout()
    args.no_build = True
    os.environ.pop("TVM_HOME", None)  # the sources are checked against the prebuilt tree
    runner = prepare(args, layout, ("lint",), (steps.NewestOneDNN,))
    root, console = layout.root, runner.console
    files = text_rules.list_files(root)
    tools = commands(layout, files, args.fix)
    if args.dry_run:
        for _, command in tools:
            runner.show(command)
        runner.plan("check licence headers, file sizes, forbidden strings, uses of TVM")
        newest_onednn.NewestBuild(runner, layout).check()
        return 0

    checks = [(name, run_tool(name, command, root)) for name, command in tools]
    tables = root / "scripts" / "lint"
    newest = newest_onednn.newest_version(layout)
    checks += [
        ("licence headers", text_rules.check_headers(root, files)),
        ("file sizes", text_rules.check_sizes(root, files, tables / "sizes.txt")),
        ("forbidden strings", text_rules.check_forbidden(root, files, tables / "forbidden.txt")),
        ("the shared package without TVM", text_rules.check_package(root)),
        ("the layers of the shared package", text_rules.check_layers(root)),
        ("importers apart from the backend", text_rules.check_importers(root)),
        (f"compiles with oneDNN {newest}", newest_onednn.check_compiles(runner, layout)),
    ]
    failed = 0
    for name, messages in checks:
        with console.step(name, after=PATIENCE):
            problems = list(messages)
        failed += bool(problems)
        verdict = console.paint("failed", "31") if problems else console.paint("ok", "32")
        print(f"{name}: {verdict}", flush=True)
        for message in problems:
            print("  " + message.replace("\n", "\n  "), flush=True)
    print(f"{len(checks) - failed} checks passed, {failed} failed")
    if failed and not args.fix:
        print("`./dev.py lint --fix` repairs the format")
    return 1 if failed else 0
