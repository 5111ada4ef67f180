# SPDX-License-Identifier: Apache-2.0
"""Runs a command in the prepared environment, and exits with its code.

`python`, `pytest`, `tvmc` and your own scripts see the TVM tree with the oneDNN backend; with
--relax, `apache-tvm` as pip installs it, and the plug-in `tvm_dnnl`.
"""

import argparse
import os
import sys

from scripts import options
from scripts.errors import SetupError
from scripts.layout import Layout, PluginLayout
from scripts.setup.environment import prepare
from scripts.setup.steps import LanguageModel, PackageModels
from scripts.setup.variables import newer_onednn, variables


def replace_process(command, environ):
    """Become `command`; return only to say that it cannot be started."""
    sys.stdout.flush()
    try:
        os.execvpe(command[0], command, environ)
    except FileNotFoundError:
        raise SetupError(
            f"`{command[0]}` is not on the PATH of the prepared environment",
            "check the spelling, or give a path to it.",
        ) from None
    except OSError as error:
        raise SetupError(f"cannot start `{command[0]}`: {error.strerror}") from error


def add_arguments(parser):
    """Add the command's words: they begin at the first one that is no option, or after `--`."""
    parser.usage = (
        "./dev.py exec [--dry-run] [--no-build] [--onednn-newer] [--relax] [--] COMMAND ..."
    )
    options.add_newer(parser)
    options.add_relax(parser, "run it in the environment with apache-tvm and the plug-in")
    parser.add_argument("words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def main(args):
    """Run a command in the prepared environment."""
    command = args.words[args.words[:1] == ["--"] :]
    if not command:
        raise SetupError("exec needs a command", "for example: ./dev.py exec -- python my.py")
    layout = PluginLayout() if args.relax else Layout()
    return _start(prepare(args, layout), layout, command, args.onednn_newer)


def _start(runner, layout, command, is_newer, folder=None):
    """Become `command` in the environment, which finds modules in `folder`, too; or print it."""
    if runner.dry_run:
        runner.show(command)
        return 0
    environ = variables(layout)
    if is_newer:
        environ = newer_onednn(layout, environ)
    if folder:
        environ["PYTHONPATH"] += os.pathsep + str(folder)
    return replace_process(command, environ)


# They need the packages of other runtimes. With --relax they start a process beside the plug-in.
MEASURE = ("bench", "coverage", "profile")


def use_tree(folder):
    """Let TVM_HOME name the tree that --tvm names."""
    if not os.path.isdir(folder):
        raise SetupError(
            f"--tvm: there is no directory {folder!r}", "name the TVM tree that you built."
        )
    os.environ["TVM_HOME"] = os.path.abspath(folder)


def run_command(args, words):
    """Run the command of `args`, whose words are `words`, in the environment."""
    if args.tvm is not None:
        use_tree(args.tvm)
    layout, also = Layout(), []
    measures = args.command in MEASURE
    # Of `bench`, and of `demo`: a language model, which runs on the plug-in.
    measures_text = measures and getattr(args, "text", False)
    has_language_model = measures_text or getattr(args, "prompt", None) is not None
    measures_first = getattr(args, "first", False)
    modes = ("first", "recurrent", "ops", "zoo")
    of_both = measures and any(getattr(args, name, False) for name in modes)
    if getattr(args, "architectures", False):
        layout, measures = PluginLayout(), False
    elif getattr(args, "relax", False) or has_language_model or of_both:
        layout, also = (layout, [PluginLayout()]) if measures else (PluginLayout(), [])
    measures_packages = measures_first and not getattr(args, "model", None)
    has_packages = getattr(args, "packages", False) or measures_packages
    more = [PackageModels] if has_packages else []
    is_timed = measures and getattr(args, "time", True)
    groups = ("bench",) if is_timed else ()
    if has_language_model:
        more.append(LanguageModel)
        groups += ("bench-text",) if measures_text else ()
    runner = prepare(args, layout, groups, more, also)
    words = [word for word in words if word not in ("--dry-run", "--no-build")]
    command = [str(layout.python), "-m", "scripts", args.command, *words]
    # The working directory stays the caller's, so that relative paths mean what they say.
    return _start(runner, layout, command, args.onednn_newer, layout.root)
