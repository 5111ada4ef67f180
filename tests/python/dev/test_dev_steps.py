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
"""Stamps and steps: what is skipped, what is done again, and what an interruption leaves."""

import argparse
import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
import time

import pytest

from scripts.console import Console
from scripts.errors import SetupError
from scripts.layout import ROOT, Layout
from scripts.runner import Runner
from scripts.setup import environment, steps, tree, wheels
from scripts.setup.clean import clean
from scripts.setup.lock import exclusive
from scripts.setup.native import NativeBuild
from scripts.setup.stamps import Stamp, digest, is_source


@pytest.fixture
def layout(tmp_path):
    """Return a checkout of its own, with the real requirements and a small overlay."""
    for name in ("requirements", "patches"):
        shutil.copytree(ROOT / name, tmp_path / name)
    (tmp_path / "python/tvm").mkdir(parents=True)
    (tmp_path / "python/tvm/a.py").write_text("ours")
    (tmp_path / "src").mkdir()
    (tmp_path / "src/a.cc").write_text("int a;")
    return Layout(tmp_path)


class Recorder(Runner):
    """A runner that writes down commands, and can fail or be interrupted at one."""

    def __init__(self, layout, fail=None, error=KeyboardInterrupt):
        super().__init__(Console(io.StringIO()), layout.logs)
        self.commands = []
        self.fail = fail
        self.error = error

    def run(self, command, log, explain=None):
        self.commands.append([str(part) for part in command])
        if self.fail and self.fail in self.commands[-1]:
            raise self.error
        if command[1:3] == ["-m", "venv"]:
            layout = Layout(command[3].parent.parent)
            layout.bin.mkdir(parents=True)
            layout.python.symlink_to(sys.executable)
        return ""


def test_digest_follows_values_and_contents(tmp_path):
    source = tmp_path / "a.cc"
    source.write_text("1")
    first = digest("x", source)
    assert digest("x", source) == first
    assert digest("y", source) != first
    source.write_text("2")
    assert digest("x", source) != first
    assert digest("ab", "c") != digest("a", "bc")
    assert digest(tmp_path / "none") != digest(source)


def test_what_programs_leave_is_no_source(tmp_path):
    (tmp_path / "__pycache__").mkdir()
    left = ["__pycache__/a.pyc", "__pycache__/b.py", ".a.py.swp", "a.py~"]
    for name in ("a.py", *left):
        (tmp_path / name).write_bytes(b"x")
    assert is_source(tmp_path / "a.py")
    assert not any(is_source(tmp_path / name) for name in left)


def test_a_stamp_matches_its_key_only(tmp_path):
    stamp = Stamp(tmp_path / "product/.stamp")
    assert not stamp.matches("1")
    stamp.write("1")
    assert stamp.matches("1") and not stamp.matches("2")
    assert [path.name for path in (tmp_path / "product").iterdir()] == [".stamp"]


class FakeStep(steps.Step):
    """A step that marks a file, and can be interrupted before it does."""

    def __init__(self, runner, layout, name):
        super().__init__(runner, layout)
        self.title = name
        self.path = layout.build / name

    def current(self):
        return self.path.exists()

    def run(self):
        self.runner.run([self.title], "log")
        self.path.parent.mkdir(exist_ok=True)
        self.path.write_text("")


def test_an_interrupted_set_up_goes_on_where_it_stopped(layout):
    names = ["one", "two", "three"]
    runner = Recorder(layout, fail="two")
    with pytest.raises(KeyboardInterrupt):
        environment.run_steps([FakeStep(runner, layout, name) for name in names], runner)
    assert runner.commands == [["one"], ["two"]]

    runner = Recorder(layout)
    environment.run_steps([FakeStep(runner, layout, name) for name in names], runner)
    assert runner.commands == [["two"], ["three"]]
    starts = re.findall(r"(.+) \.\.\.", runner.console.stream.getvalue())
    assert starts == ["[1] two", "[2] three"], "only what runs is numbered"

    runner = Recorder(layout)
    environment.run_steps([FakeStep(runner, layout, name) for name in names], runner)
    assert runner.commands == []


def test_an_interrupted_installation_makes_a_new_environment(layout):
    runner = Recorder(layout)
    venv = steps.VirtualEnvironment(runner, layout)
    venv.run()
    assert venv.current()

    with pytest.raises(KeyboardInterrupt):
        steps.Packages(Recorder(layout, fail="install"), layout).run()
    assert not venv.current()
    venv.run()
    packages = steps.Packages(Recorder(layout), layout)
    assert not packages.current()
    packages.run()
    assert venv.current() and packages.current()


def test_only_the_changed_group_is_installed_again(layout):
    runner = Recorder(layout)
    steps.VirtualEnvironment(runner, layout).run()
    steps.Packages(runner, layout).run()
    with (layout.requirements / "test.txt").open("a") as file:
        file.write("another==1.0\n")
    runner = Recorder(layout)
    packages = steps.Packages(runner, layout, (*steps.GROUPS, "lint"))
    assert not packages.current()
    packages.run()
    (command,) = runner.commands
    files = [word.rsplit("/", 1)[1] for word in command if word.endswith(".txt")]
    assert files == ["test.txt", "lint.txt"]
    assert "--no-deps" in command


def test_a_moved_checkout_makes_a_new_environment(layout):
    steps.VirtualEnvironment(Recorder(layout), layout).run()
    moved = layout.root.with_name("moved")
    layout.root.rename(moved)
    assert not steps.VirtualEnvironment(Recorder(layout), Layout(moved)).current()


def test_an_interrupted_unpacking_leaves_no_tree(layout, monkeypatch):
    monkeypatch.setattr(wheels, "fetch", lambda *_: [layout.root / "t.whl"])

    def interrupted(wheel, target, skip=()):
        target.mkdir(parents=True)
        (target / "half").write_text("")
        raise KeyboardInterrupt

    monkeypatch.setattr(wheels, "unpack_tree", interrupted)
    step = steps.PrebuiltTree(Recorder(layout), layout)
    with pytest.raises(KeyboardInterrupt):
        step.run()
    assert not layout.prebuilt.exists() and not step.current()

    def unpacked(wheel, target, patches):
        new = target.with_name("prebuilt.new")
        new.mkdir(exist_ok=True)
        return new

    monkeypatch.setattr(tree, "unpack", unpacked)
    step.run()
    assert step.current() and layout.prebuilt.is_dir()


@pytest.fixture
def native(layout):
    """Return a build of a library of one source, with the real CMake and Ninja."""
    tools = Layout().bin
    if not (tools / "ninja").exists():
        pytest.skip("set-up has not installed CMake and Ninja")
    layout.bin = tools
    (layout.root / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.18)\nproject(small CXX)\n"
        "add_library(tvm_dnnl SHARED src/a.cc)\n"
        "set(there ${CMAKE_BINARY_DIR}/../lib)\n"
        "set_target_properties(tvm_dnnl PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${there})\n"
    )
    return NativeBuild(Runner(Console(open(os.devnull, "w")), layout.logs), layout)


def test_the_library_is_compiled_again_when_it_is_due(layout, native):
    def build():
        native.build("tvm_dnnl")
        return layout.library.stat().st_mtime_ns

    first = build()
    assert build() == first
    (layout.root / "src/a.cc").write_text("int b;")
    second = build()
    assert second > first
    layout.library.unlink()
    assert build() > second


def test_a_failed_compilation_is_not_taken_for_a_finished_one(layout, native):
    native.build("tvm_dnnl")
    (layout.root / "src/a.cc").write_text("int a = ;")
    for _ in range(2):
        with pytest.raises(SetupError) as error:
            native.build("tvm_dnnl")
        assert "a.cc:1:9: error:" in str(error.value)
    (layout.root / "src/a.cc").write_text("int a;")
    native.build("tvm_dnnl")


def test_it_is_configured_once_for_each_set_of_pins(layout):
    def commands(**failure):
        runner = Recorder(layout, **failure)
        try:
            NativeBuild(runner, layout).build("tvm_dnnl")
        except KeyboardInterrupt:
            pass
        return [command[0].rpartition("/")[2] for command in runner.commands]

    assert commands(fail="Ninja") == ["cmake"]
    assert commands() == ["cmake", "ninja"], "an interrupted configuration is not a finished one"
    assert commands() == ["ninja"]
    with (layout.requirements / "wheel-onednn.txt").open("a") as file:
        file.write("another==1.0\n")
    assert commands() == ["cmake", "ninja"]


def test_a_step_that_has_nothing_to_do_is_not_shown(capsys):
    console = Console(sys.stderr)
    with console.step("at once", after=5.0):
        pass
    with pytest.raises(SetupError), console.step("fails", after=5.0):
        raise SetupError("x")
    with console.step("takes long", after=0.01) as step:
        deadline = time.monotonic() + 5
        while not step.shown and time.monotonic() < deadline:
            time.sleep(0.01)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split("  ")[0] for line in lines] == ["fails", "takes long ...", "takes long"]


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
    process.communicate(timeout=20)
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
    out, err = second.communicate(timeout=20)
    assert (out, second.returncode, err) == ("inside\n", 0, "")


def test_what_waits_says_for_how_long(tmp_path):
    lock = tmp_path / "build/.lock"
    with locked(lock):
        second = started(
            "Console.interval = 0.1\nwith exclusive(Path(sys.argv[2]), Console()): pass", lock
        )
        lines = [second.stderr.readline() for _ in range(4)]
    _, err = second.communicate(timeout=20)
    assert lines[0].startswith("waiting for another set-up") and lines[1] == "waiting ...\n"
    for line in lines[2:]:
        assert re.fullmatch(r"waiting +\d+\.\d s\n", line)
    assert re.fullmatch(r"waiting +\d+\.\d s  done", err.splitlines()[-1])


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
    _, err = process.communicate(timeout=20)
    assert (process.returncode, "waiting" in err) == (0, False) and not layout.venv.exists()


def test_nothing_is_replaced_while_a_process_runs_in_it(layout):
    """Not even by a set-up that comes behind one that was killed."""
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
    assert user.communicate("go on\n", timeout=20)[0] == "runs"
    assert waiting.wait(20) == 0 and not folder.exists()


def test_who_shares_says_what_it_waits_for(tmp_path):
    lock = tmp_path / "build/.in-use"
    with locked(lock) as first:
        second = started("share(Path(sys.argv[2]), Console())", lock)
        said = f"waiting for a set-up that replaces this environment (process {first.pid} ["
        assert second.stderr.readline().startswith(said)
    second.communicate(timeout=20)
    assert second.returncode == 0


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
    out, err = second.communicate(timeout=20)
    assert out == "True\n" and "[sh -c echo begun" in err and str(killed.pid) not in err


def test_a_command_in_an_environment_that_it_would_replace_is_an_error(tmp_path):
    """`./dev.py exec -- bash`, and in there `./dev.py clean`: one waits for the other."""
    lock = tmp_path / "build/.in-use"
    outer = started(
        "import subprocess\nshare(Path(sys.argv[2]), Console())\n"
        "inner = 'from scripts.setup.lock import *\\nfrom scripts.console import Console\\n'\n"
        "inner += 'import sys\\nsys.tracebacklimit = 0\\n'\n"
        "inner += 'with exclusive(Path(sys.argv[1]), Console()): pass'\n"
        "subprocess.run([sys.executable, '-c', inner, sys.argv[2]], cwd=sys.argv[3])",
        lock,
        ROOT,
    )
    _, err = outer.communicate(timeout=20)
    assert "this command would replace the environment that it was started in" in err


def test_clean_leaves_the_lock_files(layout):
    """Who waits for one would hold a file that is gone, and somebody else a new one."""
    (layout.build / "venv/bin").mkdir(parents=True)
    (layout.build / ".machine").write_text("stamp")
    clean(layout, Console())
    assert sorted(layout.build.iterdir()) == sorted([layout.lock, layout.in_use])


def test_what_is_up_to_date_takes_no_lock(layout, monkeypatch):
    step = FakeStep(Recorder(layout), layout, "one")
    step.run()
    monkeypatch.setattr(environment, "plan", lambda *_: [step])
    options = argparse.Namespace(dry_run=False, no_build=False)
    with exclusive(layout.lock, Console()):
        environment.prepare(options, layout)


def test_a_library_is_newer_than_its_sources_or_compiled(layout, native):
    library = layout.build / "lib.so"
    Stamp(native.folder / ".configured").write(native._configured()[1])
    assert not native.is_newer(library)
    library.write_text("")
    os.utime(library, (time.time() + 1,) * 2)
    assert native.is_newer(library)
    os.utime(library, (time.time() - 1,) * 2)
    assert not native.is_newer(library)
    (layout.root / "src/b.cc").write_text("")
    os.utime(library, (time.time() + 1,) * 2)
    assert native.is_newer(library)
    (layout.root / "src/b.cc").unlink()
    os.utime(layout.root / "src", (time.time() + 2,) * 2)
    assert not native.is_newer(library), "a source is gone"
