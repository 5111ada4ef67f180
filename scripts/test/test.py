# SPDX-License-Identifier: Apache-2.0
"""Runs the C++ tests of tests/cpp-runtime, then pytest on tests/, that of the plug-in last.

Other words go to pytest. When they name files, only those are run, and the C++ tests are not.
The files are shared out to one process for each CPU, unless a single one is named or a word of
pytest says how to run (-n, -s, --pdb). Tests that are marked as nightly run with --all only, or if
they are named by their id (file::test).

  ./dev.py test
  ./dev.py test --all
  ./dev.py test --quick
  ./dev.py test -k conv2d -x
  ./dev.py test tests/python/contrib/test_dnnl.py
  ./dev.py test --codegen c_src -k conv2d
  ./dev.py test --onednn-newer
  ./dev.py test --newest-python
  ./dev.py test --oldest-packages
  ./dev.py test --sanitize address
"""

import subprocess

from scripts import options
from scripts.errors import SetupError
from scripts.layout import CODEGENS, Layout, PluginLayout
from scripts.setup.environment import prepare
from scripts.setup.native import NativeBuild
from scripts.setup.variables import newer_onednn, tvm_home, variables
from scripts.test import pip_install, quick
from scripts.test.sanitize import SANITIZERS, SanitizedBuild

CPP_TARGETS = ("dnnl_core_cpptest", "dnnl_cpptest")
# Each process of the tests compiles models: more of them need more memory than they save time.
MOST_WORKERS = 8
# Words of pytest that want the tests in this process, or say themselves how they are shared out.
ONE_PROCESS = ("-n", "-s", "--pdb", "--trace", "--capture", "--co", "--dist", "--numprocesses")
# What --codegen c_src leaves out, beside most cases of composites (`sample`): the policy, which
# knows no codegen, hundreds of ONNX cases, those of the bases of other codegens, what chooses the
# codegen itself, files of libraries, functions of sizes, OCR, and what verifies models. Of
# each op, `graphs/test_infer.py` runs calls as C source, in one library.
ANY_CODEGEN = (
    *(
        quick.STAGES + stage
        for stage in ("ops", "partition", "rewrites", "report", "onnx", "graphs", "c_source")
    ),
    *(
        f"{quick.STAGES}integration/test_{name}.py"
        for name in ("aot", "cache", "coming_from_tvm", "profiling", "shape_functions", "verify")
    ),
    quick.STAGES + "integration/test_target_threads.py",
    quick.STAGES + "models/test_ocr.py",
    quick.BACKEND + "test_ccompiler.py",
    quick.BACKEND + "test_json_runtime.py",
)
# The tests that --onednn-newer runs: those that depend on oneDNN's kernels.
ON_NEWER = (
    quick.FIRST,
    quick.STAGES + "graphs/test_infer.py",
    *(quick.STAGES + stage for stage in ("ops", "fusion", "runtime", "models")),
)
# The tests of the plug-in, which run in its own environment.
PLUGIN = "tests/python/relax"
NO_TESTS = 5  # the exit code, pytest's too, if there is none
_VERSION = "from tvm.relay.op.contrib import dnnl; print('oneDNN', dnnl.dnnl_version())"


def names_files(arguments):
    """Tell if pytest's arguments name files or directories, as `tests/x.py::test_y` does."""
    plain = (word.split("::")[0] for word in arguments if not word.startswith("-"))
    return any(word.endswith(".py") or word.startswith("tests") for word in plain)


def marked(args):
    """Return the words with which pytest leaves out marked tests; a `-m` of the caller counts."""
    left_out = ["slow"] if args.quick is not None else []
    plugin = []
    if not args.all and not any("::" in word for word in args.words):
        left_out.append("nightly")
        plugin = ["-p", "scripts.test.pairs"]
    marks = " and ".join(f"not {mark}" for mark in left_out)
    return [*plugin, "-m", marks] if left_out else []


def run_plugin_tests(args, words):
    """Run tests of the plug-in in its environment; return the exit code."""
    layout = PluginLayout()
    runner = prepare(args, layout)
    shared, threads = sharing(words)
    # The process that only shares the tests out receives their warnings, of classes of the plug-in.
    command = [layout.python, "-m", "pytest", "-p", layout.module, *shared, *words]
    return run_command(runner, command, {**threads, **variables(layout)}, layout.root)


def run_installed_by_pip(args, words):
    """Run tests of the plug-in with another Python and other packages; return the exit code."""
    layout = PluginLayout()
    runner = prepare(args, layout)
    python = pip_install.install(runner, layout, args.installed)
    if python is None:
        return 0
    words = words if names_files(words) else [*words, *pip_install.TESTS]
    shared, threads = sharing(words)
    command = [python, "-m", "pytest", *shared, *marked(args), *words]
    return run_command(runner, command, {**pip_install.environ(), **threads}, layout.root)


def sharing(words):
    """Return the words and variables with which pytest shares the tests out to processes.

    The tests of a file stay together: they share what they have compiled. `order` sorts the files.
    """
    files = [word for word in words if ".py" in word]
    if len(files) == 1 or any(word.startswith(ONE_PROCESS) for word in words):
        return [], {}
    workers = min(options.cpus(), MOST_WORKERS)
    threads = {"OMP_NUM_THREADS": "1", "TVM_NUM_THREADS": "1"}
    shares = ["--dist", "loadfile", "--no-loadscope-reorder", "-p", "scripts.test.order"]
    return ["-n", str(workers), *shares], threads


def run_command(runner, command, environ, directory):
    """Run a command on this terminal and return its exit code; in a dry run print it.

    The tests fail where an op cannot be rewritten or written: see `strict` in docs/options.md.
    """
    command = [str(part) for part in command]
    if runner.dry_run:
        runner.show(command)
        return 0
    runner.console.say(f"\n$ {' '.join(command)}")
    return subprocess.call(command, env={**environ, "TVM_DNNL_STRICT": "1"}, cwd=directory)


def run_cpp_tests(runner, layout, environ, build=None, words=()):
    """Build and run the C++ tests; return the exit code.

    Parameters
    ----------
    runner : Runner
        Runs the commands.
    layout : Layout
        The checkout.
    environ : dict
        The variables of the tests.
    build : NativeBuild, optional
        Another than the usual build.
    words : sequence of str
        Words for the tests' programs: a part of the names of those that shall run.
    """
    build = build or NativeBuild(runner, layout)
    if tvm_home():
        runner.console.say("C++ tests are left out: they are built with the prebuilt tree only")
        return 0
    with runner.console.step("compile the C++ tests", after=1.0):
        build.build(*CPP_TARGETS)
    draw = [layout.python, "-m", "scripts.test.drawn_nodes", layout.drawn_nodes]
    commands = [draw, *([build.folder / target, *words] for target in CPP_TARGETS)]
    drawn, *codes = [run_command(runner, command, environ, layout.root) for command in commands]
    if drawn:
        return drawn
    # A word may be in the names of one program's tests only.
    ran = [code for code in codes if code != NO_TESTS] or codes
    return next((code for code in ran if code), 0)


def add_arguments(parser):
    """Add the command's options. pytest has more: no word of its own may be taken for one."""
    parser.usage = (
        "./dev.py test [--all] [--quick [COMMIT]] [--codegen NAME] [--sanitize NAME] "
        "[--onednn-newer] [--newest-python] [--oldest-packages] [--dry-run] [--no-build] "
        "[WORDS OF PYTEST ...]"
    )
    parser.add_argument(
        "--all",
        action="store_true",
        help="run the tests marked as nightly, too: larger models and further cases of subjects "
        "that other tests have",
    )
    parser.add_argument(
        "--quick",
        nargs="?",
        const="",
        metavar="COMMIT",
        help="run the tests of what changed since COMMIT (default: where the branch left main), "
        "without those that are marked as slow",
    )
    parser.add_argument(
        "--codegen",
        choices=CODEGENS,
        default=CODEGENS[0],
        help="build a library that generates C source too, and run the backend's tests with it; "
        "what the codegen makes no difference to is left out",
    )
    parser.add_argument(
        "--sanitize",
        choices=SANITIZERS,
        help="run the C++ tests alone, compiled with AddressSanitizer and "
        "UndefinedBehaviorSanitizer, or with ThreadSanitizer; a word chooses tests by name",
    )
    installed = parser.add_mutually_exclusive_group()
    for name, text in (
        (
            pip_install.NEWEST,
            "test the plug-in with the newest Python on PATH or of pyenv, if that is newer than "
            "the environment's, and with newer packages",
        ),
        (
            pip_install.OLDEST,
            "test the plug-in with the oldest Python of these that it supports, and with the "
            "oldest packages that pyproject.toml allows",
        ),
    ):
        installed.add_argument(
            f"--{name}", dest="installed", action="store_const", const=name, help=text
        )
    options.add_newer(parser)


def main(args):
    """Run the tests."""
    if args.installed:
        return run_installed_by_pip(args, args.words)
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
    if args.sanitize:
        build = SanitizedBuild(runner, layout, args.sanitize)
        return run_cpp_tests(runner, layout, build.variables(environ), build, words)
    selected, has_cpp, failed = names_files(words), True, 0
    if args.quick is not None:
        tests, has_cpp = quick.choose(layout.root, quick.changed(layout.root, args.quick))
        selected, words = bool(tests), [*words, *tests]
    if args.onednn_newer:
        environ, has_cpp = newer_onednn(layout, environ), False
        failed = run_command(runner, [layout.python, "-c", _VERSION], environ, layout.root)
        if failed:
            return failed
    if has_cpp and (args.quick is not None or not selected) and is_default and not args.no_build:
        failed = run_cpp_tests(runner, layout, environ)
    if args.quick is not None and not selected:
        runner.console.say("no test of Python is about what changed")
        return failed
    of_plugin = [word for word in words if word.startswith(PLUGIN)]
    if of_plugin:
        others = [word for word in words if names_files([word]) and word not in of_plugin]
        plugin_words = [word for word in words if word not in others]
        failed = run_plugin_tests(args, [*marked(args), *plugin_words]) or failed
        if not others:
            return failed
        words = [word for word in words if word not in of_plugin]
    everything = not selected and is_default and not args.onednn_newer
    chosen, words = words, [*marked(args), *words]
    if not selected and args.onednn_newer:
        words = [*words, *ON_NEWER]
    elif everything:
        words = [*words, "tests"]
    elif not selected:
        ignored = [f"--ignore={path}" for path in ANY_CODEGEN]
        words = [*words, "-p", "scripts.test.sample", *ignored, quick.BACKEND]
    shared, threads = sharing(words)
    # For `./dev.py fuzz --artifacts`.
    corpus = ["-p", "scripts.test.corpus"] if is_default else []
    if any(PLUGIN.startswith(word.rstrip("/") + "/") for word in words):
        words = [f"--ignore={PLUGIN}", *words]
    command = [layout.python, "-m", "pytest", *shared, *corpus, *words]
    failed = run_command(runner, command, {**threads, **environ}, layout.root) or failed
    if everything and not tvm_home():
        code = run_plugin_tests(args, [*marked(args), *chosen, PLUGIN])
        # Words such as -k may choose none of them.
        failed = failed or (0 if chosen and code == NO_TESTS else code)
    return failed
