# SPDX-License-Identifier: Apache-2.0
"""A plugin of pytest that runs the blocks of code in the documentation.

Blocks of a page are run in their order, in a folder of its own that looks like the checkout.
`python` blocks share their variables. `bash` blocks must succeed. An `output` block holds what the
block before it printed; `...` stands for anything. Blocks of other languages are not run. Python
about the plug-in runs in a process of its environment, one for each page.
"""

import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from sybil import Sybil
from sybil.parsers.myst import CodeBlockParser, SkipParser

from scripts.layout import ROOT

PAGES = ["README.md", "docs/*.md"]
# Whose Python is for Relax: in one process there is one TVM.
PLUGIN = ("README.md", "relax.md", "recipes.md", "language_models.md")
# Runs blocks, lines of JSON, and answers each with a line: what it printed, its error or null.
_ANSWER = "-- the block ended --"
_PROCESS = f"""
import json, os, sys, tempfile, traceback

answers, variables = os.fdopen(os.dup(1), "w"), {{"__name__": "__main__"}}
for line in sys.stdin:
    with tempfile.TemporaryFile("w+") as printed:
        # C++ prints there, too.
        os.dup2(printed.fileno(), 1)
        try:
            exec(json.loads(line), variables)
            error = None
        except BaseException:
            error = traceback.format_exc()
        sys.stdout.flush()
        printed.seek(0)
        answer = json.dumps([printed.read(), error])
    print({_ANSWER!r} + answer, file=answers, flush=True)
"""


def run_python(example):
    """Run a block; keep its variables and what it prints."""
    if Path(example.path).name in PLUGIN:
        return run_in_plugin(example)
    text = "\n" * (example.line + example.parsed.line_offset) + example.parsed
    code = compile(text, str(example.path), "exec", dont_inherit=True)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, example.namespace)
    example.namespace["_printed"] = printed.getvalue()


def run_in_plugin(example):
    """Run a block in the page's process beside the plug-in; keep what it prints."""
    process = example.namespace.get("_plugin")
    if process is None:
        words = [sys.executable, "dev.py", "exec", "--relax", "--", "python", "-c", _PROCESS]
        pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        process = example.namespace["_plugin"] = subprocess.Popen(words, **pipes)
    print(json.dumps(example.parsed), file=process.stdin, flush=True)
    # Set-up may have something to say first.
    answer = next((line for line in process.stdout if line.startswith(_ANSWER)), None)
    assert answer is not None, f"{example.parsed}\nthe process ended with code {process.wait()}"
    example.namespace["_printed"], error = json.loads(answer.removeprefix(_ANSWER))
    assert error is None, f"{example.parsed}\n{example.namespace['_printed']}{error}"


def run_bash(example):
    """Run a block as a script that stops at the first failure."""
    command = ["bash", "-eu", "-c", example.parsed]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{example.parsed}\n{done.stdout}{done.stderr}"
    example.namespace["_printed"] = done.stdout


def check_output(example):
    """Compare a block with what the one before it printed."""
    expected, printed = example.parsed.strip(), example.namespace["_printed"].strip()
    pattern = ".*".join(re.escape(part) for part in expected.split("..."))
    assert re.fullmatch(pattern, printed, re.DOTALL), f"expected\n{expected}\n\ngot\n{printed}"


def setup(namespace):
    """Enter a folder with links to all that the checkout has, but a build/ of its own."""
    namespace["_back"] = os.getcwd()
    namespace["_folder"] = folder = tempfile.TemporaryDirectory()
    for path in ROOT.iterdir():
        if path.name == "build":
            continue
        os.symlink(path, os.path.join(folder.name, path.name))
    os.chdir(folder.name)


def teardown(namespace):
    """Leave the folder; end the page's process."""
    if "_plugin" in namespace:
        namespace["_plugin"].kill()
        namespace["_plugin"].communicate()
    os.chdir(namespace["_back"])
    namespace["_folder"].cleanup()


pytest_collect_file = Sybil(
    path=str(ROOT),
    patterns=PAGES,
    parsers=[
        CodeBlockParser("python", run_python),
        CodeBlockParser("bash", run_bash),
        CodeBlockParser("output", check_output),
        SkipParser(),
    ],
    setup=setup,
    teardown=teardown,
).pytest()
