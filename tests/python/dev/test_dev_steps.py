# SPDX-License-Identifier: Apache-2.0
"""Stamps and steps: what is skipped, what is done again, and what an interruption leaves."""

import io
import os
import re
import sys
import time

import pytest

from scripts.console import Console
from scripts.errors import SetupError
from scripts.layout import Layout, PluginLayout
from scripts.runner import Runner
from scripts.setup import environment, steps, tree, wheels
from scripts.setup.native import NativeBuild
from scripts.setup.plugin import InstallPlugin


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


class FakeStep(steps.Step):
    """A step that marks a file, and can be interrupted before it does."""

    def __init__(self, runner, layout, name):
        super().__init__(runner, layout)
        self.path = layout.build / name

    @property
    def title(self):
        return self.path.name

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
    packages = steps.Packages(runner, layout, (*layout.groups, "lint"))
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

    # What is left of it is swept away.
    def unpacked(wheel, folder, patches):
        assert not folder.exists()
        folder.mkdir()

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


def test_half_a_library_is_not_taken_for_a_finished_one(layout, native, monkeypatch):
    """A linker that is killed leaves a file that is newer than the sources."""
    step = steps.CompileLibrary(native.runner, layout)
    step.run()
    assert step.current()
    (layout.root / "src/a.cc").write_text("int b;")
    build = NativeBuild.build

    def killed(self, *targets):
        layout.library.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(NativeBuild, "build", killed)
    with pytest.raises(KeyboardInterrupt):
        step.run()
    monkeypatch.setattr(NativeBuild, "build", build)
    assert not step.current()
    step.run()
    assert step.current() and layout.library.read_bytes()[:4] == b"\x7fELF"


@pytest.mark.parametrize("has_relay", [False, True], ids=["alone", "beside-relay"])
def test_the_core_is_compiled_once_for_both_libraries(layout, has_relay):
    if has_relay:
        layout.library.parent.mkdir(parents=True)
        layout.library.touch()
    plugin = PluginLayout(layout.root)
    runner = Recorder(plugin)
    step = InstallPlugin(runner, plugin)
    plugin.library.parent.mkdir(parents=True)
    plugin.library.touch()
    step.run()
    *of_core, install = runner.commands
    assert [command[-1] for command in of_core if "-C" in command] == ["dnnl_core"] * has_relay
    wanted = f"--config-settings=cmake.define.DNNL_CORE={layout.cmake}/core.cmake"
    assert (wanted in install) == has_relay
    assert install[install.index("-e") + 1] == str(layout.root)
    os.utime(plugin.library, (time.time() + 1,) * 2)
    assert step.current()
    (layout.root / "pyproject.toml").write_text("")
    assert not step.current()
