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
"""The command line: global options, the subcommands, and how errors are shown."""

import difflib
import importlib
import signal
import sys

from scripts import in_environment
from scripts.errors import SetupError

# name -> (module, summary). Modules have `main(argv) -> int`.
# By command: its module, and what it does.
COMMANDS = {
    "demo": ("demo.demo", "run real models on oneDNN and print the results"),
    "test": ("test.test", "run the C++ and Python tests"),
    "exec": ("exec", "run any command in the prepared environment: exec -- python my.py"),
    "bench": ("bench.bench", "measure against the limit that oneDNN sets"),
    "profile": ("bench.profile", "print where the time of a model goes, primitive by primitive"),
    "fuzz": ("test.fuzz", "run random graphs on oneDNN and on TVM without it, and compare"),
    "ops": ("docs.ops", "print the table of the ops that oneDNN runs"),
    "coverage": ("bench.coverage", "print how much of real models oneDNN runs"),
    "report": (
        "report_page.report",
        "tell what of an ONNX model oneDNN runs, and why not the rest",
    ),
    "docs": ("docs.docs", "run the code of the documentation and build its pages"),
    "lint": ("lint.lint", "check format, licence headers and sizes; --fix repairs the format"),
    "wheel": ("wheel.wheel", "make a wheel that pip installs without this checkout"),
    "setup": ("setup.setup", "prepare the environment and stop"),
    "clean": ("setup.clean", "remove build/"),
    "apply": ("patchset.apply", "apply the patch set to a TVM source tree"),
    "export-pr": ("patchset.export_pr", "export the patch set as a branch of a TVM checkout"),
}
# These import tvm: they run in the environment that is prepared for them.
IN_ENVIRONMENT = ("demo", "bench", "profile", "fuzz", "ops", "coverage", "report")

USAGE = """usage: ./dev.py [--dry-run] [--no-build] COMMAND [ARGS...]

Prepares everything under build/ in this checkout (the first time takes minutes, then seconds)
and runs COMMAND.

commands:
{commands}

options, before COMMAND or after it:
  --dry-run   print the commands instead of running them
  --no-build  do not compile: use libtvm_dnnl.so as it is
  -h, --help  this text; ./dev.py COMMAND --help tells more

environment:
  TVM_HOME=DIR   use the TVM tree that you built in DIR instead of the prebuilt one; commands
                 that run models take `--tvm DIR` for it, too
  CXX=COMPILER   the C++ compiler
  PIP_INDEX_URL  a mirror of the Python package index
"""


def usage():
    """Return the help text."""
    width = max(map(len, COMMANDS))
    lines = (f"  {name:<{width}}  {summary}" for name, (_, summary) in COMMANDS.items())
    return USAGE.format(commands="\n".join(lines))


def split(argv):
    """Return (global options, command, arguments of the command)."""
    flags = []
    for index, word in enumerate(argv):
        if not word.startswith("-"):
            return flags, word, argv[index + 1 :]
        flags.append(word)
    return flags, None, []


def dispatch(argv):
    """Run the command that `argv` names and return its exit code."""
    flags, command, rest = split(argv)
    unknown = [flag for flag in flags if flag not in ("--dry-run", "--no-build", "-h", "--help")]
    if unknown:
        raise SetupError(f"unknown option {unknown[0]}", "`./dev.py --help` lists the options.")
    if "-h" in flags or "--help" in flags or command in (None, "help"):
        print(usage(), end="")
        return 0 if flags or command else 2
    if command not in COMMANDS:
        near = difflib.get_close_matches(command, COMMANDS, n=1)
        hint = f"did you mean `{near[0]}`? " if near else ""
        raise SetupError(
            f"unknown command `{command}`", f"{hint}`./dev.py --help` lists the commands."
        )
    module = COMMANDS[command][0]
    arguments = flags + rest
    if command in IN_ENVIRONMENT:
        return in_environment.main([command, module, *arguments])
    return importlib.import_module(f"scripts.{module}").main(arguments)


def _interrupt(signum, frame):
    raise KeyboardInterrupt


def main(argv):
    """Run a command; print errors that have a remedy without a traceback."""
    # Ended from outside, stop as on Ctrl-C: take running children along, leave a state that the
    # next run goes on from.
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _interrupt)
    try:
        return dispatch(argv)
    except SetupError as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted; the next run goes on from here", file=sys.stderr)
        return 130
    except OSError as error:
        if error.errno == 28:
            problem = SetupError("the disk is full", "free some space and run the command again.")
            print(f"\n{problem}", file=sys.stderr)
            return 1
        raise
