# SPDX-License-Identifier: Apache-2.0
"""Runs every block of code of the documentation, then builds its pages in build/docs.

No warning, no broken link between pages and no resource of another host is allowed.
"""

import contextlib
import os
import shutil

from scripts.docs.picture import find_browser
from scripts.docs.resources import outside_resources
from scripts.errors import SetupError
from scripts.layout import Layout
from scripts.setup.environment import prepare
from scripts.setup.variables import variables
from scripts.test.test import run_command, sharing

# The pictures of the pages are drawn while these are built; this command's block comes before.
# Every warning is an error, such as one about a link to a page or a title that is not there.
SPHINX = ("-b", "html", "-E", "-W", "--keep-going", "-q")
# Tests of packages that are not there before: Sphinx and Dask.
TESTS = ("tests/python/dev/test_dev_docs.py", "tests/python/apps/test_dask_workers.py")
TUTORIAL = ("apps/bring_your_own_codegen", "tutorial")


def build_tutorial(runner, layout, environ):
    """Build the plugin of the tutorial, whose example the pages run; return the exit code."""
    folder = layout.build / TUTORIAL[1]
    configure = [layout.bin / "cmake", "-G", "Ninja", "-S", layout.root / TUTORIAL[0], "-B", folder]
    build = [layout.bin / "cmake", "--build", folder]
    return any(run_command(runner, words, environ, layout.root) for words in (configure, build))


def add_arguments(parser):
    """Add the command's options."""
    part = parser.add_mutually_exclusive_group()
    part.add_argument("--blocks", action="store_true", help="only run the blocks of code")
    part.add_argument("--pages", action="store_true", help="only build the pages")
    part.add_argument(
        "--picture", action="store_true", help="only draw docs/_static/report.png, with Chromium"
    )


def main(args):
    """Run the blocks and build the pages; return the exit code."""
    layout = Layout()
    runner = prepare(args, layout, ("docs",))
    environ = variables(layout)
    source, target = layout.root / "docs", layout.build / "docs"
    failed = 0
    if args.picture:
        if find_browser() is None:
            raise SetupError("there is no Chromium to draw a page with", "apt-get install chromium")
        environ["PYTHONPATH"] += os.pathsep + str(layout.root)
        words = [layout.python, "-m", "scripts.docs.picture", source / "_static" / "report.png"]
        with runner.console.step("draw the picture"):
            return run_command(runner, words, environ, layout.root)
    if not args.pages:
        # A page is a file, whose blocks one process runs.
        shared, threads = sharing(TESTS)
        words = [layout.python, "-m", "pytest", *shared, "-p", "scripts.docs.blocks"]
        words += ["README.md", "docs", *TESTS]
        failed = run_command(runner, words, {**threads, **environ}, layout.root)
    if args.blocks:
        return failed
    failed = build_tutorial(runner, layout, environ) or failed
    if not args.dry_run:
        shutil.rmtree(target, ignore_errors=True)
    words = [
        layout.python,
        "-m",
        "sphinx",
        *SPHINX,
        "-d",
        layout.build / "doctrees",
        source,
        target,
    ]
    with contextlib.nullcontext() if args.dry_run else runner.console.step("build the pages"):
        code = run_command(runner, words, environ, layout.root)
    if not (args.dry_run or code):
        print(f"{target / 'index.html'}: {len(list(target.rglob('*.html')))} pages")
        if outside := outside_resources(target):
            raise SetupError("pages load resources of other hosts", "", "\n".join(outside))
    return code or failed
