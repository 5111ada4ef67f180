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
"""Runs the C++ tests of tests/cpp, then pytest on tests/.

Other words go to pytest. When they name files, only those are run, and the C++ tests are not.

  ./dev.py test
  ./dev.py test -k conv2d -x
  ./dev.py test tests/python/contrib/test_dnnl.py
  ./dev.py test --codegen c_src -k conv2d
"""

import contextlib
import subprocess

from scripts.errors import SetupError
from scripts.layout import CODEGENS, Layout
from scripts.setup.environment import prepare, tvm_home, variables
from scripts.setup.lock import exclusive
from scripts.setup.native import NativeBuild

CPP_TARGET = "dnnl_cpptest"


def names_files(arguments):
    """Tell if pytest's arguments name files or directories, as `tests/x.py::test_y` does."""
    plain = (word.split("::")[0] for word in arguments if not word.startswith("-"))
    return any(word.endswith(".py") or word.startswith("tests") for word in plain)


def run_command(runner, command, environ, directory):
    """Run a command on this terminal and return its exit code; in a dry run print it."""
    command = [str(part) for part in command]
    if runner.dry_run:
        runner.show(command)
        return 0
    runner.console.say(f"\n$ {' '.join(command)}")
    return subprocess.call(command, env=environ, cwd=directory)


def run_cpp_tests(runner, layout, environ):
    """Build and run the C++ tests; return the exit code."""
    if not list((layout.root / "tests" / "cpp").glob("*.cc")):
        return 0
    if tvm_home():
        runner.console.say("C++ tests are left out: they are built with the prebuilt tree only")
        return 0
    waiting = contextlib.nullcontext() if runner.dry_run else exclusive(layout.lock, runner.console)
    with waiting, runner.console.step("compile the C++ tests", after=1.0):
        NativeBuild(runner, layout).build(CPP_TARGET)
    return run_command(runner, [layout.cmake / CPP_TARGET], environ, layout.root)


def add_arguments(parser):
    """Add the command's options. pytest has more: no word of its own may be taken for one."""
    parser.usage = "./dev.py test [--codegen NAME] [--dry-run] [--no-build] [WORDS OF PYTEST ...]"
    parser.add_argument(
        "--codegen",
        choices=CODEGENS,
        default=CODEGENS[0],
        help="build a library that generates C source too, and run the backend's tests with it; "
        "what the codegen makes no difference to is left out",
    )


def main(args):
    """Run the tests."""
    codegen, words = args.codegen, args.words
    is_default = codegen == CODEGENS[0]
    if tvm_home() and not is_default:
        raise SetupError(
            f"--codegen {codegen} builds a library beside the prebuilt tree, but TVM_HOME is set",
            "build that tree with USE_DNNL_CODEGEN=C_SRC and leave --codegen away.",
        )
    layout = Layout().with_codegen(codegen)
    runner = prepare(args, layout)
    environ = variables(layout)
    selected = names_files(words)
    failed = 0
    if not selected and is_default and not args.no_build:
        failed = run_cpp_tests(runner, layout, environ)
    command = [layout.python, "-m", "pytest", *words]
    if not selected:
        command.append("tests" if is_default else "tests/python/contrib")
    code = run_command(runner, command, environ, layout.root)
    return code or failed
