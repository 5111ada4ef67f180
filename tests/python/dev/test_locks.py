# SPDX-License-Identifier: Apache-2.0
"""Locks of set-up: who waits for whom, says so, and does not wait for itself."""

import contextlib
import shutil
import subprocess
import sys
import time

import pytest

from scripts.console import Console
from scripts.errors import SetupError
from scripts.layout import ROOT
from scripts.setup.clean import clean
from scripts.setup.lock import exclusive, release, share

# Seconds; on a busy machine, some of these are the start of a process.
PATIENCE = 100


def started(body, *words):
    """Start a Python process with the modules of set-up at hand; its streams are pipes."""
    head = (
        "import os, shutil, sys; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\nfrom scripts.console import Console\n"
        "from scripts.setup.lock import exclusive, share\n"
    )
    command = [sys.executable, "-c", head + body, ROOT, *words]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


@contextlib.contextmanager
def locked(lock):
    """Have a process of its own hold a lock file alone; yield the process."""
    holds = "with exclusive(Path(sys.argv[2]), Console()): print(flush=True); sys.stdin.read()"
    process = started(holds, lock)
    process.stdout.readline()
    yield process
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 0


def test_a_second_set_up_waits_for_the_first(tmp_path):
    lock = tmp_path / "build/.lock"
    with locked(lock) as first:
        second = started(
            "with exclusive(Path(sys.argv[2]), Console()): print('inside', flush=True)", lock
        )
        line = second.stderr.readline()
        assert f"waiting for another set-up of this checkout (process {first.pid} [" in line
        time.sleep(0.1)
        assert second.poll() is None
    out, err = second.communicate(timeout=PATIENCE)
    assert (out, second.returncode, err) == ("inside\n", 0, "")


def test_a_process_does_not_wait_for_itself(layout):
    """`./dev.py test` prepares the environment of the plug-in when it is in another one already."""
    layout.venv.mkdir(parents=True)
    process = started(
        "import argparse\n"
        "from scripts.layout import Layout\n"
        "from scripts.setup import environment, steps\n"
        "class New(steps.VirtualEnvironment):\n"
        "    def current(self): return not self.layout.venv.exists()\n"
        "    def run(self): shutil.rmtree(self.layout.venv)\n"
        "options = argparse.Namespace(dry_run=False, no_build=False)\n"
        "layout = Layout(Path(sys.argv[2]))\n"
        "for chain in ([], [New]):\n"
        "    environment.plan = lambda runner, layout, *_: [one(runner, layout) for one in chain]\n"
        "    environment.prepare(options, layout)\n",
        layout.root,
    )
    _, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, "waiting" in err) == (0, False) and not layout.venv.exists()


def test_nothing_is_replaced_while_a_process_runs_in_it(layout):
    """Not even by a set-up that comes after one that was killed."""
    folder = layout.build / "venv"
    folder.mkdir(parents=True)
    (folder / "model").write_text("runs")
    # As ./dev.py exec: what it becomes is what runs in the environment.
    user = started(
        "share(Path(sys.argv[2]), Console())\n"
        "os.execvp('sh', ['sh', '-c', 'echo begins; read line; cat $0', sys.argv[3]])",
        layout.in_use,
        folder / "model",
    )
    assert user.stdout.readline() == "begins\n"

    def set_up():
        process = started(
            "from scripts.layout import Layout\nfrom scripts.runner import Runner\n"
            "from scripts.setup import environment, steps\n"
            "layout = Layout(Path(sys.argv[2]))\n"
            "class New(steps.VirtualEnvironment):\n"
            "    def run(self): shutil.rmtree(self.layout.venv)\n"
            "with exclusive(layout.lock, Console()):\n"
            "    runner = Runner(Console(), layout.logs)\n"
            "    environment.run_steps([New(runner, layout)], runner)\n",
            layout.root,
        )
        while "waiting" not in (line := process.stderr.readline()):
            assert line, "the set-up ended"
        assert f"waiting for what runs in this environment (process {user.pid} [sh -c" in line
        return process

    killed = set_up()
    killed.kill()
    killed.wait()
    waiting = set_up()
    assert (folder / "model").is_file() and waiting.poll() is None
    assert user.communicate("go on\n", timeout=PATIENCE)[0] == "runs"
    assert waiting.wait(PATIENCE) == 0 and not folder.exists()


def test_what_a_killed_set_up_has_started_ends_before_the_next_one(tmp_path):
    """Else two installations write into one environment at once."""
    lock, late = tmp_path / "build/.lock", tmp_path / "late"
    killed = started(
        "from scripts.runner import Runner\n"
        "with exclusive(Path(sys.argv[2]), Console()):\n"
        "    script = f'echo begun; sleep 1; touch {sys.argv[3]}'\n"
        "    Console.note = lambda self, text: print(text, flush=True)\n"
        "    Runner(Console(), Path(sys.argv[2]).parent).run(['sh', '-c', script], 'log')",
        lock,
        late,
    )
    assert killed.stdout.readline() == "begun\n"
    killed.kill()
    killed.communicate()
    second = started(
        "with exclusive(Path(sys.argv[2]), Console()): print(Path(sys.argv[3]).exists())",
        lock,
        late,
    )
    # It names who runs, not who was killed.
    out, err = second.communicate(timeout=PATIENCE)
    assert out == "True\n" and "[sh -c echo begun" in err and str(killed.pid) not in err


def test_a_command_in_an_environment_that_it_would_replace_is_an_error(tmp_path, monkeypatch):
    """`./dev.py exec -- bash`, and in there `./dev.py clean`: one waits for the other."""
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "build/venv"))
    share(tmp_path / "build/.in-use", Console())
    with pytest.raises(SetupError, match="would replace the environment that it was started in"):
        with exclusive(tmp_path / "build/.in-use", Console()):
            pass
    release(tmp_path / "build/.in-use")


def test_who_compiles_does_not_wait_for_a_set_up_that_waits_for_it(layout):
    """A set-up holds its lock while it waits for those who are in an environment."""
    with locked(layout.lock):
        process = started(
            "os.environ.pop('TVM_HOME', None)\n"
            "from scripts.layout import Layout\nfrom scripts.runner import Runner\n"
            "from scripts.test import test\n"
            "layout = Layout(Path(sys.argv[2]))\n"
            "share(layout.in_use, Console())\n"
            "Runner.run, test.CPP_TARGETS = lambda *args, **options: print('compiled'), ()\n"
            "test.run_cpp_tests(Runner(Console(), layout.logs), layout, {})\n",
            layout.root,
        )
        try:
            assert "compiled" in process.communicate(timeout=PATIENCE)[0]
        finally:
            process.kill()


def test_a_kill_while_all_is_removed(layout, monkeypatch):
    """What is left of an environment is not where the next set-up looks for one."""
    (layout.venv / "bin").mkdir(parents=True)
    (layout.venv / ".stamp").write_text("stamp")
    (layout.build / "bench").mkdir()

    def killed(folder):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            clean(layout, Console())
    assert not layout.venv.exists()
    clean(layout, Console())
    assert sorted(layout.build.iterdir()) == sorted([layout.lock, layout.in_use])
