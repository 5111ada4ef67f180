# SPDX-License-Identifier: Apache-2.0
"""The command line: the commands, their options, and how errors are shown."""

import argparse
import difflib
import functools
import importlib
import itertools
import os
import re
import signal
import sys

from scripts import options
from scripts.errors import INTERRUPTED, SetupError
from scripts.exec import run_command

# By command: its module, and what it does.
COMMANDS = {
    "demo": ("demo.demo", "run real models on oneDNN and print the results"),
    "test": ("test.test", "run the C++ and Python tests"),
    "exec": ("exec", "run any command in the prepared environment"),
    "bench": ("bench.bench", "compare with onnxruntime, OpenVINO and the limit set by oneDNN"),
    "profile": ("bench.profile", "print the time of each primitive of a model"),
    "fuzz": ("test.fuzz", "run random graphs, and compare the results with numpy and TVM"),
    "soak": ("test.soak", "run models like a server for minutes; check results and memory"),
    "ops": ("docs.ops", "print the table of supported ops"),
    "coverage": ("bench.coverage", "print which ops of real models run on oneDNN"),
    "report": ("report", "report which ops of an ONNX model run on oneDNN, and why not"),
    "verify": ("verify", "compare each op of a compiled ONNX model with onnxruntime"),
    "docs": ("docs.docs", "run the code of the documentation and build its pages"),
    "lint": ("lint.lint", "check format, licence headers and sizes; --fix repairs it"),
    "wheel": ("wheel.wheel", "build a wheel that works without this checkout"),
    "setup": ("setup.setup", "prepare the environment and stop"),
    "clean": ("setup.clean", "remove build/"),
    "apply": ("patchset.apply", "apply the patch set to a TVM source tree"),
    "export-pr": ("patchset.export_pr", "write an offer to TVM as a git branch"),
}
# These import tvm: they run in the environment that is prepared for them.
IN_ENVIRONMENT = ("demo", "bench", "profile", "fuzz", "soak", "ops", "coverage", "report", "verify")
# The words that these do not know belong to the program that they run.
PASS_WORDS_ON = ("test",)

DESCRIPTION = """\
Prepares build/ in this checkout, which takes minutes the first time and then about a second, and
runs COMMAND. Options go before or after COMMAND; ./dev.py COMMAND --help describes them."""

ENVIRONMENT = """\
environment:
  TVM_HOME=DIR   use the TVM tree that you built in DIR instead of the prebuilt one; commands
                 that run models accept `--tvm DIR` for it, too
  CXX=COMPILER   the C++ compiler
  PIP_INDEX_URL  a mirror of the Python package index
"""


def module_of(command):
    """Import the module of a command."""
    return importlib.import_module(f"scripts.{COMMANDS[command][0]}")


def make_parser(command):
    """Return the parser of the command line, and that of `command`, which alone has its options."""
    shape = {"formatter_class": argparse.RawDescriptionHelpFormatter, "allow_abbrev": False}
    parser = chosen = argparse.ArgumentParser(
        prog="./dev.py",
        description=DESCRIPTION,
        epilog=ENVIRONMENT,
        parents=[options.shared()],
        **shape,
    )
    parser.set_defaults(dry_run=False, no_build=False, tvm=None)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND WORDS", dest="command")
    for name, (_, summary) in COMMANDS.items():
        one = commands.add_parser(name, help=summary, parents=[options.shared()], **shape)
        if name == command:
            chosen, module = one, module_of(name)
            one.description = module.__doc__
            module.add_arguments(one)
            if name in IN_ENVIRONMENT:
                one.add_argument("--tvm", metavar="DIR", help="use the TVM that you built in DIR")
                options.add_newer(one)
    return parser, chosen


def refuse(problem, word, known, where):
    """Raise the error about a word that is not known, with the known one that is most like it."""
    near = difflib.get_close_matches(word.partition("=")[0], known, n=1)
    hint = f"did you mean `{near[0]}`? " if near else ""
    raise SetupError(problem, f"{hint}`./dev.py {where}` lists what there is.")


def split(argv):
    """Return the options before the command, the command or None, and what follows it."""
    flags = list(itertools.takewhile(lambda word: word.startswith("-"), argv))
    return flags, next(iter(argv[len(flags) :]), None), argv[len(flags) + 1 :]


def parse(argv):
    """Parse a command line.

    `command` of the options is the command; `words` is what goes on to the program that it runs.
    """
    flags, command, _ = split(argv)
    if command is not None and command not in COMMANDS:
        refuse(f"unknown command `{command}`", command, COMMANDS, "--help")
    parser, chosen = make_parser(command)
    known = re.findall(r"--[a-z][a-z-]+", chosen.format_usage())
    _, unknown = options.shared().parse_known_args(flags)
    for flag in unknown:
        if flag not in ("-h", "--help"):
            refuse(f"unknown option {flag}", flag, known, "--help")
    args, words = parser.parse_known_args(argv)
    if hasattr(args, "relax") and not options.is_onnx(getattr(args, "model", None) or ""):
        # Only the plug-in imports TFLite models and programs of PyTorch.
        args.relax = True
    if command in PASS_WORDS_ON:
        args.words = words[words[:1] == ["--"] :]
    elif words:
        refuse(f"{command} takes no argument {words[0]}", words[0], known, f"{command} --help")
    return args


def run(argv, *more):
    """Run a command in this process as it is, without preparing anything; return its exit code."""
    args = parse(argv)
    return module_of(args.command).main(args, *more)


def dispatch(argv):
    """Run the command that `argv` names and return its exit code."""
    _, command, rest = split(argv)
    if command == "help":
        argv, command = ["--help"], None
    args = parse(argv)
    if command is None:
        make_parser(None)[0].print_help()
        return 2
    if command in IN_ENVIRONMENT:
        return run_command(args, rest)
    return module_of(command).main(args)


def _interrupt(signum, frame):
    raise KeyboardInterrupt


def into_a_pipe(main):
    """Decorate the main function of a command: it ends quietly if the reader of its output does.

    The exit code is then that of a process that SIGPIPE ends.
    """

    @functools.wraps(main)
    def wrapped(argv):
        try:
            try:
                return main(argv)
            finally:
                sys.stdout.flush()
        except BrokenPipeError:
            # What is still buffered goes nowhere, or it would fail again at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 128 + signal.SIGPIPE

    return wrapped


@into_a_pipe
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
        return INTERRUPTED
    except OSError as error:
        if error.errno == 28:
            problem = SetupError("the disk is full", "free some space and run the command again.")
            print(f"\n{problem}", file=sys.stderr)
            return 1
        raise
